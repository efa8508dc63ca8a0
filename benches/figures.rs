//! The benches: `figures BENCH [GOAL…]` runs one and prints its figures, all or those of the goals.
//!
//! `benches/run` is the entry for people. One question a file.

mod api_server;
mod event_codec;
mod event_hub;
mod event_resync;
mod event_throughput;
mod feedback;
mod feedback_latency;
mod idle_agent;
mod irrelevant_changes;
mod mailbox;
mod real_agent;
mod rollout;
mod rule_sinks;
mod rules;
mod status_event;
mod status_latency;
mod support;
#[path = "../tests/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::large_futures,
    reason = "made for the stories; a bench needs the servers alone"
)]
mod tests_support;
mod watched_objects;
mod work_status;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    // cargo adds `--bench`.
    let bench = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    match bench.as_deref() {
        Some("api_server") => api_server::run(),
        Some("event_codec") => event_codec::run(),
        Some("event_hub") => event_hub::run(),
        Some("event_resync") => event_resync::run(),
        Some("event_throughput") => event_throughput::run(),
        Some("feedback") => feedback::run(),
        Some("feedback_latency") => feedback_latency::run(),
        Some("idle_agent") => idle_agent::run(),
        Some("irrelevant_changes") => irrelevant_changes::run(),
        Some("mailbox") => mailbox::run(),
        Some("real_agent") => real_agent::run(),
        Some("rollout") => rollout::run(),
        Some("rule_sinks") => rule_sinks::run(),
        Some("rules") => rules::run(),
        Some("status_event") => {
            status_event::run();
            Ok(())
        }
        Some("status_latency") => status_latency::run(),
        Some("watched_objects") => watched_objects::run(),
        Some("work_status") => work_status::run(),
        // What benches start as processes of their own.
        Some(support::agent::ARGUMENT) => support::agent::run(),
        Some(support::event_side::ARGUMENT) => support::event_side::run(),
        Some(support::watcher::ARGUMENT) => support::watcher::run(),
        other => bail!("no bench {other:?}; benches/run --list tells which there are"),
    }
}
