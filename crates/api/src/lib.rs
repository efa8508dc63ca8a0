//! Kubernetes API types that muster shares with Open Cluster Management (OCM).
//!
//! | Module | API group and version | Kinds |
//! |---|---|---|
//! | [`work`] | `work.open-cluster-management.io/v1` | ManifestWork, AppliedManifestWork |
//! | [`replicaset`] | `work.open-cluster-management.io/v1alpha1` | ManifestWorkReplicaSet |
//! | [`rollout`] | embedded in ManifestWorkReplicaSet | rollout strategies |
//! | [`placement`] | `cluster.open-cluster-management.io/v1beta1` | Placement, PlacementDecision |
//! | [`cluster`] | `cluster.open-cluster-management.io/v1` | ManagedCluster |
//! | [`rules`] | `rules.muster.dev/v1alpha1` | WatchRule, ClusterWatchRule: muster's own |
//!
//! Beside the kinds: [`constants`] (every fixed name), [`conditions`] (reading condition lists) and
//! [`crds`] (the CustomResourceDefinitions). Nothing here does input or output.
//!
//! # How the types meet Go
//!
//! Field names and meanings are OCM's. These rules keep objects whole that Go wrote:
//!
//! - A field that Go writes even when it is empty (no `omitempty`) is written always, too. Lists
//!   are written as `[]` where Go writes `null` for a nil slice; both are read.
//! - An optional struct that Go cannot leave out (`omitempty` has no effect on Go structs) is an
//!   `Option`, so that `{}` and absence both survive. `workload`, `resourceStatus`,
//!   `statusFeedback` and `rolloutStrategy` are plain and always written, as Go does.
//! - A field with a default in the CRD has that default here, and is always written, so that an
//!   object compares equal before and after the API server filled the default in.
//!
//! - OCM's CRDs admit objects without `spec`, save for Placement. The other kinds therefore decode with serde's container
//!   default. kube's derive refuses serde attributes on the type it makes and lets a conditional
//!   one through, hence `attr = "cfg_attr(all(), serde(default))"`.
//!
//! # Enumerations
//!
//! An enumeration keeps a value that it does not know in its `Unrecognized` variant, and writes it
//! back as it was. A newer API server may know more values than this build; one such object must
//! not break the decoding of the whole list it came in. Where the value matters, `Unrecognized` is
//! an error of that one object, found by whoever acts on it. The CRD schema lists the known values
//! only.

#![allow(
    clippy::doc_markdown,
    reason = "field docs become CRD descriptions, where OCM's names carry no backticks"
)]

#[macro_use]
mod string_enum;

pub mod cluster;
pub mod conditions;
pub mod constants;
pub mod crds;
pub mod placement;
pub mod replicaset;
pub mod rollout;
pub mod rules;
mod schema;
pub mod work;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};

/// Reads JSON `null` as the type's default.
///
/// Go encodes a nil slice without `omitempty` as `null`. API servers drop such nulls, event
/// payloads carry them.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    let value = <Option<T> as serde::Deserialize>::deserialize(deserializer)?;
    Ok(value.unwrap_or_default())
}
