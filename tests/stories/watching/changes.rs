//! What changes, and what the hub is told of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kube::api::{DynamicObject, WatchParams};
use kube::core::{GroupVersionKind, WatchEvent};
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::{map, reports, says, spec, watched, watching};
use crate::stories::conformance::basic::Guestbook;
use crate::support::agent::Agent;
use crate::support::live::{LIMIT, state};
use crate::support::works::{integer, shows, string, values};
use crate::support::{Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        c045_a_deleted_object_is_told_and_made_anew,
        drift_of_a_watched_object_is_repaired_at_once,
        c052_cluster_scoped_objects_are_watched,
        c053_a_restless_object_is_no_stream_of_patches,
        an_object_that_comes_later_is_reported_when_it_comes,
        a_type_that_goes_and_comes_back_is_watched_again,
    ]
}

/// Every state of a work that the hub has had since now, without those that an eye misses that
/// looks from time to time.
struct Eye {
    states: tokio::sync::mpsc::UnboundedReceiver<Value>,
    count: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Eye {
    async fn on(agent: &Agent, work: &str) -> Result<Self> {
        let gvk = GroupVersionKind::gvk("work.open-cluster-management.io", "v1", "ManifestWork");
        let resource = ApiResource::from_gvk(&gvk);
        let api: kube::Api<DynamicObject> =
            kube::Api::namespaced_with(agent.hub().client(), agent.name(), &resource);
        let now = api.get(work).await?.metadata.resource_version;
        let params = WatchParams::default().fields(&format!("metadata.name={work}"));
        let events = api.watch(&params, &now.context("no version")?).await?;
        let (sender, states) = tokio::sync::mpsc::unbounded_channel();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let task = async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                if let Ok(WatchEvent::Modified(work)) = event {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let _ = sender.send(serde_json::to_value(work).unwrap_or_default());
                }
            }
        };
        Ok(Self {
            states,
            count,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        })
    }

    /// Waits for a state that is as wanted.
    async fn sees(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let seen = async {
            while let Some(work) = self.states.recv().await {
                if wanted(&work) {
                    return Ok(work);
                }
            }
            anyhow::bail!("the watch of the work ended")
        };
        tokio::time::timeout(LIMIT, seen)
            .await
            .context("never seen")?
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

fn replicas(count: i64) -> Value {
    json!({"replicas": count, "readyReplicas": count, "availableReplicas": count})
}

async fn c045_a_deleted_object_is_told_and_made_anew(world: World) -> Result<()> {
    let agent = watching(&world).await?;
    let ready = [("ready", ".status.readyReplicas")];
    let config = watched(&agent, "apps", "deployments", "web", &ready);
    agent
        .applied("work", spec([agent.deployment("web", 3)], [config]))
        .await?;
    let live = agent.object("deployments", "web");
    live.set_status(replicas(3)).await?;
    reports(&agent, "work", &[integer("ready", 3)]).await?;

    let before = live.get().await?;
    let mut eye = Eye::on(&agent, "work").await?;
    live.delete().await?;
    // It is told to be gone, unless a pass that was under way mends it first. In any case its values
    // are no more.
    let mut told = eye.sees(|work| values(work, 0) == json!([])).await?;
    if shows(&told, "Available", "T").is_err() {
        shows(&told, "Available", "F")?;
        told = eye
            .sees(|work| shows(work, "Available", "T").is_ok())
            .await?;
    }
    ensure!(values(&told, 0) == json!([]), "{told}");
    let after = live.appears().await?;
    ensure!(
        before["metadata"]["uid"] != after["metadata"]["uid"],
        "{after}"
    );
    let entries = agent.records("work", &["deployments web"]).await?;
    ensure!(entries[0]["uid"] == after["metadata"]["uid"], "{entries:?}");
    // And it is watched as the one before.
    live.set_status(replicas(2)).await?;
    reports(&agent, "work", &[integer("ready", 2)]).await?;
    Ok(())
}

async fn drift_of_a_watched_object_is_repaired_at_once(world: World) -> Result<()> {
    let agent = watching(&world).await?;
    agent.applied("work", map(&agent, "cm1", "wanted")).await?;
    reports(&agent, "work", &[string("v", "wanted")]).await?;
    let live = agent.cm("cm1");
    live.merge(json!({"data": {"v": "changed"}})).await?;
    live.has_data(json!({"v": "wanted"})).await?;

    let config = watched(
        &agent,
        "apps",
        "deployments",
        "web",
        &[("n", ".spec.replicas")],
    );
    agent
        .applied("deployed", spec([agent.deployment("web", 3)], [config]))
        .await?;
    reports(&agent, "deployed", &[integer("n", 3)]).await?;
    let live = agent.object("deployments", "web");
    live.merge(json!({"spec": {"replicas": 9}})).await?;
    live.is("be repaired", |live| live["spec"]["replicas"] == 3)
        .await?;
    // What others put there is theirs, and nothing to write about.
    live.merge(json!({"metadata": {"annotations": {"other": "x"}}}))
        .await?;
    agent.looks_again("deployed", 0).await?;
    let left = live.get().await?;
    ensure!(left["metadata"]["annotations"]["other"] == "x", "{left}");
    Ok(())
}

async fn c052_cluster_scoped_objects_are_watched(world: World) -> Result<()> {
    let agent = watching(&world).await?;
    let name = unique_name("watched");
    let config = |group: &str, resource: &str| {
        json!({
            "resourceIdentifier": {"group": group, "resource": resource, "name": name},
            "updateStrategy": {"type": "CreateOnly"},
            "feedbackScrapeType": "Watch",
            "feedbackRules": super::paths(&[("zone", ".metadata.labels.zone")])})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": []});
    let nodes = crate::support::live::Live::new(agent.spoke().rest(), "/api/v1/nodes", &name);
    let roles = agent.object("clusterroles", &name);
    for (work, object, config, live) in [
        ("node", node, config("", "nodes"), nodes),
        (
            "role",
            role,
            config("rbac.authorization.k8s.io", "clusterroles"),
            roles,
        ),
    ] {
        agent.applied(work, spec([object], [config])).await?;
        live.merge(json!({"metadata": {"labels": {"zone": "z1"}}}))
            .await?;
        let work = reports(&agent, work, &[string("zone", "z1")]).await?;
        shows(&work, "Available", "T")?;
    }
    Ok(())
}

async fn c053_a_restless_object_is_no_stream_of_patches(world: World) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(20);
    let agent = watching(&world).await?;
    let guestbook = Guestbook::new(&agent);
    let config = watched(
        &agent,
        guestbook.group(),
        "guestbooks",
        "guestbook1",
        &[("phase", ".status.phase")],
    );
    let mut work = guestbook.work(json!({}));
    work["manifestConfigs"] = json!([config]);
    agent.applied("work", work).await?;
    let live = guestbook.live(&agent);
    live.set_status(json!({"phase": "calm", "beat": 0})).await?;
    let calm = |work: &Value| values(work, 1) == json!([string("phase", "calm")]);
    agent.work("work").is("report its phase", calm).await?;

    let before = agent.work("work").get().await?;
    for beat in 1..100 {
        live.set_status(json!({ "beat": beat })).await?;
        tokio::time::sleep(PAUSE).await;
    }
    // What is seen after all of that: one change, one write.
    let mut eye = Eye::on(&agent, "work").await?;
    let after = agent.work("work").get().await?;
    ensure!(state(&before) == state(&after), "{before}\n{after}");
    live.set_status(json!({"phase": "b"})).await?;
    let phase = |phase: &str| json!([string("phase", phase)]);
    let values = |work: &Value| values(work, 1);
    eye.sees(|work| values(work) == phase("b")).await?;
    ensure!(eye.count() == 1, "{} writes for one change", eye.count());

    // A value that never rests: a burst, then a trickle, and the last one in the end.
    let begin = tokio::time::Instant::now();
    for flip in 0..200 {
        let phase = if flip % 2 == 0 { "c" } else { "d" };
        live.set_status(json!({ "phase": phase })).await?;
        tokio::time::sleep(PAUSE).await;
    }
    live.set_status(json!({"phase": "last"})).await?;
    eye.sees(|work| values(work) == phase("last")).await?;
    // Ten at once, two for each second that it took, one for the last.
    let seconds = usize::try_from(begin.elapsed().as_secs())? + 1;
    let (writes, most) = (eye.count() - 1, 10 + 2 * seconds + 1);
    ensure!(
        (2..=most).contains(&writes),
        "{writes} writes, at most {most}"
    );
    Ok(())
}

async fn an_object_that_comes_later_is_reported_when_it_comes(world: World) -> Result<()> {
    let agent = watching(&world).await?;
    let mut spec = map(&agent, "late", "ignored");
    spec["manifestConfigs"][0]["updateStrategy"] = json!({"type": "ReadOnly"});
    agent.create("work", spec).await?;
    agent.shows("work", &[("Available", "F")]).await?;
    let object = agent.config_map("late", json!({"v": "7"}));
    agent.cm("late").create(&object).await?;
    let work = reports(&agent, "work", &[string("v", "7")]).await?;
    shows(&work, "Available", "T")
}

async fn a_type_that_goes_and_comes_back_is_watched_again(world: World) -> Result<()> {
    let agent = watching(&world).await?;
    let guestbook = Guestbook::new(&agent);
    let group = guestbook.group().to_owned();
    let work = guestbook.work(json!({}));
    let manifests = &work["workload"]["manifests"];
    let (crd, object) = (manifests[0].clone(), manifests[1].clone());
    let live_crd = guestbook.live_crd(&agent);
    live_crd.create(&crd).await?;
    let read = [("foo", ".spec.foo"), ("phase", ".status.phase")];
    let config = watched(&agent, &group, "guestbooks", "guestbook1", &read);
    agent.applied("work", spec([object], [config])).await?;
    let live = guestbook.live(&agent);
    live.set_status(json!({"phase": "first"})).await?;
    let values = |phase: &str| [string("foo", "foo"), string("phase", phase)];
    reports(&agent, "work", &values("first")).await?;

    live_crd.delete().await?;
    live_crd.disappears().await?;
    agent.shows("work", &[("Applied", "F")]).await?;
    live_crd.create(&crd).await?;
    agent.settled("work").await?;
    eventually(LIMIT, "the object to take a status", || async {
        live.set_status(json!({"phase": "second"})).await
    })
    .await?;
    reports(&agent, "work", &values("second")).await?;
    says(&agent, "work", str::is_empty).await?;
    Ok(())
}
