//! Works as CloudEvents between processes: over muster's own broker, and over mosquitto with a real
//! API server on either side.

mod site;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::work::{ManifestWork, ManifestWorkSpec};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use self::site::{EDGE, SIMULATED, Site};
use crate::support::muster::{Muster, hub_kubeconfig, run_to_end};
use crate::support::{Servers, Story, World, client_of, eventually, kubectl_at};

pub(crate) fn stories() -> Vec<Story> {
    let mut stories = on_each_backend![
        a_set_rolls_out_over_a_broker_and_knows_who_is_away,
        the_dialect_of_the_design_carries_works,
        nothing_is_lost_while_the_broker_dies_again_and_again,
        nothing_is_lost_while_the_hub_dies_again_and_again,
        an_agent_that_was_away_catches_up,
        the_identity_of_another_cluster_is_worth_nothing,
    ];
    stories.extend(once![one_process_is_hub_broker_and_agent]);
    stories
}

const LIMIT: Duration = Duration::from_secs(60);

fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": name}, "data": {"text": text}})
}

fn work(name: &str, text: &str) -> ManifestWork {
    let mut work = ManifestWork::new(name, ManifestWorkSpec::default());
    let spec = json!({"workload": {"manifests": [config_map(name, text)]}});
    work.spec = serde_json::from_value(spec).unwrap_or_default();
    work
}

/// Whether the agent has answered for the spec that a work now has.
fn is_applied(work: &ManifestWork) -> bool {
    let conditions = work.status.iter().flat_map(|status| &status.conditions);
    let mut applied = conditions.filter(|condition| condition.type_ == "Applied");
    applied.any(|applied| {
        applied.status == "True" && applied.observed_generation == work.metadata.generation
    })
}

/// The same for any spec that it has had.
async fn applied(works: &Api<ManifestWork>, name: &str) -> Result<ManifestWork> {
    eventually(LIMIT, &format!("{name} to be applied"), || async {
        let work = works.get(name).await?;
        ensure!(is_applied(&work), "{:?}", work.status);
        Ok(work)
    })
    .await
}

async fn a_set_rolls_out_over_a_broker_and_knows_who_is_away(world: World) -> Result<()> {
    let mut site = Site::start(&world, "").await?;
    let sets = site.set().await?;
    let placement = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"namespace": "default", "name": "all"}, "spec": {}});
    let set = json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {
            "placementRefs": [{"name": "all"}],
            "manifestWorkTemplate": {
                "workload": {"manifests": [config_map("work-web", "first")]},
                "manifestConfigs": [{
                    "resourceIdentifier": {"group": "", "resource": "configmaps",
                        "namespace": "default", "name": "work-web"},
                    "feedbackScrapeType": "Watch",
                    "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [
                        {"name": "text", "path": ".data.text"}]}]}]}}});
    let kubectl = world.kubectl()?;
    let objects = format!("{placement}\n---\n{set}");
    kubectl_at(&kubectl, site.hub_file(), &["create", "-f", "-"], &objects)
        .await?
        .ok()?;
    let ready = |text: &'static str| {
        let sets = sets.clone();
        async move {
            eventually(
                LIMIT,
                &format!("the set to be ready with {text:?}"),
                || async {
                    let status = sets.get("web").await?.data["status"].clone();
                    let values = status["feedback"].to_string();
                    ensure!(
                        status["phase"] == "Ready" && values.contains(text),
                        "{status}"
                    );
                    Ok(status)
                },
            )
            .await
        }
    };
    ready("first").await?;
    let template = json!({"spec": {"manifestWorkTemplate": {"workload": {
        "manifests": [config_map("work-web", "second")]}}}});
    let params = PatchParams::default();
    sets.patch("web", &params, &Patch::Merge(template)).await?;
    ready("second").await?;
    ensure!(site.config_maps().await?["work-web"] == "second");

    // An agent that is gone makes its cluster unknown, with the time; and known when it is back.
    site.kill_agent(SIMULATED).await?;
    eventually(LIMIT, "the cluster to be unknown", || async {
        let status = sets.get("web").await?.data["status"].clone();
        let message = status["message"].as_str().unwrap_or_default();
        let text = format!("unknown in 1: the agent of {SIMULATED} is away since 20");
        ensure!(
            message.contains(&text) && status["phase"] == "Progressing",
            "{status}"
        );
        Ok(())
    })
    .await?;
    // And so does the look at the whole fleet.
    let hub = site.hub_file().display().to_string();
    let row = async |state: &str| {
        eventually(LIMIT, &format!("{SIMULATED} to be {state}"), || async {
            let status = run_to_end(&["status", "-o", "wide", "--kubeconfig", &hub]).await?;
            let mut lines = status.stdout.lines();
            let row = lines.find(|line| line.trim_start().starts_with(SIMULATED));
            let row = row.with_context(|| status.stdout.clone())?;
            ensure!(row.split_whitespace().nth(1) == Some(state), "{row}");
            Ok(())
        })
        .await
    };
    row("unknown").await?;
    site.start_agent(SIMULATED).await?;
    ready("second").await?;
    row("ok").await?;

    sets.delete("web", &DeleteParams::default()).await?;
    eventually(LIMIT, "everything to be gone", || async {
        for cluster in [EDGE, SIMULATED] {
            let left = site
                .works(cluster)
                .await?
                .list(&ListParams::default())
                .await?;
            ensure!(left.items.is_empty(), "{:?}", left.items);
        }
        let maps = site.config_maps().await?;
        ensure!(maps.is_empty(), "{maps:?}");
        Ok(())
    })
    .await
}

async fn the_dialect_of_the_design_carries_works(world: World) -> Result<()> {
    let mut site = Site::start(&world, "dialect = \"enhancement\"").await?;
    let works = site.works(EDGE).await?;
    let (mut random, mut wanted) = (StdRng::seed_from_u64(3), Wanted::new());
    load(&works, &mut random, &mut wanted, 30).await?;
    settled(&site, &wanted).await?;
    site.kill_agent(EDGE).await?;
    load(&works, &mut random, &mut wanted, 10).await?;
    site.start_agent(EDGE).await?;
    settled(&site, &wanted).await
}

/// What a load wants: the text of each work that is to be there.
type Wanted = BTreeMap<String, String>;

/// Creates, changes and deletes works at random.
async fn load(
    works: &Api<ManifestWork>,
    random: &mut StdRng,
    wanted: &mut Wanted,
    steps: usize,
) -> Result<()> {
    for _ in 0..steps {
        let name = format!("work-{}", random.random_range(0..40));
        let text = random.random_range(0..1_000_000).to_string();
        let params = PostParams::default();
        if random.random_bool(0.2) {
            if wanted.remove(&name).is_some() {
                works.delete(&name, &DeleteParams::default()).await?;
            }
        } else if let Some(before) = wanted.get_mut(&name) {
            let spec = json!({"workload": {"manifests": [config_map(&name, &text)]}});
            let patch = Patch::Merge(json!({ "spec": spec }));
            works.patch(&name, &PatchParams::default(), &patch).await?;
            *before = text;
        } else {
            match works.create(&params, &work(&name, &text)).await {
                Ok(_) => {
                    wanted.insert(name, text);
                }
                // The one before is still on its way out.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// The cluster has what is wanted and nothing else, and the hub knows.
async fn settled(site: &Site, wanted: &Wanted) -> Result<()> {
    let works = site.works(EDGE).await?;
    eventually(LIMIT, "hub and cluster to agree", || async {
        let maps = site.config_maps().await?;
        ensure!(maps == *wanted, "{maps:?} instead of {wanted:?}");
        let listed = works.list(&ListParams::default()).await?;
        let names: Vec<_> = listed.iter().map(ResourceExt::name_any).collect();
        ensure!(
            names
                .iter()
                .eq(wanted.keys().collect::<std::collections::BTreeSet<_>>()),
            "{names:?}"
        );
        let mut late = listed.iter().filter(|work| !is_applied(work));
        if let Some(late) = late.next() {
            bail!("{}: {:?}", late.name_any(), late.status);
        }
        Ok(())
    })
    .await
}

async fn nothing_is_lost_while_the_broker_dies_again_and_again(world: World) -> Result<()> {
    let mut site = Site::start(&world, "").await?;
    let works = site.works(EDGE).await?;
    let (mut random, mut wanted) = (StdRng::seed_from_u64(1), Wanted::new());
    for _ in 0..8 {
        load(&works, &mut random, &mut wanted, 25).await?;
        site.kill_and_start_broker().await?;
        load(&works, &mut random, &mut wanted, 5).await?;
    }
    settled(&site, &wanted).await
}

async fn nothing_is_lost_while_the_hub_dies_again_and_again(world: World) -> Result<()> {
    let mut site = Site::start(&world, "").await?;
    let (mut random, mut wanted) = (StdRng::seed_from_u64(2), Wanted::new());
    for _ in 0..5 {
        let works = site.works(EDGE).await?;
        let steps = random.random_range(1..30);
        load(&works, &mut random, &mut wanted, steps).await?;
        site.kill_hub().await?;
        site.start_hub().await?;
    }
    settled(&site, &wanted).await
}

/// C109: what was created, changed and deleted meanwhile; what stayed is not touched.
async fn an_agent_that_was_away_catches_up(world: World) -> Result<()> {
    let mut site = Site::start(&world, "").await?;
    let works = site.works(EDGE).await?;
    let params = PostParams::default();
    for name in ["work-kept", "work-changed", "work-deleted"] {
        works.create(&params, &work(name, "first")).await?;
    }
    for name in ["work-kept", "work-changed", "work-deleted"] {
        applied(&works, name).await?;
    }
    let kept = site.config_map_uid("work-kept").await?;
    site.kill_agent(EDGE).await?;
    works
        .delete("work-deleted", &DeleteParams::default())
        .await?;
    let spec = json!({"workload": {"manifests": [config_map("work-changed", "second")]}});
    let patch = Patch::Merge(json!({ "spec": spec }));
    works
        .patch("work-changed", &PatchParams::default(), &patch)
        .await?;
    works
        .create(&params, &work("work-created", "first"))
        .await?;
    // It waits for the agent.
    ensure!(
        works
            .get("work-deleted")
            .await?
            .metadata
            .deletion_timestamp
            .is_some()
    );
    site.start_agent(EDGE).await?;
    let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let wanted = Wanted::from([
        text("work-kept", "first"),
        text("work-changed", "second"),
        text("work-created", "first"),
    ]);
    settled(&site, &wanted).await?;
    ensure!(site.config_map_uid("work-kept").await? == kept);
    Ok(())
}

/// An agent that comes as another hears nothing and can say nothing; both brokers tell it so.
async fn the_identity_of_another_cluster_is_worth_nothing(world: World) -> Result<()> {
    let mut site = Site::start(&world, "").await?;
    let works = site.works(EDGE).await?;
    works
        .create(&PostParams::default(), &work("work-one", "first"))
        .await?;
    applied(&works, "work-one").await?;
    site.kill_agent(EDGE).await?;
    works
        .create(&PostParams::default(), &work("work-two", "first"))
        .await?;
    let config = site.agent_config(EDGE, SIMULATED)?;
    let dir = site.dir().join("imposter");
    let imposter = Muster::start_unready(&dir, "agent", &config).await?;
    eventually(LIMIT, "the imposter to be told", || async {
        let (code, body) = imposter.get("/readyz").await?;
        ensure!(
            code != 200 && body.contains(&format!("{EDGE} events: ")),
            "{code} {body}"
        );
        // mosquitto refuses no subscription, but what is said.
        ensure!(
            body.contains("(lost at") || body.contains("(refused since"),
            "{body}"
        );
        Ok(())
    })
    .await?;
    // The one that it came as goes on.
    let others = site.works(SIMULATED).await?;
    others
        .create(&PostParams::default(), &work("work-other", "first"))
        .await?;
    applied(&others, "work-other").await?;
    ensure!(site.config_maps().await?.keys().eq(["work-one"]));
    ensure!(!is_applied(&works.get("work-two").await?));
    imposter.kill().await?;
    site.start_agent(EDGE).await?;
    applied(&works, "work-two").await?;
    Ok(())
}

/// Without another program: the broker in the process knows the process's own clients, and nobody
/// else.
async fn one_process_is_hub_broker_and_agent(_: Arc<Servers>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let config = format!(
        "[hub]\nlisten = \"HUB\"\ndata_dir = \"{}\"\n[transport]\ndriver = \"mqtt\"\n[broker]\n\
         listen = \"127.0.0.1:0\"\n[simulator]\npace = \"20ms\"\n[[clusters]]\n\
         name = \"{SIMULATED}\"\nsimulated = true\n",
        data.display()
    );
    let name = "work-one";
    for round in 0..2 {
        let muster = Muster::start(dir.path(), "run", &config).await?;
        let client = client_of(&hub_kubeconfig(&data)).await?;
        let works: Api<ManifestWork> = Api::namespaced(client, SIMULATED);
        if round == 0 {
            works
                .create(&PostParams::default(), &work(name, "first"))
                .await?;
        } else {
            // What the hub had before it was killed, and the agent, which kept nothing, has again.
            let spec = json!({"workload": {"manifests": [config_map(name, "second")]}});
            let patch = Patch::Merge(json!({ "spec": spec }));
            works.patch(name, &PatchParams::default(), &patch).await?;
        }
        applied(&works, name).await?;
        for (metric, label, least) in [
            ("muster_broker_connections", "", 2.0),
            ("muster_broker_messages_total", "direction=\"in\"", 1.0),
            ("muster_event_client_connected", "side=\"source\"", 1.0),
            ("muster_event_client_connected", "side=\"agent\"", 1.0),
            ("muster_event_resyncs_total", "side=\"source\"", 1.0),
            ("muster_event_resyncs_total", "side=\"agent\"", 1.0),
            (
                "muster_events_sent_total",
                "event=\"status.update_request\",result=\"sent\"",
                1.0,
            ),
            (
                "muster_events_received_total",
                "event=\"status.update_request\",result=\"taken\"",
                1.0,
            ),
            ("muster_events_received_total", "result=\"presence\"", 1.0),
        ] {
            eventually(LIMIT, metric, || async {
                let value = muster.metric(metric, label).await?;
                ensure!(value >= least, "{metric} {label}: {value}");
                Ok(())
            })
            .await?;
        }
        eventually(LIMIT, "everything to be at the broker", || async {
            let waiting = muster.metric("muster_event_client_waiting", "").await?;
            ensure!(waiting == 0.0, "{waiting} waiting");
            Ok(())
        })
        .await?;
        muster.kill().await?;
    }
    Ok(())
}
