//! RULES: how many events of watch rules a second get into each sink.
//!
//! Each sink is given the events of 1,000 objects that change again and again, in batches as an agent
//! gives them, and has a batch before it gets the next. Baselines, alternating:
//!
//! - `log`: the same lines written to a file one by one.
//! - `mqtt`: the same messages published bare, with QoS 1, through the same broker and driver; as many
//!   at a time. Muster's broker shares the process, mosquitto has one of its own.
//! - `git`: the program `git` adds and commits the same files, a commit for each batch.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use muster_actors::rules::SinkMaker;
use muster_actors::sinks::{GitSinks, LogSinks, LogTarget, MqttSinks, Sink};
use muster_cloudevents::Outgoing;
use muster_cloudevents::bus::{Bus, BusEvent, Connection, Loopback, Session};
use muster_core::rule_events::{Event, ObjectKey, Operation, State};
use muster_core::watch_plan::Resource;
use muster_core::watch_rules::Ordered;
use muster_gitfiles::{Branches, Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::agent::CLUSTER;
use crate::support::events::{broker, bytes_of, mqtt};
use crate::support::figure::{Figure, Report};
use crate::support::rounds::{Ratio, median};
use crate::support::servers;
use crate::support::size::sized;
use crate::tests_support::{MosquittoConf, Servers};

const ROUNDS: usize = sized(7, 2);
const OBJECTS: usize = 1_000;
const EVENTS: usize = sized(2_000, 200);
/// Events in a batch, and messages on their way at a time, as an agent gives them and its sink.
const BATCH: usize = sized(200, 50);
const AT_A_TIME: usize = 64;
const UID: &str = "7d1c3a52-0a3e-4a53-9f0e-3d6f1c1f0a11";
const TOPIC: &str = "rules/c1";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        log(&mut report).await?;
        let embedded = broker(0).await?;
        let address = embedded.address().to_string();
        published(&mut report, "muster's broker", &address).await?;
        embedded.stop().await;
        let shared = Servers::new()?;
        match shared.mosquitto(MosquittoConf::default()).await {
            Ok(mosquitto) => {
                let measured = published(&mut report, "mosquitto", &mosquitto.address()).await;
                mosquitto.stop().await?;
                measured?;
            }
            Err(error) if std::env::var("CI").as_deref() == Ok("true") => return Err(error),
            Err(error) => eprintln!("no mosquitto to go through: {error:#}"),
        }
        shared.stop(false).await?;
        committed(&mut report).await
    })
}

/// The events of a round; no state of an object comes twice.
fn events(round: usize) -> Vec<Event> {
    (0..EVENTS)
        .map(|number| {
            let (name, turn) = (format!("map-{:04}", number % OBJECTS), number / OBJECTS);
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "default"},
                "data": {"key": "value".repeat(100), "round": round.to_string(),
                    "turn": turn.to_string()}});
            let sequence = round * EVENTS + number + 1;
            Event {
                sequence: sequence as u64,
                key: ObjectKey {
                    resource: Resource::new("", "v1", "configmaps"),
                    namespace: "default".into(),
                    name: name.into(),
                },
                kind: "ConfigMap".into(),
                operation: Operation::Update,
                uid: UID.into(),
                version: sequence as u64,
                object: Some(object.to_string().into()),
                rules: Arc::from(["default/maps".into()]),
                has: Some(State {
                    uid: UID.into(),
                    version: sequence as u64,
                    hash: [7; 32],
                    on_delete: Arc::from(["default/maps".into()]),
                }),
                seen: Timestamp::UNIX_EPOCH,
            }
        })
        .collect()
}

/// Events a second.
#[allow(clippy::cast_precision_loss, reason = "a few thousand events")]
fn rate(begin: Instant) -> f64 {
    EVENTS as f64 / begin.elapsed().as_secs_f64()
}

async fn deliver(sink: &mut dyn Sink, events: &[Event]) -> Result<f64> {
    let begin = Instant::now();
    for batch in events.chunks(BATCH) {
        sink.deliver(batch).await?;
    }
    Ok(rate(begin))
}

fn tell(
    report: &mut Report,
    sink: &str,
    [ours, floors]: [Vec<f64>; 2],
    is: &str,
    bytes_each: usize,
) {
    let name = format!("events into the sink {sink}");
    let ratio = Ratio::of(&ours, &floors);
    report.add(
        Figure::new("RULES", name, median(&ours), "events/s")
            .in_rounds(median(&floors), is, ratio)
            .params(json!({"events": EVENTS, "batch": BATCH, "bytes_each": bytes_each})),
    );
}

async fn log(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("events.log");
    let mut sink = LogSinks::new(LogTarget::File {
        path: path.clone(),
        max_bytes: u64::MAX,
        keep: 0,
    })
    .make(CLUSTER, false);
    let mut bare = File::create(dir.path().join("bare.log"))?;
    let mut rates = [Vec::new(), Vec::new()];
    let mut told = 0;
    for round in 0..ROUNDS {
        rates[0].push(deliver(sink.as_mut(), &events(round)).await?);
        let text = fs::read(&path)?;
        let lines: Vec<&[u8]> = text[told..]
            .split_inclusive(|byte| *byte == b'\n')
            .collect();
        ensure!(lines.len() == EVENTS, "{} lines", lines.len());
        let begin = Instant::now();
        for line in lines {
            bare.write_all(line)?;
        }
        rates[1].push(rate(begin));
        told = text.len();
    }
    let is = "the same lines, written one by one, alternating";
    tell(report, "log", rates, is, told / ROUNDS / EVENTS);
    Ok(())
}

/// A sink that publishes over this bus.
fn publishing(bus: impl Bus + 'static) -> Box<dyn Sink> {
    let buses = BTreeMap::from([(CLUSTER.to_owned(), Arc::new(bus) as Arc<dyn Bus>)]);
    MqttSinks::new(TOPIC, buses).make(CLUSTER, false)
}

/// What the sink publishes for these.
async fn messages(events: &[Event]) -> Result<Vec<Outgoing>> {
    let bus = Loopback::new();
    let mut listening = bus.open(Session {
        filters: vec![TOPIC.to_owned()],
        will: None,
    });
    let mut sink = publishing(bus);
    let hear = async {
        let mut heard = Vec::new();
        while heard.len() < events.len() {
            let event = listening.events.recv().await.context("no bus")?;
            if let BusEvent::Message(mut delivery) = event {
                let (topic, message) = (delivery.topic.clone(), delivery.take());
                heard.push(Outgoing { topic, message });
            }
        }
        anyhow::Ok(heard)
    };
    let (delivered, heard) = tokio::join!(deliver(sink.as_mut(), events), hear);
    delivered?;
    heard
}

/// Tries again until there is a connection.
async fn connected(mut work: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    servers::until(PATIENCE, "a connection", async || Ok(work().await.is_ok())).await
}

async fn published(report: &mut Report, name: &str, broker: &str) -> Result<()> {
    let mut sink = publishing(mqtt(broker, "rules-sink")?);
    let Connection {
        publisher,
        events: mut ignored,
    } = mqtt(broker, "bare-publisher")?.open(Session::default());
    tokio::spawn(async move { while ignored.recv().await.is_some() {} });
    let first = events(0);
    connected(async || Ok(sink.deliver(&first[..1]).await?)).await?;
    let messages_of_first = messages(&first[..1]).await?;
    let message = messages_of_first.first().context("no message")?;
    connected(async || Ok(publisher.publish(message.clone()).await?)).await?;
    let bytes = bytes_of(&message.topic, &message.message);
    let mut rates = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        let events = events(round);
        rates[0].push(deliver(sink.as_mut(), &events).await?);
        let messages = messages(&events).await?;
        let begin = Instant::now();
        stream::iter(messages)
            .map(|outgoing| publisher.publish(outgoing))
            .buffered(AT_A_TIME)
            .try_collect::<()>()
            .await?;
        rates[1].push(rate(begin));
    }
    let is = "the same messages published bare, same broker and driver, alternating";
    tell(report, &format!("mqtt over {name}"), rates, is, bytes);
    Ok(())
}

/// Runs git there.
fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let status = Command::new("git")
        // No cleaning up in between, and nothing that this machine has set.
        .args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"])
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(folder)
        .status()
        .context("the program git")?;
    ensure!(status.success(), "git {arguments:?}: {status}");
    Ok(())
}

/// The file that an event makes, and what is in it.
fn file_of(event: &Event) -> Result<(PathBuf, String)> {
    let object = event.object.as_deref().context("no object")?;
    let object: Value = serde_json::from_str(object)?;
    let path = format!("v1/configmaps/default/{}.yaml", event.key.name);
    Ok((path.into(), serde_saphyr::to_string(&Ordered(&object))?))
}

async fn committed(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir()?;
    git(dir.path(), &["init", "-q", "--bare", "ours"])?;
    git(dir.path(), &["init", "-q", "bare"])?;
    let (url, bare) = (dir.path().join("ours"), dir.path().join("bare"));
    fs::create_dir_all(bare.join("v1/configmaps/default"))?;
    let config = Config::new(url.display().to_string(), "main", dir.path().join("work"));
    let sinks = GitSinks::new(config, "", None, Branches::default(), Duration::ZERO);
    let mut sink = sinks.make(CLUSTER, false);
    let mut rates = [Vec::new(), Vec::new()];
    let mut bytes = 0;
    // One more round, in which the files are made.
    for round in 0..=ROUNDS {
        let events = events(round);
        let ours = deliver(sink.as_mut(), &events).await?;
        let files: Result<Vec<_>> = events.iter().map(file_of).collect();
        let files = files?;
        bytes = files.first().map_or(0, |(_, text)| text.len());
        let folder = bare.clone();
        // It blocks, as the sink does, on a thread for that.
        let floor = tokio::task::spawn_blocking(move || {
            let begin = Instant::now();
            for batch in files.chunks(BATCH) {
                for (path, text) in batch {
                    fs::write(folder.join(path), text)?;
                }
                git(&folder, &["add", "--all"])?;
                git(&folder, &["commit", "-q", "-m", "a batch"])?;
            }
            anyhow::Ok(rate(begin))
        });
        let floor = floor.await??;
        if round > 0 {
            rates[0].push(ours);
            rates[1].push(floor);
        }
        sleep(Duration::from_millis(100)).await;
    }
    let is = "the program git: files written, add, commit for each batch, alternating";
    let name = "git, a repository of this machine";
    tell(report, name, rates, is, bytes);
    Ok(())
}
