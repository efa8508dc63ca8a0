//! Tells Events of works, from what their watches see.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::core::Resource;
use muster_api::work::ManifestWork;
use muster_core::events::{WorkTold, of_work};

use crate::events::{Recorder, reference};

/// Works whose last state is remembered, some 20 bytes each. With more it begins anew, and a change of
/// each is not told.
const REMEMBERED: usize = 200_000;

/// What was told of each work, by the hash of its uid.
#[derive(Debug, Default)]
pub(super) struct WorkEvents {
    recorder: Option<Recorder>,
    told: HashMap<u64, WorkTold>,
    hasher: RandomState,
}

impl WorkEvents {
    pub(super) fn new(recorder: Option<Recorder>) -> Self {
        Self {
            recorder,
            ..Self::default()
        }
    }

    /// Looks at a work; what has become of it since the last look is told.
    pub(super) fn look(&mut self, metadata: &ObjectMeta, conditions: &[Condition]) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let work = self.hasher.hash_one(&metadata.uid);
        let (told, happening) = of_work(self.told.get(&work).copied(), metadata, conditions);
        if told.is_last() {
            self.told.remove(&work);
        } else {
            if self.told.len() >= REMEMBERED {
                self.told.clear();
            }
            self.told.insert(work, told);
        }
        if let Some(happening) = happening {
            let (version, kind) = (ManifestWork::api_version(&()), ManifestWork::kind(&()));
            recorder.tell(reference(&version, &kind, metadata), happening);
        }
    }
}
