//! `muster rollout`, by the program itself: followed, paused, listed and taken back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rollout::{Fleet, config_map, placement, set};
use crate::support::muster::{Ended, run_to_end};
use crate::support::{Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        a_rollout_is_followed_to_its_end,
        a_rollout_that_fails_or_takes_too_long_ends_with_3,
        a_template_of_before_is_had_again,
        a_paused_set_gets_nothing_and_is_not_taken_back,
        a_paused_cluster_waits_until_it_is_resumed,
        what_is_not_there_is_named,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

/// Beside the cluster of each fleet, `simulated`.
const ANOTHER: &str = "[[clusters]]\nname = \"west\"\nsimulated = true";

impl Fleet {
    /// `muster rollout …` with access as kubectl has it.
    async fn rollout(&self, args: &[&str]) -> Result<Ended> {
        self.run(&[&["rollout"], args].concat()).await
    }

    /// What it prints when it does what was asked for.
    async fn does(&self, args: &[&str]) -> Result<String> {
        let ended = self.rollout(args).await?;
        ensure!(
            ended.code == Some(0) && ended.stderr.is_empty(),
            "{args:?}: {ended:?}"
        );
        Ok(ended.stdout)
    }

    async fn says(&self, args: &[&str], expected: &str) -> Result<()> {
        let printed = self.does(args).await?;
        ensure!(printed.trim_end() == expected, "{args:?} says {printed}");
        Ok(())
    }

    /// What it says on its standard error when it ends with this code.
    async fn ends(&self, code: i32, args: &[&str], text: &str) -> Result<Ended> {
        let ended = self.rollout(args).await?;
        ensure!(
            ended.code == Some(code) && ended.stderr.contains(text),
            "{args:?} should end with {code} and {text:?}: {ended:?}"
        );
        Ok(ended)
    }

    /// Waits until the rollout is done.
    async fn is_done(&self) -> Result<String> {
        self.does(&["status", "web", "--timeout", "60s"]).await
    }

    /// The history, without the times: number, mark, cause.
    async fn history(&self) -> Result<Vec<String>> {
        let table = self.does(&["history", "web"]).await?;
        let mut lines = table.lines();
        let header = lines.next().unwrap_or_default();
        let words: Vec<&str> = header.split_whitespace().collect();
        ensure!(
            words == ["REVISION", "CREATED", "CURRENT", "CHANGE-CAUSE"],
            "{table}"
        );
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let number = words.next()?;
            words.next()?.parse::<jiff::Timestamp>().ok()?;
            let rest: Vec<&str> = words.collect();
            Some(format!("{number} {}", rest.join(" ")))
        };
        lines
            .map(|text| line(text).with_context(|| format!("odd line {text:?}")))
            .collect()
    }

    async fn history_is(&self, expected: &[&str]) -> Result<()> {
        eventually(LIMIT, "the history to be as expected", || async {
            let seen = self.history().await?;
            ensure!(seen == expected, "{seen:#?}");
            Ok(())
        })
        .await
    }

    /// Changes template and cause as one.
    async fn roll_out(&self, value: &str, cause: &str) -> Result<()> {
        let data = "/spec/manifestWorkTemplate/workload/manifests/0/data";
        let cause_at = "/metadata/annotations/kubernetes.io~1change-cause";
        let patch = json!([
            {"op": "replace", "path": data, "value": {"a": value}},
            {"op": "add", "path": cause_at, "value": cause}]);
        self.patch("web", &patch).await
    }

    async fn data_is(&self, cluster: &str, value: &str) -> Result<()> {
        let data = self.data(cluster).await?;
        ensure!(data == Some(json!({"a": value})), "{cluster}: {data:?}");
        Ok(())
    }
}

fn a_set() -> Value {
    let mut set = set(&json!([config_map("app")]));
    set["metadata"]["annotations"] = json!({"team": "a"});
    set
}

async fn a_rollout_is_followed_to_its_end(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&a_set()).await?;
    let waits = "mwrs default/web: 0 of 0 clusters updated, 0 available; placement all does not \
                 exist";
    eventually(LIMIT, "the hub to see the set", || async {
        let line = fleet.does(&["status", "web", "--watch=false"]).await?;
        ensure!(line.trim_end() == waits, "{line}");
        Ok(())
    })
    .await?;
    fleet
        .ends(
            3,
            &["status", "web", "--timeout", "2s"],
            &format!("muster: not done after 2s: {waits}"),
        )
        .await?;
    fleet.create(&placement()).await?;
    let done = "mwrs default/web: rolled out; 2 of 2 clusters updated, 2 available";
    let lines = fleet.is_done().await?;
    let mut seen: Vec<&str> = lines.lines().collect();
    ensure!(seen.last() == Some(&done), "{lines}");
    seen.dedup();
    ensure!(seen.len() == lines.lines().count(), "a line twice: {lines}");
    ensure!(
        seen.iter()
            .all(|line| line.starts_with("mwrs default/web: ")),
        "{lines}"
    );
    // Now that it is there, there is one line, however it is asked for.
    for more in [&[][..], &["--watch=false"], &["-w=false"], &["-w"]] {
        fleet
            .says(&[&["status", "mwrs/web"], more].concat(), done)
            .await?;
    }
    fleet.says(&["status", "-w", "web"], done).await?;
    // With the settings of the hub, too.
    let settings = fleet.settings().display().to_string();
    let ended = run_to_end(&["rollout", "status", "web", "--config", &settings]).await?;
    ensure!(
        ended.code == Some(0) && ended.stdout.trim_end() == done,
        "{ended:?}"
    );
    let wide = fleet.does(&["status", "web", "-o", "wide"]).await?;
    let words: Vec<Vec<&str>> = wide
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    ensure!(
        words
            == [
                [
                    "PLACEMENT",
                    "DECIDED",
                    "UPDATED",
                    "AVAILABLE",
                    "PROGRESSING",
                    "DEGRADED"
                ],
                ["all", "2", "2", "2", "0", "0"]
            ],
        "{wide}"
    );
    let json = fleet.does(&["status", "web", "-o", "json"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    ensure!(
        json["progress"] == "Ready"
            && json["name"] == "web"
            && json["summary"]["available"] == 2
            && json["placements"][0]["summary"]["desiredTotal"] == 2,
        "{json}"
    );
    let yaml = fleet.does(&["status", "web", "-o", "yaml"]).await?;
    let yaml: Value = serde_saphyr::from_str(&yaml)?;
    ensure!(yaml == json, "{yaml}");
    fleet.muster.kill().await
}

async fn a_rollout_that_fails_or_takes_too_long_ends_with_3(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    let mut failing = a_set();
    let map = json!({"group": "", "resource": "configmaps", "namespace": "default", "name": "app"});
    failing["spec"]["manifestWorkTemplate"]["manifestConfigs"] = json!([{
        "resourceIdentifier": map,
        "conditionRules": [{"type": "CEL", "condition": "Degraded",
            "celExpressions": ["object.data.a == 'bad'"]}]}]);
    failing["spec"]["manifestWorkTemplate"]["workload"]["manifests"][0]["data"]["a"] = json!("bad");
    fleet.create(&failing).await?;
    let failed = "mwrs default/web: failed; 1 of 1 clusters updated, 1 available, 1 degraded; first \
                  degraded simulated: Manifest is Degraded";
    let ended = fleet
        .ends(3, &["status", "web", "--timeout", "60s"], failed)
        .await?;
    ensure!(
        ended.stdout.lines().last() == Some(failed)
            && ended.stderr.trim_end() == format!("muster: {failed}"),
        "{ended:?}"
    );
    fleet
        .ends(3, &["status", "web", "-w=false"], failed)
        .await?;
    // What is followed and deleted is no success.
    fleet.change("good").await?;
    fleet.is_done().await?;
    fleet.does(&["pause", "web"]).await?;
    fleet.change("other").await?;
    let (followed, deleted) = tokio::join!(
        fleet.ends(
            1,
            &["status", "web", "--timeout", "60s"],
            "muster: mwrs default/web was deleted"
        ),
        async {
            eventually(LIMIT, "the change to be seen", || async {
                let line = fleet.does(&["status", "web", "-w=false"]).await?;
                ensure!(line.contains("; paused by annotation"), "{line}");
                Ok(())
            })
            .await?;
            fleet
                .kubectl(&["delete", "mwrs", "web", "--timeout=60s"])
                .await
        }
    );
    deleted?;
    followed?;
    fleet.muster.kill().await
}

async fn three_revisions_are_listed_by_kubectl(fleet: &Fleet) -> Result<()> {
    let table = fleet
        .kubectl(&[
            "get",
            "controllerrevisions",
            "-l",
            "muster.dev/replicaset=default.web",
        ])
        .await?;
    let mut lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().skip(1).take(2).collect())
        .collect();
    lines.sort_unstable();
    let controller = "manifestworkreplicaset.work.open-cluster-management.io/web";
    ensure!(
        lines
            == [
                ["CONTROLLER", "REVISION"],
                [controller, "1"],
                [controller, "2"],
                [controller, "3"]
            ],
        "{table}"
    );
    Ok(())
}

async fn a_template_of_before_is_had_again(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    fleet.create(&a_set()).await?;
    fleet.is_done().await?;
    let first = fleet.get(&["mwrs", "web"]).await?["spec"]["manifestWorkTemplate"].take();
    fleet.history_is(&["1 * <none>"]).await?;
    fleet
        .ends(
            1,
            &["undo", "web"],
            "muster: mwrs default/web: there is only one revision, 1, and it is the current one",
        )
        .await?;
    fleet.roll_out("two", "a second try").await?;
    fleet.is_done().await?;
    fleet.data_is("simulated", "two").await?;
    fleet.history_is(&["1 <none>", "2 * a second try"]).await?;
    fleet.roll_out("three", "yet another").await?;
    fleet.is_done().await?;
    let all = ["1 <none>", "2 a second try", "3 * yet another"];
    fleet.history_is(&all).await?;
    for (metric, label, expected) in [
        ("muster_mwrs_revision_writes_total", "kind=\"create\"", 3.0),
        ("muster_mwrs_revision_writes_total", "result=\"error\"", 0.0),
        ("muster_mwrs_sweep_differences_total", "", 0.0),
        ("muster_mwrs_recount_differences_total", "", 0.0),
    ] {
        let told = fleet.muster.metric(metric, label).await?;
        ensure!(
            (told - expected).abs() < 0.5,
            "{metric}{{{label}}} is {told}"
        );
    }

    three_revisions_are_listed_by_kubectl(&fleet).await?;
    // A template is shown as it was.
    let shown = fleet.does(&["history", "web", "--revision", "1"]).await?;
    let shown: Value = serde_saphyr::from_str(&shown)?;
    ensure!(shown == first, "{shown}");

    // Back by one, and again, which is forward.
    fleet
        .says(&["undo", "web"], "mwrs default/web went back to revision 2")
        .await?;
    fleet.is_done().await?;
    fleet.data_is("simulated", "two").await?;
    let swapped = ["1 <none>", "3 yet another", "4 * a second try"];
    fleet.history_is(&swapped).await?;
    fleet
        .says(&["undo", "web"], "mwrs default/web went back to revision 3")
        .await?;
    fleet.is_done().await?;
    fleet.data_is("simulated", "three").await?;
    fleet
        .history_is(&["1 <none>", "4 a second try", "5 * yet another"])
        .await?;
    // To the first, which had no cause.
    fleet
        .says(
            &["undo", "web", "--to-revision", "1"],
            "mwrs default/web went back to revision 1",
        )
        .await?;
    fleet.is_done().await?;
    fleet.data_is("simulated", "b").await?;
    let last = ["4 a second try", "5 yet another", "6 * <none>"];
    fleet.history_is(&last).await?;
    fleet
        .says(
            &["undo", "web", "--to-revision=6"],
            "mwrs default/web has the template of revision 6 already",
        )
        .await?;
    fleet
        .ends(
            1,
            &["undo", "web", "--to-revision", "3"],
            "muster: mwrs default/web: revision 3 not found (there are 4, 5, 6)",
        )
        .await?;
    fleet
        .ends(
            1,
            &["history", "web", "--revision", "3"],
            "muster: revision 3 of mwrs default/web not found",
        )
        .await?;

    // With the set its revisions go, although nobody collects garbage here.
    fleet
        .kubectl(&["delete", "mwrs", "web", "--timeout=60s"])
        .await?;
    let left = fleet.get(&["controllerrevisions", "-A"]).await?;
    ensure!(left["items"] == json!([]), "{left}");
    fleet.muster.kill().await
}

async fn a_paused_set_gets_nothing_and_is_not_taken_back(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    fleet.create(&placement()).await?;
    fleet.create(&a_set()).await?;
    fleet.is_done().await?;
    fleet.roll_out("two", "second").await?;
    fleet.is_done().await?;
    fleet.history_is(&["1 <none>", "2 * second"]).await?;
    fleet
        .says(&["pause", "web"], "mwrs default/web paused")
        .await?;
    fleet
        .says(&["pause", "web"], "mwrs default/web is paused already")
        .await?;
    fleet.roll_out("three", "third").await?;
    let annotated = "; paused by annotation muster.dev/paused";
    let paused = format!("mwrs default/web: 0 of 1 clusters updated, 0 available{annotated}");
    eventually(LIMIT, "the hub to see the change", || async {
        let line = fleet.does(&["status", "web", "--watch=false"]).await?;
        ensure!(line.trim_end() == paused, "{line}");
        Ok(())
    })
    .await?;
    fleet.data_is("simulated", "two").await?;
    fleet
        .ends(
            3,
            &["status", "web", "--timeout=1s"],
            &format!("muster: not done after 1s: {paused}"),
        )
        .await?;
    // What no work has is no revision.
    fleet.history_is(&["1 <none>", "2 second"]).await?;
    fleet
        .ends(
            1,
            &["undo", "web"],
            "muster: mwrs default/web: it is paused, and a paused set is not taken back; resume it \
             first with muster rollout resume web",
        )
        .await?;
    fleet
        .says(&["resume", "web"], "mwrs default/web resumed")
        .await?;
    fleet
        .says(&["resume", "web"], "mwrs default/web is not paused")
        .await?;
    eventually(LIMIT, "the change to arrive", || async {
        fleet.data_is("simulated", "three").await
    })
    .await?;
    fleet.is_done().await?;
    fleet
        .history_is(&["1 <none>", "2 second", "3 * third"])
        .await?;
    fleet.muster.kill().await
}

async fn a_paused_cluster_waits_until_it_is_resumed(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, ANOTHER).await?;
    fleet.create(&placement()).await?;
    fleet.create(&a_set()).await?;
    fleet.is_done().await?;
    fleet
        .ends(
            1,
            &["pause", "web", "--cluster", "wets"],
            "muster: cluster wets not found",
        )
        .await?;
    fleet
        .says(
            &["pause", "web", "--cluster", "west"],
            "mwrs default/web paused in west",
        )
        .await?;
    fleet.change("two").await?;
    let line = "mwrs default/web: 1 of 2 clusters updated, 1 available; paused in 1 cluster, \
                first west";
    eventually(LIMIT, "the other cluster to be there", || async {
        let seen = fleet.does(&["status", "web", "-w=false"]).await?;
        ensure!(seen.trim_end() == line, "{seen}");
        Ok(())
    })
    .await?;
    fleet.data_is("simulated", "two").await?;
    fleet.data_is("west", "b").await?;
    fleet
        .ends(
            1,
            &["resume", "web", "--cluster", "simulated"],
            "muster: mwrs default/web is not paused in cluster simulated; these are: west",
        )
        .await?;
    fleet
        .says(
            &["resume", "web", "--cluster=west"],
            "mwrs default/web resumed in west",
        )
        .await?;
    fleet.is_done().await?;
    fleet.data_is("west", "two").await?;
    let set = fleet.get(&["mwrs", "web"]).await?;
    ensure!(
        set["metadata"]["annotations"]["muster.dev/paused-clusters"].is_null(),
        "{set}"
    );
    fleet.muster.kill().await
}

async fn what_is_not_there_is_named(world: World) -> Result<()> {
    let fleet = Fleet::on(&world, "").await?;
    for verb in ["status", "pause", "resume", "history", "undo"] {
        fleet
            .ends(1, &[verb, "none"], "muster: mwrs default/none not found")
            .await?;
    }
    fleet
        .ends(
            1,
            &["history", "none", "-n", "nowhere"],
            "muster: namespace nowhere not found",
        )
        .await?;
    fleet
        .ends(
            1,
            &["history", "none", "--namespace=simulated"],
            "muster: mwrs simulated/none not found",
        )
        .await?;
    fleet
        .ends(
            1,
            &["history", "none", "--context", "elsewhere"],
            "elsewhere",
        )
        .await?;
    let settings = fleet.settings().display().to_string();
    for (args, text) in [
        (&["status"][..], "<NAME>"),
        (
            &["undo", "web", "--to-revision", "0"],
            "is not a revision number",
        ),
        (&["history", "a/b"], "is not a ManifestWorkReplicaSet name"),
        (&["status", "web", "--timeout", "soon"], "invalid duration"),
        (
            &["status", "web", "--config", &settings],
            "cannot be used with",
        ),
    ] {
        fleet.ends(2, args, text).await?;
    }
    for (args, code, text) in [
        (
            &["--kubeconfig", "/does/not/exist"][..],
            1,
            "muster: /does/not/exist: ",
        ),
        (
            &["--set", "hub.data_dir=/does/not/exist"],
            1,
            "(has the hub been started?)",
        ),
        (
            &["--set", "hub.listen=127.0.0.1:1"],
            1,
            "(is the hub running, as this user?)",
        ),
        (
            &["--set", "hub.listen=127.0.0.1:0"],
            2,
            "muster: hub.data_dir is not set",
        ),
        (&["--set", "hub.nothing=1"], 2, "hub.nothing"),
    ] {
        let ended = run_to_end(&[&["rollout", "history", "web"], args].concat()).await?;
        ensure!(
            ended.code == Some(code) && ended.stderr.contains(text),
            "{args:?}: {ended:?}"
        );
    }
    fleet.muster.kill().await
}
