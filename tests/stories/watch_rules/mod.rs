//! Watch rules: what changes on a cluster is told to a sink.

mod ending;
mod everything;
mod lives;
mod sinks;
mod yaml;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::agent::Agent;
use crate::support::live::LIMIT;
use crate::support::muster::run_to_end;
use crate::support::{OwnCluster, Story, World, eventually};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        a_rule_has_changes_told_until_it_goes,
        ten_rules_in_a_second_cost_one_update,
        a_type_that_comes_later_is_watched_then,
        rules_that_cannot_work_say_why_and_hold_up_nobody,
    ];
    stories.extend(ending::stories());
    stories.extend(everything::stories());
    stories.extend(lives::stories());
    stories.extend(sinks::stories());
    stories.extend(yaml::stories());
    stories
}

/// An agent whose rules write to a file, on a cluster of its own: all agents of a cluster have all
/// its rules.
struct Ruled {
    agent: Agent,
    file: PathBuf,
    cluster: OwnCluster,
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"a": value}})
}

fn rule(name: &str, resources: &[&str]) -> Value {
    json!({"apiVersion": "rules.muster.dev/v1alpha1", "kind": "WatchRule",
        "metadata": {"name": name},
        "spec": {"destination": "file", "rules": [{"resources": resources}]}})
}

fn sink_of(file: &Path) -> String {
    let path = file.display().to_string();
    format!("[[sinks]]\nname = \"file\"\nkind = \"log\"\npath = {path:?}\n")
}

impl Ruled {
    async fn new(world: &World) -> Result<Self> {
        Self::with(world, "").await
    }

    /// With more settings.
    async fn with(world: &World, more: &str) -> Result<Self> {
        let (hub, cluster) = (world.hub().await?, world.own_cluster().await?);
        let mut agent = Agent::between(world, hub, cluster.cluster().clone(), &[]).await?;
        let file = world
            .dir(&format!("{}-sink", agent.name()))?
            .join("events.log");
        let settings = format!("{}{more}", sink_of(&file));
        agent.set(&settings);
        agent.run().await?;
        Ok(Self {
            agent,
            file,
            cluster,
        })
    }

    /// The settings of its sink.
    fn sink(&self) -> String {
        sink_of(&self.file)
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let args = [&["-n", self.agent.name()], args].concat();
        self.agent.spoke().kubectl(&args).await?.ok()
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        let args = [
            "-n",
            self.agent.name(),
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
        ];
        let spoke = self.agent.spoke();
        spoke
            .kubectl_with_input(&args, &object.to_string())
            .await?
            .ok()?;
        Ok(())
    }

    /// Creates, once the type is served.
    async fn create_rule(&self, rule: &Value) -> Result<()> {
        eventually(LIMIT, "the rule to be taken", || async {
            self.apply(rule).await
        })
        .await
    }

    /// Lines that tell of objects with this in their names: operation, name, and the value.
    fn told(&self, of: &str) -> Result<Vec<String>> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        let mut told = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).context("a line is no JSON")?;
            let name = line["name"].as_str().context("no name")?;
            if name.contains(of) {
                let operation = line["operation"].as_str().context("no operation")?;
                let value = line["object"]["data"]["a"].as_str().unwrap_or("-");
                told.push(format!("{operation} {name} {value}"));
            }
        }
        Ok(told)
    }

    async fn tells(&self, of: &str, expected: &[&str]) -> Result<()> {
        eventually(LIMIT, &format!("{expected:?} to be told"), || async {
            let told = self.told(of)?;
            ensure!(told == expected, "{told:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the rule's line of `kubectl get wr` is this, without its age.
    async fn row_is(&self, rule: &str, expected: &str) -> Result<()> {
        eventually(LIMIT, &format!("{rule} to be {expected}"), || async {
            let row = self.kubectl(&["get", "wr", rule, "--no-headers"]).await?;
            let words: Vec<&str> = row.split_whitespace().collect();
            let row = words
                .split_last()
                .map_or(String::new(), |(_, row)| row.join(" "));
            ensure!(row == expected, "{row}");
            Ok(())
        })
        .await
    }

    /// Waits until these metrics are so, each with the labels that its lines must have.
    async fn metrics_are(&self, expected: &[(&str, &str, f64)]) -> Result<()> {
        for (metric, label, expected) in expected {
            eventually(LIMIT, &format!("{metric} to be {expected}"), || async {
                let value = self.agent.metric(metric, label).await?;
                ensure!((value - expected).abs() < 0.5, "{label}: {value}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until `muster explain rule` begins so.
    async fn explains(&self, rule: &str, cause: &str) -> Result<()> {
        let spoke = self.agent.spoke().kubeconfig().display().to_string();
        let namespace = ["-n", self.agent.name(), "--kubeconfig", &spoke];
        eventually(LIMIT, &format!("{rule} to be explained"), || async {
            let said = run_to_end(&[&["explain", "rule", rule][..], &namespace].concat()).await?;
            ensure!(
                said.code == Some(0) && said.stdout.starts_with(cause),
                "{said:?}"
            );
            Ok(())
        })
        .await
    }

    /// What the rule's condition tells people.
    async fn message_of(&self, rule: &str) -> Result<String> {
        let path = "jsonpath={.status.conditions[0].message}";
        self.kubectl(&["get", "wr", rule, "-o", path]).await
    }

    async fn watches(&self) -> Result<f64> {
        self.agent.metric("muster_watches_open", "").await
    }

    /// Watches of these types that the server has open, its own included; only the real one counts
    /// them.
    async fn served(&self, types: &[&str]) -> Result<Option<u64>> {
        Ok(match &self.cluster {
            OwnCluster::Real(server) => Some(server.open_watches_of_all(types).await?),
            OwnCluster::Embedded(_) => None,
        })
    }

    /// Waits until there are so many more watches than `before`, for the agent and the server.
    async fn opens(&self, types: &[&str], before: Option<u64>, more: u32) -> Result<()> {
        eventually(LIMIT, &format!("{more} watches"), || async {
            let (open, served) = (self.watches().await?, self.served(types).await?);
            ensure!((open - f64::from(more)).abs() < 0.5, "{open} open");
            let expected = before.map(|before| before + u64::from(more));
            ensure!(served == expected, "{served:?} served, not {expected:?}");
            Ok(())
        })
        .await
    }
}

/// C127, C129, S137, S150. That it takes no five seconds is tested on a paused clock.
async fn a_rule_has_changes_told_until_it_goes(world: World) -> Result<()> {
    let ruled = Ruled::new(&world).await?;
    ruled.apply(&config_map("before", "1")).await?;
    let types = ["configmaps"];
    let before = ruled.served(&types).await?;
    ruled.create_rule(&rule("maps", &["configmaps"])).await?;
    ruled.tells("before", &["CREATE before 1"]).await?;
    ruled.row_is("maps", "maps file True Watching 1 1").await?;
    ruled.opens(&types, before, 1).await?;
    ruled.apply(&config_map("during", "1")).await?;
    ruled.apply(&config_map("during", "2")).await?;
    ruled.kubectl(&["label", "cm", "during", "x=y"]).await?;
    ruled.kubectl(&["delete", "cm", "during"]).await?;
    let told = [
        "CREATE during 1",
        "UPDATE during 2",
        "UPDATE during 2",
        "DELETE during -",
    ];
    ruled.tells("during", &told).await?;
    ruled
        .metrics_are(&[
            (
                "muster_rule_events_total",
                "operation=\"CREATE\",result=\"queued\"",
                2.0,
            ),
            (
                "muster_rule_events_total",
                "operation=\"UPDATE\",result=\"queued\"",
                2.0,
            ),
            (
                "muster_rule_events_total",
                "operation=\"DELETE\",result=\"queued\"",
                1.0,
            ),
            ("muster_rule_events_total", "result=\"missed\"", 0.0),
            ("muster_rule_deliveries_total", "result=\"error\"", 0.0),
            ("muster_rule_queue_depth", "sink=\"file\"", 0.0),
            ("muster_rule_queue_age_seconds", "sink=\"file\"", 0.0),
            // That rules have been listed, and the rule.
            ("muster_rule_signals_total", "result=\"sent\"", 2.0),
            ("muster_rule_signal_depth", "", 0.0),
            ("muster_watch_manager_gvrs_active", "", 1.0),
            (
                "muster_watch_manager_update_duration_seconds_count",
                "",
                1.0,
            ),
        ])
        .await?;
    // A batch may have more than one event.
    for metric in [
        "muster_rule_deliveries_total",
        "muster_rule_delivery_latency_seconds_count",
    ] {
        let delivered = ruled.agent.metric(metric, "sink=\"file\"").await?;
        ensure!((0.5..=5.5).contains(&delivered), "{metric}: {delivered}");
    }
    // Another namespace is none of its business.
    let spoke = ruled.agent.spoke();
    let elsewhere = spoke.namespace().await?;
    let args = [
        "apply",
        "--server-side",
        "-n",
        elsewhere.as_str(),
        "-f",
        "-",
    ];
    let object = config_map("elsewhere", "1").to_string();
    spoke.kubectl_with_input(&args, &object).await?.ok()?;
    ruled.kubectl(&["delete", "wr", "maps"]).await?;
    ruled.opens(&types, before, 0).await?;
    let closed = [("muster_watch_manager_gvrs_active", "", 0.0)];
    ruled.metrics_are(&closed).await?;
    ruled.apply(&config_map("after", "1")).await?;
    // A rule that comes back is told what is there, and with that what it has missed.
    ruled.create_rule(&rule("again", &["configmaps"])).await?;
    ruled.tells("after", &["CREATE after 1"]).await?;
    ensure!(ruled.told("elsewhere")?.is_empty());
    Ok(())
}

/// C128, K4, S65.
async fn ten_rules_in_a_second_cost_one_update(world: World) -> Result<()> {
    let ruled = Ruled::new(&world).await?;
    let types = ["configmaps", "limitranges", "services"];
    let served = ruled.served(&types).await?;
    ruled.create_rule(&rule("first", &["configmaps"])).await?;
    ruled
        .row_is("first", "first file True Watching 1 0")
        .await?;
    // Plans that changed something: one that finds nothing to do may follow the first rule.
    let counted = || {
        let label = "result=\"applied\",trigger=\"rule\"";
        let updates = "muster_watch_manager_updates_total";
        ruled.agent.metric(updates, label)
    };
    let before = counted().await?;
    let items: Vec<Value> = (0..10)
        .map(|n| {
            let mut rule = rule(&format!("r{n}"), &types);
            rule["metadata"]["namespace"] = json!(ruled.agent.name());
            rule
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let began = Instant::now();
    ruled.apply(&list).await?;
    // On a machine that is slow they take longer than rules that change are waited for.
    let most = 1.0 + (began.elapsed().as_secs_f64() / 2.0).floor();
    for n in 0..10 {
        let name = format!("r{n}");
        eventually(LIMIT, "the rule to be watched", || async {
            let row = ruled.kubectl(&["get", "wr", &name, "--no-headers"]).await?;
            ensure!(row.contains("True   Watching"), "{row}");
            Ok(())
        })
        .await?;
    }
    let after = counted().await?;
    let updates = after - before;
    ensure!(
        (0.5..=most + 0.5).contains(&updates),
        "{updates} updates, at most {most}"
    );
    // Those that were replaced are closed.
    ruled.opens(&types, served, 3).await
}

/// C131, S43, S44.
async fn a_type_that_comes_later_is_watched_then(world: World) -> Result<()> {
    let ruled = Ruled::new(&world).await?;
    let group = format!("{}.example.com", ruled.agent.name());
    let mut later = rule("later", &["widgets"]);
    later["spec"]["rules"][0]["apiGroups"] = json!([group]);
    ruled.create_rule(&later).await?;
    ruled
        .row_is("later", "later file False TypeUnknown 0 0")
        .await?;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}});
    ruled.apply(&crd).await?;
    let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w1"}, "data": {"a": "1"}});
    eventually(LIMIT, "the type to be served", || async {
        ruled.apply(&widget).await
    })
    .await?;
    ruled.tells("w1", &["CREATE w1 1"]).await?;
    ruled
        .row_is("later", "later file True Watching 1 1")
        .await?;
    let crd = format!("widgets.{group}");
    ruled
        .agent
        .spoke()
        .kubectl(&["delete", "crd", &crd])
        .await?
        .ok()?;
    ruled.tells("w1", &["CREATE w1 1", "DELETE w1 -"]).await
}

async fn rules_that_cannot_work_say_why_and_hold_up_nobody(world: World) -> Result<()> {
    let ruled = Ruled::new(&world).await?;
    ruled.create_rule(&rule("good", &["configmaps"])).await?;
    let mut nowhere = rule("nowhere", &["configmaps"]);
    nowhere["spec"]["destination"] = json!("nowhere");
    ruled.apply(&nowhere).await?;
    ruled.apply(&rule("pods", &["pods"])).await?;
    let mut wrong = rule("wrong", &["configmaps"]);
    wrong["spec"]["rules"][0]["labelSelector"] =
        json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]});
    ruled.apply(&wrong).await?;
    for (name, row) in [
        ("nowhere", "nowhere nowhere False UnknownDestination 1 0"),
        ("pods", "pods file False Excluded 0 0"),
        ("wrong", "wrong file False InvalidRule 0 0"),
    ] {
        ruled.row_is(name, row).await?;
    }
    let unresolved = "muster_watch_manager_unresolved";
    ruled
        .metrics_are(&[(unresolved, "reason=\"Excluded\"", 1.0)])
        .await?;
    let message = ruled.message_of("nowhere").await?;
    ensure!(
        message == "spec.destination: the agent has no sink \"nowhere\"; it has: file",
        "{message}"
    );
    let message = ruled.message_of("wrong").await?;
    ensure!(message.contains("labelSelector"), "{message}");
    ruled.apply(&config_map("seen", "1")).await?;
    ruled.tells("seen", &["CREATE seen 1"]).await?;
    for (name, cause) in [
        ("good", "ok: WatchRule "),
        (
            "nowhere",
            "failed: Sink nowhere: spec.destination: the agent has no sink \"nowhere\"",
        ),
        ("pods", "failed: Resource pods: "),
        ("wrong", "failed: WatchRule "),
    ] {
        ruled.explains(name, cause).await?;
    }
    Ok(())
}
