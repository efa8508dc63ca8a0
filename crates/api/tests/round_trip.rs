//! Objects that Go programs wrote are read and written back without loss.
//!
//! The samples are in the form that Go's encoder gives them: fields without `omitempty` are there
//! even when empty, structs are there even when empty, nil slices without `omitempty` are null.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kube::core::ObjectList;
use kube::core::watch::WatchEvent;
use muster_api::cluster::ManagedCluster;
use muster_api::placement::{Placement, PlacementDecision};
use muster_api::replicaset::{ManifestWorkReplicaSet, ReplicaSetPhase};
use muster_api::rollout::RolloutType;
use muster_api::rules::{ClusterWatchRule, WatchOperation, WatchRule, WatchRuleSpec, WatchScope};
use muster_api::work::{
    AppliedManifestWork, DeletePropagationPolicyType, FeedbackScrapeType, ManifestWork,
    ManifestWorkSpec, UpdateStrategyType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads `sample` from bytes and from a value, and compares what is written with it.
///
/// `null` in a sample stands for Go's nil slice or zero time, which come back as an empty list or
/// `null`.
#[track_caller]
fn assert_round_trip<K: DeserializeOwned + Serialize>(sample: &Value) -> K {
    let bytes = serde_json::to_vec(sample).unwrap();
    let from_bytes: K = serde_json::from_slice(&bytes).unwrap();
    let from_value: K = serde_json::from_value(sample.clone()).unwrap();
    for object in [&from_bytes, &from_value] {
        let written = serde_json::to_value(object).unwrap();
        assert_eq!(without_nothing(written), without_nothing(sample.clone()));
    }
    from_bytes
}

/// Drops nulls and empty lists.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (key, without_nothing(value)))
            .filter(|(_, value)| !value.is_null() && *value != json!([]))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nothing).collect(),
        other => other,
    }
}

fn condition(type_: &str, status: &str) -> Value {
    json!({
        "type": type_,
        "status": status,
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-22T10:00:00Z",
        "reason": "AsExpected",
        "message": "",
    })
}

fn work_spec() -> Value {
    json!({
        "workload": {"manifests": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default", "creationTimestamp": null}, "data": {"k": "v", "empty": ""}, "list": []},
            {"apiVersion": "example.org/v1", "kind": "Odd", "metadata": {"name": "b"}, "spec": {"big": 12_345_678_901_234_567_890_u64, "real": 1.5, "nothing": null}},
        ]},
        "deleteOption": {
            "propagationPolicy": "SelectivelyOrphan",
            "selectivelyOrphans": {"orphaningRules": [
                {"group": "", "resource": "configmaps", "name": "a", "namespace": "default"},
            ]},
            "ttlSecondsAfterFinished": 0,
        },
        "manifestConfigs": [
            {
                "resourceIdentifier": {"group": "apps", "resource": "deployments", "name": "*", "namespace": "default"},
                "feedbackRules": [
                    {"type": "WellKnownStatus"},
                    {"type": "JSONPaths", "jsonPaths": [
                        {"name": "ready", "path": ".status.readyReplicas"},
                        {"name": "old", "version": "v1beta1", "path": ".status.x"},
                    ]},
                ],
                "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {
                    "force": false,
                    "fieldManager": "work-agent-team",
                    "ignoreFields": [
                        {"condition": "OnSpokeChange", "jsonPaths": [".spec.replicas"], "jsonPointers": ["/spec/x"], "jqPathExpressions": [".spec.y"]},
                        {"condition": "OnSpokePresent"},
                    ],
                }},
                "conditionRules": [
                    {"condition": "Complete", "type": "WellKnownConditions", "celExpressions": null, "message": "", "messageExpression": ""},
                    {"condition": "Degraded", "type": "CEL", "celExpressions": ["object.status.x > 1"], "message": "m", "messageExpression": "'e'"},
                ],
                "feedbackScrapeType": "Watch",
            },
            {
                "resourceIdentifier": {"group": "", "resource": "configmaps", "name": "a", "namespace": ""},
                "updateStrategy": {"type": "ReadOnly"},
                "feedbackScrapeType": "Poll",
            },
        ],
        "executor": {"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": "runner"}}},
    })
}

fn work() -> Value {
    json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork",
        "metadata": {
            "name": "w",
            "namespace": "cluster1",
            "generation": 3,
            "resourceVersion": "17",
            "uid": "0c5bb4e5-7b1c-4b16-b5a5-38bbd7f0f1d4",
            "creationTimestamp": "2026-01-22T09:59:59Z",
            "finalizers": ["cluster.open-cluster-management.io/manifest-work-cleanup"],
            "labels": {"work.open-cluster-management.io/placementname": "p"},
            "managedFields": [{"manager": "work-agent", "operation": "Update", "apiVersion": "work.open-cluster-management.io/v1", "time": "2026-01-22T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": work_spec(),
        "status": {
            "conditions": [condition("Applied", "True"), condition("Available", "Unknown")],
            "resourceStatus": {"manifests": [
                {
                    "resourceMeta": {"ordinal": 0, "group": "", "version": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "a", "namespace": "default"},
                    "statusFeedback": {"values": [
                        {"name": "i", "fieldValue": {"type": "Integer", "integer": -9_223_372_036_854_775_808_i64}},
                        {"name": "s", "fieldValue": {"type": "String", "string": ""}},
                        {"name": "b", "fieldValue": {"type": "Boolean", "boolean": false}},
                        {"name": "j", "fieldValue": {"type": "JsonRaw", "jsonRaw": "[1]"}},
                    ]},
                    "conditions": [condition("Applied", "True")],
                },
                {
                    "resourceMeta": {"ordinal": 1, "group": "", "version": "", "kind": "", "resource": "", "name": "", "namespace": ""},
                    "statusFeedback": {},
                    "conditions": null,
                },
            ]},
        },
    })
}

#[test]
fn manifest_work() {
    let work: ManifestWork = assert_round_trip(&work());
    let config = &work.spec.manifest_configs[0];
    assert_eq!(config.feedback_scrape_type, FeedbackScrapeType::Watch);
    assert_eq!(
        config.update_strategy.as_ref().unwrap().type_,
        UpdateStrategyType::ServerSideApply
    );
    let values = &work.status.as_ref().unwrap().resource_status.manifests[0]
        .status_feedback
        .values;
    assert_eq!(values[0].value.integer, Some(i64::MIN));
}

#[test]
fn new_manifest_work_with_every_go_zero_value() {
    let work: ManifestWork = assert_round_trip(&json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork",
        "metadata": {"name": "w", "namespace": "cluster1", "creationTimestamp": null},
        "spec": {"workload": {}},
        "status": {"resourceStatus": {}},
    }));
    assert!(work.spec.workload.manifests.is_empty());
}

#[test]
fn objects_without_spec_are_read() {
    let head = json!({"metadata": {"name": "x"}});
    assert_eq!(
        serde_json::from_value::<ManifestWork>(head.clone())
            .unwrap()
            .spec,
        ManifestWorkSpec::default()
    );
    serde_json::from_value::<AppliedManifestWork>(head.clone()).unwrap();
    serde_json::from_value::<ManifestWorkReplicaSet>(head.clone()).unwrap();
    serde_json::from_value::<PlacementDecision>(head.clone()).unwrap();
    serde_json::from_value::<ManagedCluster>(head).unwrap();
}

#[test]
fn applied_manifest_work() {
    let applied: AppliedManifestWork = assert_round_trip(&json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "AppliedManifestWork",
        "metadata": {"name": "abc-w"},
        "spec": {"hubHash": "abc", "agentID": "", "manifestWorkName": "w"},
        "status": {
            "appliedResources": [
                {"group": "", "resource": "configmaps", "name": "a", "namespace": "default", "version": "v1", "uid": "u"},
                {"group": "", "resource": "namespaces", "name": "n", "namespace": "", "version": "v1"},
            ],
            "evictionStartTime": "2026-01-22T10:00:00Z",
        },
    }));
    assert!(applied.status.unwrap().eviction_start_time.is_some());
    assert_round_trip::<AppliedManifestWork>(&json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "AppliedManifestWork",
        "metadata": {"name": "abc-w"},
        "spec": {"hubHash": "abc", "agentID": "agent", "manifestWorkName": "w"},
        "status": {},
    }));
}

#[test]
fn manifest_work_replica_set() {
    let summary = json!({"total": 3, "progressing": 1, "available": 2, "degraded": 0, "applied": 3, "desiredTotal": 0, "updated": 0});
    let set: ManifestWorkReplicaSet = assert_round_trip(&json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1",
        "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "m", "namespace": "default"},
        "spec": {
            "manifestWorkTemplate": work_spec(),
            "placementRefs": [
                {"name": "all", "rolloutStrategy": {"type": "All", "all": {"minSuccessTime": "0s", "progressDeadline": "None", "maxFailures": 0}}},
                {"name": "progressive", "rolloutStrategy": {"type": "Progressive", "progressive": {
                    "minSuccessTime": "5m0s", "progressDeadline": "10m", "maxFailures": "5%", "maxConcurrency": 3,
                    "mandatoryDecisionGroups": [{"groupName": "canary"}, {"groupIndex": 2}, {}],
                }}},
                {"name": "grouped", "rolloutStrategy": {"type": "ProgressivePerGroup", "progressivePerGroup": {
                    "minSuccessTime": "0", "progressDeadline": "1h", "maxFailures": 1,
                }}},
            ],
            "cascadeDeletionPolicy": "Foreground",
        },
        "status": {
            "conditions": [condition("PlacementVerified", "True")],
            "summary": summary,
            "placementSummary": [{"name": "all", "availableDecisionGroups": "1 (2 / 3 clusters applied)", "summary": summary}],
        },
    }));
    assert_eq!(
        set.spec.placement_refs[1].rollout_strategy.type_,
        RolloutType::Progressive
    );
    assert_round_trip::<ManifestWorkReplicaSet>(&json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1",
        "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "m", "namespace": "default"},
        "spec": {"manifestWorkTemplate": {"workload": {}}, "placementRefs": null, "cascadeDeletionPolicy": "Background"},
        "status": {
            "summary": {"total": 0, "progressing": 0, "available": 0, "degraded": 0, "applied": 0, "desiredTotal": 0, "updated": 0},
            "placementSummary": null,
        },
    }));
}

#[test]
fn additions_to_the_replica_set_status() {
    let set: ManifestWorkReplicaSet = assert_round_trip(&json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1",
        "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "m", "namespace": "default"},
        "spec": {"manifestWorkTemplate": {"workload": {}}, "placementRefs": [], "cascadeDeletionPolicy": "Background"},
        "status": {
            "summary": {"total": 0, "progressing": 0, "available": 0, "degraded": 0, "applied": 0, "desiredTotal": 0, "updated": 0},
            "phase": "Ready",
            "message": "3 of 3 clusters available",
            "feedback": [{
                "group": "apps", "version": "v1", "resource": "deployments", "name": "web", "namespace": "default",
                "values": [
                    {"name": "ready", "clusters": 3, "sum": 9, "min": 3, "max": 3},
                    {"name": "mode", "clusters": 3, "counts": [{"value": "on", "count": 2}], "others": 1},
                ],
            }],
        },
    }));
    assert_eq!(set.status.unwrap().phase, Some(ReplicaSetPhase::Ready));
}

#[test]
fn placement() {
    assert_round_trip::<Placement>(&json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "clusterSets": ["prod"],
            "numberOfClusters": 3,
            "predicates": [
                {"requiredClusterSelector": {
                    "labelSelector": {"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
                    "claimSelector": {"matchExpressions": [{"key": "region", "operator": "Exists"}]},
                    "celSelector": {"celExpressions": ["managedCluster.metadata.name != 'x'"]},
                }},
                {"requiredClusterSelector": {"labelSelector": {}, "claimSelector": {}, "celSelector": {}}},
            ],
            "prioritizerPolicy": {"mode": "Exact", "configurations": [
                {"scoreCoordinate": {"type": "BuiltIn", "builtIn": "Balance"}, "weight": -10},
                {"scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "r", "scoreName": "s"}}, "weight": 1},
            ]},
            "spreadPolicy": {"spreadConstraints": [{"topologyKey": "region", "topologyKeyType": "Claim", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}]},
            "tolerations": [
                {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSelect", "tolerationSeconds": 30},
                {"operator": "Exists"},
            ],
            "decisionStrategy": {"groupStrategy": {
                "decisionGroups": [{"groupName": "canary", "groupClusterSelector": {"labelSelector": {"matchLabels": {"canary": "true"}}, "claimSelector": {}}}],
                "clustersPerDecisionGroup": "25%",
            }},
            "sortBy": "Score",
            "scoreRateLimit": "30s",
        },
        "status": {
            "numberOfSelectedClusters": 2,
            "decisionGroups": [{"decisionGroupIndex": 0, "decisionGroupName": "", "decisions": ["p-decision-1"], "clusterCount": 2}],
            "conditions": [condition("PlacementSatisfied", "True")],
            "lastScoreUpdateTime": "2026-01-22T10:00:00Z",
        },
    }));
    assert_round_trip::<Placement>(&json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "prioritizerPolicy": {"mode": "Additive"},
            "spreadPolicy": {},
            "decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": 0}},
            "sortBy": "ClusterName",
            "scoreRateLimit": "1m",
        },
        "status": {"numberOfSelectedClusters": 0, "decisionGroups": null, "conditions": null},
    }));
}

#[test]
fn placement_decision() {
    assert_round_trip::<PlacementDecision>(&json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {
            "name": "p-decision-1",
            "namespace": "default",
            "labels": {"cluster.open-cluster-management.io/placement": "p", "cluster.open-cluster-management.io/decision-group-index": "0"},
            "ownerReferences": [{"apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement", "name": "p", "uid": "u", "controller": true, "blockOwnerDeletion": true}],
        },
        "status": {"decisions": [{"clusterName": "cluster1", "reason": ""}, {"clusterName": "cluster2", "reason": "r", "score": 100}]},
    }));
}

#[test]
fn managed_cluster() {
    assert_round_trip::<ManagedCluster>(&json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "cluster1", "labels": {"env": "prod"}},
        "spec": {
            "managedClusterClientConfigs": [{"url": "https://cluster1:6443", "caBundle": "Y2E="}, {"url": "https://other"}],
            "hubAcceptsClient": true,
            "leaseDurationSeconds": 60,
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSelectIfNew", "timeAdded": "2026-01-22T10:00:00Z"},
                {"key": "odd", "effect": "PreferNoSelect", "timeAdded": null},
            ],
        },
        "status": {
            "conditions": [condition("ManagedClusterJoined", "True")],
            "capacity": {"cpu": "8", "memory": "32Gi"},
            "allocatable": {"cpu": "7500m"},
            "version": {"kubernetes": "v1.36.3"},
            "clusterClaims": [{"name": "id.k8s.io", "value": "x"}],
            "managedNamespaces": [{"name": "n", "clusterSet": "s", "conditions": [condition("NamespaceAvailable", "True")]}],
        },
    }));
    assert_round_trip::<ManagedCluster>(&json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "cluster1"},
        "spec": {"hubAcceptsClient": false, "leaseDurationSeconds": 60},
        "status": {"conditions": null, "version": {}},
    }));
}

/// muster's own kinds, which no Go program writes: nothing empty is there for its own sake.
#[test]
fn watch_rules() {
    let item = json!({
        "operations": ["CREATE", "UPDATE", "DELETE", "*"],
        "apiGroups": ["", "apps"],
        "apiVersions": ["v1"],
        "resources": ["configmaps", "deployments"],
        "labelSelector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        },
    });
    let status = json!({
        "observedGeneration": 3,
        "conditions": [condition("Ready", "True")],
        "types": 2,
        "watches": {"total": 2, "synced": 1},
        "unresolved": [{"resource": "pods", "reason": "Excluded", "message": "m"}],
        "events": 7,
        "lastEventTime": "2026-01-22T10:00:00Z",
    });
    assert_round_trip::<WatchRule>(&json!({
        "apiVersion": "rules.muster.dev/v1alpha1",
        "kind": "WatchRule",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"destination": "git", "rules": [item]},
        "status": status,
    }));
    let mut scoped = item;
    scoped["scope"] = json!("Namespaced");
    let rule: ClusterWatchRule = assert_round_trip(&json!({
        "apiVersion": "rules.muster.dev/v1alpha1",
        "kind": "ClusterWatchRule",
        "metadata": {"name": "all"},
        "spec": {"destination": "git", "rules": [scoped, {"scope": "Planet", "resources": ["nodes"]}]},
        "status": status,
    }));
    assert_eq!(
        rule.spec.rules[1].scope,
        WatchScope::Unrecognized("Planet".to_owned())
    );
    assert_eq!(rule.spec.rules[0].item.operations[3], WatchOperation::All);
    let bare = json!({"metadata": {"name": "w"}, "spec": {"rules": null}});
    let bare: WatchRule = serde_json::from_value(bare).unwrap();
    assert_eq!(bare.spec, WatchRuleSpec::default());
}

#[test]
fn absent_fields_take_the_defaults_of_the_definition() {
    let work: ManifestWork = serde_json::from_value(json!({
        "metadata": {"name": "w"},
        "spec": {
            "deleteOption": {"propagationPolicy": ""},
            "manifestConfigs": [{
                "resourceIdentifier": {"resource": "configmaps", "name": "a"},
                "updateStrategy": {"serverSideApply": {"ignoreFields": [{}]}},
            }],
        },
    }))
    .unwrap();
    assert_eq!(
        serde_json::to_value(&work.spec).unwrap(),
        json!({
            "workload": {},
            "deleteOption": {"propagationPolicy": "Foreground"},
            "manifestConfigs": [{
                "resourceIdentifier": {"group": "", "resource": "configmaps", "name": "a", "namespace": ""},
                "updateStrategy": {"type": "Update", "serverSideApply": {
                    "force": false, "fieldManager": "work-agent", "ignoreFields": [{"condition": "OnSpokePresent"}],
                }},
                "feedbackScrapeType": "Poll",
            }],
        })
    );
}

#[test]
fn unknown_enum_value_breaks_neither_its_object_nor_the_list() {
    let mut future = work();
    future["spec"]["deleteOption"]["propagationPolicy"] = json!("Archive");
    future["spec"]["manifestConfigs"][1]["updateStrategy"]["type"] = json!("ThreeWayMerge");
    future["status"]["resourceStatus"]["manifests"][0]["statusFeedback"]["values"][0]["fieldValue"]
        ["type"] = json!("Float");
    let list = json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWorkList",
        "metadata": {"resourceVersion": "1"},
        "items": [work(), future],
    });
    let list: ObjectList<ManifestWork> =
        serde_json::from_slice(&serde_json::to_vec(&list).unwrap()).unwrap();
    assert_eq!(list.items.len(), 2);
    assert_eq!(
        list.items[1]
            .spec
            .delete_option
            .as_ref()
            .unwrap()
            .propagation_policy,
        DeletePropagationPolicyType::Unrecognized("Archive".to_owned())
    );
    assert_round_trip::<ManifestWork>(&future);
}

#[test]
fn watch_event_keeps_manifests() {
    // API servers write the tag first; serde_json's maps would sort "object" before "type".
    let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, work());
    let event: WatchEvent<ManifestWork> = serde_json::from_str(&line).unwrap();
    let WatchEvent::Modified(read) = event else {
        panic!("{event:?}");
    };
    assert_eq!(
        read.spec.workload.manifests[1].to_value().unwrap(),
        work()["spec"]["workload"]["manifests"][1]
    );
}
