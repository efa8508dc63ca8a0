use super::*;

/// A group or version that gives nothing is told, though the rest of the item is watched.
#[test]
fn what_an_item_names_in_vain_is_told() {
    let plan = plan_item(json!({
        "apiGroups": ["apps", "bathc"],
        "apiVersions": ["v1", "v7"],
        "resources": ["deployments"],
    }));
    assert_eq!(streams(&plan), ["deployments.v1.apps in ns"]);
    assert_eq!(
        unresolved(&plan),
        [("*.bathc", "TypeUnknown"), ("*.v7", "TypeUnknown")]
    );
    let mut broken = scan();
    fail(&mut broken, "metrics.io", "v1");
    let item = json!([{"apiGroups": ["apps", "metrics.io"], "resources": ["deployments"]}]);
    let plan = plan_of([rule("ns", "r", item)], &catalog(broken));
    assert_eq!(unresolved(&plan), [("*.metrics.io", "DiscoveryFailed")]);
    assert!(message(&plan).contains("in metrics.io/v1: 503 Service Unavailable"));
}

/// S40.
#[test]
fn excluded_types_say_so() {
    let mut scan = scan();
    let batch = vec![
        found("jobs", "Job", true),
        found("cronjobs", "CronJob", true),
    ];
    add(&mut scan, "batch", "v1", true, batch);
    let catalog = catalog(scan);
    let items = json!([
        {"resources": ["pods", "configmaps"]},
        {"apiGroups": ["batch"], "resources": ["jobs"]},
        {"apiGroups": ["*"], "resources": ["events"]},
    ]);
    let rules = snapshot([rule("ns", "r", items)]);
    let plan = plan_rules(&rules, &catalog, &Exclusions::default());
    assert_eq!(streams(&plan), ["configmaps.v1 in ns"]);
    let mut told = unresolved(&plan);
    told.sort_unstable();
    assert_eq!(
        told,
        [
            ("events", "Excluded"),
            ("jobs", "Excluded"),
            ("pods", "Excluded")
        ]
    );
    assert!(message(&plan).contains("list of types that this agent does not watch"));

    let own = Exclusions::new([("", "Events"), ("batch", "jobs")]);
    let plan = plan_rules(&rules, &catalog, &own);
    assert_eq!(
        streams(&plan),
        [
            "configmaps.v1 in ns",
            "pods.v1 in ns",
            "events.v1.events.k8s.io in ns"
        ]
    );
    assert_eq!(unresolved(&plan), [("jobs", "Excluded")]);
}

/// A sink may take less than others; a rule that means everything gets what its sink takes.
#[test]
fn what_a_sink_refuses_says_so() {
    let mut exclusions = Exclusions::new([]);
    exclusions.refuse("git", ("", "Secrets"), "it has no key");
    let items = json!([{"resources": ["secrets", "configmaps"]}]);
    let plan = |rule: CompiledRule| plan_rules(&snapshot([rule]), &catalog(scan()), &exclusions);
    let named = plan(rule("ns", "r", items.clone()));
    assert_eq!(streams(&named), ["configmaps.v1 in ns"]);
    assert_eq!(unresolved(&named), [("secrets", "RefusedBySink")]);
    assert_eq!(
        message(&named),
        "the sink git takes no secrets: it has no key"
    );

    let other = CompiledRule {
        destination: "log".into(),
        ..rule("ns", "r", items)
    };
    let other = plan(other);
    assert_eq!(streams(&other), ["configmaps.v1 in ns", "secrets.v1 in ns"]);
    assert!(unresolved(&other).is_empty());

    let core = json!([{"apiGroups": [""], "resources": ["*"]}]);
    let all = plan(rule("ns", "r", core));
    assert!(unresolved(&all).is_empty());
    let streams = streams(&all);
    assert!(streams.contains(&"configmaps.v1 in ns".to_owned()));
    assert!(!streams.contains(&"secrets.v1 in ns".to_owned()));
}

/// S41.
#[test]
fn what_cannot_be_watched_says_so() {
    let mut scan = scan();
    let with = |verbs: &[&str]| FoundResource {
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..found("reviews", "Review", true)
    };
    for (verbs, told) in [
        (&["get", "list"][..], "offers get, list and not both"),
        (&["watch"], "offers watch and not both"),
        (&[], "offers nothing and not both"),
    ] {
        add(&mut scan, "example.io", "v1", true, vec![with(verbs)]);
        let item = json!([{"resources": ["reviews"]}]);
        let plan = plan_of([rule("ns", "r", item)], &catalog(scan.clone()));
        assert_eq!(streams(&plan), [""; 0]);
        assert_eq!(unresolved(&plan), [("reviews", "NotWatchable")]);
        assert!(message(&plan).contains(told), "{}", message(&plan));
    }
    // Subresources have no watch; API servers refuse such rules, and older objects may have them.
    let plan = plan_item(json!({"resources": ["deployments/status", "pods/*", "secrets"]}));
    assert_eq!(streams(&plan), ["secrets.v1 in ns"]);
    assert_eq!(
        unresolved(&plan),
        [
            ("pods/*", "NotWatchable"),
            ("deployments/status", "NotWatchable")
        ]
    );
    assert!(message(&plan).contains("name pods to have its changes"));
}

#[test]
fn what_several_items_name_in_vain_is_told_once() {
    let items = json!([
        {"resources": ["ghosts"], "operations": ["CREATE"]},
        {"resources": ["ghosts", "pods"], "operations": ["DELETE"]},
    ]);
    let plan = plan_of([rule("ns", "r", items)], &catalog(scan()));
    assert_eq!(
        unresolved(&plan),
        [("ghosts", "TypeUnknown"), ("pods", "Excluded")]
    );
}

#[test]
fn an_unknown_type_is_told_where_it_is_to_be_found() {
    let told = |item: Value| {
        let plan = plan_item(item);
        assert_eq!(part(&plan).unresolved[0].reason.as_str(), "TypeUnknown");
        message(&plan).to_owned()
    };
    assert_eq!(
        told(json!({"apiGroups": [""], "apiVersions": ["v2"], "resources": ["deployments"]})),
        "the API server serves no deployments in the API group \"\" (core) in version v2, but \
         deployments.v1.apps"
    );
    assert_eq!(
        told(json!({"resources": ["deployments.apps"]})),
        "the API server serves no deployments.apps; name deployments in resources and apps in \
         apiGroups"
    );
    assert_eq!(
        told(json!({"apiGroups": ["nobody.io"], "resources": ["*"]})),
        "the API server serves nothing that can be watched in the API group nobody.io; it is \
         watched as soon as it is served"
    );
}

#[test]
fn before_the_server_has_told_no_type_is_unknown() {
    let rules = || {
        [
            rule("ns", "a", json!([{"resources": ["configmaps"]}])),
            rule("ns", "b", json!([{"resources": ["*"]}])),
        ]
    };
    let nothing = plan_of(rules(), &Catalog::default());
    assert!(nothing.streams.is_empty());
    for part in nothing.rules.values() {
        assert_eq!(part.unresolved[0].reason, UnresolvedReason::DiscoveryFailed);
        let message = "the API server has not told yet which types it serves";
        assert_eq!(part.unresolved[0].message, message);
    }
    let mut incomplete = Scan::default();
    add(
        &mut incomplete,
        "apps",
        "v1",
        true,
        vec![found("deployments", "Deployment", true)],
    );
    let plan = plan_of(rules(), &catalog(incomplete));
    assert_eq!(streams(&plan), ["deployments.v1.apps in ns"]);
    let part = &plan.rules[&rules()[0].name];
    assert_eq!(part.unresolved[0].reason, UnresolvedReason::DiscoveryFailed);
}

/// S48, C141.
#[test]
fn a_name_in_two_groups_is_refused() {
    let plan = plan_item(json!({"resources": ["events", "configmaps"]}));
    assert_eq!(streams(&plan), ["configmaps.v1 in ns"]);
    assert_eq!(unresolved(&plan), [("events", "Ambiguous")]);
    assert_eq!(
        message(&plan),
        "events is served by several API groups: \"\" (core), events.k8s.io; name one in apiGroups"
    );
    let mut scan = scan();
    add(
        &mut scan,
        "b.example.com",
        "v1",
        true,
        vec![found("widgets", "Widget", true)],
    );
    let metrics = FoundResource {
        verbs: ["get", "list"].map(str::to_owned).into(),
        ..found("configmaps", "ConfigMapMetrics", true)
    };
    add(&mut scan, "metrics.k8s.io", "v1beta1", true, vec![metrics]);
    let catalog = catalog(scan);
    let of = |item: Value| plan_of([rule("ns", "r", json!([item]))], &catalog);
    let refused = of(json!({"resources": ["widgets"]}));
    assert_eq!(streams(&refused), [""; 0]);
    assert!(message(&refused).contains("b.example.com, example.io"));
    let named = of(json!({"apiGroups": ["b.example.com"], "resources": ["widgets"]}));
    assert_eq!(streams(&named), ["widgets.v1.b.example.com in ns"]);
    let all = of(json!({"apiGroups": ["*"], "resources": ["widgets"]}));
    assert_eq!(all.streams.len(), 2);
    // A group in which it cannot be watched is not meant.
    let one = of(json!({"resources": ["configmaps"]}));
    assert_eq!(streams(&one), ["configmaps.v1 in ns"]);
    assert_eq!(unresolved(&one), []);
}

/// S50.
#[test]
fn two_resources_of_one_kind_are_refused() {
    let mut scan = scan();
    let types = vec![
        found("widgets", "Widget", true),
        found("widgetslegacy", "Widget", true),
        found("gadgets", "Gadget", true),
        FoundResource {
            verbs: ["create".to_owned()].into(), // nothing to mistake for another
            ..found("gadgetreviews", "Gadget", true)
        },
    ];
    add(&mut scan, "example.io", "v1", true, types);
    let catalog = catalog(scan);
    let of = |item: Value| plan_of([rule("ns", "r", json!([item]))], &catalog);
    for name in ["widgets", "widgetslegacy"] {
        let plan = of(json!({"resources": [name], "apiVersions": ["v1"]}));
        assert_eq!(streams(&plan), [""; 0]);
        assert_eq!(unresolved(&plan), [(name, "Ambiguous")]);
        assert!(message(&plan).contains("the same kind Widget"));
    }
    let all = of(json!({"resources": ["*"], "apiGroups": ["example.io"], "apiVersions": ["v1"]}));
    assert_eq!(streams(&all), ["gadgets.v1.example.io in ns"]);
    // In the other version the name is the only one of its kind.
    let other = of(json!({"resources": ["widgets"], "apiVersions": ["v1beta1"]}));
    assert_eq!(streams(&other), ["widgets.v1beta1.example.io in ns"]);
}
