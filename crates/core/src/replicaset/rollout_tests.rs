//! Stories of a rollout under a strategy, by a clock that the story sets.

use jiff::{SignedDuration, Timestamp};
use muster_api::replicaset::ReplicaSetPhase;
use muster_api::rollout::RolloutStrategy;
use serde_json::json;

use super::tests::{actions, conditions, in_groups, key, selects, work};
use super::*;
use crate::rollout::Strategy;

const V1: [u8; 32] = [1; 32];
const V2: [u8; 32] = [2; 32];

/// A set with a clock.
struct Scene {
    set: ReplicaSet,
    now: Timestamp,
}

fn strategy(body: serde_json::Value) -> Strategy {
    let strategy: RolloutStrategy = serde_json::from_value(body).unwrap();
    Strategy::read(&strategy).unwrap()
}

fn progressive(body: &serde_json::Value) -> Strategy {
    strategy(json!({"type": "Progressive", "progressive": body}))
}

fn per_group(body: &serde_json::Value) -> Strategy {
    strategy(json!({"type": "ProgressivePerGroup", "progressivePerGroup": body}))
}

fn template(generation: i64, spec_hash: [u8; 32], placements: &[(&str, &Strategy)]) -> Template {
    let placement = |(name, strategy): &(&str, &Strategy)| PlacementRef {
        name: (*name).to_owned(),
        strategy: Ok((*strategy).clone()),
    };
    Template {
        generation,
        spec_hash,
        labels: BTreeMap::new(),
        placements: placements.iter().map(placement).collect(),
    }
}

impl Scene {
    fn new(strategy: &Strategy, facts: Arc<PlacementFacts>) -> Self {
        let mut scene = Self {
            set: ReplicaSet::new("default", "web"),
            now: Timestamp::from_second(1_000_000).unwrap(),
        };
        scene.set.tick(scene.now);
        scene.set.set_template(template(1, V1, &[("p", strategy)]));
        scene.set.set_placement("p", Some(facts));
        scene
    }

    fn after(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.set.tick(self.now);
    }

    /// The work of a cluster with `hash` and conditions, which became so now.
    fn says(&mut self, cluster: &str, hash: [u8; 32], letters: &str) {
        let mut facts = work(hash, letters);
        let conditions = &mut facts.conditions;
        let all = [
            &mut conditions.applied,
            &mut conditions.available,
            &mut conditions.progressing,
            &mut conditions.degraded,
        ];
        for condition in all.into_iter().flatten() {
            condition.transition = self.now;
        }
        self.set.set_work(key(cluster), facts);
        assert_eq!(self.set.status(), self.set.recount());
    }

    fn actions(&mut self) -> Vec<String> {
        actions(&mut self.set)
    }

    fn progressing(&self) -> String {
        conditions(&self.set)[3].clone()
    }

    fn message(&self) -> String {
        self.set.status().message
    }
}

/// The four steps of the example in the design "Progressing and Ready conditions", with its soak;
/// C069 and C070.
#[test]
fn the_steps_of_the_design_value_for_value() {
    let strategy = progressive(&json!({"maxConcurrency": 1, "minSuccessTime": "1m"}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    assert_eq!(scene.actions(), ["create c1"]);
    scene.says("c1", V1, "AP");
    let expect = |scene: &Scene, five: [&str; 5], phase, message: &str| {
        assert_eq!(conditions(&scene.set), five);
        let status = scene.set.status();
        assert_eq!((status.phase, &*status.message), (Some(phase), message));
    };
    let since = "1970-01-12T13:46:40Z";
    expect(
        &scene,
        [
            "PlacementVerified=true AsExpected",
            "PlacementRolledOut=false Progressing",
            "ManifestworkApplied=false Processing",
            "Progressing=true RollingOutToClusters 1 of 2 clusters reporting progressing state",
            "Ready=false NotAllClustersAvailable ManifestWorks available in 0/2 clusters",
        ],
        ReplicaSetPhase::Progressing,
        &format!(
            "ManifestWorks available in 0/2 clusters; 1 cluster waits, c1 is under way since {since}"
        ),
    );
    scene.says("c1", V1, "AVp");
    expect(
        &scene,
        [
            "PlacementVerified=true AsExpected",
            "PlacementRolledOut=false Progressing",
            "ManifestworkApplied=true AsExpected",
            "Progressing=true Paused Rollout is paused to wait for progressive rules",
            "Ready=false NotAllClustersAvailable ManifestWorks available in 1/2 clusters",
        ],
        ReplicaSetPhase::Progressing,
        "ManifestWorks available in 1/2 clusters; paused until 1970-01-12T13:47:40Z, when c1 has \
         been well for minSuccessTime",
    );
    assert_eq!(
        scene.set.wake_at(),
        Some(scene.now + SignedDuration::from_mins(1))
    );
    scene.after(59);
    assert!(scene.actions().is_empty());
    scene.after(1);
    assert_eq!(scene.actions(), ["create c2"], "no event is needed");
    scene.says("c2", V1, "AP");
    expect(
        &scene,
        [
            "PlacementVerified=true AsExpected",
            "PlacementRolledOut=false Progressing",
            "ManifestworkApplied=false Processing",
            "Progressing=true RollingOutToClusters 2 of 2 clusters reporting progressing state",
            "Ready=false NotAllClustersAvailable ManifestWorks available in 1/2 clusters",
        ],
        ReplicaSetPhase::Progressing,
        "ManifestWorks available in 1/2 clusters",
    );
    scene.says("c2", V1, "AVp");
    expect(
        &scene,
        [
            "PlacementVerified=true AsExpected",
            "PlacementRolledOut=true Complete",
            "ManifestworkApplied=true AsExpected",
            "Progressing=false AllClustersReady 2 of 2 clusters reporting Completed state",
            "Ready=true AllClustersAvailable ManifestWorks available in 2/2 clusters",
        ],
        ReplicaSetPhase::Ready,
        "ManifestWorks available in 2/2 clusters",
    );
}

/// C055: conditions that do not turn with the template tell nothing of when a cluster got there.
#[test]
fn soak_counts_from_success_with_the_new_template() {
    let strategy = progressive(&json!({"maxConcurrency": 1, "minSuccessTime": "1m"}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    for cluster in ["c1", "c2"] {
        scene.says(cluster, V1, "AVp");
    }
    let old = scene.now;
    scene.after(3_600);
    scene.set.set_template(template(2, V2, &[("p", &strategy)]));
    assert_eq!(scene.actions(), ["patch c1"]);
    scene.after(5);
    // Conditions of generation 1, with times of an hour ago.
    let mut facts = work(V2, "AVp");
    facts.started = Some(scene.now - SignedDuration::from_secs(5));
    for condition in [
        &mut facts.conditions.applied,
        &mut facts.conditions.available,
        &mut facts.conditions.progressing,
    ] {
        condition.as_mut().unwrap().transition = old;
    }
    scene.set.set_work(key("c1"), facts.clone());
    scene.after(59);
    assert!(scene.actions().is_empty());
    assert_eq!(scene.set.status().summary.available, 1);
    scene.after(1);
    assert_eq!(scene.actions(), ["patch c2"]);

    // A hub that starts anew knows only when the work was given the template.
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    scene.set.set_template(template(2, V2, &[("p", &strategy)]));
    facts.started = Some(scene.now);
    scene.set.set_work(key("c1"), facts);
    scene.says("c2", V1, "AVp");
    scene.after(59);
    assert!(scene.actions().is_empty());
    scene.after(1);
    assert_eq!(scene.actions(), ["patch c2"]);
}

/// C056, and a cluster that never answers: nothing has to happen for a deadline to end.
#[test]
fn deadlines_end_by_themselves_also_where_no_agent_answers() {
    let strategy =
        progressive(&json!({"maxConcurrency": 1, "progressDeadline": "30s", "maxFailures": 2}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2", "c3"]));
    assert_eq!(scene.actions(), ["create c1"]);
    // Nobody applies it.
    let mut facts = work(V1, "");
    facts.started = Some(scene.now);
    scene.set.set_work(key("c1"), facts);
    assert!(
        scene.message().contains("c1 is under way since"),
        "{}",
        scene.message()
    );
    scene.after(30);
    assert_eq!(scene.actions(), ["create c2"]);
    // A work that cannot even be written has its time, too.
    scene.after(30);
    assert_eq!(scene.actions(), ["create c3"]);
    assert!(
        scene.message().contains("; timed out in 2, first c1"),
        "{}",
        scene.message()
    );
    // They get there late: no failures any more.
    for cluster in ["c1", "c2", "c3"] {
        scene.says(cluster, V1, "AV");
    }
    assert_eq!(scene.set.status().phase, Some(ReplicaSetPhase::Ready));
}

#[test]
fn too_many_failures_stop_a_rollout_and_say_so() {
    let strategy = progressive(&json!({"maxConcurrency": 2, "maxFailures": 1}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2", "c3", "c4"]));
    assert_eq!(scene.actions(), ["create c1", "create c2"]);
    scene.says("c1", V1, "APD");
    scene.says("c2", V1, "APD");
    assert!(scene.actions().is_empty());
    let why = "2 clusters failed, first c1, and maxFailures allows 1";
    assert_eq!(
        scene.progressing(),
        format!("Progressing=true Paused Rollout is stopped: {why}")
    );
    assert_eq!(
        scene.message(),
        format!("ManifestWorks available in 0/4 clusters, 2 degraded; stopped: {why}")
    );
    assert_eq!(scene.set.status().phase, Some(ReplicaSetPhase::Failed));
    // It goes on when one of them gets better.
    scene.says("c2", V1, "AVp");
    assert_eq!(scene.actions(), ["create c3"]);
}

#[test]
fn what_timed_out_and_is_not_degraded_fails_the_set_at_its_end() {
    let strategy = strategy(json!({"type": "All", "all": {"progressDeadline": "30s"}}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    assert_eq!(scene.actions(), ["create c1", "create c2"]);
    scene.says("c1", V1, "AVp");
    scene.says("c2", V1, "AP");
    assert_eq!(scene.set.status().phase, Some(ReplicaSetPhase::Progressing));
    scene.after(30);
    let status = scene.set.status();
    assert_eq!(status.phase, Some(ReplicaSetPhase::Failed));
    assert_eq!(
        status.message,
        "ManifestWorks available in 1/2 clusters; timed out in 1, first c2"
    );
    scene.says("c2", V1, "AVp");
    assert_eq!(scene.set.status().phase, Some(ReplicaSetPhase::Ready));
}

#[test]
fn groups_have_their_turn_by_index_and_gaps_do_not_matter() {
    let strategy = per_group(&json!({"mandatoryDecisionGroups": [{"groupName": "canary"}]}));
    let groups = in_groups(&[
        ("", "0", &["a1"]),
        ("", "4", &["b1"]),
        ("canary", "9", &["z1"]),
    ]);
    let mut scene = Scene::new(&strategy, groups);
    for cluster in ["z1", "a1", "b1"] {
        assert_eq!(scene.actions(), [format!("create {cluster}")]);
        scene.says(cluster, V1, "AV");
    }
}

/// C066, and one that joins.
#[test]
fn clusters_come_and_go_in_the_middle() {
    let strategy = progressive(&json!({"maxConcurrency": 1}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2", "c3"]));
    assert_eq!(scene.actions(), ["create c1"]);
    scene.says("c1", V1, "AV");
    assert_eq!(scene.actions(), ["create c2"]);
    scene.says("c2", V1, "AP");
    scene
        .set
        .set_placement("p", Some(selects(&["c1", "c3", "c4"])));
    let name = key("c2").name;
    assert_eq!(
        scene.actions(),
        [format!("delete c2/{name}"), "create c3".to_owned()]
    );
    assert_eq!(scene.set.status().summary.total, 1);
    scene.says("c3", V1, "AV");
    assert_eq!(scene.actions(), ["create c4"]);
}

#[test]
fn a_change_of_placements_keeps_who_was_told_to_begin() {
    let strategy = progressive(&json!({"maxConcurrency": 1}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    assert_eq!(scene.actions(), ["create c1"]);
    // Its work is not there yet.
    scene
        .set
        .set_placement("p", Some(selects(&["c0", "c1", "c2"])));
    assert!(scene.actions().is_empty(), "c1 has the only place");
    scene.says("c1", V1, "AV");
    assert_eq!(scene.actions(), ["create c0"]);
}

#[test]
fn a_work_that_somebody_changed_waits_for_its_turn() {
    let strategy = progressive(&json!({"maxConcurrency": 1}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    for cluster in ["c1", "c2"] {
        scene.says(cluster, V1, "AV");
    }
    assert!(scene.actions().is_empty());
    scene.says("c1", V2, "AV");
    scene.says("c2", V2, "AV");
    assert_eq!(scene.actions(), ["patch c1"]);
    scene.says("c1", V1, "AV");
    assert_eq!(scene.actions(), ["patch c2"]);
}

#[test]
fn a_paused_set_writes_nothing_and_its_status_goes_on() {
    let strategy = Strategy::default();
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    scene.set.set_pause(Pause {
        all: true,
        ..Pause::default()
    });
    assert!(scene.set.take_actions(9).is_empty());
    let why = "paused by annotation muster.dev/paused";
    assert_eq!(
        scene.progressing(),
        format!("Progressing=true Paused Rollout is {why}")
    );
    scene.says("c1", V2, "AV");
    assert!(scene.set.take_actions(9).is_empty(), "no repair either");
    scene.set.set_placement("p", Some(selects(&["c2"])));
    assert!(scene.set.take_actions(9).is_empty(), "no deletion either");
    assert_eq!(
        scene.message(),
        format!("ManifestWorks available in 0/1 clusters; {why}")
    );
    scene.set.set_pause(Pause::default());
    let name = key("c1").name;
    assert_eq!(
        scene.actions(),
        [format!("delete c1/{name}"), "create c2".to_owned()]
    );
}

#[test]
fn a_paused_cluster_is_left_out_and_stops_no_other() {
    let strategy = progressive(&json!({"maxConcurrency": 1}));
    let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
    let pause = Pause {
        clusters: ["c1".to_owned(), "elsewhere".to_owned()].into(),
        ..Pause::default()
    };
    scene.set.set_pause(pause.clone());
    assert_eq!(scene.actions(), ["create c2"]);
    scene.says("c2", V1, "AV");
    assert!(scene.actions().is_empty());
    assert_eq!(
        scene.progressing(),
        "Progressing=true Paused Rollout is paused in 1 cluster, first c1"
    );
    assert!(scene.message().ends_with("; paused in 1 cluster, first c1"));
    assert_eq!(scene.set.status(), scene.set.recount());
    // What was told to begin and is not written yet is held, too.
    scene.set.set_pause(Pause::default());
    assert_eq!(scene.set.take_actions(9).len(), 1);
    scene.set.set_pause(pause);
    scene.set.retry(&key("c1"));
    assert!(scene.actions().is_empty());
    scene.set.set_pause(Pause::default());
    assert_eq!(scene.actions(), ["create c1"]);
}

/// 7.5: two placements share a cluster.
#[test]
fn the_first_placement_decides_about_a_cluster_that_two_select() {
    let slow = progressive(&json!({"maxConcurrency": 1}));
    let mut scene = Scene::new(&slow, selects(&["c1", "c2"]));
    scene.set.set_template(template(
        2,
        V1,
        &[("p", &slow), ("q", &Strategy::default())],
    ));
    scene.set.set_placement("q", Some(selects(&["c2", "c3"])));
    let placements = |set: &mut ReplicaSet| -> Vec<String> {
        let taken = set.take_actions(9);
        let name = |action: &WorkAction| match action {
            WorkAction::Create { key, placement } | WorkAction::Patch { key, placement, .. } => {
                format!("{} of {placement}", key.cluster)
            }
            WorkAction::Delete { key } => format!("not {}", key.cluster),
        };
        taken.iter().map(name).collect()
    };
    // Not c2 by q, though q would let it: p has not.
    assert_eq!(placements(&mut scene.set), ["c1 of p", "c3 of q"]);
    scene.says("c1", V1, "AV");
    assert_eq!(
        placements(&mut scene.set),
        ["c2 of p", "c2 of q"],
        "both at once"
    );
    assert!(placements(&mut scene.set).is_empty(), "and no more");
}

#[test]
fn a_strategy_that_does_not_read_touches_no_cluster_and_shows() {
    let bad: RolloutStrategy = serde_json::from_value(
        json!({"type": "Progressive", "progressive": {"maxConcurrency": "abc"}}),
    )
    .unwrap();
    let good = Strategy::default();
    let mut scene = Scene::new(&good, selects(&["c1"]));
    let mut next = template(2, V2, &[("p", &good), ("q", &good)]);
    next.placements[0].strategy = Strategy::read(&bad);
    scene.set.set_template(next);
    scene.set.set_placement("q", Some(selects(&["c2"])));
    assert_eq!(
        scene.actions(),
        ["create c2"],
        "the other placement goes on"
    );
    let why = "placement p: rolloutStrategy.progressive.maxConcurrency: 'abc' is an invalid \
               maximum threshold value: string is not a percentage";
    assert_eq!(
        conditions(&scene.set)[0],
        format!("PlacementVerified=false NotAsExpected {why}")
    );
    assert!(scene.message().ends_with(why), "{}", scene.message());
}

#[test]
fn a_group_index_that_does_not_read_stops_only_who_goes_by_groups() {
    let facts = in_groups(&[("", "0", &["c1"]), ("", "x", &["c2"])]);
    let mut scene = Scene::new(&Strategy::default(), Arc::clone(&facts));
    assert_eq!(scene.actions(), ["create c1", "create c2"]);
    let mut scene = Scene::new(&per_group(&json!({})), facts);
    assert!(scene.actions().is_empty());
    let why = "placement p: PlacementDecision p-decision-x: label \
               cluster.open-cluster-management.io/decision-group-index: incorrect group index \"x\"";
    assert!(scene.message().ends_with(why), "{}", scene.message());
}

/// C054: what was said of an earlier generation decides nothing.
#[test]
fn conditions_of_an_earlier_generation_are_no_success() {
    let strategy = progressive(&json!({"maxConcurrency": 1}));
    // Observed generations of Applied, Progressing and Degraded; the work has generation 2.
    for (applied, progressing, degraded, next) in [
        (1, 2, None, false),
        (2, 1, None, false),
        (2, 2, Some(1), false),
        (2, 2, None, true),
        (2, 2, Some(2), true),
    ] {
        let mut scene = Scene::new(&strategy, selects(&["c1", "c2"]));
        assert_eq!(scene.actions(), ["create c1"]);
        let mut facts = work(V1, "Ap");
        facts.generation = 2;
        let conditions = &mut facts.conditions;
        let set = |condition: &mut Option<crate::rollout::ConditionFacts>, observed| {
            condition.as_mut().unwrap().observed_generation = Some(observed);
        };
        set(&mut conditions.applied, applied);
        set(&mut conditions.progressing, progressing);
        conditions.degraded = degraded.map(|observed| crate::rollout::ConditionFacts {
            status: crate::rollout::Truth::False,
            observed_generation: Some(observed),
            transition: Timestamp::UNIX_EPOCH,
        });
        scene.set.set_work(key("c1"), facts);
        let begun = scene.actions() == ["create c2"];
        assert_eq!(begun, next, "{applied} {progressing} {degraded:?}");
    }
}

/// C057 and C060: the error shows, and no cluster is touched.
#[test]
fn numbers_and_deadlines_are_read_as_documented() {
    let begins = |concurrency: serde_json::Value, clusters: usize| -> Result<usize, String> {
        let body = json!({"type": "Progressive", "progressive": {"maxConcurrency": concurrency}});
        let strategy: RolloutStrategy = serde_json::from_value(body).map_err(|e| e.to_string())?;
        let strategy = Strategy::read(&strategy).map_err(|error| error.to_string())?;
        let names: Vec<String> = (0..clusters).map(|n| format!("c{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(Scene::new(&strategy, selects(&names)).actions().len())
    };
    for (concurrency, clusters, expected) in [
        (json!("5%"), 10, 1),
        (json!("33%"), 10, 4),
        (json!("1%"), 5, 1),
        (json!("50.5%"), 10, 6),
        (json!("100%"), 5, 5),
        (json!("25%"), 0, 0),
        (json!(3), 10, 3),
    ] {
        assert_eq!(
            begins(concurrency.clone(), clusters),
            Ok(expected),
            "{concurrency}"
        );
    }
    for text in ["3", "abc"] {
        let error = begins(json!(text), 10).unwrap_err();
        let why = format!(
            "progressive.maxConcurrency: '{text}' is an invalid maximum threshold value: string is \
             not a percentage"
        );
        assert_eq!(error, why);
    }
    // Seconds until a cluster that is on its way has timed out; none: never.
    let deadline = |text: &str| -> Result<Option<i64>, String> {
        let body = json!({"type": "All", "all": {"progressDeadline": text}});
        let strategy: RolloutStrategy = serde_json::from_value(body).map_err(|e| e.to_string())?;
        let strategy = Strategy::read(&strategy).map_err(|error| error.to_string())?;
        let mut scene = Scene::new(&strategy, selects(&["c1"]));
        scene.actions();
        scene.says("c1", V1, "AP");
        let wake = scene.set.wake_at();
        let timed_out = scene.set.tally().timed_out == 1;
        let left = wake.map(|at| at.duration_since(scene.now).as_secs());
        Ok(if timed_out { Some(0) } else { left })
    };
    for (text, expected) in [
        ("None", None),
        ("", None),
        ("0s", Some(0)),
        ("90m30s", Some(5_430)),
    ] {
        assert_eq!(deadline(text), Ok(expected), "{text:?}");
    }
    for text in ["1d", "5", "-5m", "none", "5mx"] {
        let error = deadline(text).unwrap_err();
        assert!(error.starts_with("all.progressDeadline: "), "{error}");
    }
}

/// C063: however often it looks before it has seen what it wrote.
#[test]
fn a_stale_view_of_works_makes_no_second_work() {
    let mut scene = Scene::new(&Strategy::default(), selects(&["c1", "c2"]));
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        for action in scene.set.take_actions(9) {
            assert!(matches!(action, WorkAction::Create { .. }), "{action:?}");
            names.insert(action.key().clone());
        }
        for cluster in ["c1", "c2"] {
            scene.set.retry(&key(cluster));
        }
    }
    assert_eq!(names, BTreeSet::from([key("c1"), key("c2")]));
}

/// K09: a changed template begins again with the first group.
#[test]
fn a_changed_template_begins_with_the_first_group() {
    let strategy = per_group(&json!({}));
    let groups = in_groups(&[("", "0", &["a1", "a2", "a3"]), ("", "1", &["b1", "b2"])]);
    let mut scene = Scene::new(&strategy, groups);
    for cluster in ["a1", "a2", "a3", "b1", "b2"] {
        scene.says(cluster, V1, "AV");
    }
    assert_eq!(scene.set.status().phase, Some(ReplicaSetPhase::Ready));
    scene.set.set_template(template(2, V2, &[("p", &strategy)]));
    assert_eq!(scene.actions(), ["patch a1", "patch a2", "patch a3"]);
    for cluster in ["a1", "a2", "a3"] {
        scene.says(cluster, V2, "A");
    }
    // Differs from upstream, whose total drops to 3 here.
    let summary = scene.set.status().summary;
    assert_eq!((summary.total, summary.updated), (5, 3));
    assert!(scene.actions().is_empty());
    for cluster in ["a1", "a2", "a3"] {
        scene.says(cluster, V2, "AV");
    }
    assert_eq!(scene.actions(), ["patch b1", "patch b2"]);
}

/// Each way to stand, the worst first; the same order whatever the order of events.
#[test]
fn clusters_stand_in_the_order_of_their_trouble() {
    let strategy = progressive(&json!({
        "maxConcurrency": 4, "minSuccessTime": "1m", "progressDeadline": "10m", "maxFailures": 5,
    }));
    let clusters = ["c1", "c2", "c3", "c4", "c5", "c6", "c7"];
    let mut scene = Scene::new(&strategy, selects(&clusters));
    let stands = |scene: &Scene| -> Vec<String> {
        let all = scene.set.standings();
        assert_eq!(all.len(), clusters.len(), "each once");
        all.iter()
            .map(|one| {
                let stand = serde_json::to_value(one.stand).unwrap();
                let since = one.since.map(|since| (scene.now - since).get_seconds());
                format!("{} {} {since:?}", one.cluster, stand.as_str().unwrap())
            })
            .collect()
    };
    let begun = ["create c1", "create c2", "create c3", "create c4"];
    assert_eq!(scene.actions(), begun);
    scene.set.set_pause(Pause {
        all: false,
        clusters: BTreeSet::from(["c6".to_owned()]),
    });
    let away = BTreeMap::from([("c4".to_owned(), scene.now), ("c7".to_owned(), scene.now)]);
    scene.set.set_away(Arc::new(away));
    scene.says("c1", V1, "AV");
    scene.after(10);
    scene.says("c2", V1, "A");
    scene.after(10);
    let mut refused = work(V1, "A");
    refused.conditions.applied.as_mut().unwrap().status = crate::rollout::Truth::False;
    refused.conditions.applied.as_mut().unwrap().transition = scene.now;
    scene.set.set_work(key("c3"), refused);
    scene.set.set_work(key("c4"), work(V1, ""));
    scene.after(5);
    assert_eq!(
        stands(&scene),
        [
            "c3 not-applied Some(5)",
            "c4 away Some(25)",
            "c2 progressing Some(15)",
            "c1 soaking Some(25)",
            "c6 held None",
            "c5 waiting None",
            "c7 waiting None",
        ]
    );

    scene.after(60);
    scene.says("c2", V1, "APD");
    assert_eq!(scene.actions(), ["create c5"], "the place of c1");
    let now: Vec<String> = stands(&scene);
    assert_eq!(now[0], "c2 failed Some(0)");
    assert!(now.contains(&"c5 started None".to_owned()), "{now:?}");
    assert_eq!(now[6], "c1 succeeded Some(85)");
    scene.after(601);
    assert_eq!(stands(&scene)[0], "c2 timed-out Some(1)");
}
