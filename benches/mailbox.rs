//! P4: the mailbox hop that every event takes, beside the channels it is built on.
//!
//! Subject: a supervised actor that does nothing is asked and answers. Baseline, in the same
//! rounds: a task with a bounded `tokio` channel is asked through it and answers through a oneshot
//! channel. Once with both ends on one thread, once from a worker thread, which is how results of
//! requests come to an actor.

use std::future::Future;

use actix::{Actor, Addr, Context, Handler, Message, MessageResult, Supervised};
use anyhow::Result;
use muster_actors::supervision::{Io, Registry, Snapshot};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::support::figure::{Figure, Report};
use crate::support::rounds::{Ratio, median};
use crate::support::size::sized;
use crate::support::{machine, servers};

const ROUNDS: usize = sized(11, 2);
const TRIPS: u64 = 10_000;
/// actix's own default for a mailbox.
const CAPACITY: usize = 16;

/// Asks for the number that follows.
#[derive(Debug, Message)]
#[rtype(result = "u64")]
struct Next(u64);

#[derive(Debug)]
struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

impl Supervised for Idle {}

impl Handler<Next> for Idle {
    type Result = u64;

    fn handle(&mut self, Next(number): Next, _: &mut Self::Context) -> u64 {
        number + 1
    }
}

impl Handler<Snapshot> for Idle {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        Snapshot::of(&())
    }
}

/// The bare counterpart of [`Idle`].
type Bare = mpsc::Sender<(u64, oneshot::Sender<u64>)>;

fn bare() -> Bare {
    let (sender, mut receiver) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(CAPACITY);
    actix::spawn(async move {
        while let Some((number, answer)) = receiver.recv().await {
            // Nobody waits any more when the bench ends.
            let _ = answer.send(number + 1);
        }
    });
    sender
}

async fn ask_actor(actor: Addr<Idle>) -> Result<f64> {
    let begin = Instant::now();
    let mut number = 0;
    while number < TRIPS {
        number = actor.send(Next(number)).await?;
    }
    Ok(nanos_each(begin))
}

async fn ask_bare(bare: Bare) -> Result<f64> {
    let begin = Instant::now();
    let mut number = 0;
    while number < TRIPS {
        let (sender, receiver) = oneshot::channel();
        bare.send((number, sender)).await?;
        number = receiver.await?;
    }
    Ok(nanos_each(begin))
}

#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
fn nanos_each(begin: Instant) -> f64 {
    machine::micros(begin.elapsed()) * 1e3 / TRIPS as f64
}

pub(crate) fn run() -> Result<()> {
    servers::block_on(measure())
}

async fn measure() -> Result<()> {
    let mut report = Report::start();
    let actor = Registry::new().start("Idle", "bench", Idle);
    let bare = bare();
    let same_thread = rounds(|| ask_actor(actor.clone()), || ask_bare(bare.clone())).await?;
    let io = Io::current();
    let from_worker = rounds(
        || {
            let work = io.run(ask_actor(actor.clone()));
            async { work.await? }
        },
        || {
            let work = io.run(ask_bare(bare.clone()));
            async { work.await? }
        },
    )
    .await?;
    for (place, (actor, bare)) in [
        ("on one thread", same_thread),
        ("from a worker thread", from_worker),
    ] {
        report.add(
            Figure::new(
                "P4",
                format!("mailbox round trip {place} (part)"),
                median(&actor),
                "ns",
            )
            .in_rounds(
                median(&bare),
                "tokio mpsc and oneshot channels, same run",
                Ratio::of(&bare, &actor),
            )
            .params(json!({"round_trips": TRIPS, "capacity": CAPACITY})),
        );
    }
    Ok(())
}

async fn rounds<A, B>(actor: impl Fn() -> A, bare: impl Fn() -> B) -> Result<(Vec<f64>, Vec<f64>)>
where
    A: Future<Output = Result<f64>>,
    B: Future<Output = Result<f64>>,
{
    let (mut of_actor, mut of_bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_actor.push(actor().await?);
        of_bare.push(bare().await?);
    }
    Ok((of_actor, of_bare))
}
