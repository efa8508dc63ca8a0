use std::sync::Arc;

use super::*;

/// S36, S37.
#[test]
fn groups_versions_and_resources_multiply() {
    let plan = plan_item(json!({
        "apiGroups": ["", "apps", "example.io"],
        "apiVersions": ["v1", "v1beta1"],
        "resources": ["  Deployments  ", "configmaps", "widgets"],
    }));
    assert_eq!(
        streams(&plan),
        [
            "configmaps.v1 in ns",
            "deployments.v1.apps in ns",
            "widgets.v1.example.io in ns",
            "widgets.v1beta1.example.io in ns",
        ]
    );
    assert_eq!(unresolved(&plan), []);
    assert_eq!(part(&plan).types, 4);
    let keys: Vec<_> = plan.streams.keys().cloned().collect();
    assert_eq!(part(&plan).streams, keys);
}

/// S38.
#[test]
fn one_type_is_one_stream() {
    let items = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["CREATE"]},
        {"resources": ["deployments"], "operations": ["DELETE"]},
    ]);
    let mut rules = vec![rule("ns", "a", items.clone()), rule("ns", "b", items)];
    let catalog = catalog(scan());
    let plan = plan_of(rules.clone(), &catalog);
    assert_eq!(streams(&plan), ["deployments.v1.apps in ns"]);
    let stream = plan.streams.values().next().unwrap();
    assert_eq!((&*stream.kind, stream.namespaced), ("Deployment", true));
    let takers = &stream.destinations["git"];
    assert_eq!(takers.len(), 2);
    assert!(takers.values().all(|items| *items == [0, 1].into()));

    rules.push(rule("ns", "c", json!([{"resources": ["statefulsets"]}])));
    rules[0].destination = "mqtt".into();
    let plan = plan_of(rules, &catalog);
    assert_eq!(plan.streams.len(), 2);
    let destinations = &plan.streams.values().next().unwrap().destinations;
    let destinations: Vec<_> = destinations.keys().map(|name| &**name).collect();
    assert_eq!(destinations, ["git", "mqtt"]);
}

/// S39.
#[test]
fn the_scope_decides() {
    let cluster = |scope: &str, resource: &str| {
        plan_cluster_item(json!({"scope": scope, "resources": [resource]}))
    };
    assert_eq!(
        streams(&cluster("Namespaced", "configmaps")),
        ["configmaps.v1 in everywhere"]
    );
    let nodes = cluster("Cluster", "nodes");
    assert_eq!(streams(&nodes), ["nodes.v1 in everywhere"]);
    assert!(!nodes.streams.values().next().unwrap().namespaced);
    for (plan, resource, advice) in [
        (
            cluster("Cluster", "configmaps"),
            "configmaps",
            "use scope Namespaced",
        ),
        (cluster("Namespaced", "nodes"), "nodes", "use scope Cluster"),
        (
            plan_item(json!({"resources": ["nodes"]})),
            "nodes",
            "use a ClusterWatchRule",
        ),
    ] {
        assert_eq!(streams(&plan), [""; 0]);
        assert_eq!(unresolved(&plan), [(resource, "WrongScope")]);
        assert!(message(&plan).contains(advice), "{}", message(&plan));
    }
}

/// S42, S52, C133.
#[test]
fn a_broken_group_keeps_its_streams_and_stops_no_other() {
    let rules = [
        rule("ns", "a", json!([{"resources": ["configmaps"]}])),
        rule(
            "ns",
            "b",
            json!([{"apiGroups": ["example.io"], "resources": ["widgets"]}]),
        ),
    ];
    let mut catalog = catalog(scan());
    let before = plan_of(rules.clone(), &catalog);
    let mut broken = scan();
    fail(&mut broken, "example.io", "v1");
    fail(&mut broken, "example.io", "v1beta1");
    for second in [30, 630, 6_300] {
        catalog.observe(at(second), broken.clone());
        catalog.observe(at(second + 29), broken.clone());
        assert_eq!(plan_of(rules.clone(), &catalog), before);
    }
    let new = rule("ns", "c", json!([{"resources": ["deployments"]}]));
    let mut with_new = plan_of(rules.into_iter().chain([new]), &catalog);
    assert_eq!(with_new.streams.len(), 3);
    with_new
        .streams
        .retain(|key, _| before.streams.contains_key(key));
    assert_eq!(with_new.streams, before.streams);

    // A wildcard has nothing to complain of: it keeps what it had.
    let item = json!([{"apiGroups": ["example.io"], "resources": ["*"]}]);
    let plan = plan_of([rule("ns", "d", item)], &catalog);
    assert_eq!((plan.streams.len(), unresolved(&plan)), (1, vec![]));
    // What the broken group has never shown is not "unknown".
    let item = json!([{"apiGroups": ["example.io"], "resources": ["gadgets"]}]);
    let plan = plan_of([rule("ns", "d", item)], &catalog);
    assert_eq!(unresolved(&plan), [("gadgets", "DiscoveryFailed")]);
    assert!(message(&plan).contains("gadgets in example.io/v1: 503 Service Unavailable"));
    // An item of another group does not care.
    let item = json!([{"apiGroups": ["apps"], "resources": ["gadgets"]}]);
    let plan = plan_of([rule("ns", "d", item)], &catalog);
    assert_eq!(unresolved(&plan), [("gadgets", "TypeUnknown")]);
}

/// S43, S44, S45, S51, C131.
#[test]
fn a_type_that_is_installed_later_is_taken_up() {
    let orders = json!([{
        "apiGroups": ["shop.example.com"], "apiVersions": ["v1"],
        "resources": ["icecreamorders"],
    }]);
    let rules = [
        rule("ns", "orders", orders),
        rule("ns", "other", json!([{"resources": ["configmaps"]}])),
    ];
    let mut catalog = catalog(scan());
    let before = plan_of(rules.clone(), &catalog);
    assert_eq!(streams(&before), ["configmaps.v1 in ns"]);
    let part = &before.rules[&rules[0].name];
    assert_eq!((part.types, part.unresolved.len()), (0, 1));
    assert_eq!(part.unresolved[0].reason, UnresolvedReason::TypeUnknown);
    assert_eq!(
        part.unresolved[0].message,
        "the API server serves no icecreamorders in the API group shop.example.com in version v1; \
         it is watched as soon as it is served"
    );

    let mut installed = scan();
    let orders = vec![found("icecreamorders", "IceCreamOrder", true)];
    add(&mut installed, "shop.example.com", "v1", true, orders);
    assert!(catalog.observe(at(60), installed));
    let after = plan_of(rules.clone(), &catalog);
    let part = &after.rules[&rules[0].name];
    assert_eq!((part.types, part.unresolved.len()), (1, 0));
    let key = before.streams.keys().next().unwrap();
    assert_eq!(after.streams[key], before.streams[key]);
}

/// S46, S47, C141.
#[test]
fn versions_are_chosen_and_objects_reported_once() {
    let reporting = |plan: &RulePlan| -> Vec<String> {
        let reports = |stream: &Stream| !stream.destinations.is_empty();
        let streams = plan.streams.iter().filter(|(_, stream)| reports(stream));
        streams.map(|(key, _)| text(key)).collect()
    };
    let (v1, v1beta1) = (
        "widgets.v1.example.io in ns",
        "widgets.v1beta1.example.io in ns",
    );
    let preferred = plan_item(json!({"resources": ["widgets"]}));
    assert_eq!(streams(&preferred), [v1]);
    assert_eq!(reporting(&preferred), [v1]);

    let every = plan_item(json!({"resources": ["widgets"], "apiVersions": ["*"]}));
    assert_eq!(streams(&every), [v1, v1beta1]);
    assert_eq!(reporting(&every), [v1]);
    assert_eq!((part(&every).types, part(&every).streams.len()), (2, 2));

    let both = plan_item(json!({"resources": ["widgets"], "apiVersions": ["v1", "v1beta1"]}));
    assert_eq!(reporting(&both), [v1, v1beta1]);

    // A wildcard does not move when another rule asks for an old version by name.
    let rules = [
        rule(
            "ns",
            "every",
            json!([{"resources": ["widgets"], "apiVersions": ["*"]}]),
        ),
        rule(
            "ns",
            "old",
            json!([{"resources": ["widgets"], "apiVersions": ["v1beta1"]}]),
        ),
    ];
    let plan = plan_of(rules.clone(), &catalog(scan()));
    for (key, stream) in &plan.streams {
        let takers: Vec<_> = stream.destinations["git"].keys().collect();
        let expected = usize::from(text(key) == v1beta1);
        assert_eq!(takers, [&rules[expected].name]);
    }
}

/// The preferred version of a group need not serve the resource, and may be in its grace.
#[test]
fn without_a_preferred_version_the_best_is_taken() {
    let widgets = json!([{"resources": ["widgets"]}]);
    let chosen = |catalog: &Catalog| streams(&plan_of([rule("ns", "r", widgets.clone())], catalog));
    let mut old = scan();
    for version in ["v1alpha1", "v2beta1", "v1beta2"] {
        let types = vec![found("widgets", "Widget", true)];
        add(&mut old, "example.io", version, false, types);
    }
    add(&mut old, "example.io", "v1", true, vec![]);
    assert_eq!(chosen(&catalog(old)), ["widgets.v2beta1.example.io in ns"]);

    let mut catalog = catalog(scan());
    let mut gone = scan();
    gone.answers.remove(&GroupVersion::new("example.io", "v1"));
    catalog.observe(at(10), gone.clone());
    assert_eq!(
        chosen(&catalog),
        ["widgets.v1.example.io in ns"],
        "it may come back"
    );
    catalog.observe(at(70), gone.clone());
    assert_eq!(chosen(&catalog), ["widgets.v1beta1.example.io in ns"]);

    // Another version is preferred now, so the one that is missing does not come back as such.
    let mut moved = super::catalog(scan());
    add(
        &mut gone,
        "example.io",
        "v1alpha1",
        true,
        vec![found("widgets", "Widget", true)],
    );
    moved.observe(at(10), gone);
    assert_eq!(chosen(&moved), ["widgets.v1alpha1.example.io in ns"]);
}

/// S49.
#[test]
fn a_wildcard_is_all_that_can_be_watched() {
    let mut scan = scan();
    let unwatchable = FoundResource {
        verbs: ["create".to_owned()].into(),
        ..found("reviews", "Review", true)
    };
    add(
        &mut scan,
        "authorization.k8s.io",
        "v1",
        true,
        vec![unwatchable],
    );
    fail(&mut scan, "metrics.io", "v1");
    let catalog = catalog(scan);
    let everywhere = json!([{"scope": "Namespaced", "resources": ["*"]}]);
    let plan = plan_of([cluster_rule("r", everywhere)], &catalog);
    assert_eq!(
        streams(&plan),
        [
            "configmaps.v1 in everywhere",
            "secrets.v1 in everywhere",
            "deployments.v1.apps in everywhere",
            "statefulsets.v1.apps in everywhere",
            "widgets.v1.example.io in everywhere",
        ]
    );
    // Of a group that has never answered nothing can be watched, and that is told.
    assert_eq!(unresolved(&plan), [("*.metrics.io/v1", "DiscoveryFailed")]);
    let cluster = json!([{"scope": "Cluster", "resources": ["*"], "apiGroups": ["", "apps"]}]);
    let plan = plan_of([cluster_rule("r", cluster)], &catalog);
    assert_eq!(
        streams(&plan),
        ["namespaces.v1 in everywhere", "nodes.v1 in everywhere"]
    );
    assert_eq!(unresolved(&plan), []);
}

/// C129.
#[test]
fn a_watch_rule_has_streams_of_its_namespace() {
    let item = || json!([{"resources": ["configmaps"]}]);
    let rules = [rule("ns1", "r", item()), rule("ns2", "r", item())];
    let plan = plan_of(rules, &catalog(scan()));
    assert_eq!(
        streams(&plan),
        ["configmaps.v1 in ns1", "configmaps.v1 in ns2"]
    );
    for stream in plan.streams.values() {
        assert_eq!(stream.destinations["git"].len(), 1);
    }
}

/// S55.
#[test]
fn a_namespace_and_the_cluster_are_two_streams() {
    let everywhere = json!({
        "scope": "Namespaced", "operations": ["UPDATE"], "resources": ["configmaps"],
    });
    let own = json!({"operations": ["CREATE"], "resources": ["configmaps"]});
    let rules = [
        cluster_rule("all", json!([everywhere])),
        rule("team-a", "own", json!([own])),
    ];
    let plan = plan_of(rules, &catalog(scan()));
    assert_eq!(
        streams(&plan),
        ["configmaps.v1 in everywhere", "configmaps.v1 in team-a"]
    );
}

/// C138: the plan is made of what there is, not of how it came about.
#[test]
fn the_order_of_arrival_means_nothing() {
    let first = rule("ns", "a", json!([{"resources": ["widgets"]}]));
    let second = cluster_rule("b", json!([{"scope": "Namespaced", "resources": ["*"]}]));
    let mut without = scan();
    without.answers.retain(|of, _| &*of.group != "example.io");
    let mut late = catalog(without);
    late.observe(at(3), scan());
    let plans = [
        plan_of([first.clone(), second.clone()], &catalog(scan())),
        plan_of([second, first], &late),
    ];
    assert_eq!(plans[0], plans[1]);
    assert!(
        plans[0]
            .rules
            .values()
            .all(|part| part.unresolved.is_empty())
    );
}

/// C140.
#[test]
fn the_core_group_keeps_its_empty_name() {
    for item in [
        json!({"apiGroups": [""], "resources": ["configmaps"]}),
        json!({"resources": ["configmaps"]}),
    ] {
        let plan = plan_item(item);
        let key = plan.streams.keys().next().unwrap();
        let resource = &key.resource;
        assert_eq!(
            (resource.group(), resource.version(), resource.resource()),
            ("", "v1", "configmaps")
        );
        assert_eq!(key.namespace, Some(Arc::from("ns")));
    }
}
