//! P6: what it costs to put a work into an event, and to take it out.
//!
//! A pure library bench. Subject: `Source` and `Agent` make MQTT messages of a work with one
//! Deployment, and read them, with topic, attributes, extensions, hash and data; packets are not part
//! of it. Peer: sdk-go's codec, as recorded. Floor, in the same rounds: `serde_json` alone, with the
//! data of the event as a `Value`.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster_api::work::ManifestWork;
use muster_cloudevents::{Action, Agent, Message, Outgoing, Source, ToAgent, ToSource};
use serde_json::{Value, json};

use crate::support::events::{CODEC, SOURCE, agent_of, bytes_of, dialect};
use crate::support::figure::{Figure, Report};
use crate::support::fixtures;
use crate::support::machine::{Calibration, cpu_each};
use crate::support::rounds::{Ratio, median};
use crate::support::size::sized;
use crate::support::slow;

const ROUNDS: usize = sized(15, 2);
const TIMES: usize = sized(1_000, 100);
const NS_PER_US: f64 = 1_000.0;
const CLUSTER: &str = "edge-a";
const UID: &str = "feff1176-ace6-586b-a395-3f189c8ed350";

/// One of the four ways of a work.
struct Way {
    name: &'static str,
    /// sdk-go's CPU time in µs.
    peer: f64,
    /// The goal: at most so many µs, and at least so many times less than the peer.
    goal: Option<(f64, f64)>,
    floor_is: &'static str,
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Way {
    fn new(name: &'static str, peer: f64, goal: Option<(f64, f64)>, decodes: bool) -> Self {
        let floor_is = if decodes {
            "serde_json decoding its data into a Value, same rounds"
        } else {
            "serde_json encoding its data from a Value, same rounds"
        };
        Self {
            name,
            peer,
            goal,
            floor_is,
            ours: Vec::new(),
            floor: Vec::new(),
        }
    }

    fn tell(&self, report: &mut Report, calibration: Calibration, params: &Value) {
        let ours = median(&self.ours);
        let peer = calibration.scaled(self.peer);
        let name = format!("{} of a work's event", self.name);
        let mut figure = Figure::new("P6", &*name, ours * NS_PER_US, "ns")
            .below(
                peer * NS_PER_US,
                "sdk-go's codec, recorded, scaled by calibration",
            )
            .params(params.clone())
            .params(calibration.params());
        if let Some((most, least_ratio)) = self.goal {
            figure = figure.met(ours <= most && peer / ours >= least_ratio);
        }
        report.add(figure);
        let ratio = Ratio::of(&self.floor, &self.ours);
        report.add(
            Figure::new(
                "P6",
                format!("{name}, beside plain JSON"),
                ours * NS_PER_US,
                "ns",
            )
            .in_rounds(median(&self.floor) * NS_PER_US, self.floor_is, ratio)
            .params(params.clone()),
        );
    }
}

/// The known slowness: more than sdk-go takes.
const SLOWNESS: Duration = Duration::from_micros(200);

fn encode_each(mut encode: impl FnMut() -> Result<Outgoing>) -> Result<f64> {
    let mut failed = None;
    let each = cpu_each(TIMES, || {
        slow::spin(SLOWNESS);
        match encode() {
            Ok(outgoing) => drop(black_box(outgoing)),
            Err(error) => failed = Some(error),
        }
    });
    failed.map_or(Ok(each), Err)
}

/// Reads messages that are there already: whoever gets one does not copy it.
fn decode_each(outgoing: &Outgoing, mut decode: impl FnMut(&str, Message) -> bool) -> Result<f64> {
    let messages = vec![outgoing.message.clone(); TIMES];
    let mut messages = messages.into_iter();
    let mut read = 0;
    let each = cpu_each(TIMES, || {
        slow::spin(SLOWNESS);
        if let Some(message) = messages.next() {
            read += usize::from(decode(&outgoing.topic, message));
        }
    });
    ensure!(read == TIMES, "{read} of {TIMES} messages read");
    Ok(each)
}

fn floor_each(data: &[u8]) -> Result<[f64; 2]> {
    let value: Value = serde_json::from_slice(data)?;
    let encode = cpu_each(TIMES, || {
        drop(black_box(serde_json::to_vec(black_box(&value))));
    });
    let decode = cpu_each(TIMES, || {
        drop(black_box(serde_json::from_slice::<Value>(black_box(data))));
    });
    Ok([encode, decode])
}

pub(crate) fn run() -> Result<()> {
    let mut report = Report::start();
    let calibration = Calibration::measure();
    let source = Source::new(SOURCE, dialect(), CODEC)?;
    let agent = Agent::new(agent_of(CLUSTER), CLUSTER, dialect(), CODEC)?;
    let work = fixtures::event_work(UID, "web", CLUSTER)?;
    let spec = source.send(Action::UpdateRequest, &work)?;
    let there = match agent.receive(&spec.topic, spec.message.clone())? {
        ToAgent::Spec(there) => ManifestWork {
            status: work.status.clone(),
            ..*there
        },
        other @ (ToAgent::Asked { .. } | ToAgent::Presence(_)) => {
            anyhow::bail!("an agent reads {other:?}")
        }
    };
    let status_of = |work: &ManifestWork| {
        let sequence_id = agent.next_sequence_id();
        agent.send(Action::UpdateRequest, &sequence_id, work)
    };
    let status = status_of(&there)?;
    let ToSource::Status { resource, .. } =
        source.receive(&status.topic, status.message.clone())?
    else {
        anyhow::bail!("a source does not read a status");
    };
    ensure!(
        there.spec == work.spec && resource.status == work.status && work.status.is_some(),
        "a work comes out other than it went in"
    );

    let mut ways = [
        Way::new("encoding the spec", 11.3, None, false),
        Way::new("decoding the spec", 46.3, Some((1.8, 25.0)), true),
        Way::new("encoding the status", 115.6, Some((3.0, 38.0)), false),
        Way::new("decoding the status", 21.3, Some((2.2, 9.0)), true),
    ];
    for _ in 0..ROUNDS {
        let [spec_encode, spec_decode] = floor_each(&spec.message.payload)?;
        let [status_encode, status_decode] = floor_each(&status.message.payload)?;
        let floors = [spec_encode, spec_decode, status_encode, status_decode];
        let ours = [
            encode_each(|| Ok(source.send(Action::UpdateRequest, black_box(&work))?))?,
            decode_each(&spec, |topic, message| {
                matches!(
                    black_box(agent.receive(topic, message)),
                    Ok(ToAgent::Spec(_))
                )
            })?,
            encode_each(|| Ok(status_of(black_box(&there))?))?,
            decode_each(&status, |topic, message| {
                let read = black_box(source.receive(topic, message));
                matches!(read, Ok(ToSource::Status { .. }))
            })?,
        ];
        for (way, (ours, floor)) in ways.iter_mut().zip(ours.into_iter().zip(floors)) {
            way.ours.push(ours);
            way.floor.push(floor);
        }
    }
    let manifest = work.spec.workload.manifests.first();
    let manifest = serde_json::to_vec(manifest.context("the work has a manifest")?)?;
    for (way, message) in ways.iter().zip([&spec, &spec, &status, &status]) {
        let params = json!({"times": TIMES, "manifest_bytes": manifest.len(),
            "data_bytes": message.message.payload.len(),
            "message_bytes": bytes_of(&message.topic, &message.message)});
        way.tell(&mut report, calibration, &params);
    }
    Ok(())
}
