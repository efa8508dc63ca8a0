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
            // The reference takes 0, and less, as all clusters at once, or as no failures.
            (Err(ours), None) if is_not_positive(record) => {
                let ours = ours.to_string();
                let said = ["must be more than 0", "must not be negative"];
                let said = said.iter().any(|why| ours.contains(why));
                return said.then_some(()).ok_or(ours);
            }
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
        let statuses: Vec<Status<'_>> = section(record, "statuses")
            .iter()
            .map(|status| Status {
                cluster: text(status, "cluster"),
                state: text(status, "status"),
                seconds_ago: status["secondsAgo"].as_i64(),
            })
            .collect();
        let expected = Expected {
            listed: clusters(&expected["rollout"]),
            timed_out: clusters(&expected["timedOut"]),
            again: expected["recheckAfter"].as_i64(),
        };
        compare(&strategy, &groups, &statuses, &expected, now)
    });
}

/// Whether a record has a number of clusters that we refuse.
fn is_not_positive(record: &Value) -> bool {
    let body = &record["strategy"]["progressive"];
    let nothing = |field: &str, least: i64| {
        let number = match &body[field] {
            Value::String(text) => text.trim_end_matches('%').parse().ok(),
            number => number.as_i64(),
        };
        number.is_some_and(|number| number < least)
    };
    nothing("maxConcurrency", 1) || nothing("maxFailures", 0)
}

/// What the reference is told of a cluster.
struct Status<'a> {
    cluster: &'a str,
    state: &'a str,
    seconds_ago: Option<i64>,
}

/// What the reference says.
struct Expected {
    /// Clusters that begin or are on their way.
    listed: BTreeSet<String>,
    timed_out: BTreeSet<String>,
    /// Seconds after which to look again.
    again: Option<i64>,
}

fn compare(
    strategy: &Strategy,
    groups: &Groups,
    statuses: &[Status<'_>],
    expected: &Expected,
    now: Timestamp,
) -> Result<(), String> {
    let mut rollout = Rollout::new(strategy, groups);
    let mut known = BTreeSet::new();
    for status in statuses {
        let cluster = status.cluster;
        known.insert(cluster.to_owned());
        let state = match status.state {
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
        let since = status.seconds_ago;
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
    let expected_begin: BTreeSet<String> = expected.listed.difference(&known).cloned().collect();
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
    let timed_out = &expected.timed_out;
    if !timed_out.is_subset(&turn_is(&[Turn::TimedOut])) {
        return Err(format!("{timed_out:?} timed out"));
    }
    let moving = turn_is(&[
        Turn::Started,
        Turn::Progressing,
        Turn::Failed,
        Turn::Soaking,
    ]);
    let expected_moving: BTreeSet<String> = expected.listed.intersection(&known).cloned().collect();
    if !expected_moving.is_subset(&moving) {
        return Err(format!(
            "{moving:?} are on their way and not {expected_moving:?}"
        ));
    }
    if moving == expected_moving {
        let again = expected.again;
        let again = again.map(|seconds| now + SignedDuration::from_secs(seconds));
        if wake != again {
            return Err(format!("looks again at {wake:?} and not {again:?}"));
        }
    }
    expect_same(&rollout.recounted().tally(), &rollout.tally())
}

/// One row of the engine's vectors: a name, the strategy as of its type, the groups, what is known,
/// which clusters are listed, which timed out, and seconds after which to look again.
///
/// Groups are separated by `/`; the first is called `group1`, the others have no name. A cluster's
/// state is its first letter, with how many seconds ago.
struct Vector(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Option<i64>,
);

const THREE: &str = "c1 c2 c3/c4 c5 c6";
const NINE: &str = "c1 c2 c3/c4 c5 c6/c7 c8 c9";
const NINE_KNOWN: &str = "c1P60 c2T c3T c4T c5T c6T c7T c8T c9T c10T";
const MANDATORY: &str = r#""mandatoryDecisionGroups": [{"groupName": "group1"}]"#;

/// P01 to P29, of upstream's tests of its rollout engine. Clusters that left are not listed.
#[rustfmt::skip]
fn vectors() -> Vec<Vector> {
    vec![
        Vector("P01", r#"Progressive "maxConcurrency": 2"#, THREE, "", "c1 c2", "", None),
        Vector("P02", r#"Progressive "maxConcurrency": 4"#, NINE, NINE_KNOWN, "c1 c2 c3 c4", "", Some(30)),
        Vector("P03", "Progressive ", NINE, NINE_KNOWN, "c1 c2 c3 c4 c5 c6 c7 c8 c9", "", Some(30)),
        Vector("P04", r#"Progressive "maxConcurrency": 2"#, THREE, "c1S60 c2F120 c3P60", "c3", "c2", Some(30)),
        Vector("P05", r#"Progressive "maxConcurrency": 2, "maxFailures": 1"#, THREE, "c1S60 c2F120 c3P60", "c3 c4", "c2", Some(30)),
        Vector("P06", r#"Progressive "maxConcurrency": 2, "maxFailures": "100%", "minSuccessTime": "60s""#, THREE, "c1S30 c2F120 c3P30", "c1 c3", "c2", Some(30)),
        Vector("P07", r#"Progressive "maxConcurrency": 4, "maxFailures": "100%", "minSuccessTime": "60s""#, "c1 c2 c3 c4", "c1S30 c2P60 c3P30 c4S120", "c1 c2 c3", "", Some(30)),
        Vector("P08", r#"Progressive "maxConcurrency": 2, "maxFailures": 3, "progressDeadline": "0s""#, THREE, "c1S30 c2P30 c3P30", "c4 c5", "c2 c3", None),
        Vector("P09", r#"Progressive "maxConcurrency": 3, MANDATORY"#, THREE, "c1S60 c2F120 c3P60", "c3", "c2", Some(30)),
        Vector("P10", r#"Progressive "maxConcurrency": 3, MANDATORY"#, "c1 c2/c3 c4/c5 c6", "c1F120 c2F60", "c2", "c1", Some(30)),
        Vector("P11", r#"Progressive "maxConcurrency": 3, "progressDeadline": "None", MANDATORY"#, "c1 c2/c3 c4/c5 c6", "c1S60 c2S120", "c3 c4 c5", "", None),
        Vector("P12", r#"Progressive "maxConcurrency": "50%", "maxFailures": "100%", "progressDeadline": "None""#, "c1 c2/c3 c4 c5 c6", "c1S60 c2F120 c3P60", "c2 c3 c4", "", None),
        Vector("P13", r#"Progressive "maxConcurrency": "50%", "maxFailures": "0%", "progressDeadline": "None""#, "c1 c2/c3 c4 c5 c6", "c1S60 c2F120 c3P60", "c2 c3", "", None),
        Vector("P14", "ProgressivePerGroup ", THREE, "", "c1 c2 c3", "", None),
        Vector("P15", "ProgressivePerGroup ", THREE, "c1P60 c2T c3T c4T c5T c6T", "c1 c2 c3", "", Some(30)),
        Vector("P16", r#"ProgressivePerGroup "maxFailures": 2"#, THREE, "c1S60 c2F120 c3S60", "c4 c5 c6", "c2", None),
        Vector("P17", r#"ProgressivePerGroup "progressDeadline": "None""#, THREE, "c1S60 c2F120 c3S60", "c2", "", None),
        Vector("P18", r#"ProgressivePerGroup "progressDeadline": "None", "maxFailures": 2"#, THREE, "c1S60 c2F120 c3S60", "c2 c4 c5 c6", "", None),
        Vector("P19", r#"ProgressivePerGroup "progressDeadline": "None", "maxFailures": "30%""#, THREE, "c1S60 c2F120 c3F120", "c2 c3", "", None),
        Vector("P20", r#"ProgressivePerGroup "maxFailures": 2, MANDATORY"#, THREE, "c1S60 c2F120 c3S60", "", "c2", None),
        Vector("P21", "ProgressivePerGroup MANDATORY", THREE, "c1S60 c2S60 c3S60", "c4 c5 c6", "", None),
        Vector("P22", r#"ProgressivePerGroup "maxFailures": "50%", "minSuccessTime": "60s""#, "c1 c2 c3/c4 c5", "c1S30 c2S120 c3P30", "c1 c3", "", Some(30)),
        Vector("P23", "ProgressivePerGroup ", THREE, "c1S60 c2S60 c4P60 c5P60", "c3 c4 c5", "", Some(30)),
        Vector("P24", r#"ProgressivePerGroup "maxFailures": 2"#, "c1 c3/c4 c5 c6", "c1S60 c2F60 c3P120", "c4 c5 c6", "c3", None),
        Vector("P25", r#"Progressive "maxConcurrency": 2, "maxFailures": "100%""#, "c2 c3/c4 c5 c6", "c1S60 c2F120 c3P60", "c3 c4", "c2", Some(30)),
        Vector("P26", r#"Progressive "maxConcurrency": 2, MANDATORY"#, "c1 c3/c4 c5 c6", "c1S60 c2F120 c3S60", "c4 c5", "", None),
        Vector("P27", "All ", "c1 c2/c3 c4 c5 c6", "c1S60 c2F120 c3P120 c4F60 c5P60", "c4 c5 c6", "c2 c3", Some(30)),
        Vector("P28", "All ", "c1 c2 c7/c3 c4 c5 c6", "c1S60 c2F120 c3P120 c4F60 c5P60", "c4 c5 c6 c7", "c2 c3", Some(30)),
        Vector("P29", "All ", "c1/c3 c5", "c1S60 c2F120 c3P120 c4F60 c5P60", "c5", "c3", Some(30)),
    ]
}

#[test]
fn the_engines_vectors_hold() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split_whitespace();
        words.map(ToOwned::to_owned).collect()
    };
    for Vector(id, strategy, groups, known, listed, timed_out, again) in vectors() {
        let (kind, options) = strategy.split_once(' ').unwrap();
        let options = options.replace("MANDATORY", MANDATORY);
        let deadline = if options.contains("progressDeadline") {
            ""
        } else {
            r#""progressDeadline": "90s""#
        };
        let both = [deadline, &options].join(if deadline.is_empty() || options.is_empty() {
            ""
        } else {
            ", "
        });
        let field = match kind {
            "All" => "all",
            "Progressive" => "progressive",
            _ => "progressivePerGroup",
        };
        let strategy = format!(r#"{{"type": "{kind}", "{field}": {{{both}}}}}"#);
        let strategy: RolloutStrategy = serde_json::from_str(&strategy).unwrap();
        let strategy = Strategy::read(&strategy).unwrap();
        let groups: Groups = groups
            .split('/')
            .enumerate()
            .map(|(index, clusters)| {
                let name = if index == 0 { "group1" } else { "" };
                let group = Group {
                    index: index.try_into().unwrap(),
                    name: name.to_owned(),
                };
                (group, clusters.split_whitespace().map(Arc::from).collect())
            })
            .collect();
        let statuses: Vec<Status<'_>> = known
            .split_whitespace()
            .map(|text| {
                let at = text.find(|c: char| c.is_ascii_uppercase()).unwrap();
                let (cluster, rest) = text.split_at(at);
                let (state, ago) = rest.split_at(1);
                Status {
                    cluster,
                    state: match state {
                        "T" => "ToApply",
                        "P" => "Progressing",
                        "F" => "Failed",
                        _ => "Succeeded",
                    },
                    seconds_ago: ago.parse().ok(),
                }
            })
            .collect();
        let expected = Expected {
            listed: words(listed),
            timed_out: words(timed_out),
            again,
        };
        let same = compare(&strategy, &groups, &statuses, &expected, now);
        assert_eq!(same, Ok(()), "{id}");
    }
}
