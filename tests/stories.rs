//! The stories: what muster promises, told against real and embedded servers.
//!
//! One story a file under `stories/`, or a folder where a subject has many short ones. How
//! they run, what is real and what a machine without the parts skips: `tests/README.md`.

use std::process::ExitCode;

mod support;

/// Names stories after their functions and runs each on every backend.
macro_rules! on_each_backend {
    ($($story:ident),+ $(,)?) => { told!(on_each_backend, $($story),+) };
}

/// Names stories after their functions and runs each once: those about a part itself.
macro_rules! once {
    ($($story:ident),+ $(,)?) => { told!(once, $($story),+) };
}

macro_rules! told {
    ($how:ident, $($story:ident),+) => {{
        let subject = module_path!().trim_start_matches("stories::stories::");
        let mut stories = Vec::new();
        $(stories.extend($crate::support::Story::$how(
            &format!("{subject}::{}", stringify!($story)),
            $story,
        ));)+
        stories
    }};
}

/// The subjects.
mod stories {
    pub(crate) mod agent_flags;
    pub(crate) mod api_semantics;
    pub(crate) mod benches;
    pub(crate) mod bundles;
    pub(crate) mod chart;
    pub(crate) mod commands;
    pub(crate) mod conformance;
    pub(crate) mod crds;
    pub(crate) mod dashboard;
    pub(crate) mod demo;
    pub(crate) mod deploy;
    pub(crate) mod docs;
    pub(crate) mod events;
    pub(crate) mod explain_command;
    pub(crate) mod hub_lease;
    pub(crate) mod image;
    pub(crate) mod kubectl;
    pub(crate) mod mosquitto;
    pub(crate) mod parts;
    pub(crate) mod prometheus;
    pub(crate) mod reasons;
    pub(crate) mod reload;
    pub(crate) mod replica_sets;
    pub(crate) mod rights;
    pub(crate) mod rollout;
    pub(crate) mod rollout_command;
    pub(crate) mod status_command;
    pub(crate) mod strategies;
    pub(crate) mod systemd;
    pub(crate) mod watch_rules;
    pub(crate) mod watching;
    pub(crate) mod works;
}

fn main() -> anyhow::Result<ExitCode> {
    let subjects = [
        stories::agent_flags::stories(),
        stories::api_semantics::stories(),
        stories::benches::stories(),
        stories::bundles::stories(),
        stories::chart::stories(),
        stories::commands::stories(),
        stories::conformance::stories(),
        stories::crds::stories(),
        stories::dashboard::stories(),
        stories::demo::stories(),
        stories::docs::stories(),
        stories::deploy::stories(),
        stories::events::stories(),
        stories::explain_command::stories(),
        stories::hub_lease::stories(),
        stories::image::stories(),
        stories::kubectl::stories(),
        stories::mosquitto::stories(),
        stories::parts::stories(),
        stories::prometheus::stories(),
        stories::reasons::stories(),
        stories::reload::stories(),
        stories::replica_sets::stories(),
        stories::rights::stories(),
        stories::rollout::stories(),
        stories::rollout_command::stories(),
        stories::status_command::stories(),
        stories::strategies::stories(),
        stories::systemd::stories(),
        stories::watch_rules::stories(),
        stories::watching::stories(),
        stories::works::stories(),
    ];
    support::run(subjects.into_iter().flatten().collect())
}
