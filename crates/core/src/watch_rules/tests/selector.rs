use proptest::prelude::*;

use super::*;

fn takes(item: Value, operation: Operation, group: &str, version: &str, resource: &str) -> bool {
    let rule = rule("ns", "r", json!([item]));
    let of = TypeFacts {
        group,
        version,
        resource,
        namespaced: true,
    };
    rule.items[0].takes(operation, of, Some("ns"), &labels(&[]))
}

#[test]
fn resources_are_named_in_any_case_and_by_two_wildcards() {
    for (pattern, resource, expected) in [
        ("*", "pods", true),                     // S1
        ("pods", "Pods", true),                  // S3
        ("  Pods ", "pods", true),               // S3, S37
        ("pods", "services", false),             // S4
        ("pods/*", "pods/log", true),            // S5
        ("pods/*", "pods/status", true),         // S5
        ("pods/*", "pods", false),               // S6
        ("pods/*", "deployments/status", false), // S6
        ("pods/log", "pods/log", true),          // S7
        ("Pods/Log", "pods/log", true),
        ("pods/log", "pods/status", false), // S7
        ("pods/log", "pods", false),
        ("pods", "pods/log", false),
        ("pod*", "pods", false), // no globs
        ("*s", "pods", false),
        ("*/*", "pods/log", false),
    ] {
        let of = takes(
            json!({"resources": [pattern]}),
            Operation::Create,
            "",
            "v1",
            resource,
        );
        assert_eq!(of, expected, "{pattern:?} and {resource}");
    }
    // S2. The rule is refused, and the pattern matches nothing, not even a nameless resource.
    for resource in ["pods", ""] {
        assert!(!ResourcePattern::parse("").takes(resource));
    }
    for pattern in ["*", "pods", "pods/*", "pods/log"] {
        assert_eq!(ResourcePattern::parse(pattern).to_string(), pattern);
    }
}

#[test]
fn operations_are_all_or_those_named() {
    use Operation::{Create, Delete, Update};
    let taken = |operations: Value| -> Vec<Operation> {
        let item = json!({"operations": operations, "resources": ["pods"]});
        let takes = |operation: &Operation| takes(item.clone(), *operation, "", "v1", "pods");
        Operation::ALL.into_iter().filter(takes).collect()
    };
    assert_eq!(taken(json!([])), [Create, Update, Delete]); // S8
    assert_eq!(taken(json!(null)), [Create, Update, Delete]);
    assert_eq!(taken(json!(["*"])), [Create, Update, Delete]); // S9
    assert_eq!(taken(json!(["*", "CREATE"])), [Create, Update, Delete]);
    assert_eq!(taken(json!(["CREATE"])), [Create]); // S10
    assert_eq!(taken(json!(["CREATE", "UPDATE"])), [Create, Update]); // S11
    assert_eq!(taken(json!(["DELETE"])), [Delete]);
    let texts = Operation::ALL.map(|operation| operation.to_string());
    assert_eq!(texts, ["CREATE", "UPDATE", "DELETE"]);
}

#[test]
fn groups_are_all_or_those_named() {
    for (groups, group, expected) in [
        (json!([]), "apps", true), // S12
        (json!([]), "", true),
        (json!(["*"]), "apps", true), // S13
        (json!(["*"]), "", true),
        (json!([""]), "", true),           // S14
        (json!([""]), "apps", false),      // S14
        (json!(["apps"]), "batch", false), // S15
        (json!(["apps"]), "", false),
        (json!(["", "apps"]), "", true),     // S16
        (json!(["", "apps"]), "apps", true), // S16
        (json!([" apps "]), "apps", true),
        (json!(["app"]), "apps", false),
    ] {
        let item = json!({"apiGroups": groups, "resources": ["*"]});
        let of = takes(item, Operation::Create, group, "v1", "pods");
        assert_eq!(of, expected, "{groups} and {group:?}");
    }
}

#[test]
fn versions_are_all_or_those_named() {
    for (versions, version, expected) in [
        (json!([]), "v1", true), // S17
        (json!([]), "v1beta1", true),
        (json!(["*"]), "v1beta1", true),
        (json!(["v1"]), "v1beta1", false),           // S18
        (json!(["v1", "v1beta1"]), "v1beta1", true), // S19
    ] {
        let item = json!({"apiVersions": versions, "resources": ["*"]});
        let of = takes(item, Operation::Create, "apps", version, "pods");
        assert_eq!(of, expected, "{versions} and {version}");
    }
}

/// S20.
#[test]
fn facets_of_two_items_do_not_mix() {
    let rule = rule(
        "ns",
        "r",
        json!([
            {"operations": ["CREATE"], "resources": ["pods"]},
            {"operations": ["UPDATE"], "resources": ["services"]},
        ]),
    );
    let takes = |operation: Operation, resource: &str| {
        let of = TypeFacts {
            group: "",
            version: "v1",
            resource,
            namespaced: true,
        };
        let takes = |item: &ItemSelector| item.takes(operation, of, Some("ns"), &labels(&[]));
        rule.items.iter().any(takes)
    };
    assert!(takes(Operation::Create, "pods") && takes(Operation::Update, "services"));
    assert!(!takes(Operation::Update, "pods") && !takes(Operation::Create, "services"));
}

/// S22, S23, S24.
#[test]
fn scopes_do_not_mix() {
    let takes = |rule: &CompiledRule, resource: &str, namespace: Option<&str>| {
        let of = TypeFacts {
            group: "",
            version: "v1",
            resource,
            namespaced: namespace.is_some(),
        };
        let takes =
            |item: &ItemSelector| item.takes(Operation::Create, of, namespace, &labels(&[]));
        rule.items.iter().any(takes)
    };
    let own = rule("ns", "r", json!([{"resources": ["*"]}]));
    assert!(!takes(&own, "nodes", None)); // S22
    let cluster = cluster_rule("r", json!([{"scope": "Cluster", "resources": ["*"]}]));
    assert!(takes(&cluster, "nodes", None));
    assert!(!takes(&cluster, "pods", Some("ns"))); // S23
    assert!(!cluster.items[0].takes_object(Some("ns"), &labels(&[])));
    let both = json!([
        {"scope": "Cluster", "resources": ["nodes"]},
        {"scope": "Namespaced", "resources": ["pods"]},
    ]);
    let both = cluster_rule("r", both);
    assert!(takes(&both, "nodes", None)); // S24
    for namespace in ["a", "b"] {
        assert!(takes(&both, "pods", Some(namespace))); // S24
    }
    assert!(!takes(&both, "pods", None) && !takes(&both, "nodes", Some("a")));
}

/// S25, C129: the namespace is asked of the object, too, whatever the type's scope says.
#[test]
fn a_watch_rule_stays_in_its_namespace() {
    let own = rule("tilt-playground", "r", json!([{"resources": ["*"]}]));
    let everywhere = cluster_rule("r", json!([{"scope": "Namespaced", "resources": ["*"]}]));
    for (namespace, expected) in [
        (Some("tilt-playground"), true),
        (Some("gitops-reverser"), false),
        (Some("tilt-playground-2"), false),
        (None, false),
    ] {
        assert_eq!(own.items[0].takes_object(namespace, &labels(&[])), expected);
        let of_all = everywhere.items[0].takes_object(namespace, &labels(&[]));
        assert_eq!(of_all, namespace.is_some());
    }
}

/// S27.
#[test]
fn labels_are_those_of_kubernetes() {
    let takes = |selector: Value, of: &[(&str, &str)]| {
        let item = json!([{"resources": ["pods"], "labelSelector": selector}]);
        rule("ns", "r", item).items[0].takes_object(Some("ns"), &labels(of))
    };
    let ignore = json!({
        "matchLabels": {"app": "myapp"},
        "matchExpressions": [{"key": "example.com/ignore", "operator": "DoesNotExist"}],
    });
    assert!(takes(ignore.clone(), &[("app", "myapp"), ("x", "y")]));
    let ignored = [("app", "myapp"), ("example.com/ignore", "")];
    assert!(!takes(ignore.clone(), &ignored));
    assert!(!takes(ignore, &[("app", "other")]));
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
    for (operator, values, of_x, of_other, of_none) in [
        ("In", json!(["x", "y"]), true, false, false),
        ("NotIn", json!(["x", "y"]), false, true, true),
        ("Exists", json!([]), true, true, false),
        ("DoesNotExist", json!(null), false, false, true),
    ] {
        let selector = expression(operator, values);
        assert_eq!(takes(selector.clone(), &[("a", "x")]), of_x, "{operator}");
        assert_eq!(
            takes(selector.clone(), &[("a", "z")]),
            of_other,
            "{operator}"
        );
        assert_eq!(takes(selector, &[("b", "x")]), of_none, "{operator}");
    }
    assert!(takes(json!({}), &[]) && takes(json!(null), &[("a", "x")]));
}

/// What an item says, as it is written.
#[derive(Debug, Clone)]
struct Written {
    operations: Vec<&'static str>,
    groups: Vec<&'static str>,
    versions: Vec<&'static str>,
    resources: Vec<&'static str>,
    label: Option<&'static str>,
    scope: &'static str,
}

fn some(of: &'static [&'static str], min: usize) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(of), min..3)
}

fn written() -> impl Strategy<Value = Written> {
    (
        some(&["CREATE", "UPDATE", "DELETE", "*"], 0),
        some(&["", "apps", "*"], 0),
        some(&["v1", "v2", "*"], 0),
        some(&["pods", "Nodes", "*", "pods/*", "pods/log"], 1),
        prop::option::of(prop::sample::select(&["x", "y"][..])),
        prop::sample::select(&["Own", "Cluster", "Namespaced"][..]),
    )
        .prop_map(
            |(operations, groups, versions, resources, label, scope)| Written {
                operations,
                groups,
                versions,
                resources,
                label,
                scope,
            },
        )
}

impl Written {
    fn compile(&self) -> ItemSelector {
        let mut item = json!({
            "operations": self.operations,
            "apiGroups": self.groups,
            "apiVersions": self.versions,
            "resources": self.resources,
        });
        if let Some(label) = self.label {
            item["labelSelector"] = json!({"matchLabels": {"l": label}});
        }
        let rule = if self.scope == "Own" {
            rule("ns", "r", json!([item]))
        } else {
            item["scope"] = json!(self.scope);
            cluster_rule("r", json!([item]))
        };
        rule.items[0].clone()
    }

    /// The rules of matching, written down one by one.
    fn takes(
        &self,
        operation: &str,
        (group, version, resource): (&str, &str, &str),
        namespace: Option<&str>,
        label: Option<&str>,
    ) -> bool {
        let of = |list: &[&str], one: &str| {
            list.is_empty() || list.contains(&"*") || list.contains(&one)
        };
        let resource = resource.to_lowercase();
        let of_resource = self.resources.iter().any(|pattern| {
            let pattern = pattern.to_lowercase();
            pattern == "*"
                || pattern == resource
                || pattern == "pods/*" && resource.starts_with("pods/")
        });
        let there = match self.scope {
            "Own" => namespace == Some("ns"),
            "Cluster" => namespace.is_none(),
            _ => namespace.is_some(),
        };
        of(&self.operations, operation)
            && of(&self.groups, group)
            && of(&self.versions, version)
            && of_resource
            && there
            && (self.label.is_none() || self.label == label)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Every item takes what the rules of matching say, on every object; and the two halves of the
    /// question say the same as the whole.
    #[test]
    fn items_take_what_a_naive_reading_takes(
        written in written(),
        operation in prop::sample::select(&Operation::ALL[..]),
        group in prop::sample::select(&["", "apps", "batch"][..]),
        version in prop::sample::select(&["v1", "v2", "v3"][..]),
        resource in prop::sample::select(&["pods", "PODS", "nodes", "pods/log", "pods/x", "a"][..]),
        namespace in prop::option::of(prop::sample::select(&["ns", "other"][..])),
        label in prop::option::of(prop::sample::select(&["x", "y", "z"][..])),
    ) {
        let item = written.compile();
        let of = TypeFacts { group, version, resource, namespaced: namespace.is_some() };
        let labels = label.map(|label| ("l".to_owned(), label.to_owned()));
        let labels = labels.into_iter().collect();
        let expected = written.takes(operation.as_str(), (group, version, resource), namespace, label);
        prop_assert_eq!(item.takes(operation, of, namespace, &labels), expected);
        let halves = item.operations.contains(operation)
            && item.takes_type(of)
            && item.takes_object(namespace, &labels);
        prop_assert_eq!(halves, expected);
    }
}
