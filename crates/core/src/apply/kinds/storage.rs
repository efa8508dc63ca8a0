//! StorageClass and CSIDriver: most of them cannot be changed, so they are made anew.

use serde_json::json;

use super::defaults::{fill, object};
use super::spec_hash::{self, Spec};
use super::{
    Object, Rule, entries, has_what_is_asked_for, metadata_text, owned_fields_are_same,
    rest_is_equal, same,
};
use crate::apply::ApplyError;

/// Which class is the default is decided on the cluster, once somebody there has.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const REMOVE_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class-";

/// Fields of a StorageClass that the server never changes.
const FIXED: [&str; 4] = [
    "provisioner",
    "parameters",
    "reclaimPolicy",
    "volumeBindingMode",
];

#[derive(Debug)]
pub(super) struct StorageClass;

impl Rule for StorageClass {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        if let Some(decided) = metadata_text(live, "annotations", DEFAULT_CLASS)
            && let Some(metadata) = entries(wanted, "metadata")
            && let Some(annotations) = entries(metadata, "annotations")
        {
            annotations.remove(REMOVE_DEFAULT_CLASS);
            annotations.insert(DEFAULT_CLASS.into(), decided.into());
        }
    }

    fn owned(&self) -> &'static [&'static str] {
        &[
            "provisioner",
            "parameters",
            "reclaimPolicy",
            "volumeBindingMode",
            "allowVolumeExpansion",
            "mountOptions",
            "allowedTopologies",
        ]
    }

    fn fill_defaults(&self, class: &mut Object) {
        fill(class, "reclaimPolicy", "Delete");
        fill(class, "volumeBindingMode", "Immediate");
    }

    fn must_recreate(&self, live: &Object, wanted: &Object) -> bool {
        let (mut live, mut wanted) = (live.clone(), wanted.clone());
        self.fill_defaults(&mut live);
        self.fill_defaults(&mut wanted);
        !FIXED
            .iter()
            .all(|field| same(field, live.get(*field), wanted.get(*field)))
    }
}

/// The hash in the annotation says which manifest made the driver; what it says is checked all the
/// same.
///
/// Differs from upstream: a driver whose annotation is missing or differs, but whose spec does not,
/// gets the annotation. Upstream makes it anew, and does not repair a spec whose annotation is
/// right.
#[derive(Debug)]
pub(super) struct CsiDriver;

impl Rule for CsiDriver {
    fn prepare(&self, manifest: &mut Object) -> Result<(), ApplyError> {
        spec_hash::annotate(manifest, Spec::CsiDriver);
        Ok(())
    }

    fn owned(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn fill_defaults(&self, driver: &mut Object) {
        let Some(spec) = object(driver, "spec") else {
            return;
        };
        fill(spec, "attachRequired", true);
        fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        fill(spec, "volumeLifecycleModes", json!(["Persistent"]));
        for off in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            fill(spec, off, false);
        }
    }

    /// Without a hash, a driver that has what is asked for is left alone.
    fn is_applied(&self, live: &Object, wanted: &Object, known: Option<bool>) -> bool {
        let recorded = spec_hash::is_recorded(live, wanted);
        recorded.or(known).unwrap_or(true)
    }

    /// An unknown default of a newer server must not cost a driver: having what is asked for is
    /// enough if this manifest made it.
    fn is_current(&self, live: &Object, wanted: &Object, applied: bool) -> bool {
        if applied {
            has_what_is_asked_for(live, wanted, &[])
        } else {
            owned_fields_are_same(self, live, wanted) && rest_is_equal(live, wanted, self.owned())
        }
    }

    fn must_recreate(&self, _live: &Object, _wanted: &Object) -> bool {
        true
    }
}
