//! Who an applied object belongs to: owner references, orphaning, and what to do with objects
//! that left a work.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use muster_api::constants::WORK_GROUP_NAME;
use muster_api::work::{AppliedManifestResourceMeta, DeleteOption, DeletePropagationPolicyType};
use serde_json::{Map, Value};

const OWNER_API_VERSION: &str = "work.open-cluster-management.io/v1";
const OWNER_KIND: &str = "AppliedManifestWork";

/// The `AppliedManifestWork` of a work, as the owner of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the `AppliedManifestWork`.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What is to become of the owner reference of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerChange {
    /// The object goes when the work goes.
    Own(Owner),
    /// The object stays when the work goes; a reference from earlier is removed.
    Disown(Owner),
}

impl OwnerChange {
    /// The change for an object that the work owns or not; see [`owned_by_the_work`].
    pub fn new(owner: Owner, owns: bool) -> Self {
        if owns {
            Self::Own(owner)
        } else {
            Self::Disown(owner)
        }
    }

    /// The reference as the reference implementation writes it into a patch: to disown, the uid
    /// ends in `-`.
    pub fn reference(&self) -> OwnerReference {
        match self {
            Self::Own(owner) => owner.reference(),
            Self::Disown(owner) => {
                let reference = owner.reference();
                OwnerReference {
                    uid: format!("{}-", reference.uid),
                    ..reference
                }
            }
        }
    }

    /// The references of an object after the change; `None` if it changes nothing.
    ///
    /// A reference is the same one if kind, API group and name are: after the
    /// `AppliedManifestWork` was made anew its uid differs, and the old reference is replaced.
    pub fn merge(&self, references: &[OwnerReference]) -> Option<Vec<OwnerReference>> {
        let (Self::Own(owner) | Self::Disown(owner)) = self;
        let wanted = owner.reference();
        let position = references.iter().position(|known| {
            known.kind == wanted.kind
                && known.name == wanted.name
                && group(&known.api_version) == WORK_GROUP_NAME
        });
        let mut merged = references.to_vec();
        match (self, position) {
            (Self::Own(_), Some(at)) if merged[at] == wanted => return None,
            (Self::Own(_), Some(at)) => merged[at] = wanted,
            (Self::Own(_), None) => merged.push(wanted),
            (Self::Disown(_), Some(at)) => {
                merged.remove(at);
            }
            (Self::Disown(_), None) => return None,
        }
        Some(merged)
    }
}

impl Owner {
    /// The reference that makes it an owner. Neither controller nor blocking: several works may
    /// own one object.
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: OWNER_API_VERSION.into(),
            kind: OWNER_KIND.into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        }
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Identity of an object on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Resource, in the plural.
    pub resource: &'a str,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

impl<'a> From<&'a AppliedManifestResourceMeta> for ObjectId<'a> {
    fn from(meta: &'a AppliedManifestResourceMeta) -> Self {
        let AppliedManifestResourceMeta {
            group,
            resource,
            namespace,
            name,
            ..
        } = meta;
        Self {
            group,
            resource,
            namespace,
            name,
        }
    }
}

/// The objects that stay when their work goes (`ocm`: `pkg/work/helper.OwnedByTheWork`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Orphans<'a> {
    /// All of them.
    All,
    /// These.
    Only(HashSet<ObjectId<'a>>),
}

impl<'a> Orphans<'a> {
    /// What a work says. Orphaning rules know no wildcards. A policy that this version does not know
    /// owns, as no policy does.
    pub fn of(option: Option<&'a DeleteOption>) -> Self {
        let rules = match option {
            None => return Self::Only(HashSet::new()),
            Some(option) => match option.propagation_policy {
                DeletePropagationPolicyType::Orphan => return Self::All,
                DeletePropagationPolicyType::SelectivelyOrphan => &option.selectively_orphans,
                DeletePropagationPolicyType::Foreground
                | DeletePropagationPolicyType::Unrecognized(_) => &None,
            },
        };
        let rules = rules.iter().flat_map(|some| &some.orphaning_rules);
        let objects = rules.map(|rule| ObjectId {
            group: &rule.group,
            resource: &rule.resource,
            namespace: &rule.namespace,
            name: &rule.name,
        });
        Self::Only(objects.collect())
    }

    /// Whether an object stays.
    pub fn contains(&self, object: ObjectId<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Only(objects) => objects.contains(&object),
        }
    }
}

/// Whether an object goes when its work goes.
pub fn owned_by_the_work(option: Option<&DeleteOption>, object: ObjectId<'_>) -> bool {
    !Orphans::of(option).contains(object)
}

/// The recorded objects that are no longer part of the work. Version and uid do not count: the
/// same object may be served in another version or have been made anew.
pub fn untracked(
    recorded: &[AppliedManifestResourceMeta],
    current: &[AppliedManifestResourceMeta],
) -> Vec<AppliedManifestResourceMeta> {
    let current: HashSet<ObjectId<'_>> = current.iter().map(ObjectId::from).collect();
    recorded
        .iter()
        .filter(|known| !current.contains(&ObjectId::from(*known)))
        .cloned()
        .collect()
}

/// What to do with an object that is no longer part of a work.
#[derive(Debug, Clone, PartialEq)]
pub enum Removal {
    /// It is gone, or no longer ours: drop it from the record.
    Forget,
    /// Another work owns it, too: write these owner references, then drop it from the record.
    Disown(Vec<OwnerReference>),
    /// It is being deleted already: look again.
    Wait,
    /// Delete it, if it still has this uid.
    Delete {
        /// The uid to delete.
        uid: String,
    },
}

/// Decides what becomes of a recorded object (`ocm`: `pkg/work/helper.DeleteAppliedResources`).
/// `live` is what the cluster has under its name.
pub fn plan_removal(
    recorded: &AppliedManifestResourceMeta,
    live: Option<&Value>,
    owner: &Owner,
) -> Removal {
    let Some(metadata) = live.and_then(|live| live.get("metadata")?.as_object()) else {
        return Removal::Forget;
    };
    let references = references(metadata);
    if !references
        .iter()
        .any(|reference| reference.uid == owner.uid)
    {
        return Removal::Forget;
    }
    let is_other_work = |reference: &OwnerReference| {
        reference.uid != owner.uid
            && reference.kind == OWNER_KIND
            && group(&reference.api_version) == WORK_GROUP_NAME
    };
    if references.iter().any(is_other_work) {
        let others = references
            .into_iter()
            .filter(|reference| reference.uid != owner.uid);
        return Removal::Disown(others.collect());
    }
    let uid = metadata
        .get("uid")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if uid != recorded.uid {
        return Removal::Forget;
    }
    if metadata
        .get("deletionTimestamp")
        .is_some_and(|time| !time.is_null())
    {
        return Removal::Wait;
    }
    Removal::Delete { uid: uid.into() }
}

/// The owner references in the metadata of an object. Entries that are none are left out.
pub(crate) fn references(metadata: &Map<String, Value>) -> Vec<OwnerReference> {
    let list = metadata.get("ownerReferences").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|entry| serde_json::from_value(entry.clone()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use serde_json::json;

    use super::*;

    fn owner(name: &str, uid: &str) -> Owner {
        Owner {
            name: name.into(),
            uid: uid.into(),
        }
    }

    fn recorded() -> AppliedManifestResourceMeta {
        AppliedManifestResourceMeta {
            uid: "u".into(),
            name: "a".into(),
            ..Default::default()
        }
    }

    fn live(references: &[OwnerReference], extra: &Value) -> Value {
        let mut metadata = json!({"name": "a", "uid": "u", "ownerReferences": references});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        json!({ "metadata": metadata })
    }

    #[test]
    fn references_are_added_replaced_and_removed_once() {
        let mine = owner("hash-w", "1");
        let other = owner("hash-x", "2").reference();
        let own = OwnerChange::new(mine.clone(), true);
        let disown = OwnerChange::new(mine.clone(), false);

        let both = vec![other.clone(), mine.reference()];
        assert_eq!(own.merge(from_ref(&other)), Some(both.clone()));
        assert_eq!(own.merge(&both), None);
        assert_eq!(disown.merge(&both), Some(vec![other.clone()]));
        assert_eq!(disown.merge(from_ref(&other)), None);

        let remade = OwnerChange::Own(owner("hash-w", "9"));
        assert_eq!(
            remade.merge(&both),
            Some(vec![other.clone(), owner("hash-w", "9").reference()])
        );
        let foreign = OwnerReference {
            api_version: "example.org/v1".into(),
            ..mine.reference()
        };
        assert_eq!(
            own.merge(from_ref(&foreign)),
            Some(vec![foreign, mine.reference()])
        );
    }

    #[test]
    fn an_object_is_deleted_only_if_it_is_ours_alone() {
        let mine = owner("hash-w", "1");
        let plan = |live: Option<&Value>| plan_removal(&recorded(), live, &mine);
        let own = mine.reference();
        let other_work = owner("hash-x", "2").reference();
        let deployment = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "d".into(),
            uid: "3".into(),
            ..OwnerReference::default()
        };

        assert_eq!(plan(None), Removal::Forget);
        assert_eq!(plan(Some(&live(&[], &json!({})))), Removal::Forget);
        assert_eq!(
            plan(Some(&live(from_ref(&other_work), &json!({})))),
            Removal::Forget
        );
        assert_eq!(
            plan(Some(&live(&[own.clone(), other_work.clone()], &json!({})))),
            Removal::Disown(vec![other_work])
        );
        assert_eq!(
            plan(Some(&live(from_ref(&own), &json!({"uid": "v"})))),
            Removal::Forget
        );
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(plan(Some(&live(from_ref(&own), &deleting))), Removal::Wait);
        assert_eq!(
            plan(Some(&live(&[own, deployment], &json!({})))),
            Removal::Delete { uid: "u".into() },
            "owners of other kinds do not count"
        );
    }
}
