//! `muster rollout pause` and `resume`: the annotations that stop writes.

use std::collections::BTreeSet;

use kube::api::Api;
use muster_api::cluster::ManagedCluster;
use muster_api::constants as names;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_core::replicaset::Pause;
use serde_json::{Value, json};

use super::{Change, PauseArgs, Write};
use crate::cli::access::is_missing;
use crate::cli::error::CommandError;
use crate::cli::output::say;
use crate::cli::set::Target;

/// What is wished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Pause,
    Resume,
}

pub(super) async fn run(args: &PauseArgs, wish: Wish) -> Result<(), CommandError> {
    let target = Target::of(&args.set).await?;
    let set = target.to_string();
    let told = target
        .change(async |object: &ManifestWorkReplicaSet| {
            if wish == Wish::Pause {
                clusters_exist(&target, &args.clusters).await?;
            }
            let before = Pause::read(object.metadata.annotations.as_ref());
            let change = if args.clusters.is_empty() {
                Ok(whole(&before, wish, &set))
            } else {
                some(&before, wish, &set, &args.clusters)
            };
            change.map_err(CommandError::Refused)
        })
        .await?;
    say(told)
}

/// A pause of a cluster that does not exist would stop nothing, and look as if it did.
async fn clusters_exist(target: &Target, clusters: &[String]) -> Result<(), CommandError> {
    let api: Api<ManagedCluster> = Api::all(target.access.client.clone());
    for cluster in clusters {
        // Who may not read clusters may pause in them all the same.
        if let Err(error) = api.get_metadata(cluster).await
            && is_missing(&error, cluster)
        {
            return Err(CommandError::NotFound(format!("cluster {cluster}")));
        }
    }
    Ok(())
}

fn join(clusters: &BTreeSet<String>, by: &str) -> String {
    let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
    clusters.join(by)
}

/// What becomes of a set as a whole.
fn whole(before: &Pause, wish: Wish, set: &str) -> Change {
    let wanted = wish == Wish::Pause;
    let mut says = match (wish, before.all) {
        (Wish::Pause, false) => format!("{set} paused"),
        (Wish::Pause, true) => format!("{set} is paused already"),
        (Wish::Resume, true) => format!("{set} resumed"),
        (Wish::Resume, false) => format!("{set} is not paused"),
    };
    if wish == Wish::Resume && !before.clusters.is_empty() {
        says = format!("{says}; still paused in {}", join(&before.clusters, ", "));
    }
    let value = wanted.then_some("true");
    Change {
        patch: (before.all != wanted).then(|| annotate(names::PAUSED_ANNOTATION, &json!(value))),
        says,
    }
}

/// What becomes of some of its clusters.
fn some(before: &Pause, wish: Wish, set: &str, clusters: &[String]) -> Result<Change, String> {
    let asked: BTreeSet<String> = clusters.iter().cloned().collect();
    let mut after = before.clusters.clone();
    let mut says = match wish {
        Wish::Pause => {
            after.extend(asked.iter().cloned());
            let already = if after == before.clusters {
                " already"
            } else {
                ""
            };
            format!("{set} paused in {}{already}", join(&asked, ", "))
        }
        Wish::Resume => {
            if let Some(other) = asked.difference(&before.clusters).next() {
                let which = if before.clusters.is_empty() {
                    "no cluster is".to_owned()
                } else {
                    format!("these are: {}", join(&before.clusters, ", "))
                };
                return Err(format!("{set} is not paused in cluster {other}; {which}"));
            }
            after.retain(|cluster| !asked.contains(cluster));
            format!("{set} resumed in {}", join(&asked, ", "))
        }
    };
    if wish == Wish::Resume && before.all {
        says = format!("{says}; the set as a whole is still paused");
    }
    let value = (!after.is_empty()).then(|| join(&after, ","));
    Ok(Change {
        patch: (after != before.clusters)
            .then(|| annotate(names::PAUSED_CLUSTERS_ANNOTATION, &json!(value))),
        says,
    })
}

/// `null` takes an annotation away.
fn annotate(name: &str, value: &Value) -> Write {
    Write::Merge(json!({"metadata": {"annotations": {name: value}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(annotations: &[(&str, &str)]) -> Pause {
        let all = annotations.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        Pause::read(Some(&all.collect()))
    }

    fn writes(change: &Change) -> Option<Value> {
        match change.patch.as_ref()? {
            Write::Merge(patch) => Some(patch["metadata"]["annotations"].clone()),
            Write::Json(_) => None,
        }
    }

    #[track_caller]
    fn expect(change: &Change, says: &str, patch: Option<&Value>) {
        assert_eq!(change.says, says);
        assert_eq!(writes(change).as_ref(), patch);
    }

    #[test]
    fn a_whole_set_is_paused_once_and_resumed_once() {
        let (runs, paused) = (pauses(&[]), pauses(&[(names::PAUSED_ANNOTATION, "true")]));
        let annotation = |value: Option<&str>| json!({names::PAUSED_ANNOTATION: value});
        expect(
            &whole(&runs, Wish::Pause, "s"),
            "s paused",
            Some(&annotation(Some("true"))),
        );
        expect(
            &whole(&paused, Wish::Pause, "s"),
            "s is paused already",
            None,
        );
        expect(
            &whole(&paused, Wish::Resume, "s"),
            "s resumed",
            Some(&annotation(None)),
        );
        expect(&whole(&runs, Wish::Resume, "s"), "s is not paused", None);
        // Whatever else it says is no pause, and is overwritten.
        let odd = pauses(&[(names::PAUSED_ANNOTATION, "yes")]);
        expect(
            &whole(&odd, Wish::Pause, "s"),
            "s paused",
            Some(&annotation(Some("true"))),
        );
    }

    #[test]
    fn clusters_are_paused_and_resumed_one_by_one() {
        let list = |value: Option<&str>| json!({names::PAUSED_CLUSTERS_ANNOTATION: value});
        let some = |before: &Pause, wish, clusters: &[&str]| {
            let clusters: Vec<String> = clusters.iter().map(|c| (*c).to_owned()).collect();
            super::some(before, wish, "s", &clusters)
        };
        let before = pauses(&[(names::PAUSED_CLUSTERS_ANNOTATION, " c2, ,c1")]);
        expect(
            &some(&before, Wish::Pause, &["c3", "c1"]).unwrap(),
            "s paused in c1, c3",
            Some(&list(Some("c1,c2,c3"))),
        );
        expect(
            &some(&before, Wish::Pause, &["c1"]).unwrap(),
            "s paused in c1 already",
            None,
        );
        expect(
            &some(&before, Wish::Resume, &["c1"]).unwrap(),
            "s resumed in c1",
            Some(&list(Some("c2"))),
        );
        expect(
            &some(&before, Wish::Resume, &["c1", "c2"]).unwrap(),
            "s resumed in c1, c2",
            Some(&list(None)),
        );
        assert_eq!(
            some(&before, Wish::Resume, &["c1", "c9"]),
            Err("s is not paused in cluster c9; these are: c1, c2".to_owned())
        );
        assert_eq!(
            some(&pauses(&[]), Wish::Resume, &["c9"]),
            Err("s is not paused in cluster c9; no cluster is".to_owned())
        );
    }

    #[test]
    fn what_is_still_paused_is_told() {
        let both = pauses(&[
            (names::PAUSED_ANNOTATION, "true"),
            (names::PAUSED_CLUSTERS_ANNOTATION, "c1"),
        ]);
        let change = whole(&both, Wish::Resume, "s");
        assert_eq!(change.says, "s resumed; still paused in c1");
        let change = some(&both, Wish::Resume, "s", &["c1".to_owned()]).unwrap();
        assert_eq!(
            change.says,
            "s resumed in c1; the set as a whole is still paused"
        );
    }
}
