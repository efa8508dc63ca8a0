use super::*;

#[test]
fn faults_name_the_field() {
    let ok = json!({"resources": ["pods"]});
    let expression = |operator: &str| {
        json!({"resources": ["pods"], "labelSelector": {"matchExpressions": [
            {"key": "a", "operator": operator, "values": ["x"]},
        ]}})
    };
    for (item, expected) in [
        (
            json!({"resources": ["pods"], "operations": ["PATCH"]}),
            "spec.rules[1].operations[0]: unknown operation \"PATCH\"; known are CREATE, UPDATE, DELETE and *",
        ),
        (
            json!({"resources": ["pods"], "operations": ["CREATE", "create"]}),
            "spec.rules[1].operations[1]: unknown operation \"create\"; known are CREATE, UPDATE, DELETE and *",
        ),
        (json!({}), "spec.rules[1].resources: must not be empty"),
        (
            json!({"resources": ["pods", " "]}),
            "spec.rules[1].resources[1]: must not be empty",
        ),
        (
            json!({"resources": ["pods"], "apiVersions": ["", "v1"]}),
            "spec.rules[1].apiVersions[0]: must not be empty",
        ),
        (
            expression("Like"),
            "spec.rules[1].labelSelector.matchExpressions[0]: unknown operator \"Like\"",
        ),
        (
            expression("Exists"),
            "spec.rules[1].labelSelector.matchExpressions[0]: operator Exists takes no values",
        ),
    ] {
        let error = compile("ns", "r", json!([ok, item])).unwrap_err();
        assert_eq!(error.fault(), expected);
        assert_eq!(error.to_string(), format!("WatchRule ns/r: {expected}"));
    }
    let error = compile_cluster("r", json!([{"scope": "Planet", "resources": ["pods"]}]));
    assert_eq!(
        error.unwrap_err().to_string(),
        "ClusterWatchRule r: spec.rules[0].scope: unknown scope \"Planet\"; known are Cluster and \
         Namespaced"
    );
}

#[test]
fn a_rule_is_bounded_whatever_the_schema_admitted() {
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let labels = |count: usize| {
        let labels = names(count).into_iter().map(|name| (name, json!("x")));
        json!({"resources": ["pods"], "labelSelector":
            {"matchLabels": labels.collect::<serde_json::Map<_, _>>()}})
    };
    let items = |count: usize| vec![json!({"resources": ["pods"]}); count];
    let many = "must have at most 100 entries";
    for (field, of) in [
        ("spec.rules", &|count| json!(items(count)) as Value),
        (
            "spec.rules[0].resources",
            &|count| json!([{"resources": names(count)}]),
        ),
        (
            "spec.rules[0].apiVersions",
            &|count| json!([{"resources": ["pods"], "apiVersions": names(count)}]),
        ),
        (
            "spec.rules[0].apiGroups",
            &|count| json!([{"resources": ["pods"], "apiGroups": names(count)}]),
        ),
        ("spec.rules[0].labelSelector", &|count| {
            json!([labels(count)])
        }),
    ] as [(&str, &dyn Fn(usize) -> Value); 5]
    {
        assert!(compile("ns", "r", of(100)).is_ok(), "{field}");
        let error = compile("ns", "r", of(101)).unwrap_err();
        assert_eq!(error.fault(), format!("{field}: {many}"));
    }
}

#[test]
fn a_rule_needs_a_name_a_destination_and_items() {
    let fault = |metadata: Value, spec: Value| {
        let rule = json!({"metadata": metadata, "spec": spec});
        let rule = serde_json::from_value(rule).unwrap();
        compile_watch_rule(&rule).unwrap_err().fault()
    };
    let metadata = json!({"namespace": "ns", "name": "r"});
    let items = json!([{"resources": ["pods"]}]);
    let spec = json!({"destination": "git", "rules": items});
    for (broken, expected) in [
        (
            json!({"rules": items}),
            "spec.destination: must not be empty",
        ),
        (
            json!({"destination": " ", "rules": items}),
            "spec.destination: must not be empty",
        ),
        (
            json!({"destination": "git"}),
            "spec.rules: must not be empty",
        ),
    ] {
        assert_eq!(fault(metadata.clone(), broken), expected);
    }
    assert_eq!(
        fault(json!({"name": "r"}), spec.clone()),
        "metadata.namespace: must not be empty"
    );
    assert_eq!(
        fault(json!({"namespace": "ns"}), spec),
        "metadata.name: must not be empty"
    );
}

#[test]
fn names_tell_the_kind() {
    let own = rule("ns", "r", json!([{"resources": ["pods"]}])).name;
    let cluster = cluster_rule("r", json!([{"scope": "Cluster", "resources": ["nodes"]}])).name;
    assert_eq!(own.to_string(), "ns/r");
    assert_eq!(cluster.to_string(), "r");
    assert_eq!(own.kind(), RuleKind::WatchRule);
    assert_eq!(cluster.kind(), RuleKind::ClusterWatchRule);
    let rule = rule("ns", "r", json!([{"resources": ["pods"]}]));
    assert_eq!((&*rule.uid, rule.generation), ("u1", 1));
    assert_eq!(&*rule.destination, "git");
}

/// K3, S62: what is written differently and means the same is the same.
#[test]
fn rules_are_equal_if_they_mean_the_same() {
    let one = rule(
        "ns",
        "r",
        json!([
            {"resources": ["pods", "secrets"], "apiVersions": ["v1", "v2"],
             "labelSelector": {"matchLabels": {"a": "b"}}},
            {"resources": ["nodes"], "operations": []},
        ]),
    );
    let other = json!([
        {"resources": ["Nodes"], "operations": ["DELETE", "CREATE", "UPDATE"], "apiGroups": []},
        {"resources": ["nodes"], "operations": ["*"], "labelSelector": {}},
        {"resources": [" Secrets", "pods", "pods"], "apiVersions": ["v2", "v1", "v2"],
         "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
    ]);
    let mut same = rule("ns", "r", other);
    assert_eq!(one, same);
    (same.uid, same.generation) = ("u2".into(), 7);
    assert_eq!(one, same);
    same.destination = "mqtt".into();
    assert_ne!(one, same);

    let of = |item: Value| rule("ns", "r", json!([item]));
    let plain = of(json!({"resources": ["pods"]}));
    for different in [
        of(json!({"resources": ["pods", "secrets"]})),
        of(json!({"resources": ["pods"], "operations": ["CREATE"]})),
        of(json!({"resources": ["pods"], "apiGroups": ["*"]})), // not the one that serves it
        of(json!({"resources": ["pods"], "apiGroups": [""]})),
        of(json!({"resources": ["pods"], "apiVersions": ["*"]})),
        of(json!({"resources": ["pods"], "labelSelector": {"matchLabels": {"a": "b"}}})),
        rule("ns", "r2", json!([{"resources": ["pods"]}])),
        rule("ns2", "r", json!([{"resources": ["pods"]}])),
        cluster_rule("r", json!([{"scope": "Namespaced", "resources": ["pods"]}])),
    ] {
        assert_ne!(plain, different);
    }
    let scoped = |scope: &str| cluster_rule("r", json!([{"scope": scope, "resources": ["x"]}]));
    assert_ne!(scoped("Cluster"), scoped("Namespaced"));
}
