use proptest::prelude::*;

use super::*;

/// Where a change of an object without labels goes: sinks, each with its rules, once for each stream
/// that brings it.
fn routes(
    plan: &RulePlan,
    rules: &RuleSnapshot,
    resource: &str,
    operation: Operation,
    namespace: &str,
) -> Vec<(String, Vec<String>)> {
    let routes = plan.routes(rules, |_| true, |_| false).into_iter();
    let routes = routes.filter(|(key, _)| {
        let own = key.namespace.as_deref();
        key.resource.to_string() == resource && own.is_none_or(|own| own == namespace)
    });
    let interests = routes
        .flat_map(|(_, sinks)| sinks)
        .filter_map(|(sink, of)| {
            let interest = of.of(Some(namespace), &labels(&[]))?;
            let rules = interest.of(operation).iter().map(ToString::to_string);
            Some((sink.to_string(), rules.collect::<Vec<_>>()))
        });
    interests.filter(|(_, rules)| !rules.is_empty()).collect()
}

fn plan_and_rules(rules: impl IntoIterator<Item = CompiledRule>) -> (RulePlan, RuleSnapshot) {
    let rules = snapshot(rules);
    let plan = plan_rules(&rules, &catalog(scan()), &Exclusions::default());
    (plan, rules)
}

fn goes_to(sink: &str, rules: &[&str]) -> (String, Vec<String>) {
    let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
    (sink.to_owned(), rules)
}

/// S21, S26.
#[test]
fn an_event_goes_to_a_sink_once() {
    let item = |operations: &[&str]| json!([{"resources": ["secrets"], "operations": operations}]);
    let mut other = rule("ns", "c", item(&["*"]));
    other.destination = "mqtt".into();
    let (plan, rules) = plan_and_rules([
        rule("ns", "a", item(&["CREATE"])),
        rule("ns", "b", item(&["CREATE", "UPDATE"])),
        other,
    ]);
    let routes = |operation| routes(&plan, &rules, "secrets.v1", operation, "ns");
    let mqtt = goes_to("mqtt", &["ns/c"]);
    let both = goes_to("git", &["ns/a", "ns/b"]);
    assert_eq!(routes(Operation::Create), [both, mqtt.clone()]);
    assert_eq!(
        routes(Operation::Update),
        [goes_to("git", &["ns/b"]), mqtt.clone()]
    );
    assert_eq!(routes(Operation::Delete), [mqtt]);

    let (plan, rules) = plan_and_rules([]);
    assert_eq!(plan, RulePlan::default());
    assert_eq!(
        super::routing::routes(&plan, &rules, "secrets.v1", Operation::Create, "ns"),
        []
    );
}

/// Only the items that chose a stream are asked about its events: the first item is refused, and
/// the second must not carry its events along.
#[test]
fn an_item_without_a_stream_takes_no_event_of_another() {
    let mut scan = scan();
    add(
        &mut scan,
        "b.example.com",
        "v1",
        true,
        vec![found("widgets", "Widget", true)],
    );
    let rules = snapshot([rule(
        "ns",
        "r",
        json!([
            {"resources": ["widgets"], "operations": ["CREATE"]},
            {"resources": ["widgets"], "operations": ["DELETE"], "apiGroups": ["b.example.com"]},
        ]),
    )]);
    let plan = plan_rules(&rules, &catalog(scan), &Exclusions::default());
    let routes = |operation| routes(&plan, &rules, "widgets.v1.b.example.com", operation, "ns");
    assert_eq!(routes(Operation::Create), []);
    assert_eq!(routes(Operation::Delete), [goes_to("git", &["ns/r"])]);
}

/// C129: whatever a stream brings, namespace and labels are asked of each object.
#[test]
fn an_event_of_another_object_goes_nowhere() {
    let item = json!([{"resources": ["secrets"], "labelSelector": {"matchLabels": {"a": "b"}}}]);
    let (plan, rules) = plan_and_rules([rule("ns", "r", item)]);
    let routes = plan.routes(&rules, |_| true, |_| false);
    let audience = &routes.values().next().unwrap()["git"];
    let goes = |namespace, pairs: &[(&str, &str)]| audience.of(namespace, &labels(pairs)).is_some();
    assert!(goes(Some("ns"), &[("a", "b")]));
    assert!(!goes(Some("ns"), &[("a", "c")]) && !goes(Some("ns"), &[]));
    assert!(!goes(Some("other"), &[("a", "b")]) && !goes(None, &[("a", "b")]));
}

/// Each rule hears of what it asks for, of the objects that it selects.
#[test]
fn rules_of_one_sink_differ_in_labels_and_operations() {
    let item = |label: &str, operations: &[&str]| {
        json!([{"resources": ["secrets"], "operations": operations,
            "labelSelector": {"matchLabels": {"a": label}}}])
    };
    let (plan, rules) = plan_and_rules([
        rule("ns", "one", item("1", &["CREATE", "UPDATE"])),
        rule("ns", "two", item("2", &[])),
        rule(
            "ns",
            "any",
            json!([{"resources": ["secrets"], "operations": ["CREATE"]}]),
        ),
    ]);
    let routes = plan.routes(&rules, |_| true, |_| false);
    let audience = &routes.values().next().unwrap()["git"];
    let hears = |interest: &Interest, operation: Operation| -> Vec<String> {
        let rules = interest.of(operation).iter();
        rules.map(ToString::to_string).collect()
    };
    let of = |label| audience.of(Some("ns"), &labels(&[("a", label)])).unwrap();
    let (one, two, other) = (of("1"), of("2"), of("3"));
    for (operation, expected) in [
        (
            Operation::Create,
            [
                vec!["ns/any", "ns/one"],
                vec!["ns/any", "ns/two"],
                vec!["ns/any"],
            ],
        ),
        (Operation::Update, [vec!["ns/one"], vec!["ns/two"], vec![]]),
        (Operation::Delete, [vec![], vec!["ns/two"], vec![]]),
    ] {
        let of_all = [&one, &two, &other].map(|interest| hears(interest, operation));
        assert_eq!(of_all, expected, "{operation}");
    }
    let all = hears(audience.all(), Operation::Create);
    assert_eq!(all, ["ns/any", "ns/one", "ns/two"]);
}

/// A sink that hears of the whole cluster hears of a namespace through that, with its rules.
#[test]
fn a_namespace_is_a_part_of_the_cluster() {
    let of_namespace = rule("ns", "r", json!([{"resources": ["secrets"]}]));
    let mut of_cluster = cluster_rule(
        "all",
        json!([{"scope": "Namespaced", "resources": ["secrets"], "operations": ["CREATE"]}]),
    );
    let streams = |rules: [CompiledRule; 2], refused: bool| -> Vec<String> {
        let (plan, rules) = plan_and_rules(rules);
        let routes = plan.routes(&rules, |_| true, |_| refused).into_iter();
        let streams = routes.map(|(key, sinks)| {
            let sinks: Vec<_> = sinks.keys().map(ToString::to_string).collect();
            format!(
                "{} {}",
                key.namespace.as_deref().unwrap_or("*"),
                sinks.join(",")
            )
        });
        streams.collect()
    };
    let both = [of_namespace.clone(), of_cluster.clone()];
    assert_eq!(streams(both.clone(), false), ["* git"]);
    // Until that of the cluster may be watched, each has its own.
    assert_eq!(streams(both.clone(), true), ["* git", "ns git"]);
    let (plan, rules) = plan_and_rules(both);
    let update = |namespace| routes(&plan, &rules, "secrets.v1", Operation::Update, namespace);
    assert_eq!(update("ns"), [goes_to("git", &["ns/r"])]);
    assert_eq!(update("other"), []);
    let none = plan.routes(&rules, |sink| sink != "git", |_| false);
    assert!(none.is_empty());
    // Another sink is another matter.
    of_cluster.destination = "mqtt".into();
    let others = streams([of_namespace, of_cluster], false);
    assert_eq!(others, ["* mqtt", "ns git"]);
}

/// A stream that is planned from other rules than those at hand leads nowhere it should not.
#[test]
fn a_rule_that_is_gone_routes_nothing() {
    let item = json!([{"resources": ["secrets"]}, {"resources": ["configmaps"]}]);
    let (plan, rules) = plan_and_rules([rule("ns", "r", item)]);
    let routes =
        |rules: &RuleSnapshot| routes(&plan, rules, "secrets.v1", Operation::Create, "ns").len();
    assert_eq!(routes(&rules), 1);
    assert_eq!(routes(&snapshot([])), 0);
    let fewer = rule("ns", "r", json!([{"resources": ["configmaps"]}]));
    let position = rules.rules.values().next().unwrap();
    let secrets = ResourcePattern::parse("secrets");
    let of_secrets = |item: &ItemSelector| item.resources.contains(&secrets);
    assert_eq!(position.items.iter().position(of_secrets), Some(1));
    assert_eq!(routes(&snapshot([fewer])), 0);
}

#[derive(Debug, Clone)]
struct Sketch {
    cluster: bool,
    sink: &'static str,
    resources: Vec<&'static str>,
    versions: Vec<&'static str>,
    operations: Vec<&'static str>,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let some =
        |of: &'static [&'static str], min| prop::collection::vec(prop::sample::select(of), min..3);
    (
        any::<bool>(),
        prop::sample::select(&["git", "mqtt"][..]),
        some(&["widgets", "secrets", "*", "ghosts"], 1),
        some(&["v1", "v1beta1", "*"], 0),
        some(&["CREATE", "UPDATE"], 0),
    )
        .prop_map(|(cluster, sink, resources, versions, operations)| Sketch {
            cluster,
            sink,
            resources,
            versions,
            operations,
        })
}

impl Sketch {
    fn compile(&self, name: &str) -> CompiledRule {
        let item = json!({
            "scope": "Namespaced",
            "resources": self.resources,
            "apiVersions": self.versions,
            "operations": self.operations,
        });
        let mut rule = if self.cluster {
            cluster_rule(name, json!([item]))
        } else {
            rule("ns", name, json!([item]))
        };
        rule.destination = self.sink.into();
        rule
    }

    /// Whether it has an event of this type brought to its sink, in any version that counts.
    fn wants(&self, resource: &str, version: &str, operation: Operation, namespace: &str) -> bool {
        let named = |list: &[&str], one: &str| list.contains(&one);
        let of_version = if self.versions.is_empty() || named(&self.versions, "*") {
            version == "v1"
        } else {
            named(&self.versions, version)
        };
        (self.cluster || namespace == "ns")
            && (named(&self.resources, "*") || named(&self.resources, resource))
            && of_version
            && (self.operations.is_empty() || named(&self.operations, operation.as_str()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever rules there are: an event reaches a sink through the streams if and only if a rule
    /// of that sink wants it, and every stream has a rule that asked for it.
    #[test]
    fn events_reach_the_sinks_that_want_them(
        sketches in prop::collection::vec(sketch(), 0..5),
        operation in prop::sample::select(&Operation::ALL[..]),
        (resource, group, version) in prop::sample::select(&[
            ("widgets", ".example.io", "v1"),
            ("widgets", ".example.io", "v1beta1"),
            ("secrets", "", "v1"),
        ][..]),
        namespace in prop::sample::select(&["ns", "other"][..]),
    ) {
        let rules = sketches.iter().enumerate().map(|(n, sketch)| sketch.compile(&format!("r{n}")));
        let (plan, rules) = plan_and_rules(rules);
        let full = format!("{resource}.{version}{group}");
        let reached = routes(&plan, &rules, &full, operation, namespace);
        for sink in ["git", "mqtt"] {
            let wanted = sketches.iter().any(|sketch| {
                sketch.sink == sink && sketch.wants(resource, version, operation, namespace)
            });
            let through = reached.iter().filter(|(to, _)| to == sink).count();
            prop_assert_eq!(through, usize::from(wanted), "{}: {:?}", sink, plan);
        }
        for key in plan.streams.keys() {
            prop_assert!(plan.rules.values().any(|part| part.streams.contains(key)));
        }
        for part in plan.rules.values() {
            prop_assert!(part.streams.is_sorted());
            prop_assert!(part.streams.iter().all(|key| plan.streams.contains_key(key)));
        }
    }
}
