//! Tests by the number of their scenario; the module above has the table.

#![allow(
    clippy::needless_pass_by_value,
    clippy::unwrap_in_result,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod catalog;
mod plan;
mod routing;
mod rule;
mod sanitize;
mod selector;
mod store;
mod unresolved;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

/// A WatchRule with these items.
fn compile(namespace: &str, name: &str, items: Value) -> Result<CompiledRule, RuleError> {
    let rule = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": "u1", "generation": 1},
        "spec": {"destination": "git", "rules": items},
    });
    compile_watch_rule(&serde_json::from_value(rule).unwrap())
}

/// A WatchRule that is right.
fn rule(namespace: &str, name: &str, items: Value) -> CompiledRule {
    compile(namespace, name, items).unwrap()
}

/// A ClusterWatchRule with these items.
fn compile_cluster(name: &str, items: Value) -> Result<CompiledRule, RuleError> {
    let rule = json!({
        "metadata": {"name": name, "uid": "u1", "generation": 1},
        "spec": {"destination": "git", "rules": items},
    });
    compile_cluster_watch_rule(&serde_json::from_value(rule).unwrap())
}

/// A ClusterWatchRule that is right.
fn cluster_rule(name: &str, items: Value) -> CompiledRule {
    compile_cluster(name, items).unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn snapshot(rules: impl IntoIterator<Item = CompiledRule>) -> RuleSnapshot {
    let rules = rules
        .into_iter()
        .map(|rule| (rule.name.clone(), rule.into()));
    RuleSnapshot {
        revision: 1,
        rules: rules.collect(),
    }
}

fn found(resource: &str, kind: &str, namespaced: bool) -> FoundResource {
    FoundResource {
        resource: resource.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: ["get", "list", "watch"].map(str::to_owned).into(),
    }
}

/// Adds what a group version serves.
fn add(scan: &mut Scan, group: &str, version: &str, preferred: bool, types: Vec<FoundResource>) {
    let answer = Answer {
        preferred,
        resources: Ok(types),
    };
    scan.answers
        .insert(GroupVersion::new(group, version), answer);
}

/// Lets a group version fail.
fn fail(scan: &mut Scan, group: &str, version: &str) {
    let answer = Answer {
        preferred: true,
        resources: Err("503 Service Unavailable".to_owned()),
    };
    scan.answers
        .insert(GroupVersion::new(group, version), answer);
}

/// A small cluster: some built-in types, widgets in two versions of one group.
fn scan() -> Scan {
    let mut scan = Scan {
        complete: true,
        ..Scan::default()
    };
    let core = vec![
        found("configmaps", "ConfigMap", true),
        found("secrets", "Secret", true),
        found("pods", "Pod", true),
        found("pods/log", "Pod", true),
        found("events", "Event", true),
        found("nodes", "Node", false),
        found("namespaces", "Namespace", false),
    ];
    add(&mut scan, "", "v1", true, core);
    let apps = vec![
        found("deployments", "Deployment", true),
        found("deployments/status", "Deployment", true),
        found("statefulsets", "StatefulSet", true),
        found("controllerrevisions", "ControllerRevision", true),
    ];
    add(&mut scan, "apps", "v1", true, apps);
    let events = vec![found("events", "Event", true)];
    add(&mut scan, "events.k8s.io", "v1", true, events);
    let widgets = || vec![found("widgets", "Widget", true)];
    add(&mut scan, "example.io", "v1beta1", false, widgets());
    add(&mut scan, "example.io", "v1", true, widgets());
    scan
}

fn at(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).unwrap()
}

/// A catalog that has seen this.
fn catalog(scan: Scan) -> Catalog {
    let mut catalog = Catalog::default();
    catalog.observe(at(0), scan);
    catalog
}

fn plan_of(rules: impl IntoIterator<Item = CompiledRule>, catalog: &Catalog) -> RulePlan {
    plan_rules(&snapshot(rules), catalog, &Exclusions::default())
}

/// The plan of one WatchRule in `ns` with one item, over the small cluster.
fn plan_item(item: Value) -> RulePlan {
    plan_of([rule("ns", "r", json!([item]))], &catalog(scan()))
}

/// The plan of one ClusterWatchRule with one item.
fn plan_cluster_item(item: Value) -> RulePlan {
    plan_of([cluster_rule("r", json!([item]))], &catalog(scan()))
}

fn text(key: &StreamKey) -> String {
    let namespace = key.namespace.as_deref().unwrap_or("everywhere");
    format!("{} in {namespace}", key.resource)
}

fn streams(plan: &RulePlan) -> Vec<String> {
    plan.streams.keys().map(text).collect()
}

/// The part of the only rule.
fn part(plan: &RulePlan) -> &RulePart {
    assert_eq!(plan.rules.len(), 1);
    plan.rules.values().next().unwrap()
}

/// What is not resolved: resource and reason.
fn unresolved(plan: &RulePlan) -> Vec<(&str, &str)> {
    let all = part(plan).unresolved.iter();
    all.map(|one| (one.resource.as_str(), one.reason.as_str()))
        .collect()
}

fn message(plan: &RulePlan) -> &str {
    &part(plan).unresolved[0].message
}
