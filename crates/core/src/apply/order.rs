//! The order in which the manifests of a work are applied.

use crate::manifest::{ManifestError, ParsedManifest};

/// Rank of a kind that is not listed.
const OTHER_RANK: u32 = 1000;

/// Rank of a manifest that could not be parsed.
const UNPARSED_RANK: u32 = 1001;

/// Kinds in the order that lets what is needed come first (`ocm`:
/// `pkg/work/spoke/controllers/manifestcontroller`, the apply reconciler). Only the name of the
/// kind counts, not its group.
const RANKS: [&[&str]; 7] = [
    &[
        "PriorityClass",
        "Namespace",
        "CustomResourceDefinition",
        "StorageClass",
        "PersistentVolume",
        "PodSecurityPolicy",
    ],
    &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    &[
        "NetworkPolicy",
        "ResourceQuota",
        "LimitRange",
        "PodDisruptionBudget",
        "ServiceAccount",
    ],
    &["Secret", "ConfigMap", "PersistentVolumeClaim"],
    &["Service"],
    &[
        "DaemonSet",
        "Pod",
        "ReplicationController",
        "ReplicaSet",
        "Deployment",
        "HorizontalPodAutoscaler",
        "StatefulSet",
        "Job",
        "CronJob",
    ],
    &[
        "APIService",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ],
];

/// Rank of a kind; lower ranks are applied first.
pub fn kind_rank(kind: &str) -> u32 {
    (0..)
        .zip(RANKS)
        .find(|(_, kinds)| kinds.contains(&kind))
        .map_or(OTHER_RANK, |(rank, _)| rank)
}

/// The positions of the manifests in the order to apply them: by rank, then as written. Those that
/// could not be parsed come last, so that their errors are reported in their turn.
pub fn apply_order(manifests: &[Result<ParsedManifest, ManifestError>]) -> Vec<usize> {
    let rank = |position: &usize| match &manifests[*position] {
        Ok(manifest) => kind_rank(manifest.gvk().kind),
        Err(_) => UNPARSED_RANK,
    };
    let mut order: Vec<usize> = (0..manifests.len()).collect();
    order.sort_by_key(rank);
    order
}
