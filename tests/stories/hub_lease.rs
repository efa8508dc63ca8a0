//! Several hubs over one API server: one works, by its lease, and another goes on where it ended.
//!
//! No agents run, except where a story says so: it reports in their place.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::support::door::Door;
use crate::support::own_process::OwnProcess;
use crate::support::works::condition;
use crate::support::{
    Cluster, OwnCluster, Rest, Story, Watch, World, eventually, install_definitions, unique_name,
};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        one_hub_writes_and_another_takes_over_when_it_is_killed,
        a_hub_that_ends_hands_over_at_once_and_one_that_is_replaced_fails,
        a_hub_that_cannot_renew_ends_before_another_begins,
        agents_beside_a_hub_that_waits_work_and_follow_the_settings,
    ]
}

const LIMIT: Duration = Duration::from_secs(60);
const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
const WORKS: &str = "/apis/work.open-cluster-management.io/v1/manifestworks";
const SET: &str =
    "/apis/work.open-cluster-management.io/v1alpha1/namespaces/default/manifestworkreplicasets/web";
const PLACEMENTS: &str = "/apis/cluster.open-cluster-management.io/v1beta1/namespaces/default";
/// Where the lease is unless the settings say otherwise, outside of pods.
const NAMESPACE: &str = "open-cluster-management-hub";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/open-cluster-management-hub/leases";

const NONE: &str = "ManifestWorks available in 0/3 clusters";
const TWO: &str = "ManifestWorks available in 2/3 clusters";
const ALL: &str = "ManifestWorks available in 3/3 clusters";

/// An API server for the hubs of a story alone: they act on everything in it.
struct Site {
    api: OwnCluster,
}

impl Site {
    /// With a set that no hub has seen yet, and whose placement somebody else has decided.
    async fn new(world: &World) -> Result<Self> {
        let site = Self {
            api: world.own_cluster().await?,
        };
        install_definitions(site.cluster()).await?;
        for name in CLUSTERS.iter().chain(&[NAMESPACE]) {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            site.create("/api/v1/namespaces", &namespace).await?;
        }
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"namespace": "default", "name": "all"}, "spec": {}});
        site.create(&format!("{PLACEMENTS}/placements"), &placement)
            .await?;
        let path = format!("{PLACEMENTS}/placements/all/status");
        let status = json!({"status": {"numberOfSelectedClusters": CLUSTERS.len()}});
        site.rest().merge_patch(&path, &status).await?.ok()?;
        let decision = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "PlacementDecision",
            "metadata": {"namespace": "default", "name": "all-decision-1",
                "labels": {"cluster.open-cluster-management.io/placement": "all"}}});
        let decisions = format!("{PLACEMENTS}/placementdecisions");
        site.create(&decisions, &decision).await?;
        let chosen = CLUSTERS.map(|name| json!({"clusterName": name, "reason": ""}));
        let path = format!("{decisions}/all-decision-1/status");
        let status = json!({"status": {"decisions": chosen}});
        site.rest().merge_patch(&path, &status).await?.ok()?;
        let set = json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1",
            "kind": "ManifestWorkReplicaSet",
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"placementRefs": [{"name": "all"}],
                "manifestWorkTemplate": template("first")}});
        let sets = SET.trim_end_matches("/web");
        site.create(sets, &set).await?;
        Ok(site)
    }

    fn cluster(&self) -> &Cluster {
        self.api.cluster()
    }

    fn rest(&self) -> Rest {
        self.cluster().rest()
    }

    async fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.rest().post(collection, object).await?.created()
    }

    /// Flags of a hub whose lease has these times: `duration renew_deadline retry_period`.
    fn flags(&self, times: &str) -> Result<Vec<String>> {
        flags_at(self.cluster().kubeconfig(), times)
    }

    fn hub(&self, times: &str) -> Result<OwnProcess> {
        OwnProcess::of_role("hub", &self.flags(times)?)
    }

    async fn lease(&self) -> Result<Value> {
        let path = format!("{LEASES}/work-manager-lock");
        Ok(self.rest().get(&path).await?.ok()?["spec"].clone())
    }

    /// Somebody writes this holder into the lease.
    async fn give_lease_to(&self, holder: &str) -> Result<()> {
        let path = format!("{LEASES}/work-manager-lock");
        let change = json!({"spec": {"holderIdentity": holder}});
        self.rest().merge_patch(&path, &change).await?.ok()?;
        Ok(())
    }

    async fn change_template(&self, text: &str) -> Result<()> {
        let patch = json!({"spec": {"manifestWorkTemplate": template(text)}});
        self.rest().merge_patch(SET, &patch).await?.ok()?;
        Ok(())
    }

    /// All works there are, by cluster; no cluster may have two.
    async fn works(&self) -> Result<BTreeMap<String, Value>> {
        let list = self.rest().get(WORKS).await?.ok()?;
        let mut works = BTreeMap::new();
        for work in list["items"].as_array().context("no list")? {
            let cluster = text(&work["metadata"]["namespace"]);
            let second = works.insert(cluster, work.clone());
            ensure!(second.is_none(), "two works in a cluster: {list}");
        }
        Ok(works)
    }

    /// Waits until every cluster has its work with this text in the template.
    async fn works_have(&self, wanted: &str, hub: &OwnProcess) -> Result<BTreeMap<String, Value>> {
        eventually(LIMIT, &format!("works with {wanted:?}"), || async {
            let works = self.works().await?;
            let of = |work: &Value| text(&work["spec"]["workload"]["manifests"][0]["data"]["text"]);
            let texts: BTreeMap<_, _> = works.iter().map(|(at, work)| (at, of(work))).collect();
            let all = texts.keys().copied().eq(CLUSTERS.iter());
            let same = texts.values().all(|text| text == wanted);
            ensure!(all && same, "{texts:?}\n{}", hub.log());
            Ok(works)
        })
        .await
    }

    /// Says of a work, as its agent would, that it is applied and there.
    async fn report(&self, work: &Value) -> Result<()> {
        let metadata = &work["metadata"];
        let is_true = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "Story", "message": "",
                "observedGeneration": metadata["generation"],
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let status = json!({"status": {"conditions": [is_true("Applied"), is_true("Available")]}});
        self.rest()
            .merge_patch(&format!("{}/status", work_path(work)), &status)
            .await?
            .ok()?;
        Ok(())
    }

    /// Waits until the set's status is of its newest spec, with three works of that and this phase
    /// and message.
    async fn tells(&self, phase: &str, message: &str, hub: &OwnProcess) -> Result<()> {
        eventually(LIMIT, &format!("the status to say {message:?}"), || async {
            let set = self.rest().get(SET).await?.ok()?;
            let status = &set["status"];
            let summary = &status["summary"];
            let ready = condition(&status["conditions"], "Ready").context("no condition Ready")?;
            ensure!(
                status["phase"] == phase
                    && status["message"] == message
                    && (summary["total"] == 3 && summary["updated"] == 3)
                    && ready["status"] == if phase == "Ready" { "True" } else { "False" }
                    && ready["observedGeneration"] == set["metadata"]["generation"],
                "{status}\n{}",
                hub.log()
            );
            Ok(())
        })
        .await
    }
}

fn template(text: &str) -> Value {
    json!({"workload": {"manifests": [{
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "greeting"}, "data": {"text": text}}]}})
}

/// Flags of a hub with this access to its API server.
fn flags_at(kubeconfig: &Path, times: &str) -> Result<Vec<String>> {
    let times: Vec<_> = times.split(' ').collect();
    let [duration, renew_deadline, retry_period] = times[..] else {
        bail!("not three times: {times:?}");
    };
    Ok(set(&[
        ("hub.api", "kubeconfig"),
        ("hub.kubeconfig", &kubeconfig.display().to_string()),
        ("hub.leader_election", "true"),
        ("hub.lease_duration", duration),
        ("hub.lease_renew_deadline", renew_deadline),
        ("hub.lease_retry_period", retry_period),
        ("transport.driver", "kube"),
    ]))
}

fn set(settings: &[(&str, &str)]) -> Vec<String> {
    let words = settings
        .iter()
        .flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]);
    words.collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn work_path(work: &Value) -> String {
    let metadata = &work["metadata"];
    format!(
        "/apis/work.open-cluster-management.io/v1/namespaces/{}/manifestworks/{}",
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

fn uids(works: &BTreeMap<String, Value>) -> Vec<String> {
    let uids = works.values().map(|work| text(&work["metadata"]["uid"]));
    uids.collect()
}

/// The roles of the actors that a process has.
async fn roles(hub: &OwnProcess) -> Result<Vec<String>> {
    let (_, actors) = hub.get("/debug/actors").await?;
    let actors: Value = serde_json::from_str(&actors)?;
    let actors = actors.as_array().context("no list of actors")?;
    Ok(actors.iter().map(|actor| text(&actor["role"])).collect())
}

/// Waits until the process has read the lease, has nobody who could write, and is ready all the
/// same.
async fn stands_by(hub: &OwnProcess, holder: &str) -> Result<()> {
    eventually(LIMIT, "the hub to have read the lease", || async {
        let (_, actors) = hub.get("/debug/actors").await?;
        let actors: Value = serde_json::from_str(&actors)?;
        let only = actors.as_array().map(Vec::len) == Some(1);
        let state = &actors[0]["state"];
        ensure!(
            only && state["holder"] == holder && state["standing"] == "Waiting",
            "{actors}"
        );
        Ok(())
    })
    .await?;
    is_ready(hub).await
}

async fn is_ready(hub: &OwnProcess) -> Result<()> {
    eventually(LIMIT, "the process to be ready", || async {
        let (code, reasons) = hub.get("/readyz").await?;
        ensure!(code == 200, "{reasons}\n{}", hub.log());
        Ok(())
    })
    .await
}

/// Requires that a process has written no work and no status of a set.
async fn has_written_nothing(hub: &OwnProcess) -> Result<()> {
    let (_, metrics) = hub.get("/metrics").await?;
    let wrote = |line: &str| line.starts_with("muster_mwrs_") && line.contains("_total{");
    let writes: Vec<_> = metrics.lines().filter(|line| wrote(line)).collect();
    ensure!(writes.is_empty(), "{writes:?}");
    ensure!(metrics.contains("\nmuster_lease_held 0\n"), "{metrics}");
    Ok(())
}

/// Follows all works from now on.
async fn watch_works(site: &Site) -> Result<Watch> {
    let list = site.rest().get(WORKS).await?.ok()?;
    let version = text(&list["metadata"]["resourceVersion"]);
    let path = format!("{WORKS}?watch=true&resourceVersion={version}");
    site.rest().watch(&path).await
}

/// Requires that since the watch began works have been changed, and none created or deleted.
async fn only_changes(site: &Site, watch: &mut Watch) -> Result<()> {
    // What comes after this work came after everything else.
    let mark = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": NAMESPACE, "name": "mark"}, "spec": template("mark")});
    let path = work_path(&mark);
    site.create(path.trim_end_matches("/mark"), &mark).await?;
    loop {
        let (kind, work) = watch.next().await?;
        if work["metadata"]["name"] == "mark" {
            site.rest().delete(&path).await?.ok()?;
            return Ok(());
        }
        ensure!(kind == "MODIFIED", "{kind} {work}");
    }
}

async fn one_hub_writes_and_another_takes_over_when_it_is_killed(world: World) -> Result<()> {
    let site = Site::new(&world).await?;
    let times = "3s 2s 500ms";
    let mut first = site.hub(times)?;
    let works = site.works_have("first", &first).await?;
    let before = uids(&works);
    for work in works.values().take(2) {
        site.report(work).await?;
    }
    site.tells("Progressing", TWO, &first).await?;
    let held = site.lease().await?;
    let holder = text(&held["holderIdentity"]);
    ensure!(
        held["leaseDurationSeconds"] == 3 && held["leaseTransitions"] == 0,
        "{held}"
    );

    // The second is ready, and leaves all to the first.
    let second = site.hub(times)?;
    stands_by(&second, &holder).await?;
    let mut watch = watch_works(&site).await?;
    site.change_template("second").await?;
    let works = site.works_have("second", &first).await?;
    for work in works.values() {
        site.report(work).await?;
    }
    site.tells("Ready", ALL, &first).await?;
    has_written_nothing(&second).await?;
    ensure!(roles(&second).await? == ["LeaseHolder"]);

    // The first dies among changes: some works may have this template, some that.
    for n in 0..5 {
        site.change_template(&format!("change {n}")).await?;
    }
    let (killed, changed) = tokio::join!(first.kill(), site.change_template("last"));
    killed?;
    changed?;
    let works = site.works_have("last", &second).await?;
    ensure!(uids(&works) == before, "{works:?} are not {before:?}");
    let taken = site.lease().await?;
    ensure!(
        taken["leaseTransitions"] == 1 && taken["holderIdentity"] != holder.as_str(),
        "{taken}"
    );
    only_changes(&site, &mut watch).await?;

    site.tells("Progressing", NONE, &second).await?;
    for work in works.values() {
        site.report(work).await?;
    }
    site.tells("Ready", ALL, &second).await
}

async fn a_hub_that_ends_hands_over_at_once_and_one_that_is_replaced_fails(
    world: World,
) -> Result<()> {
    let site = Site::new(&world).await?;
    // Whoever waits for this lease to lapse waits longer than the story may take.
    let times = "600s 500s 500ms";
    let mut first = site.hub(times)?;
    let works = site.works_have("first", &first).await?;
    for work in works.values().take(2) {
        site.report(work).await?;
    }
    site.tells("Progressing", TWO, &first).await?;
    let holder = text(&site.lease().await?["holderIdentity"]);
    let mut second = site.hub(times)?;
    stands_by(&second, &holder).await?;
    let mut watch = watch_works(&site).await?;

    first.terminate().await?;
    let ended = first.ended().await?;
    ensure!(ended.code() == Some(0), "{ended}\n{}", first.log());
    first.says("the lease is free for others").await?;
    second.says("took the lease").await?;
    // It counts what it has read beside what it is told of.
    for work in works.values().skip(2) {
        site.report(work).await?;
    }
    site.tells("Ready", ALL, &second).await?;
    site.change_template("second").await?;
    site.works_have("second", &second).await?;
    only_changes(&site, &mut watch).await?;
    ensure!(site.lease().await?["leaseTransitions"] == 1);

    // OCM's work manager uses this lease, too.
    site.give_lease_to("other").await?;
    let ended = second.ended().await?;
    ensure!(ended.code() == Some(1), "{ended}\n{}", second.log());
    let lost = format!("muster: lost the lease {NAMESPACE}/work-manager-lock: other has taken it");
    second.says(&lost).await?;
    ensure!(site.lease().await?["holderIdentity"] == "other");

    // Who is told that there is but one does not ask.
    let mut flags = site.flags(times)?;
    flags.extend(set(&[("hub.leader_election", "false")]));
    let third = OwnProcess::of_role("hub", &flags)?;
    site.change_template("third").await?;
    site.works_have("third", &third).await?;
    ensure!(site.lease().await?["holderIdentity"] == "other");
    Ok(())
}

async fn a_hub_that_cannot_renew_ends_before_another_begins(world: World) -> Result<()> {
    let site = Site::new(&world).await?;
    let times = "12s 4s 500ms";
    let dir = world.dir(&unique_name("hub-lease"))?;
    let kubeconfig = dir.join("kubeconfig");
    let door = Door::open(site.cluster().kubeconfig(), &kubeconfig).await?;
    let mut first = OwnProcess::of_role("hub", &flags_at(&kubeconfig, times)?)?;
    site.works_have("first", &first).await?;
    let holder = text(&site.lease().await?["holderIdentity"]);
    let second = site.hub(times)?;
    stands_by(&second, &holder).await?;

    door.close();
    site.change_template("second").await?;
    let ended = first.ended().await?;
    ensure!(ended.code() == Some(1), "{ended}\n{}", first.log());
    let still = site.lease().await?;
    ensure!(still["holderIdentity"] == holder.as_str(), "{still}");
    has_written_nothing(&second).await?;
    first
        .says("work-manager-lock: not renewed within 4s, last error: ")
        .await?;
    site.works_have("second", &second).await?;
    Ok(())
}

async fn agents_beside_a_hub_that_waits_work_and_follow_the_settings(world: World) -> Result<()> {
    let site = Site::new(&world).await?;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "work-manager-lock"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z"}});
    site.create(LEASES, &lease).await?;
    let file = world.dir(&unique_name("hub-lease"))?.join("muster.toml");
    let write = |cap: u8| {
        let cluster = "[[clusters]]\nname = \"c1\"\nsimulated = true\n";
        std::fs::write(&file, format!("{cluster}[watch]\nmax_watches = {cap}\n"))
    };
    write(7)?;
    let mut flags = site.flags("12s 8s 500ms")?;
    flags.push(format!("--config={}", file.display()));
    let run = OwnProcess::of_role("run", &flags)?;

    // The agent does what somebody wrote by hand, and the hub nothing.
    let by_hand = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"namespace": "c1", "name": "by-hand"}, "spec": template("by hand")});
    let path = work_path(&by_hand);
    site.create(path.trim_end_matches("/by-hand"), &by_hand)
        .await?;
    eventually(LIMIT, "the work to be applied", || async {
        let work = site.rest().get(&path).await?.ok()?;
        let applied = condition(&work["status"]["conditions"], "Applied");
        ensure!(
            applied.is_some_and(|applied| applied["status"] == "True"),
            "{work}\n{}",
            run.log()
        );
        Ok(())
    })
    .await?;
    let cap_is = async |cap: u8| {
        eventually(LIMIT, &format!("the cap to be {cap}"), || async {
            let (_, metrics) = run.get("/metrics").await?;
            let line = metrics
                .lines()
                .find(|line| line.starts_with("muster_watches_cap{"));
            let found = line.and_then(|line| line.rsplit_once(' '));
            ensure!(
                found.is_some_and(|(_, found)| found == cap.to_string()),
                "{line:?}"
            );
            Ok(())
        })
        .await
    };
    cap_is(7).await?;
    write(4)?;
    cap_is(4).await?;
    has_written_nothing(&run).await?;
    let waiting = roles(&run).await?;
    ensure!(!waiting.contains(&"ReplicaSets".to_owned()), "{waiting:?}");
    is_ready(&run).await?;
    ensure!(site.works().await?.len() == 1);

    site.give_lease_to("").await?;
    run.says("took the lease").await?;
    eventually(LIMIT, "the works of the set", || async {
        let list = site.rest().get(WORKS).await?.ok()?;
        let works = list["items"].as_array().map_or(0, Vec::len);
        ensure!(works == 4, "{works}\n{}", run.log());
        Ok(())
    })
    .await?;
    // Agents go on following the settings.
    write(5)?;
    cap_is(5).await?;
    is_ready(&run).await
}
