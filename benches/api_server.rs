//! API: the embedded API server beside a real kube-apiserver with etcd.
//!
//! The same client does the same to both over HTTPS, in alternating rounds: creates ConfigMaps,
//! lists 10,000 of them, and tells a change to 1,000 watches. The embedded server is asked in
//! process, too, as muster's own hub is. Where this machine has no kube-apiserver, that is said
//! and there is no baseline.
//!
//! The embedded server shares this process with the client and keeps objects in memory; the real
//! one is a process of its own, and its etcd does not wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use muster_apiserver::{ApiServer, Storage};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::support::figure::{Figure, Report};
use crate::support::machine::millis;
use crate::support::rounds::{Ratio, median};
use crate::support::size::sized;
use crate::support::{fixtures, servers, slow};
use crate::tests_support::{RealApiServer, Servers};

const ROUNDS: usize = sized(5, 2);
/// Objects created in a round, and how many requests are under way at a time.
const CREATED: usize = sized(400, 40);
const AT_A_TIME: usize = 16;
const LISTED: usize = sized(10_000, 200);
const WATCHES: usize = sized(1_000, 20);
/// How long all watches may take to see an event.
const WATCH_LIMIT: Duration = Duration::from_secs(20);

/// The goal for this bench: at least as good as the real server.
const LEAST_RATIO: f64 = 1.0;

/// A server under test.
struct Subject {
    client: Client,
    /// Whether slowness may be injected here.
    ours: bool,
    /// Namespaces made for rounds so far.
    namespaces: usize,
    /// Length of the list: the real server's objects carry managed fields, ours do not.
    list_bytes: usize,
    watched: Api<ConfigMap>,
    watches: Arc<Watches>,
}

/// How many watches still have to see the event of the round.
#[derive(Default)]
struct Watches {
    missing: AtomicUsize,
    all: Notify,
}

pub(crate) fn run() -> Result<()> {
    servers::block_on(async {
        let mut report = Report::start();
        let shared = Servers::new()?;
        let real = match shared.own_api_server().await {
            Ok(real) => Some(real),
            Err(error) if std::env::var("CI").as_deref() == Ok("true") => return Err(error),
            Err(error) => {
                eprintln!("no real kube-apiserver to compare with: {error:#}");
                None
            }
        };
        let measured = measure(&mut report, real.as_ref()).await;
        if let Some(real) = real {
            real.stop().await?;
        }
        shared.stop(false).await?;
        measured
    })
}

async fn measure(report: &mut Report, real: Option<&RealApiServer>) -> Result<()> {
    let server = ApiServer::builder()
        .storage(Storage::Memory)
        .build()
        .await?;
    let serving = servers::serve(&server).await?;
    // In process and over HTTPS it is the same server: one list for both.
    let ours = servers::client(serving.kubeconfig()).await?;
    fill(&ours).await?;
    let mut subjects = vec![
        Subject::new(ours, "https", true).await?,
        Subject::new(server.client(), "in-process", true).await?,
    ];
    if let Some(real) = real {
        let client = real.cluster().client();
        fill(&client).await?;
        subjects.push(Subject::new(client, "https", false).await?);
    }
    let peer = match real {
        Some(real) => {
            real.cluster()
                .client()
                .apiserver_version()
                .await?
                .git_version
        }
        None => String::new(),
    };
    let peer = format!("kube-apiserver {peer} with etcd (no fsync) over HTTPS, same run");
    let mut created = vec![Vec::new(); subjects.len()];
    let mut listed = vec![Vec::new(); subjects.len()];
    let mut told = vec![Vec::new(); subjects.len()];
    for round in 0..ROUNDS {
        for (index, subject) in subjects.iter_mut().enumerate() {
            created[index].push(subject.create().await?);
            listed[index].push(subject.list().await?);
            told[index].push(subject.tell_watches(round).await?);
        }
    }
    let of_create = json!({"objects": CREATED, "at_a_time": AT_A_TIME});
    let bytes: Vec<usize> = subjects.iter().map(|subject| subject.list_bytes).collect();
    let of_list = json!({"objects": LISTED, "bytes": bytes});
    let of_change = json!({"watches": WATCHES});
    for (figure, unit, rounds, params) in [
        ("creates", "objects/s", &created, of_create),
        (&format!("list of {LISTED} objects"), "ms", &listed, of_list),
        (
            &format!("a change to the last of {WATCHES} watches"),
            "ms",
            &told,
            of_change,
        ),
    ] {
        let more_is_better = unit == "objects/s";
        for (index, transport) in ["over HTTPS", "in process"].into_iter().enumerate() {
            let ours = &rounds[index];
            let mut line = Figure::new("API", format!("{figure}, {transport}"), median(ours), unit);
            if let Some(theirs) = rounds.get(2) {
                let ratio = if more_is_better {
                    Ratio::of(ours, theirs)
                } else {
                    Ratio::of(theirs, ours)
                };
                line = line.in_rounds(median(theirs), &*peer, ratio);
                // In process there is no peer: the real server has no such way.
                if index == 0 {
                    line = line.met_in_full(ratio.median >= LEAST_RATIO);
                }
            }
            report.add(
                line.params(params.clone())
                    .params(json!({"rounds": ROUNDS, "storage": "memory"})),
            );
        }
    }
    Ok(())
}

async fn make_namespace(client: &Client, name: &str) -> Result<Api<ConfigMap>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(Api::namespaced(client.clone(), name))
}

async fn create(api: &Api<ConfigMap>, count: usize, at_a_time: usize, ours: bool) -> Result<()> {
    let name = |number| format!("cm-{number:05}");
    let namespace = api.namespace().unwrap_or_default();
    let object = |number| serde_json::from_value(fixtures::config_map(&name(number), namespace));
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(at_a_time, async |number| {
            if ours {
                slow::spin(Duration::from_millis(10));
            }
            api.create(&PostParams::default(), &object(number)?).await?;
            anyhow::Ok(())
        })
        .await
}

/// Creates what is listed.
async fn fill(client: &Client) -> Result<()> {
    create(
        &make_namespace(client, "listed").await?,
        LISTED,
        2 * AT_A_TIME,
        false,
    )
    .await
}

impl Subject {
    async fn new(client: Client, name: &str, ours: bool) -> Result<Self> {
        let watched = make_namespace(&client, &format!("watched-{name}")).await?;
        create(&watched, 1, 1, false).await?;
        let subject = Self {
            client,
            ours,
            namespaces: 0,
            list_bytes: 0,
            watched,
            watches: Arc::default(),
        };
        subject.open_watches().await?;
        Ok(subject)
    }

    /// Objects a second.
    #[allow(clippy::cast_precision_loss, reason = "a few hundred objects")]
    async fn create(&mut self) -> Result<f64> {
        self.namespaces += 1;
        let namespace = self.watched.namespace().unwrap_or_default();
        let name = format!("{namespace}-{}", self.namespaces);
        let api = make_namespace(&self.client, &name).await?;
        let begin = Instant::now();
        create(&api, CREATED, AT_A_TIME, self.ours).await?;
        Ok(CREATED as f64 / begin.elapsed().as_secs_f64())
    }

    /// Milliseconds until the last byte of the list is there. Not decoded, which would cost the
    /// same on both sides.
    async fn list(&mut self) -> Result<f64> {
        let request = kube::core::Request::new("/api/v1/namespaces/listed/configmaps")
            .list(&ListParams::default())?;
        let begin = Instant::now();
        if self.ours {
            slow::spin(Duration::from_secs(1));
        }
        let list = self.client.request_text(request).await?;
        let took = millis(begin.elapsed());
        self.list_bytes = list.len();
        let objects = list.matches(r#""application.properties":""#).count();
        ensure!(
            objects == LISTED,
            "the list has {objects} objects instead of {LISTED}"
        );
        Ok(took)
    }

    async fn open_watches(&self) -> Result<()> {
        let list = self.watched.list(&ListParams::default()).await?;
        let version = list
            .metadata
            .resource_version
            .context("a list has a version")?;
        let open = stream::iter(0..WATCHES).map(|_| async {
            let params = WatchParams::default().timeout(290);
            anyhow::Ok(self.watched.watch(&params, &version).await?.boxed())
        });
        let streams: Vec<_> = open.buffered(AT_A_TIME).try_collect().await?;
        for mut events in streams {
            let watches = Arc::clone(&self.watches);
            tokio::spawn(async move {
                while let Some(Ok(event)) = events.next().await {
                    if matches!(event, WatchEvent::Modified(_))
                        && watches.missing.fetch_sub(1, Ordering::AcqRel) == 1
                    {
                        watches.all.notify_one();
                    }
                }
            });
        }
        Ok(())
    }

    /// Milliseconds from a change to its arrival at the last watch.
    async fn tell_watches(&self, round: usize) -> Result<f64> {
        self.watches.missing.store(WATCHES, Ordering::Release);
        let patch = Patch::Merge(json!({"data": {"round": round.to_string()}}));
        let begin = Instant::now();
        if self.ours {
            slow::spin(Duration::from_secs(1));
        }
        self.watched
            .patch("cm-00000", &PatchParams::default(), &patch)
            .await?;
        if timeout(WATCH_LIMIT, self.watches.all.notified())
            .await
            .is_err()
        {
            let missing = self.watches.missing.load(Ordering::Acquire);
            bail!("{missing} of {WATCHES} watches did not see the change within {WATCH_LIMIT:?}");
        }
        Ok(millis(begin.elapsed()))
    }
}
