//! P8: what it costs to watch 10,000 objects over 50 watches, beside kube's reflector.
//!
//! muster's watches and the reflector have a process each and watch the same cluster over HTTPS, so
//! that only they count. Objects are taken on in five steps, namespace by namespace. After each step
//! both processes tell their memory, and then values of objects change, which both see.
//!
//! Each watch has a connection of its own, which takes more than a hundred objects do. So two more
//! processes have as many watches with few objects each: together the slopes tell what an object
//! takes and what a watch.
//!
//! No works are around the watches: this is about the watches, and about what an agent keeps and
//! does for each watched object until it writes to the hub. A whole agent is measured in
//! `irrelevant_changes`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams, WatchEvent};
use kube::core::ApiResource;
use kube::{Api, Client};
use muster_actors::agent::WatchedGroup;
use muster_actors::watch::{WatchedObject, Watches};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::agent::KUBECONFIGS;
use crate::support::figure::{Figure, Report};
use crate::support::machine::cpu_each;
use crate::support::process::Usage;
use crate::support::rounds::{Ratio, exponent, median, slope};
use crate::support::servers;
use crate::support::size::{REHEARSAL, lasting, sized};
use crate::support::watcher::{Kind, Watcher, object_name};
use crate::support::{fixtures, slow};

/// Namespaces after each step; each has a watch.
const STEPS: [usize; 6] = if REHEARSAL {
    [0, 1, 2, 3, 4, 5]
} else {
    [0, 2, 5, 10, 25, 50]
};
/// Objects in each of them.
const EACH: usize = sized(200, 20);
/// Objects in each of the namespaces that have few: fewer would be watched one by one.
const FEW: usize = 2;
/// Rounds of changes after each step, and objects that change in each.
const ROUNDS: usize = sized(5, 2);
const CHANGES: usize = 1_000;
/// From the last event to the reading of memory.
const SETTLE: Duration = lasting(500, 50);
/// Requests of the bench at a time.
const AT_A_TIME: usize = 16;

/// The goals, for each object: bytes, also beside the reflector; and µs to take it on and for a
/// change. The exponent of what a change costs over the objects is that of P4's.
const MOST_BYTES: f64 = 400.0;
const LEAST_BYTES_RATIO: f64 = 10.0;
const MOST_START_MICROS: f64 = 5.0;
const MOST_START_EXPONENT: f64 = 1.05;
const MOST_CHANGE_MICROS: f64 = 10.0;
const MOST_CHANGE_EXPONENT: f64 = 0.05;

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        let spoke = servers::spoke_api().await?;
        let client = spoke.client();
        for namespace in 0..STEPS[STEPS.len() - 1] {
            create(&client, &name(namespace), EACH).await?;
            create(&client, &small(namespace), FEW).await?;
        }
        let serving = servers::serve(&spoke).await?;
        let dir = tempfile::tempdir()?;
        let [_, kubeconfig] = KUBECONFIGS.map(|name| dir.path().join(name));
        std::fs::write(kubeconfig, serde_json::to_string(&serving.kubeconfig())?)?;
        let measured = measure(&client, dir.path()).await?;
        let deployments: Api<DynamicObject> =
            Api::namespaced_with(client, &name(0), &ApiResource::erase::<Deployment>(&()));
        let object = deployments.get(&object_name(0)).await?;
        let object = serde_json::to_value(&object)?;
        tell(&mut report, &measured, object.to_string().len());
        one_state(&mut report, object)
    })
}

fn name(namespace: usize) -> String {
    format!("n{namespace}")
}

/// A namespace with few objects.
fn small(namespace: usize) -> String {
    format!("few{namespace}")
}

async fn create(client: &Client, namespace: &str, count: usize) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    namespaces.create(&PostParams::default(), &object).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let create = async |number| {
        let name = object_name(number);
        let mut object = fixtures::small_deployment(&name, namespace);
        let status = json!({"status": object["status"].take()});
        let object = serde_json::from_value(object)?;
        deployments.create(&PostParams::default(), &object).await?;
        let params = PatchParams::default();
        deployments
            .patch_status(&name, &params, &Patch::Merge(status))
            .await?;
        anyhow::Ok(())
    };
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(AT_A_TIME, create)
        .await
}

/// Of one process.
#[derive(Default)]
struct Cost {
    /// Resident bytes by objects.
    resident: Vec<(f64, f64)>,
    /// And of a watch with few objects.
    watch: f64,
    /// CPU nanoseconds to take on an object, of each step.
    start: Vec<f64>,
    /// And all of it so far, by objects.
    started: Vec<(f64, f64)>,
    /// CPU nanoseconds for a change, by objects, of each round.
    changes: Vec<(f64, Vec<f64>)>,
}

/// Somebody who is measured.
struct Subject {
    watcher: Watcher,
    begin: Usage,
    cost: Cost,
}

impl Subject {
    async fn start(kind: Kind, dir: &Path) -> Result<Self> {
        let mut watcher = Watcher::start(kind, dir)?;
        watcher.usage().await?;
        sleep(SETTLE).await;
        let begin = watcher.usage().await?;
        Ok(Self {
            watcher,
            begin,
            cost: Cost::default(),
        })
    }

    /// Takes on namespaces, one after the other: together their lists would be in memory at once,
    /// and what a process gives back it may keep resident. Tells what it used.
    #[allow(
        clippy::cast_precision_loss,
        reason = "bytes of memory are far below 2^52"
    )]
    async fn take_on(&mut self, from: usize, to: usize) -> Result<f64> {
        let before = self.watcher.usage().await?;
        for namespace in from..to {
            self.watcher.watch(EACH, &name(namespace)).await?;
            self.watcher.sees(EACH).await?;
        }
        sleep(SETTLE).await;
        let after = self.watcher.usage().await?;
        let resident = (after.resident_kib * 1024) as f64;
        self.cost.resident.push((objects(to), resident));
        Ok(after.nanos_since(&before))
    }
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand")]
fn objects(namespaces: usize) -> f64 {
    (namespaces * EACH) as f64
}

/// Resident bytes that one more watch takes, with its few objects.
#[allow(
    clippy::cast_precision_loss,
    reason = "bytes of memory are far below 2^52"
)]
async fn each_watch(kind: Kind, dir: &Path) -> Result<f64> {
    let mut watcher = Watcher::start(kind, dir)?;
    let mut points = Vec::new();
    let mut namespaces = 0;
    for step in STEPS {
        for namespace in namespaces..step {
            watcher.watch(FEW, &small(namespace)).await?;
            watcher.sees(FEW).await?;
        }
        namespaces = step;
        sleep(SETTLE).await;
        let resident = watcher.usage().await?.resident_kib * 1024;
        points.push((step as f64, resident as f64));
    }
    Ok(slope(&points))
}

/// What an object takes and what a watch, from what a watch takes with its few objects and what an
/// object takes with its share of a watch.
#[allow(clippy::cast_precision_loss, reason = "a few hundred")]
fn apart(watch: f64, object: f64) -> (f64, f64) {
    let (few, each) = (FEW as f64, EACH as f64);
    let object = (object - watch / each) / (1.0 - few / each);
    (object, watch - few * object)
}

/// muster and the reflector.
async fn measure(client: &Client, dir: &Path) -> Result<[Cost; 2]> {
    let mut subjects = [
        Subject::start(Kind::Muster, dir).await?,
        Subject::start(Kind::Reflector, dir).await?,
    ];
    let mut namespaces = 0;
    let mut ready = 3;
    for step in STEPS {
        for subject in &mut subjects {
            let used = subject.take_on(namespaces, step).await?;
            if step == 0 {
                continue;
            }
            let cost = &mut subject.cost;
            let taken_on = objects(step) - objects(namespaces);
            cost.start.push(used / taken_on);
            let before = cost.started.last().map_or(0.0, |(_, used)| *used);
            cost.started.push((objects(step), before + used));
        }
        namespaces = step;
        if step == 0 {
            continue;
        }
        for subject in &mut subjects {
            subject.cost.changes.push((objects(step), Vec::new()));
        }
        for _ in 0..ROUNDS {
            ready += 1;
            round(client, &mut subjects, step, ready).await?;
        }
    }
    let [mut muster, mut reflector] = subjects.map(|subject| subject.cost);
    muster.watch = each_watch(Kind::Muster, dir).await?;
    reflector.watch = each_watch(Kind::Reflector, dir).await?;
    Ok([muster, reflector])
}

/// Changes as many objects as there are, but not more than [`CHANGES`], in all namespaces.
async fn round(
    client: &Client,
    subjects: &mut [Subject; 2],
    namespaces: usize,
    ready: u64,
) -> Result<()> {
    let each = (CHANGES / namespaces).min(EACH);
    for subject in &mut *subjects {
        subject.begin = subject.watcher.usage().await?;
    }
    let patch = Patch::Merge(json!({"status": {"readyReplicas": ready}}));
    let change = async |(namespace, number)| {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &name(namespace));
        let params = PatchParams::default();
        deployments
            .patch_status(&object_name(number), &params, &patch)
            .await
    };
    let of_all = (0..each).flat_map(|number| (0..namespaces).map(move |place| (place, number)));
    stream::iter(of_all)
        .map(Ok)
        .try_for_each_concurrent(AT_A_TIME, async |place| change(place).await.map(drop))
        .await?;
    for subject in &mut *subjects {
        let after = subject.watcher.sees(each * namespaces).await?;
        let used = after.nanos_since(&subject.begin);
        if let Some((_, changes)) = subject.cost.changes.last_mut() {
            #[allow(clippy::cast_precision_loss, reason = "a thousand")]
            changes.push(used / (each * namespaces) as f64);
        }
    }
    Ok(())
}

fn tell(report: &mut Report, [muster, reflector]: &[Cost; 2], object_bytes: usize) {
    let baseline = "kube reflector, DynamicObject, the same objects in a process of its own";
    let params = json!({"objects": objects(STEPS[STEPS.len() - 1]), "watches": STEPS[STEPS.len() - 1],
        "object_bytes": object_bytes, "steps": STEPS.map(objects)});

    let [(ours, our_watch), (theirs, their_watch)] =
        [muster, reflector].map(|cost| apart(cost.watch, slope(&cost.resident)));
    let alone = |cost: &Cost| cost.resident.first().map_or(f64::NAN, |(_, bytes)| *bytes);
    report.add(
        Figure::new("P8", "memory of a watched object, slopes", ours, "B")
            .below(theirs, baseline)
            .met_in_full(ours <= MOST_BYTES && theirs / ours >= LEAST_BYTES_RATIO)
            .params(params.clone())
            .params(json!({"allocator": "system",
                "resident_without_objects": alone(muster),
                "resident_by_objects": muster.resident,
                "baseline_resident_by_objects": reflector.resident,
                "ocm_informer_store_recorded": 10_500, "ocm_agent_recorded": 39_000})),
    );
    report.add(
        Figure::new("P8", "memory of a watch, slopes", our_watch / 1e3, "KB")
            .below(their_watch / 1e3, baseline)
            .params(json!({"allocator": "system", "objects_in_each": [FEW, EACH]})),
    );

    let [ours, theirs] = [muster, reflector].map(|cost| slope(&cost.started) / 1e3);
    let ratio = Ratio::of(&reflector.start, &muster.start);
    report.add(
        Figure::new("P8", "CPU to take on an object, slope", ours, "µs")
            .in_rounds(theirs, baseline, ratio)
            .met(ours <= MOST_START_MICROS)
            .params(params.clone())
            .params(json!({"ocm_recorded_ms_for_3000": 26_700})),
    );
    let [ours, theirs] = [muster, reflector].map(|cost| exponent(&cost.started));
    report.add(
        Figure::new("P8", "exponent of that over the objects", ours, "")
            .control(theirs, baseline)
            .met_in_full(ours <= MOST_START_EXPONENT)
            .params(params.clone())
            .params(json!({"ocm_recorded": 2.2})),
    );
    tell_changes(report, [muster, reflector], baseline, &params);
}

fn tell_changes(report: &mut Report, costs: [&Cost; 2], baseline: &str, params: &Value) {
    let [muster, reflector] = costs;
    let baseline = format!("{baseline}, the same changes");
    for ((objects, ours), (_, theirs)) in muster.changes.iter().zip(&reflector.changes) {
        let value = median(ours) / 1e3;
        let name = format!("CPU of a change of a value, {objects} objects watched");
        report.add(
            Figure::new("P8", name, value, "µs")
                .in_rounds(
                    median(theirs) / 1e3,
                    baseline.clone(),
                    Ratio::of(theirs, ours),
                )
                .met(value <= MOST_CHANGE_MICROS)
                .params(params.clone())
                .params(json!({"changes": CHANGES, "ocm_recorded_us_at_3000": 13_200})),
        );
    }
    let [ours, theirs] = [muster, reflector].map(|cost| {
        let medians = cost.changes.iter();
        exponent(
            &medians
                .map(|(objects, rounds)| (*objects, median(rounds)))
                .collect::<Vec<_>>(),
        )
    });
    report.add(
        Figure::new("P8", "exponent of that over the objects watched", ours, "")
            .control(theirs, baseline)
            .met_in_full(ours <= MOST_CHANGE_EXPONENT)
            .params(params.clone()),
    );
}

/// What becomes of the bytes of one state that has nothing new for anybody, without a connection
/// around it.
fn one_state(report: &mut Report, mut object: Value) -> Result<()> {
    let meta = fixtures::deployment_meta(&object_name(0), &name(0));
    let watches = Watches::new();
    let mut group = WatchedGroup::default();
    group.watch(&watches, &meta, &fixtures::feedback_rules());
    let mut version = 0_u64;
    let mut state = || {
        version += 1;
        object["metadata"]["resourceVersion"] = json!((1_000_000 + version).to_string());
        object["status"]["collisionCount"] = json!(version);
        // In the order of Kubernetes.
        format!(r#"{{"type":"MODIFIED","object":{object}}}"#)
    };
    let show = |text: &String| {
        slow::spin(Duration::from_micros(50));
        let event: Result<WatchEvent<WatchedObject>, _> = serde_json::from_str(text);
        if let Ok(WatchEvent::Modified(object)) = event {
            group.show(&meta, &Arc::new(object));
        }
    };
    let decode = |text: &String| {
        let event: Result<WatchEvent<Value>, _> = serde_json::from_str(text);
        drop(std::hint::black_box(event));
    };
    show(&state());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let states: Vec<_> = (0..CHANGES).map(|_| state()).collect();
        let mut next = states.iter();
        ours.push(cpu_each(CHANGES, || next.next().into_iter().for_each(show)));
        let mut next = states.iter();
        theirs.push(cpu_each(CHANGES, || {
            next.next().into_iter().for_each(decode);
        }));
    }
    // Else states were not understood, or were news.
    let news = group.report();
    ensure!(news == 1, "{news} states let through instead of the first");
    let value = median(&ours);
    let baseline = "serde_json decoding the event into a Value, alternating";
    report.add(
        Figure::new(
            "P8",
            "CPU of a state with nothing to report, from its bytes",
            value,
            "µs",
        )
        .in_rounds(median(&theirs), baseline, Ratio::of(&theirs, &ours))
        .met(value <= MOST_CHANGE_MICROS)
        .params(json!({"event_bytes": state().len(), "states_per_round": CHANGES})),
    );
    Ok(())
}
