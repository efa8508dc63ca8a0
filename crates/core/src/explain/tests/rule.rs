use super::*;

fn rule(ready: Option<Value>, unresolved: &[Value]) -> Node {
    let rule = json!({
        "metadata": {"namespace": "shop", "name": "config", "generation": 1,
            "creationTimestamp": SINCE},
        "spec": {"destination": "audit", "rules": [{"resources": ["configmaps"]}]},
        "status": {"conditions": ready.into_iter().collect::<Vec<_>>(), "types": 2,
            "watches": {"total": 2, "synced": 2}, "events": 7, "lastEventTime": SINCE,
            "unresolved": unresolved}});
    let rule: muster_api::rules::WatchRule = serde_json::from_value(rule).unwrap();
    explain_rule(&rule.into())
}

fn not_ready(reason: &str) -> Value {
    condition("Ready", "False", 1, reason, "why")
}

#[test]
fn each_reason_of_a_rule_has_its_cause() {
    let gadgets = |reason: &str| json!({"resource": "gadgets", "reason": reason, "message": "why"});
    let resource = |state: &str, reason: &str| {
        format!("Resource gadgets @- {state} {reason}: why since 00:00")
    };
    let itself = |state: &str, reason: &str| {
        format!("WatchRule shop/config @- {state} {reason}: why since 00:00")
    };
    for (reason, named, expected) in [
        ("TypeUnknown", true, resource("failed", "TypeUnknown")),
        ("Ambiguous", true, resource("failed", "Ambiguous")),
        ("RefusedBySink", true, resource("failed", "RefusedBySink")),
        (
            "DiscoveryFailed",
            true,
            resource("unknown", "DiscoveryFailed"),
        ),
        ("InvalidRule", false, itself("failed", "InvalidRule")),
        ("Forbidden", false, itself("failed", "Forbidden")),
        ("WatchFailed", false, itself("failed", "WatchFailed")),
        ("Syncing", false, itself("waiting", "Syncing")),
        (
            "WaitingForWatch",
            false,
            itself("waiting", "WaitingForWatch"),
        ),
        (
            "UnknownDestination",
            false,
            "Sink audit @- failed UnknownDestination: why since 00:00".to_owned(),
        ),
        (
            "SinkFailing",
            false,
            "Sink audit @- failed SinkFailing: why since 00:00".to_owned(),
        ),
    ] {
        let unresolved: Vec<Value> = named.then(|| gadgets(reason)).into_iter().collect();
        let tree = rule(Some(not_ready(reason)), &unresolved);
        assert_eq!(cause(&tree), expected);
    }
}

#[test]
fn a_rule_that_is_watched_tells_what_it_does() {
    let tree = rule(
        Some(condition("Ready", "True", 1, "Watching", "2 watches")),
        &[],
    );
    assert_eq!(cause(&tree), "none");
    assert_eq!(
        tree.message,
        "types: 2, watches: 2, events since the agent started: 7, the last at 2026-01-02T00:00:00Z"
    );
}

#[test]
fn a_rule_that_nobody_looked_at_waits_for_an_agent() {
    let unseen = "WatchRule shop/config @- waiting NotSeen: no agent has looked at generation 1: only \
                  one whose settings have sinks does since";
    assert_eq!(cause(&rule(None, &[])), format!("{unseen} 00:00"));
    let mut old = not_ready("TypeUnknown");
    old["observedGeneration"] = json!(0);
    let gone = json!({"resource": "gadgets", "reason": "TypeUnknown", "message": "why"});
    assert_eq!(cause(&rule(Some(old), &[gone])), format!("{unseen} ?"));
}

#[test]
fn a_rule_of_the_whole_cluster_has_no_namespace() {
    let rule: muster_api::rules::ClusterWatchRule = serde_json::from_value(json!({
        "metadata": {"name": "all", "generation": 1},
        "spec": {"destination": "audit", "rules": []}}))
    .unwrap();
    let tree = explain_rule(&rule.into());
    assert_eq!(tree.to_string(), "ClusterWatchRule all");
    assert_eq!(tree.children[0].to_string(), "Sink audit");
}
