//! Rollouts: which clusters begin, which are on their way, timed out, and when to look again.
//!
//! The reference decides over all clusters at once; here each is reported by itself, and asked
//! for one after the other. So what is compared is what comes of it: the clusters that begin, and
//! where the others stand.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_api::rollout::RolloutStrategy;
use muster_core::rollout::{ClusterState, Group, Groups, Report, Rollout, Strategy, Turn};
use serde_json::Value;

use super::{check_all, expect_same, load, section, text};

fn groups(record: &Value) -> Option<Groups> {
    let mut groups = Groups::new();
    for group in section(record, "groups") {
        let index = text(group, "index").parse().ok()?;
        let name = text(group, "name").to_owned();
        let clusters = section(group, "clusters").iter();
        let clusters = clusters.map(|cluster| Arc::from(cluster.as_str().unwrap()));
        groups
            .entry(Group { index, name })
            .or_default()
            .extend(clusters);
    }
    Some(groups)
}

fn clusters(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|entry| text(entry, "cluster").to_owned())
        .collect()
}

#[test]
fn clusters_begin_as_the_reference_lets_them() {
    let golden = load(include_str!("../../../../tests/golden/rollout.json"));
    let now: Timestamp = text(&golden, "now").parse().unwrap();
    let all = section(&golden, "records");
    // The reference takes `TimeOut` as a state that is given; here it comes of time alone. With a
    // deadline it can be had, by a failure long ago.
    let can_be_had = |record: &&Value| {
        let times_out = |status: &Value| status["status"] == "TimeOut";
        !section(record, "statuses").iter().any(times_out)
    };
    let records: Vec<&Value> = all.iter().filter(can_be_had).collect();
    check_all(records, 590, |record| {
        let strategy: RolloutStrategy = serde_json::from_value(record["strategy"].clone()).unwrap();
        let expected = match (record.get("suggested"), record.get("result")) {
            (Some(expected), _) | (None, Some(expected)) => expected,
            (None, None) => &record["outcomes"][1], // a cluster in two groups: in the first
        };
        let error = expected["error"].as_str();
        let Some(groups) = groups(record) else {
            // Labels are read where decisions are.
            let index = error.is_some_and(|error| error.starts_with("incorrect group index"));
            return index.then_some(()).ok_or_else(|| format!("{error:?}"));
        };
        let strategy = match (Strategy::read(&strategy), error) {
            (Err(_), None) if record["strategy"]["type"].is_null() => return Ok(()),
            (Ok(_), Some("incorrect rollout strategy type ")) => return Ok(()), // the API's default
            (Ok(strategy), None) => strategy,
            (Err(ours), Some(theirs)) => {
                // After the name of the field, which each writes in its own way.
                let field = theirs.strip_prefix("failed to parse the provided ");
                let why = field.and_then(|field| field.split_once(": "));
                let why = why.map_or(theirs, |(_, why)| why);
                let same = ours.to_string().ends_with(why);
                return same
                    .then_some(())
                    .ok_or_else(|| format!("{ours} and not {theirs}"));
            }
            (ours, theirs) => return Err(format!("{ours:?} and not {theirs:?}")),
        };
        let mut rollout = Rollout::new(&strategy, &groups);
        let mut known = BTreeSet::new();
        for status in section(record, "statuses") {
            let cluster = text(status, "cluster");
            known.insert(cluster.to_owned());
            let state = match text(status, "status") {
                "ToApply" => ClusterState::ToApply,
                "Progressing" => ClusterState::Progressing,
                "Failed" => ClusterState::Failed,
                "Succeeded" => ClusterState::Succeeded,
                "Skip" => {
                    rollout.hold(cluster, true);
                    continue;
                }
                other => return Err(format!("status {other}")),
            };
            let since = status["secondsAgo"].as_i64();
            let since = since.map(|seconds| now - SignedDuration::from_secs(seconds));
            let report = Report {
                state,
                since,
                started: None,
            };
            rollout.report(cluster, Some(report), now);
        }
        let wake = rollout.wake_at();
        let begin: BTreeSet<String> = std::iter::from_fn(|| rollout.next(now))
            .map(|cluster| cluster.to_string())
            .collect();
        let listed = clusters(&expected["rollout"]);
        let expected_begin: BTreeSet<String> = listed.difference(&known).cloned().collect();
        if begin != expected_begin {
            return Err(format!("{begin:?} begin and not {expected_begin:?}"));
        }
        let turn_is = |turns: &[Turn]| -> BTreeSet<String> {
            let is = |cluster: &&String| {
                let turn = rollout.turn(cluster);
                turn.is_some_and(|turn| turns.contains(&turn))
            };
            known.iter().filter(is).cloned().collect()
        };
        // The reference stops looking once its list is full, or one pass decided.
        let timed_out = clusters(&expected["timedOut"]);
        if !timed_out.is_subset(&turn_is(&[Turn::TimedOut])) {
            return Err(format!("{timed_out:?} timed out"));
        }
        let moving = turn_is(&[
            Turn::Started,
            Turn::Progressing,
            Turn::Failed,
            Turn::Soaking,
        ]);
        let expected_moving: BTreeSet<String> = listed.intersection(&known).cloned().collect();
        if !expected_moving.is_subset(&moving) {
            return Err(format!(
                "{moving:?} are on their way and not {expected_moving:?}"
            ));
        }
        if moving == expected_moving {
            let again = expected["recheckAfter"].as_i64();
            let again = again.map(|seconds| now + SignedDuration::from_secs(seconds));
            if wake != again {
                return Err(format!("looks again at {wake:?} and not {again:?}"));
            }
        }
        expect_same(&rollout.recounted().tally(), &rollout.tally())
    });
}
