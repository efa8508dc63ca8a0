//! Summary, conditions, phase and message of a set tell one story, and the first cluster of what is
//! wrong is in it.

use jiff::{SignedDuration, Timestamp};
use muster_api::replicaset::ReplicaSetPhase;
use muster_api::rollout::RolloutStrategy;
use proptest::prelude::*;
use serde_json::json;

use super::tests::{actions, conditions, degraded, key, selects, work};
use super::*;
use crate::rollout::Strategy as RolloutPlan;

const NEW: [u8; 32] = [1; 32];
const OLD: [u8; 32] = [2; 32];

fn plan(body: serde_json::Value) -> RolloutPlan {
    let strategy: RolloutStrategy = serde_json::from_value(body).unwrap();
    RolloutPlan::read(&strategy).unwrap()
}

fn template(placements: &[(&str, &RolloutPlan)]) -> Template {
    let placement = |(name, strategy): &(&str, &RolloutPlan)| PlacementRef {
        name: (*name).to_owned(),
        strategy: Ok((*strategy).clone()),
    };
    Template {
        generation: 1,
        spec_hash: NEW,
        labels: BTreeMap::new(),
        placements: placements.iter().map(placement).collect(),
    }
}

fn set(clusters: &[&str], strategy: &RolloutPlan) -> ReplicaSet {
    let mut set = ReplicaSet::new("default", "web");
    set.tick(Timestamp::from_second(1_000_000).unwrap());
    set.set_template(template(&[("p", strategy)]));
    set.set_placement("p", Some(selects(clusters)));
    actions(&mut set);
    set
}

/// Conditions, phase and message.
fn story(set: &ReplicaSet) -> (Vec<String>, Option<ReplicaSetPhase>, String) {
    agrees(&set.status());
    let status = set.status();
    (conditions(set), status.phase, status.message)
}

#[test]
fn what_fails_on_every_cluster_is_told_at_the_top() {
    let mut set = set(&["c1", "c2", "c3"], &RolloutPlan::default());
    for cluster in ["c3", "c2", "c1"] {
        set.set_work(key(cluster), work(NEW, "a"));
    }
    let (conditions, phase, message) = story(&set);
    let text = "ManifestWorks available in 0/3 clusters, 3 failed; first failed c1: no such type";
    assert_eq!((phase, &*message), (Some(ReplicaSetPhase::Failed), text));
    assert_eq!(
        conditions[2..],
        [
            "ManifestworkApplied=false NotAsExpected",
            "Progressing=false ClustersFailed 0 of 3 clusters reporting Completed state, 3 failed; \
             first failed c1: no such type",
            &format!("Ready=false NotAllClustersAvailable {text}"),
        ]
    );
    let summary = set.status().summary;
    assert_eq!((summary.degraded, summary.applied), (3, 0));
    // One gets there, and the next is named; the others go on.
    set.set_work(key("c1"), work(NEW, "AV"));
    set.set_work(key("c3"), work(NEW, ""));
    let (conditions, _, message) = story(&set);
    let text = "ManifestWorks available in 1/3 clusters, 1 failed; first failed c2: no such type";
    assert_eq!(message, text);
    assert_eq!(
        conditions[3],
        "Progressing=true RollingOutToClusters 2 of 3 clusters reporting progressing state, 1 \
         failed; first failed c2: no such type"
    );
    for cluster in ["c2", "c3"] {
        set.set_work(key(cluster), work(NEW, "AV"));
    }
    assert_eq!(story(&set).1, Some(ReplicaSetPhase::Ready));
}

#[test]
fn what_failed_with_another_template_or_another_generation_is_not_named() {
    let mut set = set(&["c1", "c2"], &RolloutPlan::default());
    set.set_work(key("c1"), work(OLD, "a"));
    let mut earlier = work(NEW, "a");
    earlier.generation = 2;
    earlier.trouble = None; // as `explain::trouble` finds it
    set.set_work(key("c2"), earlier);
    let (_, phase, message) = story(&set);
    assert_eq!(phase, Some(ReplicaSetPhase::Progressing));
    assert_eq!(message, "ManifestWorks available in 0/2 clusters");
    assert_eq!(set.status().summary.degraded, 0);
}

/// A rule may say that nothing is in progress, and that it is degraded.
#[test]
fn clusters_that_are_all_degraded_are_not_ready_and_the_first_is_named() {
    let mut set = set(&["c1", "c2", "c3"], &RolloutPlan::default());
    for cluster in ["c1", "c2", "c3"] {
        set.set_work(key(cluster), degraded(NEW, "AVp"));
    }
    let (conditions, phase, message) = story(&set);
    let text = "ManifestWorks available in 3/3 clusters, 3 degraded; first degraded c1: too slow";
    assert_eq!((phase, &*message), (Some(ReplicaSetPhase::Failed), text));
    assert_eq!(
        conditions[3..],
        [
            "Progressing=false ClustersFailed 0 of 3 clusters reporting Completed state, 3 \
             degraded; first degraded c1: too slow",
            &format!("Ready=false NotAllClustersAvailable {text}"),
        ]
    );
}

#[test]
fn a_missing_object_is_named_and_is_no_failure() {
    let mut set = set(&["c1"], &RolloutPlan::default());
    set.set_work(key("c1"), work(NEW, "Av"));
    let (_, phase, message) = story(&set);
    assert_eq!(phase, Some(ReplicaSetPhase::Progressing));
    assert_eq!(
        message,
        "ManifestWorks available in 0/1 clusters; first not available c1: an object is missing"
    );
}

#[test]
fn a_cluster_of_two_placements_counts_once() {
    let all = RolloutPlan::default();
    let mut set = ReplicaSet::new("default", "web");
    set.set_template(template(&[("p", &all), ("q", &all)]));
    set.set_placement("p", Some(selects(&["c1"])));
    set.set_placement("q", Some(selects(&["c1"])));
    let of = |placement: &str, letters: &str| {
        let key = WorkKey {
            cluster: "c1".to_owned(),
            name: work_name("default", "web", placement),
        };
        let resource = ResourceKey {
            group: String::new(),
            version: "v1".into(),
            resource: "configmaps".into(),
            name: "a".into(),
            namespace: "default".into(),
        };
        let values = vec![("n".to_owned(), Value::Integer(7))];
        let facts = WorkFacts {
            placement: placement.to_owned(),
            report: Report::from_iter([(resource, values)]),
            ..work(NEW, letters)
        };
        (key, facts)
    };
    let tell = |set: &mut ReplicaSet, placement, letters| {
        let (key, facts) = of(placement, letters);
        set.set_work(key, facts);
        agrees(&set.status());
        assert_eq!(set.status(), set.recount());
    };
    assert_eq!(actions(&mut set), ["create c1", "create c1"]);
    tell(&mut set, "p", "AV");
    assert_eq!(
        set.status().message,
        "ManifestWorks available in 0/1 clusters",
        "the other is not there yet"
    );
    tell(&mut set, "q", "a");
    let status = set.status();
    assert_eq!(
        status.message,
        "ManifestWorks available in 0/1 clusters, 1 failed; first failed c1: no such type"
    );
    let SummaryDraft {
        total,
        desired_total,
        updated,
        applied,
        degraded,
        ..
    } = status.summary;
    assert_eq!(
        [total, desired_total, updated, applied, degraded],
        [1, 1, 1, 0, 1]
    );
    tell(&mut set, "q", "AV");
    let status = set.status();
    assert_eq!(status.message, "ManifestWorks available in 1/1 clusters");
    assert_eq!(status.phase, Some(ReplicaSetPhase::Ready));
    let value = &status.feedback[0].values[0];
    assert_eq!((value.clusters, value.integers), (1, Some((7, 7, 7))));
    // Each placement still counts its own.
    let totals: Vec<u32> = status
        .placements
        .iter()
        .map(|(_, _, own)| own.total)
        .collect();
    assert_eq!(totals, [1, 1]);
    // What the first reported is reported by the second when the first is gone.
    let (first, _) = of("p", "");
    set.remove_work(&first);
    assert_eq!(set.status().feedback[0].values[0].clusters, 1);
    set.set_placement("p", Some(selects(&[])));
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Ready));
    assert_eq!(set.status(), set.recount());
}

#[test]
fn a_set_that_is_deleted_says_what_it_waits_for_everywhere() {
    let mut set = set(&["c1", "c2"], &RolloutPlan::default());
    for cluster in ["c1", "c2"] {
        let dying = WorkFacts {
            deleting: true,
            waits_for: (cluster == "c2").then(|| "waiting for configmaps default/a".into()),
            ..work(NEW, "AV")
        };
        set.set_work(key(cluster), dying);
    }
    set.set_hindrances(Hindrances {
        deleting: true,
        ..Hindrances::default()
    });
    let text = format!(
        "deletion waits for 2 ManifestWorks, first c2/{}: waiting for configmaps default/a",
        key("c2").name
    );
    let (conditions, phase, message) = story(&set);
    assert_eq!(
        (phase, &message),
        (Some(ReplicaSetPhase::Progressing), &text)
    );
    assert_eq!(
        conditions[3..],
        [
            format!("Progressing=true Deleting {text}"),
            format!("Ready=false Deleting {text}")
        ]
    );
    let away = BTreeMap::from([("c2".to_owned(), Timestamp::from_second(90).unwrap())]);
    set.set_away(Arc::new(away));
    let since = format!("{text}, the agent of c2 is away since 1970-01-01T00:01:30Z");
    assert_eq!(story(&set).2, since);
}

#[test]
fn a_cluster_that_nobody_wants_any_more_does_not_make_a_set_unknown() {
    let mut set = set(&["c1", "c2"], &RolloutPlan::default());
    set.set_work(key("c1"), work(NEW, "AVp"));
    let dying = WorkFacts {
        deleting: true,
        ..work(NEW, "AVp")
    };
    set.set_work(key("c2"), dying);
    set.set_placement("p", Some(selects(&["c1"])));
    set.set_away(Arc::new(BTreeMap::from([(
        "c2".to_owned(),
        Timestamp::UNIX_EPOCH,
    )])));
    assert_eq!(story(&set).1, Some(ReplicaSetPhase::Ready));
}

#[test]
fn what_the_hub_cannot_write_is_in_the_conditions_too() {
    let mut set = set(&["c1", "c2"], &RolloutPlan::default());
    set.set_work(key("c1"), work(NEW, "AV"));
    set.set_hindrances(Hindrances {
        refused: 3,
        first_refused: Some(("c2".to_owned(), "namespaces \"c2\" not found".to_owned())),
        ..Hindrances::default()
    });
    let (conditions, _, message) = story(&set);
    let text = "; cluster c2: namespaces \"c2\" not found, and 2 more";
    assert_eq!(
        message,
        format!("ManifestWorks available in 1/2 clusters{text}")
    );
    for condition in &conditions[3..] {
        assert!(condition.ends_with(text), "{condition}");
    }
}

/// Holds everything that a status says against each other.
#[track_caller]
fn agrees(status: &StatusDraft) {
    use ReplicaSetPhase::{Failed, Progressing, Ready};
    let find = |kind: &str| status.conditions.iter().find(|c| c.kind == kind).unwrap();
    let (progressing, ready) = (find("Progressing"), find("Ready"));
    let summary = &status.summary;
    let nothing = ["PlacementDecisionEmpty", "PlacementDecisionNotFound"];
    let reasons: &[&str] = match (progressing.status, ready.status) {
        (true, false) => &[
            "RollingOutToClusters",
            "Paused",
            "AgentAway",
            "NotAllClustersAvailable",
            "Deleting",
        ],
        (false, true) => &["AllClustersReady"],
        (false, false) => &["ClustersFailed", nothing[0], nothing[1]],
        (true, true) => panic!("ready and under way: {status:?}"),
    };
    assert!(reasons.contains(&progressing.reason), "{status:?}");
    assert_eq!(ready.status, status.phase == Some(Ready), "{status:?}");
    match &status.phase {
        None => {
            assert!(nothing.contains(&progressing.reason), "{status:?}");
            assert_eq!(
                (ready.reason, &ready.message),
                (progressing.reason, &progressing.message)
            );
            assert!(
                status.message.starts_with(&progressing.message),
                "{status:?}"
            );
        }
        Some(Ready) => {
            let all = [summary.available, summary.updated, summary.total];
            assert_eq!(all, [summary.desired_total; 3], "{status:?}");
            assert_eq!(
                (summary.degraded, summary.progressing),
                (0, 0),
                "{status:?}"
            );
        }
        Some(Progressing) => {
            assert!(progressing.status, "{status:?}");
            let deleting = progressing.reason == "Deleting";
            assert!(deleting || summary.degraded == 0, "{status:?}");
        }
        Some(Failed) => {
            let timed_out = status.message.contains("timed out in");
            let stopped = status.message.contains("stopped: ");
            assert!(summary.degraded > 0 || timed_out || stopped, "{status:?}");
        }
        Some(other) => panic!("{other}"),
    }
    if progressing.reason == "Deleting" {
        assert_eq!(
            (&progressing.message, ready.reason),
            (&status.message, "Deleting")
        );
        assert_eq!(ready.message, status.message);
    } else if status.phase.is_some() {
        assert!(status.message.starts_with(&ready.message), "{status:?}");
        let counts = format!(
            "ManifestWorks available in {}/{} clusters",
            summary.available, summary.desired_total
        );
        assert!(status.message.starts_with(&counts), "{status:?}");
        let parts = ["first failed", "first degraded"];
        let names = |text: &str| parts.iter().any(|part| text.contains(part));
        let all = [&status.message, &ready.message, &progressing.message];
        for text in all {
            assert_eq!(names(text), summary.degraded > 0, "{text}: {status:?}");
        }
    }
    for number in [
        summary.applied,
        summary.available,
        summary.updated,
        summary.degraded,
    ] {
        assert!(number <= summary.total, "{status:?}");
    }
}

/// One event of a history.
#[derive(Debug, Clone)]
enum Event {
    Work(usize, usize, u16),
    Gone(usize, usize),
    Select(usize, usize),
    Missing(usize),
    Pause(u8),
    Away(u8),
    Hinder(bool, bool),
    Wait(i64),
    Act,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..2_usize, 0..3_usize, any::<u16>()).prop_map(|(p, c, b)| Event::Work(p, c, b)),
        1 => (0..2_usize, 0..3_usize).prop_map(|(p, c)| Event::Gone(p, c)),
        2 => (0..2_usize, 0..8_usize).prop_map(|(p, mask)| Event::Select(p, mask)),
        1 => (0..2_usize).prop_map(Event::Missing),
        1 => any::<u8>().prop_map(Event::Pause),
        1 => any::<u8>().prop_map(Event::Away),
        1 => any::<(bool, bool)>().prop_map(|(d, r)| Event::Hinder(d && r, r)),
        2 => (0..40_i64).prop_map(Event::Wait),
        3 => Just(Event::Act),
    ]
}

fn strategies() -> impl Strategy<Value = RolloutPlan> {
    prop_oneof![
        Just(RolloutPlan::default()),
        Just(plan(
            json!({"type": "All", "all": {"progressDeadline": "30s"}})
        )),
        Just(plan(
            json!({"type": "Progressive", "progressive": {"maxConcurrency": 1,
            "minSuccessTime": "20s", "maxFailures": 1}})
        )),
        Just(plan(
            json!({"type": "Progressive", "progressive": {"maxConcurrency": 1,
            "progressDeadline": "10s"}})
        )),
        Just(plan(json!({"type": "ProgressivePerGroup"}))),
    ]
}

const CLUSTERS: [&str; 3] = ["c0", "c1", "c2"];

/// A work as some agent may have it: what is wrong is found as for a real one.
fn any_work(placement: &str, bits: u16, now: Timestamp) -> WorkFacts {
    let pick = |shift: u32, letters: [&'static str; 4]| letters[usize::from(bits >> shift & 3)];
    let letters = [
        pick(0, ["A", "A", "a", ""]),
        pick(2, ["V", "V", "v", ""]),
        pick(4, ["P", "p", "", ""]),
        pick(6, ["D", "", "", ""]),
    ]
    .concat();
    let hash = if bits >> 8 & 3 < 1 { OLD } else { NEW };
    let has = |letter: char| letters.contains(letter);
    let mut facts = if has('A') && has('D') {
        degraded(hash, &letters)
    } else {
        work(hash, &letters)
    };
    // A degraded work that is not applied, or of which nobody knows, says nothing more.
    if has('D') && !has('A') && !has('a') {
        facts.conditions.degraded = None;
    }
    let conditions = &mut facts.conditions;
    for condition in [
        &mut conditions.applied,
        &mut conditions.available,
        &mut conditions.progressing,
        &mut conditions.degraded,
    ]
    .into_iter()
    .flatten()
    {
        condition.transition = now;
    }
    WorkFacts {
        placement: placement.to_owned(),
        deleting: bits >> 10 & 7 < 1,
        ..facts
    }
}

proptest! {
    /// Whatever happens, no part of the status says the contrary of another, and counting anew gives
    /// the same.
    #[test]
    fn a_status_never_contradicts_itself(
        strategy in strategies(), history in prop::collection::vec(event(), 1..60)
    ) {
        let placements = ["p", "q"];
        let mut now = Timestamp::from_second(1_000_000).unwrap();
        let mut set = ReplicaSet::new("default", "web");
        set.tick(now);
        set.set_template(template(&[("p", &strategy), ("q", &RolloutPlan::default())]));
        let work_key = |placement: &str, cluster: usize| WorkKey {
            cluster: CLUSTERS[cluster].to_owned(),
            name: work_name("default", "web", placement),
        };
        let some = |mask: usize| -> Vec<&str> {
            let all = CLUSTERS.iter().enumerate();
            all.filter(|(n, _)| mask >> n & 1 == 1).map(|(_, name)| *name).collect()
        };
        for event in history {
            match event {
                Event::Work(p, c, bits) => {
                    let facts = any_work(placements[p], bits, now);
                    set.set_work(work_key(placements[p], c), facts);
                }
                Event::Gone(p, c) => set.remove_work(&work_key(placements[p], c)),
                Event::Select(p, mask) => {
                    set.set_placement(placements[p], Some(selects(&some(mask))));
                }
                Event::Missing(p) => set.set_placement(placements[p], None),
                Event::Pause(bits) => set.set_pause(Pause {
                    all: bits & 7 < 1,
                    clusters: some(usize::from(bits >> 4 & 7))
                        .into_iter().map(ToOwned::to_owned).collect(),
                }),
                Event::Away(bits) => {
                    let away = some(usize::from(bits & 7)).into_iter();
                    set.set_away(Arc::new(away.map(|c| (c.to_owned(), now)).collect()));
                }
                Event::Hinder(deleting, refused) => set.set_hindrances(Hindrances {
                    deleting,
                    refused: usize::from(refused),
                    first_refused: refused.then(|| ("c1".to_owned(), "no; way".to_owned())),
                    revisions: Vec::new(),
                }),
                Event::Wait(seconds) => {
                    now += SignedDuration::from_secs(seconds);
                    set.tick(now);
                }
                Event::Act => {}
            }
            // As the hub does before it looks at the status.
            set.take_actions(usize::MAX);
            agrees(&set.status());
            prop_assert_eq!(set.status(), set.recount());
        }
    }
}
