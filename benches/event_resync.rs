//! P10: how long it takes until a hub and an agent with 10,000 works agree after their broker was away.
//!
//! Hub and agent are processes of their own, each with its API server; muster's own broker, which is
//! stopped and started again, is in this one. What the agent does with a work is to write its status.
//! The time is from the later of the two subscriptions until the last message has been dealt with and
//! every work has the status of its generation in the hub's API. Three cases: nothing has changed, nor
//! been said for a minute;
//! 1 % of the specs changed while the broker was away; the agent starts with nothing. Beside it, after
//! each: as many bare MQTT messages of the same bytes, one way after the other, through the same broker
//! and driver.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use muster_broker::Broker;
use muster_cloudevents::Message;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::bare_mqtt::Bare;
use crate::support::event_side::{EventSide, State};
use crate::support::events::{Traffic, broker};
use crate::support::figure::{Figure, Report};
use crate::support::rounds::{Ratio, median};
use crate::support::servers;
use crate::support::size::{lasting, sized};

const WORKS: usize = sized(10_000, 200);
const CHANGED: usize = WORKS / 100;
const ROUNDS: usize = sized(3, 1);
/// Both sides say again what they have said within the minute before. Where nothing has changed,
/// nothing was said.
const SILENCE: Duration = lasting(61_000, 1_000);
/// Rounds in which the agent starts with nothing.
const EMPTY_ROUNDS: usize = sized(3, 1);
const LIMIT: Duration = Duration::from_secs(900);
/// How long one convergence may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long nothing may happen until it counts as the end.
const CALM: Duration = Duration::from_millis(300);
/// The goals: ms when nothing has changed, and memory of either side beside that of before.
const MOST_UNCHANGED_MILLIS: f64 = 50.0;
const MOST_MEMORY: f64 = 2.0;
/// What sdk-go takes for so many statuses: it sends 50 a second after the first 100.
#[allow(clippy::cast_precision_loss, reason = "10,000")]
const OCM_MILLIS: f64 = (WORKS - 100) as f64 / 50.0 * 1e3;

/// Both sides and what is between them.
struct Pair {
    broker: Option<Broker>,
    address: String,
    port: u16,
    hub: EventSide,
    agent: EventSide,
}

/// What both sides say at one time.
#[derive(Clone, Copy)]
struct Both {
    hub: State,
    agent: State,
}

/// One convergence.
struct Converged {
    millis: f64,
    /// From the start of the broker on.
    since_broker_millis: f64,
    bare_millis: f64,
    before: Both,
    after: Both,
}

#[allow(clippy::cast_precision_loss, reason = "no bench takes a month")]
fn millis_between(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

impl Pair {
    async fn start() -> Result<Self> {
        let broker = broker(0).await?;
        let address = broker.address().to_string();
        Ok(Self {
            port: broker.address().port(),
            broker: Some(broker),
            hub: EventSide::start(&["hub", &address, &WORKS.to_string()])?,
            agent: EventSide::start(&["agent", &address])?,
            address,
        })
    }

    async fn tell(&mut self, command: &str) -> Result<Both> {
        Ok(Both {
            hub: self.hub.tell(command).await?,
            agent: self.agent.tell(command).await?,
        })
    }

    /// Waits until both agree, the hub in this session and the agent in that, and nothing happens.
    async fn agree(&mut self, hub: u64, agent: u64) -> Result<Both> {
        let begin = Instant::now();
        let mut last: Option<(Both, Instant)> = None;
        loop {
            let now = self.tell("state").await?;
            let settled = |state: &State, sessions| {
                let traffic = state.traffic;
                traffic.sessions == sessions
                    && traffic.received == traffic.handled
                    && state.waiting == 0
                    && state.done == WORKS
            };
            let agree = settled(&now.hub, hub) && settled(&now.agent, agent);
            let at = |both: &Both| {
                let (hub, agent) = (both.hub.traffic, both.agent.traffic);
                hub.last_nanos.max(agent.last_nanos)
            };
            match last {
                Some((before, since)) if agree && at(&before) == at(&now) => {
                    if since.elapsed() >= CALM {
                        return Ok(now);
                    }
                }
                _ if agree => last = Some((now, Instant::now())),
                _ => last = None,
            }
            ensure!(
                begin.elapsed() < PATIENCE,
                "no agreement within {PATIENCE:?}: the hub has {} of {WORKS} statuses, the agent {}, \
                 {} and {} wait",
                now.hub.done,
                now.agent.done,
                now.hub.waiting,
                now.agent.waiting
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop_broker(&mut self) -> Result<()> {
        let broker = self.broker.take().context("the broker runs")?;
        broker.stop().await;
        Ok(())
    }

    /// Stops the broker, has `meanwhile` done, and starts it again.
    async fn outage(&mut self, meanwhile: Meanwhile) -> Result<Converged> {
        let mut before = self.tell("forget").await?;
        self.stop_broker().await?;
        if let Meanwhile::Changes = meanwhile {
            self.hub.tell(&format!("change {CHANGED}")).await?;
        }
        let started = Instant::now();
        self.broker = Some(broker(self.port).await?);
        if let Meanwhile::NewAgent = meanwhile {
            // Not before the hub is there: nobody else hears what it asks for.
            let joined = before.hub.traffic.sessions + 1;
            while self.hub.tell("state").await?.traffic.sessions < joined {
                sleep(Duration::from_millis(20)).await;
            }
            let agent = EventSide::start(&["agent", &self.address])?;
            // The other ends with its process.
            drop(std::mem::replace(&mut self.agent, agent));
            before.agent.traffic = Traffic::default();
        }
        let sessions = [before.hub, before.agent].map(|side| side.traffic.sessions + 1);
        let after = self.agree(sessions[0], sessions[1]).await?;
        let since_broker_millis = started.elapsed().as_secs_f64() * 1e3;
        let (hub, agent) = (after.hub.traffic, after.agent.traffic);
        let subscribed = hub.subscribed_nanos.max(agent.subscribed_nanos);
        let last = hub.last_nanos.max(agent.last_nanos);
        Ok(Converged {
            millis: millis_between(subscribed, last),
            since_broker_millis,
            bare_millis: self.bare(before, after).await?,
            before,
            after,
        })
    }

    /// Sends as much as both sides did.
    async fn bare(&self, before: Both, after: Both) -> Result<f64> {
        let bare = Bare::start(&self.address, 1).await?;
        let mut millis = 0.0;
        for (before, after) in [(before.hub, after.hub), (before.agent, after.agent)] {
            let (count, bytes) = sent(&before, &after);
            if let Some(bytes) = bytes.checked_div(count) {
                let message = Message {
                    payload: Bytes::from(vec![b'x'; usize::try_from(bytes)?]),
                    ..Message::default()
                };
                millis += bare.send(&message, usize::try_from(count)?).await? * 1e3;
            }
        }
        Ok(millis)
    }
}

#[derive(Clone, Copy)]
enum Meanwhile {
    Nothing,
    Changes,
    NewAgent,
}

/// Messages and bytes that a side has sent meanwhile.
fn sent(before: &State, after: &State) -> (u64, u64) {
    let (before, after) = (before.traffic, after.traffic);
    (
        after.sent - before.sent,
        after.sent_bytes - before.sent_bytes,
    )
}

pub(crate) fn run() -> Result<()> {
    servers::block_on_for(LIMIT, async {
        let mut report = Report::start();
        let mut pair = Pair::start().await?;
        pair.agree(1, 1).await?;
        let (mut unchanged, mut changed, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            sleep(SILENCE).await;
            unchanged.push(pair.outage(Meanwhile::Nothing).await?);
            changed.push(pair.outage(Meanwhile::Changes).await?);
        }
        tell(&mut report, "nothing changed", &unchanged, true);
        tell(&mut report, "1 % of the specs changed", &changed, false);
        for _ in 0..EMPTY_ROUNDS {
            empty.push(pair.outage(Meanwhile::NewAgent).await?);
        }
        tell(&mut report, "the agent has nothing", &empty, false);
        unchanged.extend(changed);
        unchanged.extend(empty);
        tell_memory(&mut report, &unchanged);
        Ok(())
    })
}

#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
fn tell(report: &mut Report, case: &str, rounds: &[Converged], goal: bool) {
    let of = |value: fn(&Converged) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let (ours, bare) = (of(|it| it.millis), of(|it| it.bare_millis));
    let by_hub = |it: &Converged| sent(&it.before.hub, &it.after.hub);
    let by_agent = |it: &Converged| sent(&it.before.agent, &it.after.agent);
    let sent = |side: &dyn Fn(&Converged) -> (u64, u64)| {
        let messages: Vec<f64> = rounds.iter().map(|it| side(it).0 as f64).collect();
        let bytes: Vec<f64> = rounds.iter().map(|it| side(it).1 as f64).collect();
        json!({"messages": median(&messages), "bytes": median(&bytes)})
    };
    let params = json!({"works": WORKS, "sent_by_hub": sent(&by_hub),
        "sent_by_agent": sent(&by_agent), "ms_of_rounds": ours,
        "ms_from_broker_start": median(&of(|it| it.since_broker_millis))});
    let name = format!("resync of {WORKS} works, {case}");
    let mut figure = Figure::new("P10", &*name, median(&ours), "ms").in_rounds(
        median(&bare),
        "as many bare MQTT messages of the same bytes, same broker and driver, after each",
        Ratio::of(&bare, &ours),
    );
    if goal {
        figure = figure.met_in_full(median(&ours) <= MOST_UNCHANGED_MILLIS);
    }
    report.add(figure.params(params.clone()));
    report.add(
        Figure::new("P10", format!("{name}, beside OCM"), median(&ours), "ms")
            .below(
                OCM_MILLIS,
                "sdk-go at its limit of 50 events/s, one each work, computed",
            )
            .params(params),
    );
    for (side, sent) in [("hub", &by_hub as &dyn Fn(&_) -> _), ("agent", &by_agent)] {
        let bytes: Vec<f64> = rounds.iter().map(|it| sent(it).1 as f64).collect();
        let name = format!("bytes that the {side} sends, {case}");
        // 2,497 and 2,337 bytes a work, without what MQTT adds in front.
        let all = WORKS as f64 * if side == "hub" { 2_497.0 } else { 2_337.0 };
        report.add(
            Figure::new("P10", name, median(&bytes) / 1e3, "KB")
                .below(
                    all / 1e3,
                    "each work once as sdk-go sends it, recorded packets",
                )
                .params(json!({"works": WORKS})),
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
fn tell_memory(report: &mut Report, rounds: &[Converged]) {
    const KIB_IN_MIB: f64 = 1024.0;
    for (side, of) in [
        ("hub", (|both| both.hub) as fn(&Both) -> State),
        ("agent", |both| both.agent),
    ] {
        let greatest = |value: &dyn Fn(&Converged) -> u64| {
            rounds.iter().map(value).max().unwrap_or_default() as f64 / KIB_IN_MIB
        };
        let peak = greatest(&|it| of(&it.after).peak_kib);
        let steady: Vec<f64> = rounds
            .iter()
            .map(|it| of(&it.before).resident_kib as f64 / KIB_IN_MIB)
            .collect();
        let steady = median(&steady);
        let name = format!("peak memory of the {side} over all resyncs of {WORKS} works");
        report.add(
            Figure::new("P10", name, peak, "MiB")
                .below(steady, "its resident memory before, median")
                .met_in_full(peak <= MOST_MEMORY * steady)
                .params(json!({"works": WORKS, "allocator": "system"})),
        );
    }
}
