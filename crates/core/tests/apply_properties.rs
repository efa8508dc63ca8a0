//! What holds for every manifest and every live object.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code; the exemption in clippy.toml covers test functions only"
)]

use muster_core::apply::{Desired, History, UpdatePlan, plan_update};
use muster_core::manifest::ParsedManifest;
use muster_core::ownership::{Owner, OwnerChange};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        Just(json!(1.0)),
        "[a-c]{0,2}".prop_map(Value::from),
        prop::sample::select(vec![
            "1",
            "1000m",
            "TCP",
            "NodePort",
            "LoadBalancer",
            "Local",
            "ServiceAccount",
            "kubernetes.io/service-account-token",
        ])
        .prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "a",
        "b-",
        "b",
        "ports",
        "port",
        "nodePort",
        "type",
        "clusterIP",
        "limits",
        "finalizers",
        "kind",
        "name",
        "selector",
        "template",
        "metadata",
        "labels",
        "matchLabels",
        "conversion",
        "webhook",
        "clientConfig",
        "caBundle",
        "policyTypes",
        "ingress",
        "default",
        "properties",
    ]);
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..4).prop_map(|entries| {
                entries
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()
            }),
        ]
    })
}

/// Objects of the kinds that have rules of their own, with anything in their fields.
fn any_object((api_version, kind): Kind) -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec![
        "spec",
        "data",
        "binaryData",
        "stringData",
        "type",
        "immutable",
        "status",
        "secrets",
        "rules",
        "aggregationRule",
        "subjects",
        "roleRef",
        "webhooks",
        "provisioner",
        "parameters",
        "reclaimPolicy",
    ]);
    let metadata = proptest::collection::btree_map(
        prop::sample::select(vec![
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
        ]),
        any_json(),
        0..3,
    );
    let fields = proptest::collection::btree_map(field, any_json(), 0..4);
    (metadata, fields).prop_map(move |(metadata, fields)| {
        let mut object = Map::new();
        object.extend(
            fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value)),
        );
        object.insert("apiVersion".into(), api_version.into());
        object.insert("kind".into(), kind.into());
        let mut whole: Map<_, _> = metadata
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        whole.insert("name".into(), "a".into());
        object.insert("metadata".into(), Value::Object(whole));
        Value::Object(object)
    })
}

type Kind = (&'static str, &'static str);

const KINDS: [Kind; 20] = [
    ("example.io/v1", "Widget"),
    ("v1", "Namespace"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("batch/v1", "Job"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
];

fn any_pair() -> impl Strategy<Value = (Value, Option<Value>)> {
    prop::sample::select(&KINDS[..])
        .prop_flat_map(|kind| (any_object(kind), proptest::option::of(any_object(kind))))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_sent_needs_no_second_write((manifest, live) in any_pair(), owned in any::<bool>()) {
        let parsed = ParsedManifest::parse(0, &manifest.to_string()).unwrap();
        let owner = Owner { name: "hash-w".into(), uid: "1".into() };
        let owner = OwnerChange::new(owner, owned);
        // A Secret may contradict itself.
        let Ok(desired) = Desired::new(parsed, true) else { return Ok(()) };
        let stored = match plan_update(&desired, live.as_ref(), &owner, History::Unapplied) {
            UpdatePlan::Create(sent) | UpdatePlan::Replace(sent) | UpdatePlan::Recreate(sent) => sent,
            UpdatePlan::Unchanged => live.unwrap(),
        };
        for history in [
            History::Unapplied,
            History::AppliedBefore,
            History::Applied(&desired.applied(&stored)),
        ] {
            let plan = plan_update(&desired, Some(&stored), &owner, history);
            prop_assert_eq!(plan, UpdatePlan::Unchanged, "{:?}", history);
        }
    }
}
