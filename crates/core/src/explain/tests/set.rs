use super::*;

const PROGRESSIVE: &str = r#"{"type": "Progressive", "progressive": {"maxConcurrency": 1}}"#;

fn progressive() -> Value {
    serde_json::from_str(PROGRESSIVE).unwrap()
}

/// A work that carries an older template.
fn outdated(cluster: &str) -> Value {
    let mut work = work(cluster, &well());
    work["spec"] = json!({"workload": {"manifests": []}});
    work
}

fn failed() -> Vec<Value> {
    vec![condition("Applied", "False", 1, "R", "no such type")]
}

#[track_caller]
fn is(fleet: &Fleet, expected: &str) {
    let name = work_name("default", "web", "all");
    let said = cause(&fleet.explain());
    assert_eq!(said.replace(&name, "web-1"), expected);
}

/// The node of a cluster.
fn cluster(fleet: &Fleet, name: &str) -> Node {
    let tree = fleet.explain();
    let mut clusters = tree.children.iter().flat_map(|node| &node.children);
    clusters.find(|node| node.name == name).unwrap().clone()
}

#[test]
fn a_set_that_is_there_has_no_cause() {
    let mut fleet =
        Fleet::over(&["c1"], "ManifestWorks available in 1/1 clusters").with(work("c1", &well()));
    fleet.set["status"]["conditions"][0]["status"] = json!("True");
    fleet.set["status"]["summary"] = json!({"desiredTotal": 1, "updated": 1, "available": 1});
    let tree = fleet.explain();
    assert_eq!((tree.state, cause(&tree).as_str()), (State::Ok, "none"));
    assert_eq!(
        tree.message,
        "rolled out; 1 of 1 clusters updated, 1 available"
    );
    // A pause of what is there holds nothing up.
    fleet.set["metadata"]["annotations"]["muster.dev/paused"] = json!("true");
    let tree = fleet.explain();
    assert_eq!(cause(&tree), "none");
    assert_eq!(tree.warnings, ["paused by annotation muster.dev/paused"]);
}

#[test]
fn a_set_that_no_hub_has_seen_waits_for_one() {
    let mut fleet = Fleet::over(&["c1"], "");
    fleet.set["metadata"]["generation"] = json!(2);
    is(
        &fleet,
        "ManifestWorkReplicaSet default/web @- waiting NotSeen: no hub has looked at generation 2 \
         since ?",
    );
    fleet.set["status"] = json!({});
    is(
        &fleet,
        "ManifestWorkReplicaSet default/web @- waiting NotSeen: no hub has looked at generation 2 \
         since 00:00",
    );
}

#[test]
fn a_placement_that_is_missing_or_selects_nothing_is_named() {
    let verified = |fleet: &mut Fleet, reason: &str, message: &str| {
        let all = fleet.set["status"]["conditions"].as_array_mut().unwrap();
        all.push(condition("PlacementVerified", "False", 1, reason, message));
    };
    let mut fleet = Fleet::over(&[], "placement all does not exist");
    fleet.placement = None;
    verified(&mut fleet, "PlacementDecisionNotFound", "");
    is(
        &fleet,
        "Placement default/all @- waiting PlacementDecisionNotFound: it does not exist since 00:00",
    );

    let mut fleet = Fleet::over(&[], "no cluster is selected");
    verified(&mut fleet, "PlacementDecisionEmpty", "");
    is(
        &fleet,
        "Placement default/all @- waiting PlacementDecisionEmpty: it selects no cluster since 00:00",
    );
    let conditions = |fleet: &mut Fleet, all: Value| {
        fleet.placement.as_mut().unwrap()["status"] = json!({"conditions": all});
    };
    let satisfied = condition(
        "PlacementSatisfied",
        "False",
        1,
        "NoManagedClusterMatched",
        "none fits",
    );
    conditions(&mut fleet, json!([satisfied]));
    is(
        &fleet,
        "Placement default/all @- waiting NoManagedClusterMatched: it selects no cluster: none fits \
         since 00:00",
    );
    let wrong = condition(
        "PlacementMisconfigured",
        "True",
        1,
        "Wrong",
        "spec.x is odd",
    );
    conditions(&mut fleet, json!([satisfied, wrong]));
    is(
        &fleet,
        "Placement default/all @- failed Wrong: spec.x is odd since 00:00",
    );
    // No decisions at all: nobody decides here.
    conditions(&mut fleet, json!([]));
    fleet.decisions = Some(Vec::new());
    is(
        &fleet,
        "Placement default/all @- waiting NotSeen: nobody has decided which clusters it selects \
         since 00:00",
    );
    // Some clusters are there, and more were wanted: that holds nothing up.
    let mut fleet = Fleet::over(&["c1"], "").with(work("c1", &well()));
    conditions(&mut fleet, json!([satisfied]));
    let tree = fleet.explain();
    assert_eq!(cause(&tree), "none");
    assert_eq!(tree.children[0].warnings, ["none fits"]);
}

#[test]
fn a_strategy_or_a_group_that_does_not_read_is_told_at_its_placement() {
    let odd = json!({"type": "Progressive", "progressive": {"maxConcurrency": "many"}});
    let fleet = Fleet::over(&["c1"], "").strategy(odd);
    let said = cause(&fleet.explain());
    assert!(
        said.starts_with("Placement default/all @- failed NotAsExpected: rolloutStrategy."),
        "{said}"
    );
    let mut fleet = Fleet::over(&["c1"], "");
    let label = "placement all: PlacementDecision all-1: label x: incorrect group index \"\"";
    let all = fleet.set["status"]["conditions"].as_array_mut().unwrap();
    all.push(condition(
        "PlacementVerified",
        "False",
        1,
        "NotAsExpected",
        label,
    ));
    is(
        &fleet,
        "Placement default/all @- failed NotAsExpected: PlacementDecision all-1: label x: incorrect \
         group index \"\" since 00:00",
    );
}

#[test]
fn each_kind_of_pause_is_named() {
    let paused = |key: &str, value: &str| {
        let mut fleet = Fleet::over(&["c1", "c2"], "").with(work("c1", &well()));
        fleet.set["metadata"]["annotations"][key] = json!(value);
        fleet
    };
    let mut fleet = paused("muster.dev/paused", "true");
    is(
        &fleet,
        "ManifestWorkReplicaSet default/web @- waiting Paused: paused by annotation \
         muster.dev/paused since ?",
    );
    fleet.set["status"]["conditions"][1]["reason"] = json!("Paused");
    is(
        &fleet,
        "ManifestWorkReplicaSet default/web @- waiting Paused: paused by annotation \
         muster.dev/paused since 00:00",
    );
    let c2 = cluster(&fleet, "c2");
    assert_eq!(c2.message, "it has no work, and the set is paused");
    is(
        &paused("muster.dev/paused-clusters", "c2"),
        "ManagedCluster c2 @c2 waiting Paused: it has no work, and it is paused by annotation \
         muster.dev/paused-clusters on the set since ?",
    );
    let mut fleet = Fleet::over(&["c1", "c2"], "")
        .with(work("c1", &well()))
        .with(outdated("c2"));
    let managed = json!({"metadata": {"annotations": {"muster.dev/paused": "true"}}, "spec": {}});
    fleet.clusters.insert("c2".to_owned(), managed);
    is(
        &fleet,
        "ManagedCluster c2 @c2 waiting Paused: its work has another template, and it is paused by \
         annotation muster.dev/paused on the ManagedCluster since ?",
    );
}

#[test]
fn a_cluster_whose_turn_has_not_come_waits_for_those_before() {
    let fleet = Fleet::over(&["c1", "c2", "c3"], "")
        .strategy(progressive())
        .with(work("c1", &[]))
        .with(outdated("c2"));
    is(
        &fleet,
        "ManifestWork c1/web-1 @c1 waiting NotSeen: no agent has looked at it since 00:00",
    );
    let c2 = cluster(&fleet, "c2");
    assert_eq!(
        (c2.reason.as_str(), &*c2.waits_for),
        ("WaitsForTurn", &["c1".to_owned()][..])
    );
    assert_eq!(
        c2.message,
        "its work has another template, and waits until c1 is done"
    );
    let c3 = cluster(&fleet, "c3");
    assert_eq!(c3.message, "it has no work, and waits until c1 is done");
}

#[test]
fn a_soak_is_waited_for_and_says_until_when() {
    let soak = json!({"type": "Progressive",
        "progressive": {"maxConcurrency": 1, "minSuccessTime": "1h"}});
    let fleet = Fleet::over(&["c1", "c2"], "")
        .strategy(soak)
        .with(work("c1", &well()));
    is(
        &fleet,
        "ManagedCluster c2 @c2 waiting WaitsForSoak: it has no work, and waits until c1 has been well \
         for minSuccessTime, until 2026-01-02T01:00:00Z since ?",
    );
    assert_eq!(cluster(&fleet, "c1").state, State::Ok);
}

#[test]
fn a_rollout_that_failures_stopped_is_held_up_by_them() {
    let degraded = |cluster: &str| {
        let rules = [
            condition("Progressing", "True", 1, "Rule", "at it"),
            condition("Degraded", "True", 1, "Rule", "crash loop"),
        ];
        work(cluster, &[well(), rules.to_vec()].concat())
    };
    let fleet = Fleet::over(&["c1", "c2"], "")
        .strategy(progressive())
        .with(degraded("c1"));
    is(
        &fleet,
        "ManifestWork c1/web-1 @c1 failed Rule: crash loop since 00:00",
    );
    let c2 = cluster(&fleet, "c2");
    assert_eq!(
        (c2.reason.as_str(), &*c2.waits_for),
        ("RolloutStopped", &["c1".to_owned()][..])
    );
    assert_eq!(
        c2.message,
        "it has no work, and the rollout is stopped: 1 cluster failed, first c1, and maxFailures \
         allows 0"
    );
}

#[test]
fn a_cluster_that_took_too_long_has_failed() {
    let deadline = json!({"type": "All", "all": {"progressDeadline": "5m"}});
    let mut late = work("c1", &[]);
    late["metadata"]["annotations"] = json!({"muster.dev/rollout-started": SINCE});
    let progressing = condition("Progressing", "True", 1, "Rule", "at it");
    late["status"]["conditions"] = json!([well(), vec![progressing]].concat());
    let fleet = Fleet::over(&["c1"], "").strategy(deadline).with(late);
    is(
        &fleet,
        "ManagedCluster c1 @c1 failed TimedOut: it did not succeed within progressDeadline: at it \
         since 00:05",
    );
}

#[test]
fn a_work_that_is_not_there_has_a_refusal_or_is_to_come() {
    let refused = "ManifestWorks available in 0/2 clusters; cluster c1: namespaces \"c1\" not found, \
                   and 1 more";
    let fleet = Fleet::over(&["c1", "c2"], refused);
    is(
        &fleet,
        "ManagedCluster c1 @c1 failed WriteRefused: the hub's API refuses its work: namespaces \
         \"c1\" not found since ?",
    );
    assert_eq!(
        cluster(&fleet, "c2").message,
        "it has no work, and the hub has not written it yet"
    );
    is(
        &Fleet::over(&["c1"], "").with(outdated("c1")),
        "ManagedCluster c1 @c1 waiting NotWritten: its work has another template, and the hub has \
         not written it yet since ?",
    );
}

#[test]
fn an_agent_that_is_away_is_the_cause_of_what_it_did_not_do() {
    let away = |status: &str| {
        json!({"metadata": {}, "spec": {}, "status": {"conditions": [
            condition("ManagedClusterConditionAvailable", status, 1, "R", "no lease")]}})
    };
    let said = "ManagedCluster c1 @c1 unknown AgentAway: its agent is away: no lease since 00:00";
    for conditions in [vec![], well()] {
        let mut fleet = Fleet::over(&["c1", "c2"], "")
            .with(work("c1", &conditions))
            .with(work("c2", &[]));
        fleet.clusters.insert("c1".to_owned(), away("Unknown"));
        fleet.clusters.insert("c2".to_owned(), away("True"));
        is(&fleet, said);
        assert_eq!(cluster(&fleet, "c2").reason, "");
    }
    // What has failed has failed with the agent there.
    let mut fleet = Fleet::over(&["c1"], "").with(work("c1", &failed()));
    fleet.clusters.insert("c1".to_owned(), away("False"));
    is(
        &fleet,
        "ManifestWork c1/web-1 @c1 failed R: no such type since 00:00",
    );
    // Over a bus the hub knows.
    let message = "ManifestWorks available in 0/1 clusters, unknown in 1: the agent of c1 is away \
                   since 2026-01-02T00:00:00Z";
    is(
        &Fleet::over(&["c1"], message).with(work("c1", &[])),
        "ManagedCluster c1 @c1 unknown AgentAway: its agent is away since 00:00",
    );
}

#[test]
fn what_failed_comes_before_all_else_and_of_equals_the_oldest() {
    let mut newer = failed();
    newer[0]["lastTransitionTime"] = json!("2026-01-02T00:05:00Z");
    let mut fleet = Fleet::over(&["c1", "c2", "c3", "c4"], "")
        .with(work("c1", &[]))
        .with(work("c2", &newer))
        .with(work("c3", &failed()))
        .with(work("c4", &well()));
    fleet.set["metadata"]["annotations"]["muster.dev/paused"] = json!("true");
    is(
        &fleet,
        "ManifestWork c3/web-1 @c3 failed R: no such type since 00:00",
    );
    assert_eq!(fleet.explain().state, State::Failed);
}

#[test]
fn a_set_on_its_way_out_says_what_it_waits_for() {
    let waits = "deletion waits for 1 ManifestWorks, first c1/web-1: ManifestWork is being deleted";
    let message = format!("ManifestWorks available in 0/1 clusters; {waits}");
    let mut fleet = Fleet::over(&["c1"], &message).with(work("c1", &well()));
    fleet.set["metadata"]["deletionTimestamp"] = json!(SINCE);
    is(
        &fleet,
        &format!("ManifestWorkReplicaSet default/web @- waiting Deleting: {waits} since 00:00"),
    );
    fleet.set["status"]["message"] = json!("");
    is(
        &fleet,
        "ManifestWorkReplicaSet default/web @- waiting Deleting: it is being deleted since 00:00",
    );
}

#[test]
fn works_that_nobody_wants_any_more_are_shown_where_they_came_from() {
    let mut other = work("c2", &well());
    other["metadata"]["labels"]["work.open-cluster-management.io/placementname"] = json!("old");
    let fleet = Fleet::over(&["c1"], "")
        .with(work("c1", &well()))
        .with(work("c3", &well()))
        .with(other);
    let tree = fleet.explain();
    let told = |node: &Node| {
        let children = node.children.iter();
        let children = children.map(|child| format!("{} {}", child.name, child.reason));
        (node.name.clone(), children.collect::<Vec<_>>())
    };
    assert_eq!(
        tree.children.iter().map(told).collect::<Vec<_>>(),
        [
            (
                "all".to_owned(),
                vec!["c1 ".to_owned(), "c3 NotSelected".to_owned()]
            ),
            ("old".to_owned(), vec!["c2 NotSelected".to_owned()])
        ]
    );
    assert_eq!(
        tree.children[1].message,
        "the set does not refer to it any more"
    );
}

#[test]
fn of_two_works_in_a_cluster_the_one_that_stays_counts() {
    let mut going = work("c1", &failed());
    going["metadata"]["name"] = json!("a-first");
    going["metadata"]["deletionTimestamp"] = json!(SINCE);
    let mut second = work("c1", &failed());
    second["metadata"]["name"] = json!("z-last");
    let fleet = Fleet::over(&["c1"], "")
        .with(second)
        .with(going)
        .with(work("c1", &well()));
    is(&fleet, "none");
}

#[test]
fn what_may_not_be_read_is_no_failure() {
    let mut seen = Fleet::over(&[], "").with(work("c1", &well())).seen();
    seen.decisions = None;
    seen.placements
        .insert("all".to_owned(), Found::Unread("forbidden".to_owned()));
    let tree = explain_set(&seen);
    assert_eq!(cause(&tree), "none");
    assert_eq!(tree.children[0].children[0].name, "c1");
    seen.works.clear();
    assert_eq!(
        cause(&explain_set(&seen)),
        "Placement default/all @- unknown NotRead: forbidden since ?"
    );
}

#[test]
fn revisions_that_are_not_kept_are_a_warning() {
    let message = "ManifestWorks available in 1/1 clusters; revisions are not kept: forbidden";
    let fleet = Fleet::over(&["c1"], message).with(work("c1", &well()));
    let tree = fleet.explain();
    assert_eq!(tree.warnings, ["revisions are not kept: forbidden"]);
    assert_eq!(cause(&tree), "none");
}
