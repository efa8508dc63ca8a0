//! P5 (part): how many works a second get from one source to 100 agents over a broker.
//!
//! All works of the source change at once. It sends their specs as events; each agent decodes its own
//! and takes them into a store that only remembers versions; it is over when the broker has
//! acknowledged all, and all have been taken. Beside it, in alternating rounds through the same broker
//! and driver: bare MQTT messages with QoS 1 and of the same bytes, from one publisher to 100 listeners
//! that throw them away.
//!
//! Muster's own broker shares the process with both ends. mosquitto is a process of its own; it logs
//! every message, for either side.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster_api::work::ManifestWork;
use muster_cloudevents::bus::Bus;
use muster_cloudevents::client::{
    AgentClient, AgentStore, ClientOptions, ConnectionState, Held, Known, SourceClient,
    SourceStore, Subscription, Taken, TakenStatus,
};
use muster_cloudevents::protocol::StatusMark;
use muster_cloudevents::resync::{Resource, StatusHashes};
use muster_cloudevents::work::WorkCodec;
use muster_cloudevents::{Action, Agent, Message, Source};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::support::bare_mqtt::Bare;
use crate::support::events::{CODEC, SOURCE, agent_of, broker, bytes_of, dialect, mqtt};
use crate::support::figure::{Figure, Report};
use crate::support::rounds::{Ratio, median};
use crate::support::size::sized;
use crate::support::{fixtures, machine, servers, slow};
use crate::tests_support::{MosquittoConf, Servers};

const ROUNDS: usize = sized(7, 2);
const AGENTS: usize = sized(100, 10);
const WORKS_EACH: usize = sized(20, 4);
const WORKS: usize = AGENTS * WORKS_EACH;
const PATIENCE: Duration = Duration::from_secs(30);
/// The goal: at least this part of what the broker does bare.
const LEAST_RATIO: f64 = 0.7;

/// The works of the source, which nobody but the bench changes.
struct Works(Mutex<HashMap<String, Arc<ManifestWork>>>);

impl Works {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ManifestWork>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All go to this version.
    fn change(&self, version: i64) {
        for work in self.lock().values_mut() {
            Arc::make_mut(work).metadata.generation = Some(version);
        }
    }
}

fn known(work: &ManifestWork) -> Known {
    Known {
        uid: work.uid().to_owned(),
        cluster: work.metadata.namespace.clone().unwrap_or_default(),
        version: work.version(),
        deleting: false,
        last_sequence_id: None,
    }
}

impl SourceStore for Works {
    type Resource = ManifestWork;

    fn known(&self, cluster: &str) -> Vec<Known> {
        let works = self.lock();
        let known = works.values().map(|work| known(work));
        known.filter(|known| known.cluster == cluster).collect()
    }

    fn find(&self, uid: &str) -> Option<Known> {
        self.lock().get(uid).map(|work| known(work))
    }

    async fn get(&self, uid: &str) -> Result<Option<Arc<ManifestWork>>, String> {
        slow::spin(Duration::from_millis(1));
        Ok(self.lock().get(uid).cloned())
    }

    fn clusters(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn status_hashes(&self, _: &str) -> StatusHashes {
        StatusHashes::default()
    }

    async fn take_status(&self, _: ManifestWork, _: StatusMark) -> Result<TakenStatus, String> {
        Ok(TakenStatus::Kept)
    }
}

/// What the agents of a round still have to take.
#[derive(Default)]
struct Missing {
    count: AtomicUsize,
    none: Notify,
}

/// An agent's store: versions by uid.
struct Versions {
    taken: Mutex<HashMap<String, i64>>,
    missing: Arc<Missing>,
}

impl Versions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn held(uid: &str, version: i64) -> Held {
    Held {
        uid: uid.to_owned(),
        source: SOURCE.to_owned(),
        version,
        deleting: false,
    }
}

impl AgentStore for Versions {
    type Resource = ManifestWork;

    fn held(&self) -> Vec<Held> {
        let taken = self.lock();
        taken
            .iter()
            .map(|(uid, version)| held(uid, *version))
            .collect()
    }

    fn find(&self, uid: &str) -> Option<Held> {
        self.lock().get(uid).map(|version| held(uid, *version))
    }

    async fn get(&self, _: &str) -> Result<Option<Arc<ManifestWork>>, String> {
        Ok(None)
    }

    fn status_hash(&self, _: &str) -> String {
        String::new()
    }

    async fn take(&self, work: ManifestWork) -> Result<Taken, String> {
        let version = work.version();
        let before = self.lock().insert(work.uid().to_owned(), version);
        let is_news = before != Some(version);
        if is_news && self.missing.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.missing.none.notify_one();
        }
        Ok(Taken::Kept)
    }
}

/// A source and its agents at a broker.
struct Fleet {
    works: Arc<Works>,
    source: SourceClient<WorkCodec, Works>,
    missing: Arc<Missing>,
    version: i64,
    _subscriptions: Vec<Subscription>,
}

fn cluster(index: usize) -> String {
    format!("c{index}")
}

async fn subscribed(mut state: watch::Receiver<ConnectionState>) -> Result<()> {
    let subscribed = state.wait_for(|state| *state == ConnectionState::Subscribed);
    tokio::time::timeout(PATIENCE, subscribed)
        .await
        .context("a client does not get to the broker")??;
    Ok(())
}

impl Fleet {
    async fn start(broker: &str) -> Result<Self> {
        let missing = Arc::new(Missing::default());
        let options = ClientOptions::default();
        let mut subscriptions = Vec::new();
        let mut works = HashMap::new();
        for agent in 0..AGENTS {
            let (cluster, id) = (cluster(agent), agent_of(&cluster(agent)));
            for number in 0..WORKS_EACH {
                let uid = muster_cloudevents::work::uid(SOURCE, &cluster, &number.to_string());
                let name = format!("web-{number}");
                let work = fixtures::event_work(&uid, &name, &cluster)?;
                works.insert(uid, Arc::new(work));
            }
            let store = Versions {
                taken: Mutex::default(),
                missing: Arc::clone(&missing),
            };
            let bus = mqtt(broker, &id)?;
            let agent = Agent::new(id, cluster, dialect(), CODEC)?;
            let client = AgentClient::new(agent, Arc::new(store), options);
            subscriptions.push(client.subscribe(&bus as &dyn Bus));
            subscribed(client.state()).await?;
        }
        let works = Arc::new(Works(Mutex::new(works)));
        let source = Source::new(SOURCE, dialect(), CODEC)?;
        let source = SourceClient::new(source, Arc::clone(&works), options);
        subscriptions.push(source.subscribe(&mqtt(broker, "hub-source")?));
        subscribed(source.state()).await?;
        let mut fleet = Self {
            works,
            source,
            missing,
            version: 1,
            _subscriptions: subscriptions,
        };
        // Once around, so that all is warm and nothing of the beginning is under way any more.
        fleet.round().await?;
        Ok(fleet)
    }

    /// Changes all works; seconds until they have arrived.
    async fn round(&mut self) -> Result<f64> {
        self.version += 1;
        self.works.change(self.version);
        self.missing.count.store(WORKS, Ordering::SeqCst);
        let uids: Vec<String> = self.works.lock().keys().cloned().collect();
        let begin = Instant::now();
        for uid in &uids {
            self.source.changed(uid);
        }
        let arrived = async {
            self.missing.none.notified().await;
            // Broker and agents may be quicker than the acknowledgements.
            while self.source.waiting() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, arrived)
            .await
            .with_context(|| {
                let missing = self.missing.count.load(Ordering::SeqCst);
                format!("{missing} of {WORKS} works did not arrive within {PATIENCE:?}")
            })?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// One of its messages.
    fn message(&self) -> Result<(Message, usize)> {
        let source = Source::new(SOURCE, dialect(), CODEC)?;
        let works = self.works.lock();
        let work = works.values().next().context("there are works")?;
        let outgoing = source.send(Action::UpdateRequest, work)?;
        let bytes = bytes_of(&outgoing.topic, &outgoing.message);
        Ok((outgoing.message, bytes))
    }
}

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        let embedded = broker(0).await?;
        let address = embedded.address().to_string();
        measure(&mut report, "muster's broker", &address).await?;
        embedded.stop().await;
        let shared = Servers::new()?;
        match shared.mosquitto(MosquittoConf::default()).await {
            Ok(mosquitto) => {
                let measured = measure(&mut report, "mosquitto", &mosquitto.address()).await;
                mosquitto.stop().await?;
                measured?;
            }
            Err(error) if std::env::var("CI").as_deref() == Ok("true") => return Err(error),
            Err(error) => eprintln!("no mosquitto to go through: {error:#}"),
        }
        shared.stop(false).await?;
        Ok(())
    })
}

#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
async fn measure(report: &mut Report, name: &str, broker: &str) -> Result<()> {
    let mut fleet = Fleet::start(broker).await?;
    let bare = Bare::start(broker, AGENTS).await?;
    let (message, bytes) = fleet.message()?;
    ensure!(
        bare.send(&message, WORKS).await? > 0.0,
        "a round takes no time"
    );
    let rate = |seconds: f64| WORKS as f64 / seconds;
    let (mut works, mut messages) = (Vec::new(), Vec::new());
    let mut cpu = Vec::new();
    for _ in 0..ROUNDS {
        let before = machine::process_cpu();
        works.push(rate(fleet.round().await?));
        let spent = machine::process_cpu().saturating_sub(before);
        cpu.push(machine::micros(spent) / WORKS as f64);
        messages.push(rate(bare.send(&message, WORKS).await?));
    }
    let ratio = Ratio::of(&works, &messages);
    let what = format!("works to {AGENTS} agents over {name} (part)");
    let figure = Figure::new("P5", what, median(&works), "works/s");
    let figure = figure.in_rounds(
        median(&messages),
        "bare MQTT messages of the same bytes, same broker and driver, alternating",
        ratio,
    );
    report.add(
        figure
            .met_in_full(ratio.median >= LEAST_RATIO)
            .params(json!({
                "agents": AGENTS, "works_each": WORKS_EACH, "message_bytes": bytes, "qos": 1,
                "cpu_us_each_in_this_process": median(&cpu),
            })),
    );
    Ok(())
}
