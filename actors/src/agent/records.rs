//! What is known of the records on the cluster without asking for them.
//!
//! The agent watches its AppliedManifestWorks, and its works remember what they last wrote there.
//! While the one agrees with the other a pass need not read the record, which for an idle work
//! with one object is half of its requests.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_api::work::{AppliedManifestResourceMeta, AppliedManifestWork};
use muster_core::ownership::Owner;
use tokio::time::Instant;

use super::applied_work;

/// How long a record is believed to be what the watch says, should the watch be dead and nobody
/// have noticed.
const BELIEVED_FOR: Duration = Duration::from_secs(600);

/// Versions of the records, by name, as the watch has seen them.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<Arc<str>, u64>>);

impl Records {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seen(&self, name: &Arc<str>, version: u64) {
        self.lock().insert(Arc::clone(name), version);
    }

    pub(super) fn gone(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Nobody watches any more.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn version(&self, name: &str) -> Option<u64> {
        self.lock().get(name).copied()
    }
}

/// The resource version as a number; they compare as numbers within one type.
pub(super) fn version_of(record: &AppliedManifestWork) -> u64 {
    let version = record.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// What a work remembers of its record.
#[derive(Debug, Clone)]
pub(super) struct KnownRecord {
    pub(super) owner: Owner,
    pub(super) version: u64,
    /// The labels of the work that the record has.
    labels: Arc<BTreeMap<String, String>>,
    resources: u64,
    until: Instant,
}

impl KnownRecord {
    /// A record that is as it should be.
    pub(super) fn new(
        record: &AppliedManifestWork,
        labels: &Arc<BTreeMap<String, String>>,
    ) -> Self {
        Self {
            owner: applied_work::owner(record),
            version: version_of(record),
            labels: Arc::clone(labels),
            resources: hash_of(applied_work::recorded(record)),
            until: Instant::now() + BELIEVED_FOR,
        }
    }

    /// Whether the record is still as it was.
    pub(super) fn holds(&self, records: &Records, labels: &BTreeMap<String, String>) -> bool {
        records.version(&self.owner.name) == Some(self.version)
            && self.version > 0
            && *self.labels == *labels
            && self.until > Instant::now()
    }

    /// Whether it lists just these objects, given sorted.
    pub(super) fn lists(&self, resources: &[AppliedManifestResourceMeta]) -> bool {
        self.resources == hash_of(resources)
    }
}

fn hash_of(resources: &[AppliedManifestResourceMeta]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for resource in resources {
        let AppliedManifestResourceMeta {
            group,
            version,
            resource,
            namespace,
            name,
            uid,
        } = resource;
        (group, version, resource, namespace, name, uid).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use muster_api::work::{AppliedManifestWorkSpec, AppliedManifestWorkStatus};

    use super::*;

    fn object(name: &str) -> AppliedManifestResourceMeta {
        AppliedManifestResourceMeta {
            version: "v1".to_owned(),
            resource: "configmaps".to_owned(),
            namespace: "ns1".to_owned(),
            name: name.to_owned(),
            ..AppliedManifestResourceMeta::default()
        }
    }

    fn record(version: &str) -> AppliedManifestWork {
        let mut record = AppliedManifestWork::new("h-w", AppliedManifestWorkSpec::default());
        record.metadata.resource_version = Some(version.to_owned());
        record.status = Some(AppliedManifestWorkStatus {
            applied_resources: vec![object("a")],
            ..AppliedManifestWorkStatus::default()
        });
        record
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_read_again_when_anything_speaks_for_it() {
        let records = Records::default();
        let labels = Arc::new(BTreeMap::new());
        let known = KnownRecord::new(&record("7"), &labels);
        assert!(!known.holds(&records, &labels), "nobody watches");
        records.seen(&"h-w".into(), 7);
        assert!(known.holds(&records, &labels));
        let other = [("a".to_owned(), "b".to_owned())].into();
        assert!(!known.holds(&records, &other), "the work has new labels");
        records.seen(&"h-w".into(), 8);
        assert!(!known.holds(&records, &labels), "somebody changed it");
        records.seen(&"h-w".into(), 7);
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(!known.holds(&records, &labels), "long ago");
        let known = KnownRecord::new(&record("7"), &labels);
        records.gone("h-w");
        assert!(!known.holds(&records, &labels), "gone");
        let odd = KnownRecord::new(&record("x"), &labels);
        records.seen(&"h-w".into(), 0);
        assert!(!odd.holds(&records, &labels), "no version to compare");
    }

    #[tokio::test]
    async fn the_list_of_objects_is_known_by_its_hash() {
        let known = KnownRecord::new(&record("7"), &Arc::default());
        assert!(known.lists(&[object("a")]));
        assert!(!known.lists(&[object("b")]));
        assert!(!known.lists(&[object("a"), object("b")]));
        assert!(!known.lists(&[]));
    }
}
