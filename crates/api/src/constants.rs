//! Every fixed name: condition types, reasons, labels, annotations, finalizers.
//!
//! Each constant is named after the Go constant it equals, in Rust's spelling; where the Go code
//! has a bare string or the name is muster's own, the doc says so. Sources are the packages
//! `work/v1`, `work/v1alpha1`, `cluster/v1` and `cluster/v1beta1` of `open-cluster-management.io/api`
//! and `pkg/work` of `open-cluster-management.io/ocm`.

// --- API groups -------------------------------------------------------------------------------

/// API group of works and replica sets. Go: `work/v1.GroupName`.
pub const WORK_GROUP_NAME: &str = "work.open-cluster-management.io";
/// API group of clusters and placements. Go: `cluster/v1.GroupName`.
pub const CLUSTER_GROUP_NAME: &str = "cluster.open-cluster-management.io";
/// API group of watch rules. muster's.
pub const RULES_GROUP_NAME: &str = "rules.muster.dev";

// --- Condition types of works and manifests ---------------------------------------------------

/// Work condition: changes are under way. Go: `WorkProgressing`.
pub const WORK_PROGRESSING: &str = "Progressing";
/// Work condition: every manifest is applied. Go: `WorkApplied`.
pub const WORK_APPLIED: &str = "Applied";
/// Work condition: every object exists. Go: `WorkAvailable`.
pub const WORK_AVAILABLE: &str = "Available";
/// Work condition: objects are not in the wanted state. Go: `WorkDegraded`.
pub const WORK_DEGRADED: &str = "Degraded";
/// Work condition: the work is done for good. Go: `WorkComplete`.
pub const WORK_COMPLETE: &str = "Complete";
/// Work condition: deletion is under way. Go: `WorkDeleting`.
pub const WORK_DELETING: &str = "Deleting";

/// Manifest condition: changes are under way. Go: `ManifestProgressing`.
pub const MANIFEST_PROGRESSING: &str = "Progressing";
/// Manifest condition: applied. Go: `ManifestApplied`.
pub const MANIFEST_APPLIED: &str = "Applied";
/// Manifest condition: the object exists. Go: `ManifestAvailable`.
pub const MANIFEST_AVAILABLE: &str = "Available";
/// Manifest condition: the object is not in the wanted state. Go: `ManifestDegraded`.
pub const MANIFEST_DEGRADED: &str = "Degraded";
/// Manifest condition: the object is done for good. Go: `ManifestComplete`.
pub const MANIFEST_COMPLETE: &str = "Complete";
/// Manifest condition: feedback values are up to date. A bare string in Go
/// (`pkg/work/spoke/controllers/statuscontroller`).
pub const STATUS_FEEDBACK_SYNCED: &str = "StatusFeedbackSynced";
/// Condition an agent sends over events once the work is gone. Go: `ManifestsDeleted` of
/// `sdk-go/pkg/cloudevents/clients/common`.
pub const MANIFESTS_DELETED: &str = "Deleted";

// --- Reasons of work conditions ---------------------------------------------------------------

/// Applied is True. A bare string in Go.
pub const APPLIED_MANIFEST_WORK_COMPLETE: &str = "AppliedManifestWorkComplete";
/// Applied is False. A bare string in Go.
pub const APPLIED_MANIFEST_WORK_FAILED: &str = "AppliedManifestWorkFailed";
/// Available is True. A bare string in Go.
pub const RESOURCES_AVAILABLE: &str = "ResourcesAvailable";
/// Available is False. A bare string in Go.
pub const RESOURCES_NOT_AVAILABLE: &str = "ResourcesNotAvailable";
/// Available is Unknown. A bare string in Go.
pub const RESOURCES_STATUS_UNKNOWN: &str = "ResourcesStatusUnknown";
/// The condition sums up rule conditions of manifests. A bare string in Go.
pub const CONDITION_RULES_AGGREGATED: &str = "ConditionRulesAggregated";
/// Deleting is True. A bare string in Go.
pub const WORK_DELETING_REASON: &str = "WorkDeleting";
/// Complete is True. Go: `WorkManifestsComplete`; no agent of OCM writes it.
pub const WORK_MANIFESTS_COMPLETE: &str = "ManifestsComplete";
/// Progressing is True. Go: `WorkProgressingReasonApplying`; no agent of OCM writes it.
pub const WORK_PROGRESSING_REASON_APPLYING: &str = "Applying";
/// Progressing is False. Go: `WorkProgressingReasonCompleted`; no agent of OCM writes it.
pub const WORK_PROGRESSING_REASON_COMPLETED: &str = "Completed";
/// Progressing is False. Go: `WorkProgressingReasonFailed`; no agent of OCM writes it.
pub const WORK_PROGRESSING_REASON_FAILED: &str = "Failed";

// --- Reasons of manifest conditions -----------------------------------------------------------

/// Applied is True. Go: `AppliedManifestComplete`.
pub const APPLIED_MANIFEST_COMPLETE: &str = "AppliedManifestComplete";
/// Applied is False. Go: `AppliedManifestFailed`.
pub const APPLIED_MANIFEST_FAILED: &str = "AppliedManifestFailed";
/// Applied is False since ignored fields could not be taken out. Go:
/// `AppliedManifestSSAIgnoreFieldError`.
pub const APPLIED_MANIFEST_SSA_IGNORE_FIELD_ERROR: &str = "AppliedManifestSSAIgnoreFieldError";
/// Available is True. A bare string in Go.
pub const RESOURCE_AVAILABLE: &str = "ResourceAvailable";
/// Available is False. A bare string in Go.
pub const RESOURCE_NOT_AVAILABLE: &str = "ResourceNotAvailable";
/// Available is Unknown: reading failed. A bare string in Go.
pub const FETCHING_RESOURCE_FAILED: &str = "FetchingResourceFailed";
/// Available is Unknown: the object is not identified yet. A bare string in Go.
pub const INCOMPLETE_RESOURCE_META: &str = "IncompleteResourceMeta";
/// StatusFeedbackSynced is True and no values were asked for. A bare string in Go.
pub const NO_STATUS_FEEDBACK_SYNCED: &str = "NoStatusFeedbackSynced";
/// StatusFeedbackSynced is True. A bare string in Go.
pub const STATUS_FEEDBACK_SYNCED_REASON: &str = "StatusFeedbackSynced";
/// StatusFeedbackSynced is False. A bare string in Go.
pub const STATUS_FEEDBACK_SYNC_FAILED: &str = "StatusFeedbackSyncFailed";
/// The rule was evaluated. Go: `ConditionRuleEvaluated`.
pub const CONDITION_RULE_EVALUATED: &str = "ConditionRuleEvaluated";
/// The rule is of an unknown type. Go: `ConditionRuleInvalid`.
pub const CONDITION_RULE_INVALID: &str = "ConditionRuleInvalid";
/// An expression of the rule failed. Go: `ConditionRuleExpressionError`.
pub const CONDITION_RULE_EXPRESSION_ERROR: &str = "ConditionRuleExpressionError";
/// The rule could not be evaluated. Go: `ConditionRuleInternalError`.
pub const CONDITION_RULE_INTERNAL_ERROR: &str = "ConditionRuleInternalError";

// --- ManifestWorkReplicaSet -------------------------------------------------------------------

/// Condition: clusters were found. Go: `ManifestWorkReplicaSetConditionPlacementVerified`.
pub const MANIFEST_WORK_REPLICA_SET_CONDITION_PLACEMENT_VERIFIED: &str = "PlacementVerified";
/// Condition: every cluster has the current template. Go:
/// `ManifestWorkReplicaSetConditionPlacementRolledOut`.
pub const MANIFEST_WORK_REPLICA_SET_CONDITION_PLACEMENT_ROLLED_OUT: &str = "PlacementRolledOut";
/// Condition: every work is applied and available. The `w` is small. Go:
/// `ManifestWorkReplicaSetConditionManifestworkApplied`.
pub const MANIFEST_WORK_REPLICA_SET_CONDITION_MANIFESTWORK_APPLIED: &str = "ManifestworkApplied";

/// Condition: the rollout goes on. muster's, from the design "Progressing and Ready conditions".
pub const MANIFEST_WORK_REPLICA_SET_CONDITION_PROGRESSING: &str = "Progressing";
/// Condition: every cluster has the template and is available. muster's, from the same design.
pub const MANIFEST_WORK_REPLICA_SET_CONDITION_READY: &str = "Ready";
/// Annotation on a replica set, or on a ManagedCluster: with the value `true`, no replica set
/// writes a work of it. muster's.
pub const PAUSED_ANNOTATION: &str = "muster.dev/paused";
/// Annotation on a replica set: clusters, parted by commas, in which it writes no work. muster's.
pub const PAUSED_CLUSTERS_ANNOTATION: &str = "muster.dev/paused-clusters";
/// Label on a ControllerRevision: the replica set whose template it keeps, written like the owner
/// label of works. muster's.
pub const REPLICA_SET_REVISION_LABEL: &str = "muster.dev/replicaset";
/// Annotation on a replica set: how many old revisions of its template are kept. muster's, after
/// `spec.revisionHistoryLimit` of Deployments.
pub const REVISION_HISTORY_LIMIT_ANNOTATION: &str = "muster.dev/revision-history-limit";
/// Annotation on a replica set, copied onto its revisions: why the template was changed.
/// Kubernetes: `ChangeCauseAnnotation` of `k8s.io/kubectl`.
pub const CHANGE_CAUSE_ANNOTATION: &str = "kubernetes.io/change-cause";
/// Annotation on a ManagedCluster, and label on a ManifestWork: the cluster is gone for good, so a work
/// that is being deleted need not wait for its agent. muster's.
pub const ABANDONED: &str = "muster.dev/abandoned";
/// Annotation on a work of a replica set: when it was given its template (RFC 3339). What soak and
/// deadline of its cluster are counted from at the earliest. muster's.
pub const ROLLOUT_STARTED_ANNOTATION: &str = "muster.dev/rollout-started";
/// Progressing is True: works are on their way. muster's.
pub const REASON_ROLLING_OUT_TO_CLUSTERS: &str = "RollingOutToClusters";
/// Progressing is True: nothing is on its way, and clusters wait. muster's.
pub const REASON_PAUSED: &str = "Paused";
/// Progressing is False: every cluster is done. muster's.
pub const REASON_ALL_CLUSTERS_READY: &str = "AllClustersReady";
/// Every cluster has answered, and some have failed. An addition of muster.
pub const REASON_CLUSTERS_FAILED: &str = "ClustersFailed";
/// Somebody gave up the cluster of a work that is being deleted. An addition of muster.
pub const REASON_CLUSTER_ABANDONED: &str = "ClusterAbandoned";
/// The agent of a cluster is connected. An addition of muster.
pub const REASON_AGENT_CONNECTED: &str = "AgentConnected";
/// The agent of a cluster is away. An addition of muster.
pub const REASON_AGENT_AWAY: &str = "AgentAway";
/// The object is being deleted. An addition of muster.
pub const REASON_DELETING: &str = "Deleting";
/// Ready is True. muster's.
pub const REASON_ALL_CLUSTERS_AVAILABLE: &str = "AllClustersAvailable";
/// Ready is False. muster's.
pub const REASON_NOT_ALL_CLUSTERS_AVAILABLE: &str = "NotAllClustersAvailable";
/// A placement does not exist. Go: `ReasonPlacementDecisionNotFound`.
pub const REASON_PLACEMENT_DECISION_NOT_FOUND: &str = "PlacementDecisionNotFound";
/// No cluster is selected. Go: `ReasonPlacementDecisionEmpty`.
pub const REASON_PLACEMENT_DECISION_EMPTY: &str = "PlacementDecisionEmpty";
/// All is well. Go: `ReasonAsExpected`.
pub const REASON_AS_EXPECTED: &str = "AsExpected";
/// Works are in progress. Go: `ReasonProcessing`.
pub const REASON_PROCESSING: &str = "Processing";
/// Works are not as wanted. Go: `ReasonNotAsExpected`.
pub const REASON_NOT_AS_EXPECTED: &str = "NotAsExpected";
/// The rollout goes on. Go: `ReasonProgressing`.
pub const REASON_PROGRESSING: &str = "Progressing";
/// The rollout is over. Go: `ReasonComplete`.
pub const REASON_COMPLETE: &str = "Complete";
/// The name of the set is no label value. A bare string in Go.
pub const REASON_INVALID_MANIFEST_WORK_NAME: &str = "InvalidManifestWorkName";

/// Label on a work: `<namespace>.<name>` of its replica set. Go:
/// `ManifestWorkReplicaSetControllerNameLabelKey`.
pub const MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY: &str =
    "work.open-cluster-management.io/manifestworkreplicaset";
/// Label on a work: name of the placement that selected its cluster. Go:
/// `ManifestWorkReplicaSetPlacementNameLabelKey`.
pub const MANIFEST_WORK_REPLICA_SET_PLACEMENT_NAME_LABEL_KEY: &str =
    "work.open-cluster-management.io/placementname";
/// Finalizer on a replica set. Go: `ManifestWorkReplicaSetFinalizer`.
pub const MANIFEST_WORK_REPLICA_SET_FINALIZER: &str =
    "work.open-cluster-management.io/manifest-work-cleanup";

// --- Works on hub and spoke -------------------------------------------------------------------

/// Finalizer on a work, set by the agent. Go: `ManifestWorkFinalizer`.
pub const MANIFEST_WORK_FINALIZER: &str =
    "cluster.open-cluster-management.io/manifest-work-cleanup";
/// Finalizer on an AppliedManifestWork. Go: `AppliedManifestWorkFinalizer`.
pub const APPLIED_MANIFEST_WORK_FINALIZER: &str =
    "cluster.open-cluster-management.io/applied-manifest-work-cleanup";
/// Annotation on an applied object when fields are ignored. Go:
/// `ManifestConfigSpecHashAnnotationKey`.
pub const MANIFEST_CONFIG_SPEC_HASH_ANNOTATION_KEY: &str =
    "open-cluster-management.io/config-spec-hash";
/// Annotation for the hash of a manifest. Go: `ObjectSpecHash`; no agent of OCM writes it.
pub const OBJECT_SPEC_HASH: &str = "open-cluster-management.io/object-hash";
/// Annotation that the Update strategy puts on Service objects. Go: `specHashAnnotation` of
/// `openshift/library-go`.
pub const SPEC_HASH_ANNOTATION: &str = "operator.openshift.io/spec-hash";
/// Field manager of the agent. Go: `DefaultFieldManager`.
pub const DEFAULT_FIELD_MANAGER: &str = "work-agent";
/// RBAC verb on works that lets a user name an executor. A bare string in Go.
pub const EXECUTE_AS_VERB: &str = "execute-as";

// --- Placements -------------------------------------------------------------------------------

/// Label on a decision: name of its placement. Go: `PlacementLabel`.
pub const PLACEMENT_LABEL: &str = "cluster.open-cluster-management.io/placement";
/// Label on a decision: index of its group. Go: `DecisionGroupIndexLabel`.
pub const DECISION_GROUP_INDEX_LABEL: &str =
    "cluster.open-cluster-management.io/decision-group-index";
/// Label on a decision: name of its group. Go: `DecisionGroupNameLabel`.
pub const DECISION_GROUP_NAME_LABEL: &str =
    "cluster.open-cluster-management.io/decision-group-name";
/// Condition: enough clusters were selected. Go: `PlacementConditionSatisfied`.
pub const PLACEMENT_CONDITION_SATISFIED: &str = "PlacementSatisfied";
/// Condition: the placement is wrong in itself. Go: `PlacementConditionMisconfigured`.
pub const PLACEMENT_CONDITION_MISCONFIGURED: &str = "PlacementMisconfigured";
/// Annotation on a placement that switches scheduling off. Go: `PlacementDisableAnnotation`.
pub const PLACEMENT_DISABLE_ANNOTATION: &str =
    "cluster.open-cluster-management.io/experimental-scheduling-disable";

// --- Clusters ---------------------------------------------------------------------------------

/// Condition: the cluster has joined. Go: `ManagedClusterConditionJoined`.
pub const MANAGED_CLUSTER_CONDITION_JOINED: &str = "ManagedClusterJoined";
/// Condition: the hub accepts the cluster. Go: `ManagedClusterConditionHubAccepted`.
pub const MANAGED_CLUSTER_CONDITION_HUB_ACCEPTED: &str = "HubAcceptedManagedCluster";
/// Condition: the hub turns the cluster away. Go: `ManagedClusterConditionHubDenied`.
pub const MANAGED_CLUSTER_CONDITION_HUB_DENIED: &str = "HubDeniedManagedCluster";
/// Condition: the cluster is in contact. Go: `ManagedClusterConditionAvailable`.
pub const MANAGED_CLUSTER_CONDITION_AVAILABLE: &str = "ManagedClusterConditionAvailable";
/// Condition: the clocks of hub and cluster agree. Go: `ManagedClusterConditionClockSynced`.
pub const MANAGED_CLUSTER_CONDITION_CLOCK_SYNCED: &str = "ManagedClusterConditionClockSynced";
/// Condition: deletion is under way. Go: `ManagedClusterConditionDeleting`.
pub const MANAGED_CLUSTER_CONDITION_DELETING: &str = "Deleting";
/// Taint on a cluster that is not available. Go: `ManagedClusterTaintUnavailable`.
pub const MANAGED_CLUSTER_TAINT_UNAVAILABLE: &str =
    "cluster.open-cluster-management.io/unavailable";
/// Taint on a cluster that is out of contact. Go: `ManagedClusterTaintUnreachable`.
pub const MANAGED_CLUSTER_TAINT_UNREACHABLE: &str =
    "cluster.open-cluster-management.io/unreachable";
/// Label that names a cluster. Go: `ClusterNameLabelKey`.
pub const CLUSTER_NAME_LABEL_KEY: &str = "open-cluster-management.io/cluster-name";
/// Finalizer on a cluster. Go: `ManagedClusterFinalizer`.
pub const MANAGED_CLUSTER_FINALIZER: &str =
    "cluster.open-cluster-management.io/api-resource-cleanup";

// --- Watch rules ------------------------------------------------------------------------------

/// Condition of a watch rule: all that it selects is watched, and its sink takes the events.
/// muster's, as are its reasons.
pub const WATCH_RULE_READY: &str = "Ready";
/// Ready is True: every watch of the rule has delivered its first list.
pub const REASON_WATCHING: &str = "Watching";
/// Ready is False: watches have been opened and have not all delivered their first list.
pub const REASON_SYNCING: &str = "Syncing";
/// Ready is False: a field of the rule is wrong; the message names it.
pub const REASON_INVALID_RULE: &str = "InvalidRule";
/// Ready is False: the agent's settings have no sink of that name.
pub const REASON_UNKNOWN_DESTINATION: &str = "UnknownDestination";
/// A resource is not served, or not in the groups and versions that the rule names.
pub const REASON_TYPE_UNKNOWN: &str = "TypeUnknown";
/// A resource could be one of several types, and the rule does not say which.
pub const REASON_AMBIGUOUS: &str = "Ambiguous";
/// The agent's settings exclude the type from being watched.
pub const REASON_EXCLUDED: &str = "Excluded";
/// The sink of the rule takes nothing of the type.
pub const REASON_REFUSED_BY_SINK: &str = "RefusedBySink";
/// The type does not offer to be listed and watched.
pub const REASON_NOT_WATCHABLE: &str = "NotWatchable";
/// The type has a namespace where the rule means objects without one, or the other way round.
pub const REASON_WRONG_SCOPE: &str = "WrongScope";
/// Ready is False: the cluster does not allow the agent to list or to watch a type.
pub const REASON_FORBIDDEN: &str = "Forbidden";
/// Ready is False: all watches that the agent may have open are in use.
pub const REASON_WAITING_FOR_WATCH: &str = "WaitingForWatch";
/// Ready is False: a watch has failed and is being opened again.
pub const REASON_WATCH_FAILED: &str = "WatchFailed";
/// It is not known whether a type is served: the API server did not tell.
pub const REASON_DISCOVERY_FAILED: &str = "DiscoveryFailed";
/// Ready is False: the sink does not take events.
pub const REASON_SINK_FAILING: &str = "SinkFailing";
