//! An explanation as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use muster_apiserver::age;
use muster_core::explain::{Node, State, first_cause};

use super::Explained;
use crate::cli::table::one_line;

/// How many siblings that are alike are shown.
const SHOWN: usize = 3;

/// One or two sentences, then the tree, then what could not be read.
pub(super) fn text(explained: &Explained, wide: bool, now: Timestamp) -> String {
    let tree = &explained.tree;
    let mut text = summary(explained, now);
    text.push_str("\n\n");
    let mut writer = Writer {
        text,
        wide,
        now,
        root: tree,
        cause: first_cause(tree).map(|cause| cause.node),
    };
    writer.node(tree, "", "");
    let mut text = writer.text;
    if !explained.notes.is_empty() {
        text.push('\n');
    }
    for note in &explained.notes {
        let _ = writeln!(text, "note: {note}"); // a String never fails
    }
    text
}

/// The sentences above the tree: what everything waits for, and what it comes to.
pub(super) fn summary(explained: &Explained, now: Timestamp) -> String {
    let tree = &explained.tree;
    let Some(cause) = first_cause(tree) else {
        let subject = subject(tree);
        let text = match subject.message.as_str() {
            "" => format!("ok: {subject}"),
            message => format!("ok: {subject}: {}", one_line(message)),
        };
        return text + &owner(explained);
    };
    let node = cause.node;
    let on = match cause.cluster {
        Some(cluster) if !["ManagedCluster", "ManifestWork"].contains(&node.kind.as_str()) => {
            format!(" on cluster {cluster}")
        }
        _ => String::new(),
    };
    let mut text = format!(
        "{}: {node}{on}: {} ({}){}",
        node.own_state,
        one_line(&node.message),
        node.reason,
        since(node, now)
    );
    // What the whole comes to, where the cause is only a part of it.
    if !std::ptr::eq(node, tree) && tree.reason.is_empty() && !tree.message.is_empty() {
        let _ = write!(text, "\n{tree}: {}", one_line(&tree.message));
    }
    text + &owner(explained)
}

/// What was asked about: of a work on its cluster the work.
fn subject(tree: &Node) -> &Node {
    match tree.children.first() {
        Some(work) if tree.kind == "ManagedCluster" => work,
        _ => tree,
    }
}

/// The line on the set that made a work.
fn owner(explained: &Explained) -> String {
    let Some(set) = &explained.owner else {
        return String::new();
    };
    let mut text = format!("\nmade by {set}: {}", one_line(&set.message));
    for warning in &set.warnings {
        let _ = write!(text, "; {}", one_line(warning)); // a String never fails
    }
    text
}

/// `, since 12m (2026-01-02T00:00:00Z)`
fn since(node: &Node, now: Timestamp) -> String {
    node.since.map_or_else(String::new, |since| {
        let at = since.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!(", since {} ({at})", age(since, now))
    })
}

/// What makes siblings alike: state, reason of the first cause, and the first warning.
type Likeness<'a> = (State, &'a str, &'a str);

fn likeness(node: &Node) -> Likeness<'_> {
    let cause = first_cause(node).map_or("", |cause| &cause.node.reason);
    (node.state, cause, first_warning(node).unwrap_or_default())
}

fn first_warning(node: &Node) -> Option<&str> {
    let own = node.warnings.first().map(String::as_str);
    own.or_else(|| node.children.iter().find_map(first_warning))
}

fn holds(node: &Node, wanted: &Node) -> bool {
    std::ptr::eq(node, wanted) || node.children.iter().any(|child| holds(child, wanted))
}

struct Writer<'a> {
    text: String,
    wide: bool,
    now: Timestamp,
    root: &'a Node,
    /// Never left out.
    cause: Option<&'a Node>,
}

impl Writer<'_> {
    /// A node with what is below it; `first` stands before its line and `rest` before all others.
    fn node(&mut self, node: &Node, first: &str, rest: &str) {
        let _ = write!(self.text, "{first}{node}  {}", node.state); // a String never fails
        if !node.reason.is_empty() {
            if node.own_state != node.state {
                // Something below is worse than what the reason is for.
                let _ = write!(self.text, "; {}", node.own_state);
            }
            let _ = write!(self.text, ", {}{}", node.reason, since(node, self.now));
        }
        // How the whole stands is said above.
        let is_said = std::ptr::eq(node, self.root) && node.reason.is_empty();
        if !node.message.is_empty() && !is_said {
            let _ = write!(self.text, ": {}", one_line(&node.message));
        }
        self.text.push('\n');
        let bar = if node.children.is_empty() { " " } else { "│" };
        for warning in &node.warnings {
            let _ = writeln!(self.text, "{rest}{bar}  warning: {}", one_line(warning));
        }
        let (shown, left_out) = self.choose(&node.children);
        let lines = shown.len() + left_out.len();
        let branch = |index: usize| {
            if index + 1 == lines {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            }
        };
        let some = !shown.is_empty();
        for (index, child) in shown.into_iter().enumerate() {
            let (own, below) = branch(index);
            self.node(child, &format!("{rest}{own}"), &format!("{rest}{below}"));
        }
        let before = lines - left_out.len();
        for (index, line) in left_out.into_iter().enumerate() {
            let (own, _) = branch(before + index);
            let line = line.tell(some || index > 0);
            let _ = writeln!(self.text, "{rest}{own}{line}");
        }
    }

    /// Which of siblings are shown, and what sums up the others.
    fn choose<'n>(&self, children: &'n [Node]) -> (Vec<&'n Node>, Vec<LeftOut<'n>>) {
        if self.wide {
            return (children.iter().collect(), Vec::new());
        }
        let mut shown = Vec::new();
        let mut alike: BTreeMap<Likeness<'_>, usize> = BTreeMap::new();
        let mut left_out: BTreeMap<Likeness<'_>, LeftOut<'_>> = BTreeMap::new();
        for child in children {
            let key = likeness(child);
            let seen = alike.entry(key).or_default();
            *seen += 1;
            let fine = key == (State::Ok, "", "");
            let is_cause = self.cause.is_some_and(|cause| holds(child, cause));
            if is_cause || (!fine && *seen <= SHOWN) {
                shown.push(child);
                continue;
            }
            let line = left_out.entry(key).or_insert_with(|| LeftOut {
                kind: &child.kind,
                number: 0,
                likeness: key,
            });
            line.number += 1;
            if line.kind != child.kind {
                line.kind = "object";
            }
        }
        // The worst first, those that are fine at the end.
        (shown, left_out.into_values().rev().collect())
    }
}

/// Siblings that one line stands for.
struct LeftOut<'a> {
    kind: &'a str,
    number: usize,
    likeness: Likeness<'a>,
}

impl LeftOut<'_> {
    fn tell(&self, more: bool) -> String {
        let more = if more { "more " } else { "" };
        let (s, verb) = if self.number == 1 {
            ("", "is")
        } else {
            ("s", "are")
        };
        let kind = match self.kind {
            "ManagedCluster" => "cluster",
            "ManifestWork" => "work",
            "Placement" => "placement",
            "Sink" => "sink",
            _ => "object",
        };
        let (state, reason, warning) = self.likeness;
        let how = match (state, reason) {
            (State::Ok, _) if warning.is_empty() => "fine".to_owned(),
            (State::Ok, _) => format!("ok, with the warning {}", one_line(warning)),
            (state, reason) => format!("{state}, {reason}"),
        };
        format!("{} {more}{kind}{s} {verb} {how}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use muster_core::explain::{Found, SetSeen, WorkSeen, explain_set, explain_work_on_cluster};
    use muster_core::replicaset::owner_label;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-02T00:12:00Z";

    fn condition(type_: &str, status: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "observedGeneration": 1, "reason": "Why",
            "message": message, "lastTransitionTime": "2026-01-02T00:00:00Z"})
    }

    fn work(cluster: &str, conditions: &[Value], manifests: &Value) -> WorkSeen {
        let work = json!({
            "metadata": {"namespace": cluster, "name": "web-1", "generation": 1, "labels": {
                "work.open-cluster-management.io/manifestworkreplicaset":
                    owner_label("default", "web"),
                "work.open-cluster-management.io/placementname": "all"}},
            "spec": {},
            "status": {"conditions": conditions, "resourceStatus": {"manifests": manifests}}});
        WorkSeen::read(serde_json::from_value(work).unwrap())
    }

    fn well() -> Vec<Value> {
        vec![
            condition("Applied", "True", ""),
            condition("Available", "True", ""),
        ]
    }

    fn manifest(name: &str, applied: &str, message: &str) -> Value {
        json!({
            "resourceMeta": {"ordinal": 0, "version": "v1", "kind": "ConfigMap",
                "name": name, "namespace": "default"},
            "conditions": [condition("Applied", applied, message)]})
    }

    /// A set over 100 clusters of which two fail, one warns, and five are not there yet.
    fn explained() -> Explained {
        let names: Vec<String> = (0..100).map(|number| format!("c{number:03}")).collect();
        let failed = json!([
            manifest("a", "True", ""),
            manifest("b", "False", "no\n such type")
        ]);
        let mut warned = manifest("a", "True", "");
        let late = condition("StatusFeedbackSynced", "False", "no value");
        warned["conditions"].as_array_mut().unwrap().push(late);
        let works = names.iter().enumerate().map(|(number, name)| match number {
            7 | 9 => work(
                name,
                &[condition("Applied", "False", "1 of 2 failed")],
                &failed,
            ),
            11 => work(name, &well(), &json!([warned])),
            20..25 => work(name, &[], &json!([])),
            _ => work(name, &well(), &json!([])),
        });
        let decisions: Vec<Value> = names
            .iter()
            .map(|name| json!({"clusterName": name, "reason": ""}))
            .collect();
        let label = "cluster.open-cluster-management.io/placement";
        let decision = json!({
            "metadata": {"name": "all-1", "labels": {label: "all",
                "cluster.open-cluster-management.io/decision-group-index": "0"}},
            "status": {"decisions": decisions}});
        let set = json!({
            "metadata": {"namespace": "default", "name": "web", "generation": 1},
            "spec": {"placementRefs": [{"name": "all"}]},
            "status": {"message": "ManifestWorks available in 93/100 clusters",
                "summary": {"desiredTotal": 100, "updated": 100, "available": 93},
                "conditions": [condition("Ready", "False", ""),
                    condition("Progressing", "True", "")]}});
        let placement = json!({"metadata": {"namespace": "default", "name": "all"}, "spec": {}});
        let tree = explain_set(&SetSeen {
            set: serde_json::from_value(set).unwrap(),
            placements: BTreeMap::from([(
                "all".to_owned(),
                Found::There(serde_json::from_value(placement).unwrap()),
            )]),
            decisions: Some(vec![serde_json::from_value(decision).unwrap()]),
            works: works.collect(),
            clusters: BTreeMap::new(),
            now: NOW.parse().unwrap(),
        });
        Explained {
            tree,
            owner: None,
            notes: vec!["ManagedClusters could not be read: forbidden".to_owned()],
        }
    }

    #[test]
    fn a_hundred_clusters_stay_readable() {
        let since = "Why, since 12m (2026-01-02T00:00:00Z)";
        let sentence = "(Why), since 12m (2026-01-02T00:00:00Z)";
        let bad = |name: &str| {
            format!(
                "   ├─ ManagedCluster {name}  failed
   │  └─ ManifestWork {name}/web-1  failed, {since}: 1 of 2 failed
   │     ├─ ConfigMap default/b  failed, {since}: no such type
   │     └─ 1 more object is fine
"
            )
        };
        let unseen = |name: &str| {
            format!(
                "   ├─ ManagedCluster {name}  waiting
   │  └─ ManifestWork {name}/web-1  waiting, NotSeen: no agent has looked at it
"
            )
        };
        let expected = [
            format!("failed: ConfigMap default/b on cluster c007: no such type {sentence}\n"),
            "ManifestWorkReplicaSet default/web: 100 of 100 clusters updated, 93 available

ManifestWorkReplicaSet default/web  failed
└─ Placement default/all  failed
"
            .to_owned(),
            bad("c007"),
            bad("c009"),
            "   ├─ ManagedCluster c011  ok
   │  └─ ManifestWork c011/web-1  ok
   │     └─ ConfigMap default/a  ok
   │           warning: StatusFeedbackSynced: no value
"
            .to_owned(),
            unseen("c020"),
            unseen("c021"),
            unseen("c022"),
            "   ├─ 2 more clusters are waiting, NotSeen
   └─ 92 more clusters are fine

note: ManagedClusters could not be read: forbidden
"
            .to_owned(),
        ];
        let shown = text(&explained(), false, NOW.parse().unwrap());
        assert_eq!(shown, expected.concat());
        let wide = text(&explained(), true, NOW.parse().unwrap());
        assert!(wide.contains("ManagedCluster c099  ok\n"), "{wide}");
        assert!(!wide.contains("more"), "{wide}");
    }

    #[test]
    fn a_work_is_told_with_the_set_that_made_it() {
        let mut explained = explained();
        explained.owner = Some(explained.tree.clone());
        explained.tree = explain_work_on_cluster(&work("c1", &well(), &json!([])), None, "");
        let now = NOW.parse().unwrap();
        assert_eq!(
            summary(&explained, now),
            "ok: ManifestWork c1/web-1\nmade by ManifestWorkReplicaSet default/web: 100 of 100 \
             clusters updated, 93 available"
        );
        explained.tree = explain_work_on_cluster(&work("c1", &[], &json!([])), None, "");
        assert!(
            summary(&explained, now).starts_with(
                "waiting: ManifestWork c1/web-1: no agent has looked at it (NotSeen)\nmade by"
            ),
            "{}",
            summary(&explained, now)
        );
    }

    #[test]
    fn a_document_has_the_summary_the_cause_and_the_tree() {
        let explained = explained();
        let document = serde_json::to_value(explained.document(NOW.parse().unwrap())).unwrap();
        assert_eq!(
            document["cause"],
            json!({"kind": "ConfigMap", "namespace": "default", "name": "b", "cluster": "c007",
                "state": "failed", "reason": "Why", "message": "no\n such type",
                "since": "2026-01-02T00:00:00Z"})
        );
        assert_eq!(document["tree"]["kind"], "ManifestWorkReplicaSet");
        assert_eq!(document["tree"]["children"][0]["state"], "failed");
        assert_eq!(document["notes"].as_array().map(Vec::len), Some(1));
        let summary = document["summary"].as_str().unwrap();
        assert!(summary.starts_with("failed: ConfigMap"), "{summary}");
    }
}
