//! Rules for all types, for types of a cluster's own, and those that no server takes.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::sinks::git;
use super::{Ruled, config_map, rule};
use crate::support::live::LIMIT;
use crate::support::{Story, World, eventually, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        everything_is_kept_and_not_told_again_by_another_life,
        types_of_a_cluster_are_kept_as_users_wrote_them,
        subresources_are_refused_by_the_server,
    ]
}

/// A repository that rules write to.
struct Record {
    path: PathBuf,
}

impl Record {
    fn new(dir: &Path) -> Result<Self> {
        let path = dir.join("fleet.git");
        git(&["init", "-q", "--bare", &path.display().to_string()])?;
        Ok(Self { path })
    }

    /// The settings of the sink `record`.
    fn settings(&self) -> String {
        let path = self.path.display().to_string();
        let work = self.path.with_extension("work").display().to_string();
        format!(
            "[[sinks]]\nname = \"record\"\nkind = \"git\"\nurl = {path:?}\nwork_dir = {work:?}\n"
        )
    }

    fn git(&self, args: &[&str]) -> Result<String> {
        let path = self.path.display().to_string();
        git(&[&["-C", path.as_str()], args].concat())
    }

    fn tip(&self) -> Result<String> {
        Ok(self.git(&["rev-parse", "main"])?.trim().to_owned())
    }

    fn files(&self) -> Result<String> {
        self.git(&["ls-tree", "-r", "--name-only", "main"])
    }

    /// Subjects of the commits after this one.
    fn commits_since(&self, tip: &str) -> Result<String> {
        self.git(&["log", "--format=%s", &format!("{tip}..main")])
    }

    /// Waits until a file is there and is as `wanted`; gives back its text.
    async fn file_is(&self, file: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        eventually(LIMIT, &format!("{file} to be there"), || async {
            let text = self.git(&["show", &format!("main:{file}")])?;
            ensure!(wanted(&text), "{text}");
            Ok(text)
        })
        .await
    }

    /// Waits until these are the commits after `tip`; gives back the last.
    async fn commits_are(&self, tip: &str, expected: &str) -> Result<String> {
        eventually(LIMIT, &format!("{expected:?} to be committed"), || async {
            let commits = self.commits_since(tip)?;
            ensure!(commits.trim() == expected, "{commits}");
            self.tip()
        })
        .await
    }
}

fn cluster_rule(name: &str, item: &Value) -> Value {
    json!({"apiVersion": "rules.muster.dev/v1alpha1", "kind": "ClusterWatchRule",
        "metadata": {"name": name}, "spec": {"destination": "record", "rules": [item]}})
}

/// Waits until all that a ClusterWatchRule selects is watched.
async fn is_watched(ruled: &Ruled, rule: &str) -> Result<()> {
    eventually(LIMIT, &format!("{rule} to be watched"), || async {
        let row = ruled.kubectl(&["get", "cwr", rule, "--no-headers"]).await?;
        ensure!(row.contains("Watching"), "{row}");
        Ok(())
    })
    .await
}

/// Waits until an agent that has just started has listed all that rules select, and the sink has it.
async fn has_told_all(ruled: &Ruled) -> Result<()> {
    ruled
        .metrics_are(&[
            (
                "muster_watch_manager_update_duration_seconds_count",
                "",
                1.0,
            ),
            ("muster_rule_queue_depth", "sink=\"record\"", 0.0),
        ])
        .await
}

/// S73, S148: an agent that starts again with rules for everything finds that the repository has it:
/// no commit and no deletion, until something changes.
async fn everything_is_kept_and_not_told_again_by_another_life(world: World) -> Result<()> {
    let dir = world.dir(&unique_name("everything"))?;
    let record = Record::new(&dir)?;
    let kept = dir.join("kept").display().to_string();
    let more = format!(
        "{}[rules]\ndata_dir = {kept:?}\n[watch]\nmax_watches = 200\n",
        record.settings()
    );
    let mut ruled = Ruled::with(&world, &more).await?;
    ruled.apply(&config_map("before", "1")).await?;
    let (name, namespace) = (ruled.agent.name().to_owned(), ruled.agent.name().to_owned());
    let maps = format!("clusters/{name}/v1/configmaps/{namespace}");
    for scope in ["Namespaced", "Cluster"] {
        let item = json!({"resources": ["*"], "scope": scope});
        let rule = cluster_rule(&format!("all-{}", scope.to_lowercase()), &item);
        ruled.create_rule(&rule).await?;
    }
    for rule in ["all-namespaced", "all-cluster"] {
        is_watched(&ruled, rule).await?;
    }
    record
        .file_is(&format!("{maps}/before.yaml"), |_| true)
        .await?;
    let of_cluster = format!("clusters/{name}/v1/namespaces/{namespace}.yaml");
    record.file_is(&of_cluster, |_| true).await?;
    let waiting = [("muster_rule_queue_depth", "sink=\"record\"", 0.0)];
    ruled.metrics_are(&waiting).await?;
    let (tip, files) = (record.tip()?, record.files()?);
    ensure!(!files.contains("/secrets/"), "{files}");

    ruled.agent.kill().await?;
    ruled.agent.run().await?;
    has_told_all(&ruled).await?;
    ensure!(record.tip()? == tip, "{}", record.commits_since(&tip)?);
    // Whatever it would have told comes before what changes now.
    ruled.apply(&config_map("after", "1")).await?;
    record
        .commits_are(&tip, &format!("[CREATE] v1/configmaps/{namespace}/after"))
        .await?;
    let after = record.files()?;
    ensure!(files.lines().all(|file| after.contains(file)), "{after}");
    Ok(())
}

/// S139, S140, S141, S142, S143: a definition is a file without a namespace; its objects are kept with
/// what users wrote, and a status makes no commit.
async fn types_of_a_cluster_are_kept_as_users_wrote_them(world: World) -> Result<()> {
    let record = Record::new(&world.dir(&unique_name("types"))?)?;
    let ruled = Ruled::with(&world, &record.settings()).await?;
    let name = ruled.agent.name().to_owned();
    let group = format!("{name}.example.com");
    let crds = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "scope": "Cluster"});
    ruled.create_rule(&cluster_rule("crds", &crds)).await?;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("orders.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": "orders", "singular": "order", "kind": "Order"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}});
    ruled.apply(&crd).await?;
    let definition = format!(
        "clusters/{name}/apiextensions.k8s.io/v1/customresourcedefinitions/orders.{group}.yaml"
    );
    let text = record
        .file_is(&definition, |text| text.contains("plural: orders"))
        .await?;
    ensure!(!text.contains("status:\n"), "{text}");

    let mut orders = rule("orders", &["orders"]);
    orders["spec"]["destination"] = json!("record");
    orders["spec"]["rules"][0]["apiGroups"] = json!([group]);
    ruled.apply(&orders).await?;
    ruled
        .row_is("orders", "orders record True Watching 1 0")
        .await?;
    let order = |size: u8| {
        json!({"apiVersion": format!("{group}/v1"), "kind": "Order", "metadata": {"name": "o1",
            "labels": {"team": "blue"}, "annotations": {"note": "by hand",
                "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"size": size}})
    };
    let tip = record.tip()?;
    ruled.apply(&order(1)).await?;
    let subject =
        |operation: &str, order: &str| format!("[{operation}] {group}/v1/orders/{name}/{order}");
    let tip = record.commits_are(&tip, &subject("CREATE", "o1")).await?;
    let file = format!("clusters/{name}/{group}/v1/orders/{name}/o1.yaml");
    let text = record
        .file_is(&file, |text| text.contains("size: 1"))
        .await?;
    for (part, is_there) in [
        ("team: blue", true),
        ("note: by hand", true),
        ("last-applied", false),
        ("managedFields", false),
    ] {
        ensure!(text.contains(part) == is_there, "{part} in {text}");
    }

    let path = format!("/apis/{group}/v1/namespaces/{name}/orders/o1/status");
    let status = json!({"status": {"phase": "Shipped"}});
    let rest = ruled.agent.spoke().rest();
    let shipped = rest.merge_patch(&path, &status).await?.ok()?;
    ensure!(shipped["status"]["phase"] == "Shipped", "{shipped}");
    // A status that made a commit would have made it before this.
    ruled.apply(&order(2)).await?;
    let tip = record.commits_are(&tip, &subject("UPDATE", "o1")).await?;
    let text = record
        .file_is(&file, |text| text.contains("size: 2"))
        .await?;
    ensure!(!text.contains("Shipped"), "{text}");
    ruled
        .kubectl(&["delete", &format!("orders.{group}"), "o1"])
        .await?;
    record.commits_are(&tip, &subject("DELETE", "o1")).await?;
    let files = record.files()?;
    ensure!(
        !files.contains("o1.yaml") && files.contains(&definition),
        "{files}"
    );
    Ok(())
}

/// S154: what a watch cannot show is refused where it is written, with the reason and the field.
async fn subresources_are_refused_by_the_server(world: World) -> Result<()> {
    let ruled = Ruled::new(&world).await?;
    ruled.create_rule(&rule("good", &["configmaps"])).await?;
    let (rest, namespace) = (ruled.agent.spoke().rest(), ruled.agent.name());
    let item = json!({"resources": ["pods/log"], "scope": "Namespaced"});
    for (collection, kind, name, object) in [
        (
            format!("namespaces/{namespace}/watchrules"),
            "WatchRule",
            "logs",
            rule("logs", &["pods/log"]),
        ),
        (
            "clusterwatchrules".to_owned(),
            "ClusterWatchRule",
            "all-logs",
            cluster_rule("all-logs", &item),
        ),
    ] {
        let path = format!("/apis/rules.muster.dev/v1alpha1/{collection}");
        let message = format!(
            "{kind}.rules.muster.dev \"{name}\" is invalid: spec.rules[0].resources[0]: \
             Invalid value: \"pods/log\": a watch shows no subresources; name the resource alone"
        );
        rest.post(&path, &object)
            .await?
            .refused(422, "Invalid", &message)?;
    }
    Ok(())
}
