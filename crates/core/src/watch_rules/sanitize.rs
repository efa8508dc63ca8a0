//! Objects as their authors want them, without what the server and controllers set.
//!
//! What is known to be set by others goes; everything else stays, at any level and in any kind. The
//! other way round, with a list of what to keep, kinds that have their content elsewhere than in
//! `spec` would lose it: StorageClass, RuntimeClass, custom resources.
//!
//! | Goes | Of |
//! |---|---|
//! | `status` | every kind |
//! | uid, versions, times, managed fields, owners, finalizers in `metadata` | every kind |
//! | annotations and labels of kubectl, controllers, Flux, Argo CD, kro, kcp | every kind |
//! | addresses, nodes and volumes that were assigned, defaults that the server filled in | the kind of that name in that group only |
//!
//! `metadata.generateName` stays: only an author writes it. Finalizers go, though an author may
//! write some: as a rule controllers do, and an object that is made anew from its record with a
//! finalizer whose controller is not there can never be deleted.
//!
//! A field that the server fills in where the author left it open goes only with the value that
//! the server chooses. So a headless Service keeps `clusterIP: None`, and one that asks for both IP
//! families keeps them; an address that the author chose by hand cannot be told from one that was
//! assigned, and goes.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::apply::{strip_empty, value_hash};
use crate::manifest::Gvk;

/// Fields of `metadata` that the server or controllers set.
const METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Annotations that tools and controllers keep for themselves: a prefix where there is a slash at
/// the end, else a whole key.
const ANNOTATIONS: [&str; 9] = [
    "applyset.kubernetes.io/",
    "argocd.argoproj.io/installation-id",
    "argocd.argoproj.io/tracking-id",
    "autoscaling.alpha.kubernetes.io/",
    "control-plane.alpha.kubernetes.io/",
    "deployment.kubernetes.io/",
    "kcp.io/cluster",
    "kubectl.kubernetes.io/",
    "kustomize.toolkit.fluxcd.io/",
];

/// Labels of that sort.
const LABELS: [&str; 3] = [
    "applyset.kubernetes.io/",
    "kro.run/",
    "kustomize.toolkit.fluxcd.io/",
];

/// Policies of a Service that wants addresses of both IP families, in its own order.
const DUAL_STACK: [&str; 2] = ["PreferDualStack", "RequireDualStack"];

/// When a field is the server's.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Whatever it holds.
    Always,
    /// It holds this: what the server chooses where the author left the field open.
    Is(&'static str),
    /// It holds anything but this.
    IsNot(&'static str),
    /// This field beside it does not hold one of these.
    Beside(&'static str, [&'static str; 2]),
}

/// Fields that the server and controllers set in objects of one kind in one group.
fn server_set(gvk: Gvk<'_>) -> &'static [(&'static [&'static str], When)] {
    use When::{Always, Beside, Is, IsNot};
    match (gvk.group, gvk.kind) {
        ("", "Namespace") => &[
            (
                &["metadata", "labels", "kubernetes.io/metadata.name"],
                Always,
            ),
            (&["spec", "finalizers"], Always),
        ],
        ("", "PersistentVolume") => &[
            (&["spec", "claimRef", "resourceVersion"], Always),
            (&["spec", "claimRef", "uid"], Always),
        ],
        ("", "PersistentVolumeClaim") => &[
            (
                &["metadata", "annotations", "pv.kubernetes.io/bind-completed"],
                Always,
            ),
            (
                &[
                    "metadata",
                    "annotations",
                    "pv.kubernetes.io/bound-by-controller",
                ],
                Always,
            ),
            (
                &[
                    "metadata",
                    "annotations",
                    "volume.beta.kubernetes.io/storage-provisioner",
                ],
                Always,
            ),
            (
                &[
                    "metadata",
                    "annotations",
                    "volume.kubernetes.io/selected-node",
                ],
                Always,
            ),
            (
                &[
                    "metadata",
                    "annotations",
                    "volume.kubernetes.io/storage-provisioner",
                ],
                Always,
            ),
            (&["spec", "volumeMode"], Is("Filesystem")),
            (&["spec", "volumeName"], Always),
        ],
        ("", "Pod") => &[(&["spec", "nodeName"], Always)],
        ("", "Service") => &[
            (&["spec", "clusterIP"], IsNot("None")),
            (&["spec", "clusterIPs"], Always),
            (&["spec", "healthCheckNodePort"], Always),
            (&["spec", "internalTrafficPolicy"], Is("Cluster")),
            (
                &["spec", "ipFamilies"],
                Beside("ipFamilyPolicy", DUAL_STACK),
            ),
            (&["spec", "ipFamilyPolicy"], Is("SingleStack")),
        ],
        _ => &[],
    }
}

/// The object as its author wants it. `gvk` is the type that it was asked for as: the server leaves
/// type and version out of the items of a list, and the result has them in any case.
///
/// What is no object stays as it is.
pub fn sanitize(object: &Value, gvk: Gvk<'_>) -> Value {
    let Value::Object(fields) = object else {
        return object.clone();
    };
    // Field by field, so that neither the status nor the managed fields are even copied.
    let mut clean: Map<String, Value> = fields
        .iter()
        .filter(|(field, _)| !matches!(field.as_str(), "status" | "metadata"))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    if let Some(metadata) = fields.get("metadata") {
        clean.insert("metadata".to_owned(), clean_metadata(metadata));
    }
    for (path, when) in server_set(gvk) {
        remove(&mut clean, path, *when);
    }
    let api_version = if gvk.group.is_empty() {
        gvk.version.to_owned()
    } else {
        format!("{}/{}", gvk.group, gvk.version)
    };
    clean.insert("apiVersion".to_owned(), api_version.into());
    clean.insert("kind".to_owned(), gvk.kind.into());
    let mut clean = Value::Object(clean);
    // Go writes them into templates of pods and claims.
    strip_empty(&mut clean);
    clean
}

fn clean_metadata(metadata: &Value) -> Value {
    let Value::Object(fields) = metadata else {
        return metadata.clone();
    };
    let mut clean = Map::new();
    for (field, value) in fields {
        let value = match field.as_str() {
            field if METADATA.contains(&field) => continue,
            "annotations" => without(value, &ANNOTATIONS),
            "labels" => without(value, &LABELS),
            _ => value.clone(),
        };
        let may_be_absent = matches!(field.as_str(), "annotations" | "labels");
        if may_be_absent && is_nothing(&value) {
            continue;
        }
        clean.insert(field.clone(), value);
    }
    Value::Object(clean)
}

/// A map without the keys that are on a list of keys and prefixes.
fn without(map: &Value, list: &[&str]) -> Value {
    let Value::Object(entries) = map else {
        return map.clone();
    };
    let is_listed = |key: &str| {
        list.iter().any(|one| match one.strip_suffix('/') {
            Some(prefix) => key
                .split_once('/')
                .is_some_and(|(before, _)| before == prefix),
            None => key == *one,
        })
    };
    entries
        .iter()
        .filter(|(key, _)| !is_listed(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Removes the field at a path, and what is empty above it for that reason.
fn remove(fields: &mut Map<String, Value>, path: &[&str], when: When) {
    match path {
        [] => {}
        [field] => {
            let Some(value) = fields.get(*field) else {
                return;
            };
            let servers = match when {
                When::Always => true,
                When::Is(theirs) => value == theirs,
                When::IsNot(theirs) => value != theirs,
                When::Beside(other, theirs) => {
                    let other = fields.get(other).and_then(Value::as_str);
                    !other.is_some_and(|other| theirs.contains(&other))
                }
            };
            if servers {
                fields.remove(*field);
            }
        }
        [field, rest @ ..] => {
            if let Some(Value::Object(inner)) = fields.get_mut(*field) {
                let before = inner.len();
                remove(inner, rest, when);
                if inner.is_empty() && before > 0 {
                    fields.remove(*field);
                }
            }
        }
    }
}

/// A hash that two sanitised objects share exactly if they are equal; the order of keys means
/// nothing. An update that leaves it as it was has changed nothing that an author wants.
pub fn content_hash(object: &Value) -> [u8; 32] {
    value_hash(object)
}

/// An object to be written for people: `apiVersion`, `kind`, `metadata` with name and namespace
/// first, then the other fields by name, at every level.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<'a>(pub &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(fields) = self.0 else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (field, value) in first(fields, &["apiVersion", "kind", "metadata"]) {
            if field == "metadata" {
                map.serialize_entry(field, &Metadata(value))?;
            } else {
                map.serialize_entry(field, value)?;
            }
        }
        map.end()
    }
}

struct Metadata<'a>(&'a Value);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(fields) = self.0 else {
            return self.0.serialize(serializer);
        };
        let order = ["name", "generateName", "namespace", "labels", "annotations"];
        serializer.collect_map(first(fields, &order))
    }
}

/// The entries of a map, these first, and the others sorted as serde_json keeps them.
fn first<'a>(
    fields: &'a Map<String, Value>,
    order: &'a [&'a str],
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let known = order
        .iter()
        .filter_map(|field| fields.get_key_value(*field));
    let others = fields
        .iter()
        .filter(|(field, _)| !order.contains(&field.as_str()));
    known.chain(others)
}
