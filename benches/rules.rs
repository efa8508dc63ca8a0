//! RULES: what watch rules cost: a change of a rule, the way from a rule to its watch, a restart of
//! watches, and an event.
//!
//! The goals are those of the design of the dynamic watch manager.
//!
//! - A change of one of 100 and 1,000 rules, from its object up to the table and the signal, and with
//!   the reading that follows. Baselines: a bare map and a bare channel, and a copy of that map, in the
//!   same rounds.
//! - A rule created until the sink has its first event, and deleted until the watch is closed, as the
//!   server counts. Baseline, alternating: the debounce, and then a bare list, or a bare watch dropped.
//! - Ten changes at once: how many restarts. Baseline: the same changes one after the other, without
//!   the debounce.
//! - A restart of 50 types with 100 objects each without the debounce: from a rule that changes until
//!   every watch has listed anew. Baseline, alternating: 50 bare lists of the same.
//! - An agent of its own, over HTTPS: CPU of an event up to the sink's file, beside a process with a
//!   bare watch that decodes the same; memory after 1,000 restarts, beside that after the first 100.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client};
use muster_actors::hub::register_cluster;
use muster_actors::rules::{SeenRule, rule_channel};
use muster_api::rules::{WatchRule, WatchRuleStatus};
use muster_apiserver::ApiServer;
use muster_core::watch_rules::{CompiledRule, RuleKind, RuleName, compile_watch_rule};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::agent::{Agent, CLUSTER, EVENTS_FILE, KUBECONFIGS};
use crate::support::figure::{Figure, Report};
use crate::support::machine::{cpu_each, millis};
use crate::support::rounds::{Ratio, median, slope};
use crate::support::ruled::{self, NAMESPACE, Ruled, delete_rule, plural, put_rule, watched};
use crate::support::size::{REHEARSAL, lasting, sized};
use crate::support::watcher::{Kind, Watcher, object_name};
use crate::support::{fixtures, servers, slow};

/// Rules of which one changes.
const RULES: [usize; 2] = [sized(100, 10), sized(1_000, 50)];
const CHANGES_EACH: usize = sized(200, 20);
const ROUNDS: usize = sized(7, 2);
const DEBOUNCE: Duration = lasting(2_000, 400);
/// Rounds that the debounce makes long.
const LONG_ROUNDS: usize = sized(5, 1);
/// Changes of rules at once.
const AT_ONCE: usize = 10;
const TYPES: usize = sized(50, 5);
const OBJECTS: usize = sized(100, 10);
/// Types and restarts over which memory is looked at, in so many steps.
const KEPT: usize = 10;
const RESTARTS: usize = sized(1_000, 20);
const STEPS: usize = 10;
/// Objects that change once in each round.
const CHANGED: usize = sized(1_000, 50);
const AT_A_TIME: usize = 16;
/// Watches of an agent, unless a bench says otherwise.
const WATCHES: usize = 50;
const NEVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What a watch that is closed takes until its slot is free.
const LINGERS: Duration = Duration::from_millis(600);
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(900);

/// The goals.
const MOST_CHANGE_MICROS: f64 = 10.0;
const MOST_READ_MICROS: f64 = 1_000.0;
const MOST_FOLLOW_MILLIS: f64 = if REHEARSAL { 1_000.0 } else { 5_000.0 };
const MOST_RESTART_MILLIS: f64 = 2_000.0;
const MOST_GROWTH: f64 = 1.1;

pub(crate) fn run() -> Result<()> {
    let mut report = Report::start();
    for rules in RULES {
        changes(&mut report, rules)?;
    }
    servers::block_on_for(LIMIT, async {
        follow(&mut report).await?;
        at_once(&mut report).await?;
        for watches in [4 * TYPES, TYPES] {
            restart(&mut report, watches).await?;
        }
        apart(&mut report).await
    })
}

/// What is written of a rule.
fn status() -> Result<WatchRuleStatus> {
    let status = json!({"observedGeneration": 1, "types": 1, "watches": {"total": 1, "synced": 1},
        "events": 7, "lastEventTime": "2026-03-01T10:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "reason": "Watching",
            "message": "all that the rule selects is watched", "observedGeneration": 1,
            "lastTransitionTime": "2026-03-01T10:00:00Z"}]});
    Ok(serde_json::from_value(status)?)
}

fn seen(status: &WatchRuleStatus) -> SeenRule {
    SeenRule {
        generation: 1,
        status: status.clone(),
        error: None,
    }
}

fn changes(report: &mut Report, rules: usize) -> Result<()> {
    let of = |number: usize, resource: &str| {
        ruled::rule(&format!("rule-{number:04}"), &[resource.to_owned()])
    };
    let all: Result<Vec<WatchRule>> = (0..rules).map(|number| of(number, "configmaps")).collect();
    let all: Result<Vec<CompiledRule>, _> = all?.iter().map(compile_watch_rule).collect();
    let (all, status) = (all?, status()?);
    let mut bare: BTreeMap<RuleName, Arc<CompiledRule>> = all
        .iter()
        .map(|rule| (rule.name.clone(), Arc::new(rule.clone())))
        .collect();
    let (sender, receiver) = rule_channel();
    sender.change(|table| {
        let names = all.iter().map(|rule| rule.name.clone());
        table.seen = names.map(|name| (name, seen(&status))).collect();
        table.state.replace_all(RuleKind::WatchRule, all);
        table.state.replace_all(RuleKind::ClusterWatchRule, [])
    });
    let (bare_sender, bare_receiver) = sync_channel(1);
    let turns = [of(7, "secrets")?, of(7, "configmaps")?];
    let mut turn = 0;
    let mut change = || {
        turn += 1;
        if let Ok(rule) = compile_watch_rule(&turns[turn % 2]) {
            sender.change(|table| {
                table.seen.insert(rule.name.clone(), seen(&status));
                table.state.put(rule)
            });
        }
        slow::spin(Duration::from_millis(2));
    };
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    let (mut read, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(cpu_each(CHANGES_EACH, &mut change));
        ensure!(receiver.take(), "no change was signalled");
        // As when watches follow each change: they hold what they read last.
        let mut held = receiver.published();
        read.push(cpu_each(CHANGES_EACH, || {
            change();
            held = receiver.published();
        }));
        ensure!(held.take().is_some(), "nothing was read");
        copies.push(cpu_each(CHANGES_EACH, || drop(black_box(bare.clone()))));
        let mut turn = 0;
        floors.push(cpu_each(CHANGES_EACH, || {
            turn += 1;
            if let Ok(rule) = compile_watch_rule(&turns[turn % 2]) {
                bare.insert(rule.name.clone(), Arc::new(rule));
                let _ = bare_sender.try_send(());
            }
        }));
        ensure!(bare_receiver.try_recv().is_ok(), "nothing was sent");
    }
    for (what, ours, floors, is, most) in [
        (
            "up to the signal",
            ours,
            floors,
            "compiled into a bare map, bare channel, alternating",
            MOST_CHANGE_MICROS,
        ),
        (
            "and of reading them all",
            read,
            copies,
            "a copy of a bare map of them, alternating",
            MOST_READ_MICROS,
        ),
    ] {
        let value = median(&ours);
        let name = format!("CPU of a change of one of {rules} rules, {what}");
        let ratio = Ratio::of(&floors, &ours);
        report.add(
            Figure::new("RULES", name, value, "µs")
                .in_rounds(median(&floors), is, ratio)
                .met(value <= most)
                .params(json!({"rules": rules})),
        );
    }
    Ok(())
}

async fn since(begin: Instant, done: impl Future<Output = Result<()>>) -> Result<f64> {
    done.await?;
    Ok(millis(begin.elapsed()))
}

/// From a rule to its first event, and from its end to the end of its watch.
async fn follow(report: &mut Report) -> Result<()> {
    const MAPS: &str = "configmaps";
    // The known slowness.
    let debounce = if slow::injected() { 3 } else { 1 } * DEBOUNCE;
    let mut ruled = Ruled::start(ruled::cluster(0, 0).await?, debounce, WATCHES).await?;
    let maps: Api<ConfigMap> = Api::namespaced(ruled.client.clone(), NAMESPACE);
    let map = serde_json::from_value(fixtures::config_map("map", NAMESPACE))?;
    maps.create(&PostParams::default(), &map).await?;
    let closed = |api: &ApiServer| !api.stats().watches.contains_key(MAPS);
    let (mut first, mut bare_first) = (Vec::new(), Vec::new());
    let (mut end, mut bare_end) = (Vec::new(), Vec::new());
    // One more round, so that nothing of the beginning is under way any more.
    for round in 0..=LONG_ROUNDS {
        let begin = Instant::now();
        put_rule(&ruled.client, "maps", &[MAPS.to_owned()]).await?;
        let heard = tokio::time::timeout(PATIENCE, ruled.heard.recv()).await;
        let event = heard.context("no event")?.context("no agent")?;
        let to_first = millis(begin.elapsed());
        ensure!(&*event.key.name == "map", "an event of {}", event.key);
        // The event is in its list; one that is not open yet would be taken for closed.
        ruled.until("the watch", |api| !closed(api)).await?;
        let begin = Instant::now();
        delete_rule(&ruled.client, "maps").await?;
        let to_end = since(begin, ruled.until("the end of the watch", closed)).await?;
        if round == 0 {
            continue;
        }
        first.push(to_first);
        end.push(to_end);
        let begin = Instant::now();
        sleep(DEBOUNCE).await;
        let list = maps.list(&ListParams::default()).await?;
        bare_first.push(millis(begin.elapsed()));
        let version = list.metadata.resource_version.context("no version")?;
        let watch = maps.watch(&WatchParams::default(), &version).await?.boxed();
        let begin = Instant::now();
        sleep(DEBOUNCE).await;
        drop(watch);
        bare_end.push(since(begin, ruled.until("the end of the watch", closed)).await?);
    }
    ruled.end().await?;
    for (name, ours, floors, is) in [
        (
            "a rule created until the sink has its first event",
            first,
            bare_first,
            "the debounce, then a bare list, alternating",
        ),
        (
            "a rule deleted until its watch is closed",
            end,
            bare_end,
            "the debounce, then a bare watch dropped, alternating",
        ),
    ] {
        let slowest = ours.iter().copied().fold(0.0, f64::max);
        let ratio = Ratio::of(&floors, &ours);
        report.add(
            Figure::new("RULES", name, median(&ours), "ms")
                .in_rounds(median(&floors), is, ratio)
                .met(slowest <= MOST_FOLLOW_MILLIS)
                .params(json!({"debounce_ms": millis(debounce), "slowest_ms": slowest})),
        );
    }
    Ok(())
}

/// Ten changes, each of which wants one type more: how often what was watched before is watched anew.
async fn restarts_by(debounce: Duration, one_by_one: bool) -> Result<u64> {
    let types = KEPT + AT_ONCE;
    let ruled = Ruled::start(ruled::cluster(types, 1).await?, debounce, WATCHES).await?;
    let kept: Vec<String> = (0..KEPT).map(plural).collect();
    put_rule(&ruled.client, "kept", &kept).await?;
    let open = |to: usize| {
        let all = move |api: &ApiServer| watched(api, 0..to).iter().all(|times| *times > 0);
        ruled.until("watches", all)
    };
    open(KEPT).await?;
    sleep(2 * debounce + LINGERS).await;
    let before = watched(&ruled.api, 0..1);
    for number in KEPT..types {
        let name = format!("rule-{number}");
        put_rule(&ruled.client, &name, &[plural(number)]).await?;
        if one_by_one {
            open(number + 1).await?;
            sleep(LINGERS).await;
        }
    }
    open(types).await?;
    sleep(2 * debounce + LINGERS).await;
    let after = watched(&ruled.api, 0..1);
    ruled.end().await?;
    Ok(after[0] - before[0])
}

#[allow(clippy::cast_precision_loss, reason = "a few restarts")]
async fn at_once(report: &mut Report) -> Result<()> {
    // The known slowness: somebody who waits for each.
    let ours = restarts_by(DEBOUNCE, slow::injected()).await?;
    let each = restarts_by(Duration::ZERO, true).await?;
    let name = format!("restarts by {AT_ONCE} changes of rules at once");
    report.add(
        Figure::new("RULES", name, ours as f64, "restarts")
            .below(
                each as f64,
                "the same changes one by one, without the debounce, same run",
            )
            .met(ours == 1)
            .params(json!({"changes": AT_ONCE, "debounce_ms": millis(DEBOUNCE)})),
    );
    Ok(())
}

/// Restarts all watches by a rule that wants another type each time.
struct Restarts<'a> {
    api: &'a ApiServer,
    client: Client,
    /// Types that stay.
    kept: usize,
    turn: usize,
}

impl<'a> Restarts<'a> {
    /// Has so many types watched, and one of two more.
    async fn new(api: &'a ApiServer, kept: usize) -> Result<Self> {
        let client = api.client();
        let names: Vec<String> = (0..kept).map(plural).collect();
        put_rule(&client, "kept", &names).await?;
        put_rule(&client, "turn", &[plural(kept)]).await?;
        let all = |api: &ApiServer| watched(api, 0..=kept).iter().all(|times| *times > 0);
        ruled::until(api, "watches", all).await?;
        sleep(LINGERS).await;
        Ok(Self {
            api,
            client,
            kept,
            turn: 0,
        })
    }

    /// Until all have listed anew: a watch is asked for once its list has been taken in.
    async fn once(&mut self) -> Result<()> {
        self.turn += 1;
        let turn = self.kept + self.turn % 2;
        let types = || (0..self.kept).chain([turn]);
        let before = watched(self.api, types());
        put_rule(&self.client, "turn", &[plural(turn)]).await?;
        let all = |api: &ApiServer| {
            let now = watched(api, types());
            now.iter().zip(&before).all(|(now, before)| now > before)
        };
        ruled::until(self.api, "a restart", all).await
    }
}

async fn restart(report: &mut Report, watches: usize) -> Result<()> {
    let cluster = ruled::cluster(TYPES + 1, OBJECTS).await?;
    let ruled = Ruled::start(cluster, Duration::ZERO, watches).await?;
    let mut restarts = Restarts::new(&ruled.api, TYPES - 1).await?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        slow::spin(Duration::from_secs(3));
        ours.push(since(begin, restarts.once()).await?);
        sleep(LINGERS).await;
        let begin = Instant::now();
        let lists = (0..TYPES).map(|number| {
            let things = ruled::things(&ruled.client, number);
            async move { things.list(&ListParams::default()).await }
        });
        for list in join_all(lists).await {
            ensure!(list?.items.len() == OBJECTS, "a list is short");
        }
        floors.push(millis(begin.elapsed()));
    }
    ruled.end().await?;
    let room = if watches > TYPES {
        "with room for new ones beside the old"
    } else {
        "without room for one more"
    };
    let value = median(&ours);
    let name = format!("restart of the watches of {TYPES} types, {room}");
    let ratio = Ratio::of(&floors, &ours);
    report.add(
        Figure::new("RULES", name, value, "ms")
            .in_rounds(median(&floors), "as many bare lists, alternating", ratio)
            .met(value <= MOST_RESTART_MILLIS)
            .params(json!({"types": TYPES, "objects_each": OBJECTS, "max_watches": watches})),
    );
    Ok(())
}

/// An agent of its own.
async fn apart(report: &mut Report) -> Result<()> {
    let hub = servers::hub_api().await?;
    let cluster = ruled::cluster(KEPT + 2, KEPT).await?;
    register_cluster(&hub.client(), CLUSTER, &[].into()).await?;
    let served = [servers::serve(&hub).await?, servers::serve(&cluster).await?];
    let dir = tempfile::tempdir()?;
    for (name, serving) in KUBECONFIGS.into_iter().zip(&served) {
        let kubeconfig = serde_json::to_string(&serving.kubeconfig())?;
        std::fs::write(dir.path().join(name), kubeconfig)?;
    }
    let mut agent = Agent::start_with_rules(dir.path(), NEVER, Duration::ZERO)?;
    events(report, &cluster, &mut agent, dir.path()).await?;
    memory(report, &cluster, &mut agent).await
}

/// Waits until the sink's file has so many lines.
async fn lines(dir: &Path, wanted: usize) -> Result<()> {
    let path = dir.join(EVENTS_FILE);
    servers::until(PATIENCE, "the lines of events", async || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Ok(text.lines().count() >= wanted)
    })
    .await
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand")]
async fn events(
    report: &mut Report,
    cluster: &ApiServer,
    agent: &mut Agent,
    dir: &Path,
) -> Result<()> {
    let client = cluster.client();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    for number in 0..CHANGED {
        let object = fixtures::small_deployment(&object_name(number), NAMESPACE);
        let object = serde_json::from_value(object)?;
        deployments.create(&PostParams::default(), &object).await?;
    }
    put_rule(&client, "deployments", &["deployments".to_owned()]).await?;
    lines(dir, CHANGED).await?;
    let mut bare = Watcher::start(Kind::Values, dir)?;
    bare.watch(CHANGED, NAMESPACE).await?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let (before, bare_before) = (agent.usage().await?, bare.usage().await?);
        let patch = Patch::Merge(json!({"spec": {"replicas": 3 + round}}));
        stream::iter((0..CHANGED).map(object_name))
            .map(Ok)
            .try_for_each_concurrent(AT_A_TIME, async |name| {
                let params = PatchParams::default();
                deployments.patch(&name, &params, &patch).await.map(drop)
            })
            .await?;
        bare.sees(CHANGED).await?;
        lines(dir, (round + 1) * CHANGED).await?;
        let each = |nanos: f64| nanos / 1e3 / CHANGED as f64;
        ours.push(each(agent.usage().await?.nanos_since(&before)));
        floors.push(each(bare.usage().await?.nanos_since(&bare_before)));
    }
    delete_rule(&client, "deployments").await?;
    let ratio = Ratio::of(&floors, &ours);
    let name = "agent's CPU of an event, from its watch to the file of a log";
    report.add(
        Figure::new("RULES", name, median(&ours), "µs")
            .in_rounds(
                median(&floors),
                "bare kube watch decoding into serde_json::Value, the same changes",
                ratio,
            )
            .params(json!({"objects": CHANGED})),
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "memory of a process")]
async fn memory(report: &mut Report, cluster: &ApiServer, agent: &mut Agent) -> Result<()> {
    let mut restarts = Restarts::new(cluster, KEPT).await?;
    let mut steps = Vec::new();
    for number in 1..=RESTARTS {
        restarts.once().await?;
        if number % (RESTARTS / STEPS) == 0 {
            // What is being closed is not yet given back.
            sleep(LINGERS).await;
            let resident = agent.usage().await?.resident_kib;
            steps.push((number as f64, resident as f64));
        }
    }
    let (first, last) = (steps[0].1 / 1024.0, steps[STEPS - 1].1 / 1024.0);
    let name = format!("agent's memory after {RESTARTS} restarts of watches");
    let is = format!("after the first {}", RESTARTS / STEPS);
    let mib: Vec<f64> = steps.iter().map(|(_, kib)| kib / 1024.0).collect();
    report.add(
        Figure::new("RULES", name, last, "MiB")
            .below(first, is)
            .met_in_full(last <= MOST_GROWTH * first)
            .params(
                json!({"types": KEPT + 1, "objects_each": KEPT, "steps_mib": mib,
                "slope_bytes_each": slope(&steps) * 1024.0}),
            ),
    );
    Ok(())
}
