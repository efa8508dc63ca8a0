//! Stories of a replica set, one fact at a time.

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::rollout::{ConditionFacts, Strategy, Truth, WorkConditions};
use muster_api::replicaset::ReplicaSetPhase;

const NEW: [u8; 32] = [1; 32];
const OLD: [u8; 32] = [2; 32];

fn template(generation: i64, spec_hash: [u8; 32], placements: &[&str]) -> Template {
    let placement = |name: &&str| PlacementRef {
        name: (*name).to_owned(),
        strategy: Ok(Strategy::default()),
    };
    Template {
        generation,
        spec_hash,
        labels: BTreeMap::new(),
        placements: placements.iter().map(placement).collect(),
    }
}

/// Labels of a work of placement `p`, and more.
fn labels(more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut labels = ReplicaSet::new("default", "web").work_labels("p");
    labels.extend(
        more.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    labels
}

pub(super) fn selects(clusters: &[&str]) -> Arc<PlacementFacts> {
    in_groups(&[("", "0", clusters)])
}

/// A placement whose decisions have these names and indexes of groups, and clusters.
pub(super) fn in_groups(groups: &[(&str, &str, &[&str])]) -> Arc<PlacementFacts> {
    let decisions: Vec<Decision> = groups
        .iter()
        .map(|(name, index, clusters)| Decision {
            name: format!("p-decision-{index}"),
            group_index: Some((*index).to_owned()),
            group_name: (*name).to_owned(),
            clusters: clusters.iter().map(|c| (*c).to_owned()).collect(),
        })
        .collect();
    let clusters: usize = groups.iter().map(|(_, _, clusters)| clusters.len()).sum();
    let groups = if clusters == 0 { 0 } else { groups.len() };
    let selected = u32::try_from(clusters).unwrap();
    Arc::new(PlacementFacts::of(selected, groups, &decisions))
}

pub(super) fn key(cluster: &str) -> WorkKey {
    WorkKey {
        cluster: cluster.to_owned(),
        name: work_name("default", "web", "p"),
    }
}

fn is(status: Truth) -> ConditionFacts {
    ConditionFacts {
        status,
        observed_generation: Some(1),
        transition: Timestamp::UNIX_EPOCH,
    }
}

/// A work that carries `hash`, with conditions given as letters: A(pplied), a (not applied),
/// V (available), v (not available), P(rogressing), p (not progressing), D(egraded).
///
/// Only what is not applied or not available says why, and so does what is degraded in the words of
/// [`degraded`].
pub(super) fn work(hash: [u8; 32], conditions: &str) -> WorkFacts {
    let flag = |letter: char| conditions.contains(letter);
    let present = |letter| flag(letter).then(|| is(Truth::True));
    let either = |yes: char, no: char| {
        let denied = flag(no).then(|| is(Truth::False));
        present(yes).or(denied)
    };
    let trouble = if flag('a') && !flag('A') {
        Some((TroubleKind::Failed, "no such type"))
    } else {
        let unavailable = flag('v') && !flag('V') && flag('A') && !flag('D');
        unavailable.then_some((TroubleKind::NotAvailable, "an object is missing"))
    };
    WorkFacts {
        placement: "p".to_owned(),
        generation: 1,
        version: Some(1),
        spec_hash: hash,
        labels: Arc::new(labels(&[])),
        started: None,
        unannotated: None,
        deleting: false,
        waits_for: None,
        conditions: WorkConditions {
            applied: either('A', 'a'),
            available: either('V', 'v'),
            progressing: either('P', 'p'),
            degraded: present('D'),
        },
        trouble: trouble.map(|(kind, text)| Arc::new(Trouble::new(kind, "R", text))),
        report: Report::default(),
    }
}

/// A work that is degraded and says so, with more conditions as [`work`] has them.
pub(super) fn degraded(hash: [u8; 32], conditions: &str) -> WorkFacts {
    let trouble = Trouble::new(TroubleKind::Degraded, "R", "too slow");
    WorkFacts {
        trouble: Some(Arc::new(trouble)),
        ..work(hash, &format!("{conditions}D"))
    }
}

fn set(clusters: &[&str]) -> ReplicaSet {
    let mut set = ReplicaSet::new("default", "web");
    set.set_template(template(1, NEW, &["p"]));
    set.set_placement("p", Some(selects(clusters)));
    set
}

pub(super) fn actions(set: &mut ReplicaSet) -> Vec<String> {
    let text = |action| match action {
        WorkAction::Create { key, .. } => format!("create {}", key.cluster),
        WorkAction::Patch { key, template, .. } => {
            let what = if template { "patch" } else { "label" };
            format!("{what} {}", key.cluster)
        }
        WorkAction::Delete { key } => format!("delete {}/{}", key.cluster, key.name),
    };
    let taken = set.take_actions(usize::MAX).into_iter().map(text).collect();
    assert!(!set.has_actions());
    taken
}

pub(super) fn conditions(set: &ReplicaSet) -> Vec<String> {
    let line = |c: ConditionDraft| {
        format!("{}={} {} {}", c.kind, c.status, c.reason, c.message)
            .trim_end()
            .to_owned()
    };
    set.status().conditions.into_iter().map(line).collect()
}

#[test]
fn every_selected_cluster_gets_one_work_however_often_it_is_asked() {
    let mut set = set(&["c1", "c2"]);
    assert_eq!(actions(&mut set), ["create c1", "create c2"]);
    assert!(actions(&mut set).is_empty(), "handed out once");
    set.retry(&key("c2"));
    assert_eq!(
        actions(&mut set),
        ["create c2"],
        "a failed write comes again"
    );
    set.set_work(key("c1"), work(NEW, ""));
    set.set_work(key("c2"), work(NEW, ""));
    assert!(actions(&mut set).is_empty());
    assert_eq!(set.status().summary.total, 2);
}

#[test]
fn a_changed_template_patches_works_that_differ() {
    let mut set = set(&["c1", "c2"]);
    actions(&mut set);
    set.set_work(key("c1"), work(OLD, "AV"));
    set.set_work(key("c2"), work(NEW, "AV"));
    assert_eq!(actions(&mut set), ["patch c1"]);
    set.set_template(template(2, OLD, &["p"]));
    assert_eq!(actions(&mut set), ["patch c2"]);
}

#[test]
fn labels_of_the_set_reach_its_works_and_leave_them_again() {
    let team = |value: &str| [("team".to_owned(), value.to_owned())].into();
    let mut set = set(&["c1"]);
    actions(&mut set);
    let with = |more| WorkFacts {
        labels: Arc::new(labels(more)),
        ..work(NEW, "AV")
    };
    set.set_work(key("c1"), with(&[("foreign", "x")]));
    assert!(
        actions(&mut set).is_empty(),
        "foreign labels are left alone"
    );
    set.set_template(Template {
        labels: team("a"),
        ..template(1, NEW, &["p"])
    });
    assert_eq!(actions(&mut set), ["label c1"]);
    set.set_work(key("c1"), with(&[("foreign", "x"), ("team", "a")]));
    assert!(actions(&mut set).is_empty());
    set.set_template(template(1, NEW, &["p"]));
    assert_eq!(actions(&mut set), ["label c1"]);
    let facts = set.work(&key("c1")).unwrap();
    assert_eq!(
        set.stale_labels(&facts.labels).collect::<Vec<_>>(),
        ["team"]
    );
}

#[test]
fn a_cluster_that_leaves_loses_its_work_also_with_an_old_template() {
    let mut set = set(&["c1", "c2"]);
    set.set_work(key("c1"), work(NEW, "AV"));
    set.set_work(key("c2"), work(OLD, "AV"));
    actions(&mut set);
    set.set_placement("p", Some(selects(&["c1"])));
    let name = key("c2").name;
    assert_eq!(actions(&mut set), [format!("delete c2/{name}")]);
    let summary = set.status().summary;
    assert_eq!(
        (summary.total, summary.available, summary.desired_total),
        (1, 1, 1)
    );
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Ready));
    // It returns before its old work is gone: a new one must wait for that.
    set.set_work(
        key("c2"),
        WorkFacts {
            deleting: true,
            ..work(OLD, "AV")
        },
    );
    set.set_placement("p", Some(selects(&["c1", "c2"])));
    assert!(actions(&mut set).is_empty());
    set.remove_work(&key("c2"));
    assert_eq!(actions(&mut set), ["create c2"]);
}

#[test]
fn works_of_a_dropped_placement_and_extra_works_are_deleted() {
    let mut set = set(&["c1"]);
    actions(&mut set);
    let extra = WorkKey {
        cluster: "c1".into(),
        name: "weba1b2c".into(),
    };
    set.set_work(key("c1"), work(NEW, "AV"));
    set.set_work(extra, work(NEW, "AV"));
    assert_eq!(
        actions(&mut set),
        ["delete c1/weba1b2c"],
        "one work a cluster and placement"
    );
    assert_eq!(set.status().summary.total, 1, "and one in the counts");

    set.set_template(template(2, NEW, &["q"]));
    set.set_placement("q", Some(selects(&["c1"])));
    let mut wanted = actions(&mut set);
    wanted.sort();
    let name = key("c1").name;
    assert_eq!(
        wanted,
        [
            "create c1".to_owned(),
            format!("delete c1/{name}"),
            "delete c1/weba1b2c".to_owned()
        ]
    );
}

#[test]
fn a_work_of_a_hub_that_generated_names_is_kept() {
    let mut set = set(&["c1"]);
    let generated = WorkKey {
        cluster: "c1".into(),
        name: "webx7k2p".into(),
    };
    set.set_work(generated.clone(), work(OLD, "AV"));
    assert_eq!(
        set.take_actions(9),
        [WorkAction::Patch {
            key: generated,
            placement: "p".to_owned(),
            template: true,
        }]
    );
}

/// The four steps of the two-cluster example in the design text, value for value where strategy
/// All can reach them.
#[test]
fn conditions_follow_the_rollout_of_two_clusters() {
    let mut set = set(&["c1", "c2"]);
    set.set_work(key("c1"), work(NEW, "AP"));
    assert_eq!(
        conditions(&set),
        [
            "PlacementVerified=true AsExpected",
            "PlacementRolledOut=false Progressing",
            "ManifestworkApplied=false Processing",
            "Progressing=true RollingOutToClusters 1 of 2 clusters reporting progressing state",
            "Ready=false NotAllClustersAvailable ManifestWorks available in 0/2 clusters",
        ]
    );
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Progressing));

    set.set_work(key("c1"), work(NEW, "AVp"));
    set.set_work(key("c2"), work(NEW, "AP"));
    assert_eq!(
        conditions(&set)[2..],
        [
            "ManifestworkApplied=false Processing",
            "Progressing=true RollingOutToClusters 2 of 2 clusters reporting progressing state",
            "Ready=false NotAllClustersAvailable ManifestWorks available in 1/2 clusters",
        ]
    );

    set.set_work(key("c2"), work(NEW, "AVp"));
    assert_eq!(
        conditions(&set),
        [
            "PlacementVerified=true AsExpected",
            "PlacementRolledOut=true Complete",
            "ManifestworkApplied=true AsExpected",
            "Progressing=false AllClustersReady 2 of 2 clusters reporting Completed state",
            "Ready=true AllClustersAvailable ManifestWorks available in 2/2 clusters",
        ]
    );
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Ready));
    assert_eq!(
        set.status().message,
        "ManifestWorks available in 2/2 clusters"
    );

    set.set_work(key("c2"), work(NEW, "AVpD"));
    assert_eq!(
        conditions(&set)[4],
        "Ready=false NotAllClustersAvailable ManifestWorks available in 2/2 clusters, 1 degraded"
    );
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Failed));
}

/// C071.
#[test]
fn no_cluster_and_no_placement_are_told_plainly_and_never_read_as_success() {
    let mut set = set(&[]);
    assert_eq!(
        conditions(&set),
        [
            "PlacementVerified=false PlacementDecisionEmpty no cluster is selected",
            "PlacementRolledOut=false PlacementDecisionEmpty",
            "ManifestworkApplied=false PlacementDecisionEmpty",
            "Progressing=false PlacementDecisionEmpty no cluster is selected",
            "Ready=false PlacementDecisionEmpty no cluster is selected",
        ]
    );
    assert_eq!(
        (set.status().phase, set.status().summary),
        (None, SummaryDraft::default())
    );
    set.set_placement("p", None);
    assert_eq!(
        conditions(&set)[0],
        "PlacementVerified=false PlacementDecisionNotFound placement p does not exist"
    );
}

#[test]
fn a_cluster_whose_agent_is_away_is_unknown_and_says_since_when() {
    let mut set = set(&["c1", "c2", "c3"]);
    for cluster in ["c1", "c2", "c3"] {
        set.set_work(key(cluster), work(NEW, "AVp"));
    }
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Ready));
    let at = |second| Timestamp::from_second(second).unwrap();
    let away = |clusters: &[(&str, i64)]| {
        let away = clusters.iter();
        Arc::new(
            away.map(|(cluster, since)| ((*cluster).to_owned(), at(*since)))
                .collect(),
        )
    };
    set.set_away(away(&[("c2", 90), ("elsewhere", 5)]));
    let status = set.status();
    // Nobody knows whether it is available there.
    let text = "ManifestWorks available in 2/3 clusters, unknown in 1: the agent of c2 is away since \
                1970-01-01T00:01:30Z";
    assert_eq!((&*status.message, status.summary.available), (text, 2));
    assert_eq!(status.phase, Some(ReplicaSetPhase::Progressing));
    let ready = &status.conditions[4];
    assert_eq!(
        (ready.status, ready.reason),
        (false, "NotAllClustersAvailable")
    );
    assert_eq!(set.recount(), status);
    set.set_away(away(&[("c2", 90), ("c3", 60)]));
    let message = set.status().message;
    let text = "unknown in 2: the agent of c3 and 1 more is away since 1970-01-01T00:01:00Z";
    assert!(message.ends_with(text), "{message}");
    set.set_away(away(&[("elsewhere", 5)]));
    assert_eq!(set.status().phase, Some(ReplicaSetPhase::Ready));
}

#[test]
fn works_stay_and_count_while_their_placement_is_missing() {
    let mut set = set(&["c1"]);
    set.set_work(key("c1"), work(NEW, "AVp"));
    actions(&mut set);
    set.set_placement("p", None);
    assert!(actions(&mut set).is_empty());
    assert_eq!(set.status().summary.available, 1);
    assert_eq!(set.status(), set.recount());
}

/// C078.
#[test]
fn clusters_on_an_old_template_are_not_available_for_the_new_one() {
    let mut set = set(&["c1", "c2", "c3"]);
    for cluster in ["c1", "c2", "c3"] {
        set.set_work(key(cluster), work(OLD, "AVp"));
    }
    set.set_work(key("c1"), work(NEW, "AVp"));
    let summary = set.status().summary;
    assert_eq!(
        (summary.total, summary.available, summary.updated),
        (3, 1, 1)
    );
    assert_eq!(
        conditions(&set)[4],
        "Ready=false NotAllClustersAvailable ManifestWorks available in 1/3 clusters"
    );
}

/// C076.
#[test]
fn a_change_of_applied_alone_reaches_the_summary() {
    let mut set = set(&["c1"]);
    set.set_work(key("c1"), work(NEW, "AV"));
    assert_eq!(conditions(&set)[2], "ManifestworkApplied=true AsExpected");
    set.set_work(key("c1"), work(NEW, "V"));
    assert_eq!(set.status().summary.applied, 0);
    assert_eq!(conditions(&set)[2], "ManifestworkApplied=false Processing");
}

#[test]
fn placement_summaries_carry_the_progress_text() {
    let mut set = set(&["c1", "c2", "c3"]);
    set.set_work(key("c1"), work(NEW, "A"));
    let (name, text, summary) = set.status().placements[0].clone();
    assert_eq!(
        (name.as_str(), text.as_str()),
        ("p", "1 (1 / 3 clusters applied)")
    );
    assert_eq!(
        (summary.total, summary.applied, summary.desired_total),
        (1, 1, 3)
    );
}

fn report<const N: usize>(values: [(&str, i64); N]) -> Report {
    let resource = ResourceKey {
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        name: "web".into(),
        namespace: "default".into(),
    };
    let values = values.map(|(name, value)| (name.to_owned(), Value::Integer(value)));
    Report::from_iter([(resource, values.to_vec())])
}

#[test]
fn feedback_counts_only_current_works_of_selected_clusters() {
    let with = |hash, n| WorkFacts {
        report: report([("ReadyReplicas", n)]),
        ..work(hash, "AV")
    };
    let mut set = set(&["c1", "c2"]);
    set.set_work(key("c1"), with(NEW, 3));
    set.set_work(key("c2"), with(OLD, 4));
    set.set_work(key("c9"), with(NEW, 100));
    let ready = |set: &ReplicaSet| {
        let value = set.status().feedback[0].values[0].clone();
        (value.clusters, value.integers)
    };
    assert_eq!(ready(&set), (1, Some((3, 3, 3))));
    set.set_work(key("c2"), with(NEW, 5));
    assert_eq!(ready(&set), (2, Some((8, 3, 5))));
    set.remove_work(&key("c1"));
    assert_eq!(ready(&set), (1, Some((5, 5, 5))));
}

proptest! {
    /// After any history, the running numbers equal a recount from scratch, and once all wanted
    /// writes are carried out nothing more is wanted and each selected cluster has one work.
    #[test]
    fn running_numbers_equal_a_recount(history in prop::collection::vec(
        (0_u8..6, 0_usize..4, any::<u8>()), 1..60)
    ) {
        let clusters = ["c0", "c1", "c2", "c3"];
        let mut set = ReplicaSet::new("default", "web");
        set.set_template(template(1, NEW, &["p"]));
        for (step, cluster, bits) in history {
            let name = clusters[cluster];
            let letters: String = "AVPpD".chars().enumerate()
                .filter(|(i, _)| bits >> i & 1 == 1).map(|(_, c)| c).collect();
            let hash = if bits & 32 == 0 { NEW } else { OLD };
            let report = match bits & 3 {
                0 => Report::default(),
                1 => report([("Ready", (bits >> 2).into())]),
                _ => report([("Ready", 1), ("Known", (bits >> 3).into())]),
            };
            let work = |letters| WorkFacts { report: report.clone(), ..work(hash, letters) };
            match step {
                0 => set.set_placement("p", Some(selects(&clusters[..cluster]))),
                1 => set.set_placement("p", None),
                2 => set.remove_work(&key(name)),
                3 => set.set_template(template(i64::from(bits), hash, &["p"])),
                4 => set.set_work(key(name), WorkFacts { deleting: bits & 64 > 0, ..work(&letters) }),
                _ => set.set_work(
                    WorkKey { cluster: name.into(), name: "extra".into() }, work(&letters)),
            }
            prop_assert_eq!(set.status(), set.recount());
        }
        set.set_template(template(1000, NEW, &["p"]));
        set.set_placement("p", Some(selects(&clusters[..2])));
        // Carry out what is wanted, as the API server and the agents would.
        for _ in 0..3 {
            for action in set.take_actions(usize::MAX) {
                match action {
                    WorkAction::Create { key, .. } | WorkAction::Patch { key, .. } =>
                        set.set_work(key, work(NEW, "AV")),
                    WorkAction::Delete { key } => set.remove_work(&key),
                }
            }
            let dying: Vec<_> = set.work_keys().filter(|key| !set.has_live_work(key)).cloned().collect();
            for key in &dying {
                set.remove_work(key);
            }
        }
        prop_assert!(set.take_actions(usize::MAX).is_empty());
        let left: Vec<_> = set.work_keys().cloned().collect();
        for key in left {
            set.set_work(key, work(NEW, "AV"));
        }
        prop_assert_eq!(set.status().phase, Some(ReplicaSetPhase::Ready));
        prop_assert_eq!(set.work_keys().count(), 2);
    }
}
