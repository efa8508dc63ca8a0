//! Which objects the works of the hub have and do not own yet.
//!
//! A record that no work stands for, such as one of the hub that the agent had before, may list objects
//! that works of this hub have, too. As long as such a work has not put its own owner on an object,
//! removing the record would delete it, only to have it made anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_api::work::{AppliedManifestResourceMeta, ManifestResourceMeta};

use super::spoke::Target;

/// What is known of one work.
#[derive(Debug)]
enum Claim {
    /// It has not been looked at in this state.
    Unknown,
    /// It has, and these objects could not be applied.
    Unsettled(Vec<ManifestResourceMeta>),
}

/// The works of one cluster.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashMap<Arc<str>, Claim>>);

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A work is to be looked at.
    pub(super) fn expect(&self, work: &Arc<str>) {
        self.lock().insert(Arc::clone(work), Claim::Unknown);
    }

    /// A work has been looked at; these objects of it could not be applied.
    pub(super) fn settle(&self, work: &Arc<str>, unsettled: Vec<ManifestResourceMeta>) {
        self.lock()
            .insert(Arc::clone(work), Claim::Unsettled(unsettled));
    }

    /// A work is gone.
    pub(super) fn forget(&self, work: &str) {
        self.lock().remove(work);
    }

    /// What keeps a record with these objects, for people; `None` if nothing does.
    pub(super) fn hold(&self, objects: &[AppliedManifestResourceMeta]) -> Option<String> {
        if objects.is_empty() {
            return None;
        }
        self.lock().iter().find_map(|(work, claim)| match claim {
            Claim::Unknown => Some(format!("work {work}, which has not been applied yet")),
            Claim::Unsettled(unsettled) => {
                let wanted = |object: &&AppliedManifestResourceMeta| {
                    unsettled.iter().any(|meta| is(meta, object))
                };
                objects.iter().find(wanted).map(|object| {
                    let object = Target::from(object);
                    format!("work {work}, which has {object} and could not apply it yet")
                })
            }
        })
    }
}

/// Whether a manifest is for a recorded object. Of a kind that could not be found neither resource
/// nor scope are known.
fn is(meta: &ManifestResourceMeta, object: &AppliedManifestResourceMeta) -> bool {
    let found = !meta.resource.is_empty();
    meta.group == object.group
        && meta.name == object.name
        && (!found || meta.resource == object.resource && meta.namespace == object.namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(resource: &str, name: &str) -> ManifestResourceMeta {
        ManifestResourceMeta {
            kind: "ConfigMap".to_owned(),
            resource: resource.to_owned(),
            namespace: "ns1".to_owned(),
            name: name.to_owned(),
            ..ManifestResourceMeta::default()
        }
    }

    fn object(name: &str) -> AppliedManifestResourceMeta {
        AppliedManifestResourceMeta {
            resource: "configmaps".to_owned(),
            namespace: "ns1".to_owned(),
            name: name.to_owned(),
            ..AppliedManifestResourceMeta::default()
        }
    }

    #[test]
    fn a_record_is_held_by_works_that_may_have_its_objects() {
        let claims = Claims::default();
        let objects = [object("a"), object("b")];
        let hold = || claims.hold(&objects);
        assert_eq!(hold(), None);
        let work = "w".into();
        claims.expect(&work);
        assert_eq!(hold().unwrap(), "work w, which has not been applied yet");
        assert_eq!(claims.hold(&[]), None, "nothing to lose");
        claims.settle(
            &work,
            vec![meta("configmaps", "c"), meta("configmaps", "b")],
        );
        assert_eq!(
            hold().unwrap(),
            "work w, which has configmaps ns1/b and could not apply it yet"
        );
        claims.settle(&work, vec![meta("", "a")]);
        assert!(hold().is_some(), "the kind is not known");
        claims.settle(&work, vec![meta("secrets", "a")]);
        assert_eq!(hold(), None);
        claims.expect(&work);
        claims.forget("w");
        assert_eq!(hold(), None);
    }
}
