use serde_json::json;

use super::*;
use crate::ownership::Owner;

fn owner() -> OwnerChange {
    OwnerChange::Own(Owner {
        name: "hash-w".into(),
        uid: "owner-uid".into(),
    })
}

fn desired(object: &Value) -> Desired {
    let manifest = ParsedManifest::parse(0, &object.to_string()).unwrap();
    Desired::new(manifest, true).unwrap()
}

/// What a server makes of an object: metadata filled in, and what `defaults` adds.
fn stored(object: &Value, defaults: &Value) -> Value {
    let mut live = object.clone();
    let server = json!({"metadata": {
        "uid": "live-uid", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "x"}],
    }});
    fill(&mut live, &server);
    fill(&mut live, defaults);
    live
}

fn fill(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                fill(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, more) => {
            if object.is_null() {
                *object = more.clone();
            }
        }
    }
}

fn create(desired: &Desired) -> Value {
    match plan_update(desired, None, &owner(), History::Unapplied) {
        UpdatePlan::Create(object) => object,
        other => panic!("expected a creation, got {other:?}"),
    }
}

fn replace(desired: &Desired, live: &Value, history: History<'_>) -> Value {
    match plan_update(desired, Some(live), &owner(), history) {
        UpdatePlan::Replace(object) => object,
        other => panic!("expected an update, got {other:?}"),
    }
}

fn deployment(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns1", "labels": {"app": "web"}},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
    })
}

fn deployment_defaults() -> Value {
    json!({
        "metadata": {"generation": 1},
        "spec": {"replicas": 1, "template": {"spec": {"dnsPolicy": "ClusterFirst"}}},
        "status": {"replicas": 1},
    })
}

#[test]
fn what_comes_from_an_export_is_not_sent() {
    let mut exported = deployment("a:1");
    fill(
        &mut exported,
        &json!({
            "metadata": {
                "uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "42",
                "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z", "selfLink": "/x",
                "managedFields": [{}], "generateName": "web-",
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"}],
            },
            "status": {"replicas": 1},
        }),
    );
    let created = create(&desired(&exported));
    let mut expected = deployment("a:1");
    expected["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
        "name": "hash-w", "uid": "owner-uid",
    }]);
    assert_eq!(created, expected);
    assert_eq!(desired(&exported).hash, desired(&deployment("a:1")).hash);
}

#[test]
fn an_idle_work_sends_nothing() {
    let manifest = desired(&deployment("a:1"));
    let live = stored(&create(&manifest), &deployment_defaults());
    let last = manifest.applied(&live);
    for history in [History::Applied(&last), History::AppliedBefore] {
        assert_eq!(
            plan_update(&manifest, Some(&live), &owner(), history),
            UpdatePlan::Unchanged
        );
    }
    // The status moves, and somebody else adds labels, annotations and finalizers.
    let mut moved = live.clone();
    moved["metadata"]["resourceVersion"] = "8".into();
    moved["metadata"]["labels"]["team"] = "blue".into();
    moved["metadata"]["annotations"] = json!({"example.io/x": "1"});
    moved["metadata"]["finalizers"] = json!(["example.io/hold"]);
    moved["status"]["replicas"] = 2.into();
    for history in [History::Applied(&last), History::AppliedBefore] {
        assert_eq!(
            plan_update(&manifest, Some(&moved), &owner(), history),
            UpdatePlan::Unchanged
        );
    }
}

#[test]
fn a_new_label_joins_those_of_others() {
    let mut manifest = deployment("a:1");
    let mut live = stored(&create(&desired(&manifest)), &deployment_defaults());
    let last = desired(&manifest).applied(&live);
    live["metadata"]["labels"]["team"] = "blue".into();
    live["metadata"]["labels"]["old"] = "x".into();
    live["metadata"]["finalizers"] = json!(["example.io/hold"]);
    manifest["metadata"]["labels"] = json!({"app": "web", "tier": "a", "old-": ""});
    manifest["metadata"]["finalizers"] = json!(["of/the-manifest"]);

    let sent = replace(&desired(&manifest), &live, History::Applied(&last));
    assert_eq!(
        sent["metadata"]["labels"],
        json!({"app": "web", "team": "blue", "tier": "a"})
    );
    assert_eq!(sent["metadata"]["finalizers"], json!(["example.io/hold"]));
    assert_eq!(sent["metadata"]["resourceVersion"], "7");
    assert_eq!(sent["metadata"].get("managedFields"), None);
    assert_eq!(sent["status"], live["status"]);
    assert_eq!(
        create(&desired(&manifest))["metadata"]["labels"],
        json!({"app": "web", "tier": "a"}),
        "what asks for a removal is not created"
    );
}

#[test]
fn a_changed_manifest_is_sent_even_if_it_only_asks_for_less() {
    let mut manifest = deployment("a:1");
    manifest["spec"]["paused"] = true.into();
    let live = stored(&create(&desired(&manifest)), &deployment_defaults());
    let last = desired(&manifest).applied(&live);

    let less = desired(&deployment("a:1"));
    assert!(
        less.rule
            .is_current(live.as_object().unwrap(), &less.object, true)
    );
    let sent = replace(&less, &live, History::Applied(&last));
    assert_eq!(sent["spec"], deployment("a:1")["spec"]);
    replace(&less, &live, History::Unapplied);
    // Without memory, a manifest that the object has already counts as applied.
    let plan = plan_update(&less, Some(&live), &owner(), History::AppliedBefore);
    assert_eq!(plan, UpdatePlan::Unchanged);
}

#[test]
fn drift_is_repaired() {
    let manifest = desired(&deployment("a:1"));
    let live = stored(&create(&manifest), &deployment_defaults());
    let last = manifest.applied(&live);
    let mut drifted = live.clone();
    drifted["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1".into();
    drifted["metadata"]["resourceVersion"] = "8".into();
    drifted["metadata"]["generation"] = 2.into();
    for history in [History::Applied(&last), History::AppliedBefore] {
        let sent = replace(&manifest, &drifted, history);
        assert_eq!(sent["spec"], deployment("a:1")["spec"]);
        assert_eq!(sent["metadata"]["resourceVersion"], "8");
    }
    // A lost owner reference or label is drift, too, and shows in no generation.
    let mut stripped = live.clone();
    stripped["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(
        replace(&manifest, &stripped, History::Applied(&last))["metadata"]["ownerReferences"],
        live["metadata"]["ownerReferences"]
    );
}

#[test]
fn an_orphaned_object_loses_its_reference_once() {
    let manifest = desired(&deployment("a:1"));
    let live = stored(&create(&manifest), &deployment_defaults());
    let last = manifest.applied(&live);
    let OwnerChange::Own(owner) = owner() else {
        panic!("it owns")
    };
    let disown = OwnerChange::Disown(owner);
    let plan = plan_update(&manifest, Some(&live), &disown, History::Applied(&last));
    let UpdatePlan::Replace(sent) = plan else {
        panic!("expected an update, got {plan:?}")
    };
    assert_eq!(sent["metadata"]["ownerReferences"], json!([]));
    let plan = plan_update(&manifest, Some(&sent), &disown, History::Applied(&last));
    assert_eq!(plan, UpdatePlan::Unchanged);
    let plan = plan_update(&manifest, None, &disown, History::Unapplied);
    assert_eq!(plan, UpdatePlan::Create(deployment("a:1")));
}

#[test]
fn an_object_that_is_exactly_as_wanted_is_taken_over_without_a_write() {
    let manifest = desired(&deployment("a:1"));
    let live = stored(&create(&manifest), &json!({}));
    let plan = plan_update(&manifest, Some(&live), &owner(), History::Unapplied);
    assert_eq!(plan, UpdatePlan::Unchanged);
}

#[test]
fn a_cluster_scoped_object_has_no_namespace() {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "namespace": "x"}});
    let manifest = ParsedManifest::parse(0, &object.to_string()).unwrap();
    let created = create(&Desired::new(manifest, false).unwrap());
    assert_eq!(created["metadata"].get("namespace"), None);
}

#[test]
fn content_that_the_cluster_fills_in_is_never_replaced() {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    let secrets = json!({"secrets": [{"name": "a-token"}]});
    let live = stored(&create(&desired(&account)), &secrets);
    let manifest = desired(&account);
    let plan = plan_update(&manifest, Some(&live), &owner(), History::Unapplied);
    assert_eq!(plan, UpdatePlan::Unchanged);

    let mut labelled = account.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let sent = replace(&desired(&labelled), &live, History::Unapplied);
    assert_eq!(sent["secrets"], secrets["secrets"]);
    assert_eq!(sent["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn data_of_a_config_map_is_the_manifests() {
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let manifest = desired(&map(json!({"k": "1"})));
    let live = stored(&create(&manifest), &json!({"immutable": false}));
    assert_eq!(
        plan_update(&manifest, Some(&live), &owner(), History::AppliedBefore),
        UpdatePlan::Unchanged
    );
    let mut more = live.clone();
    more["data"]["added"] = "x".into();
    let sent = replace(&manifest, &more, History::AppliedBefore);
    assert_eq!(
        (&sent["data"], &sent["immutable"]),
        (&json!({"k": "1"}), &json!(false))
    );

    let empty = desired(&map(json!({})));
    let mut live = stored(&create(&empty), &json!({}));
    live.as_object_mut().unwrap().remove("data");
    assert_eq!(
        plan_update(&empty, Some(&live), &owner(), History::AppliedBefore),
        UpdatePlan::Unchanged
    );
}

#[test]
fn texts_of_a_secret_are_compared_as_data() {
    let secret = |data: Value, texts: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "data": data, "stringData": texts,
        })
    };
    let manifest = desired(&secret(
        json!({"a": "MQ=="}),
        json!({"b": "hush", "a": "1"}),
    ));
    let created = create(&manifest);
    assert_eq!(created["data"], json!({"a": "MQ==", "b": "aHVzaA=="}));
    assert_eq!(created.get("stringData"), None);
    let live = stored(&created, &json!({"type": "Opaque"}));
    assert_eq!(
        plan_update(&manifest, Some(&live), &owner(), History::AppliedBefore),
        UpdatePlan::Unchanged
    );
    let mut drifted = live.clone();
    drifted["data"]["c"] = "MQ==".into();
    let sent = replace(&manifest, &drifted, History::AppliedBefore);
    assert_eq!(
        (&sent["data"], &sent["type"]),
        (&created["data"], &json!("Opaque"))
    );

    let only_texts = desired(&secret(Value::Null, json!({"b": "hush"})));
    assert_eq!(create(&only_texts)["data"], json!({"b": "aHVzaA=="}));
    let conflict = secret(json!({"a": "MQ=="}), json!({"a": "2"}));
    let manifest = ParsedManifest::parse(0, &conflict.to_string()).unwrap();
    assert_eq!(
        Desired::new(manifest, true).unwrap_err().to_string(),
        "secret has different values for key a in data and stringData"
    );
}

#[test]
fn the_token_of_a_service_account_stays() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "type": "kubernetes.io/service-account-token", "data": {"extra": "MQ=="},
    });
    let manifest = desired(&secret);
    let live = stored(&create(&manifest), &json!({"data": {"token": "dG9rZW4="}}));
    assert_eq!(
        plan_update(&manifest, Some(&live), &owner(), History::AppliedBefore),
        UpdatePlan::Unchanged
    );
    let mut changed = secret.clone();
    changed["data"]["extra"] = "Mg==".into();
    let sent = replace(&desired(&changed), &live, History::Unapplied);
    assert_eq!(sent["data"], json!({"extra": "Mg==", "token": "dG9rZW4="}));
}

#[test]
fn addresses_and_ports_of_a_service_stay() {
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
    let ports = json!([{"port": 80}, {"port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let wanted = service(json!({"type": "NodePort", "selector": {"a": "b"}, "ports": ports}));
    let mut live = stored(
        &create(&desired(&wanted)),
        &json!({"spec": {
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
        }}),
    );
    live["spec"]["ports"] = json!([
        {"port": 53, "protocol": "TCP", "nodePort": 30054},
        {"port": 80, "protocol": "TCP", "nodePort": 30080, "targetPort": 80},
    ]);
    let sent = replace(&desired(&wanted), &live, History::Unapplied);
    assert_eq!(
        sent["spec"],
        json!({
            "type": "NodePort", "selector": {"a": "b"},
            "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP", "nodePort": 30053}],
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        })
    );
    let internal = service(json!({"ports": [{"port": 80}]}));
    let sent = replace(&desired(&internal), &live, History::Unapplied);
    assert_eq!(
        sent["spec"]["ports"],
        json!([{"port": 80}]),
        "no node port without a node"
    );
    let headless = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
    let sent = replace(&desired(&headless), &live, History::Unapplied);
    assert_eq!(
        (&sent["spec"]["clusterIP"], sent["spec"].get("clusterIPs")),
        (&json!("None"), None)
    );
    let external = service(json!({"type": "ExternalName", "externalName": "x.example.org"}));
    let sent = replace(&desired(&external), &live, History::Unapplied);
    assert_eq!(sent["spec"].get("clusterIP"), None);

    let local =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    live["spec"]["healthCheckNodePort"] = 30999.into();
    let sent = replace(&desired(&service(local)), &live, History::Unapplied);
    assert_eq!(sent["spec"]["healthCheckNodePort"], 30999);
}

/// Comparing each with each would take billions of steps here.
#[test]
fn thousands_of_ports_and_webhooks_find_what_the_cluster_assigned() {
    const MANY: usize = 50_000;
    let ports = |assigned: bool| -> Value {
        let port = |n: usize| match assigned {
            true => json!({"port": n, "protocol": "TCP", "nodePort": n}),
            false => json!({"port": n}),
        };
        (0..MANY).map(port).collect()
    };
    let service = |ports: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"type": "NodePort", "ports": ports}})
    };
    let mut live = service(ports(true));
    live["spec"]["ports"].as_array_mut().unwrap().reverse();
    let sent = replace(&desired(&service(ports(false))), &live, History::Unapplied);
    assert_eq!(sent["spec"]["ports"][MANY - 1]["nodePort"], json!(MANY - 1));

    let webhooks = |ca: Value| -> Value {
        let webhook = |n: usize| json!({"name": format!("w{n}"), "clientConfig": {"caBundle": ca}});
        (0..MANY).map(webhook).collect()
    };
    let configuration = |ca: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "a"},
            "kind": "ValidatingWebhookConfiguration", "webhooks": webhooks(ca)})
    };
    let mut live = configuration(json!("TUlORQ=="));
    live["webhooks"].as_array_mut().unwrap().reverse();
    let sent = replace(
        &desired(&configuration(json!(""))),
        &live,
        History::Unapplied,
    );
    let config = &sent["webhooks"][MANY - 1]["clientConfig"];
    assert_eq!(config["caBundle"], json!("TUlORQ=="));
}
