//! The commands that need few words.

use std::process::ExitCode;

use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use super::CrdSet;
use super::access::running_hub;
use super::error::finish;
use super::output::show;
use super::table::table;
use crate::exit::{FAILED, MISUSED, fail};
use crate::runtime::{Hangups, Reloader, Roles, Runtime, SettingsFile, WorkError};
use crate::settings::{Running, Settings, SettingsError, Sources, effective};
use crate::{runtime, telemetry};

/// Runs `roles` until a signal asks to stop.
pub(super) fn serve(sources: &Sources, roles: Roles) -> ExitCode {
    let load = || Settings::load(sources).map(|settings| (settings, Vec::new()));
    serve_with(sources, load, roles)
}

/// Why a process ends.
enum End {
    /// A signal of this name came.
    Signal(&'static str),
    /// This file, which it was told to look at, changed.
    Changed(String),
    /// It must not or cannot go on.
    Failed(WorkError),
}

/// [`serve`] with settings that flags complete, and what the log should tell first.
pub(super) fn serve_with(
    sources: &Sources,
    load: impl Fn() -> Result<(Settings, Vec<String>), SettingsError>,
    roles: Roles,
) -> ExitCode {
    let file = SettingsFile::new(sources.file());
    let (settings, notes) = match load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(MISUSED, &error),
    };
    let telemetry = match telemetry::init(&settings.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(FAILED, &error),
    };
    for note in notes {
        warn!("{note}");
    }
    runtime::block_on(async move {
        let stop = runtime::stop_signal();
        if let Err(error) = runtime::preflight(sources, &settings, roles).await {
            return fail(MISUSED, &error);
        }
        let mut hangups = Hangups::take_over();
        let changed = runtime::change_of(&settings.agent.terminate_on_files);
        let mut running = match Runtime::start(&settings, roles, Some(telemetry.clone())).await {
            Ok(running) => running,
            Err(error) => return fail(FAILED, &error),
        };
        info!(?roles, "muster is up");
        let (newest, settings_now) = watch::channel(settings.clone());
        let before = Running::new(settings.clone(), roles.hub());
        let mut reloader = Reloader::new(file, before, || load().map(|(settings, _)| settings));
        let reload = async {
            loop {
                let settings = reloader.changed(&mut hangups).await;
                if let Err(error) = telemetry.set_log_level(&settings.telemetry.log_level) {
                    warn!(%error, "failed to change the log level, keeping the previous one");
                }
                newest.send_replace(settings);
                debug!("settings applied");
            }
        };
        let end = tokio::select! {
            signal = stop => End::Signal(signal),
            file = changed => End::Changed(file),
            error = running.work(settings_now) => End::Failed(error),
            never = reload => never,
        };
        match &end {
            End::Signal(signal) => info!(signal, "stopping"),
            End::Changed(file) => info!(file, "stopping, since a file changed"),
            End::Failed(error) => error!(%error, "stopping"),
        }
        // A signal has brought its own limit.
        match &end {
            End::Signal(_) => {}
            End::Failed(WorkError::Lost { grace, .. }) => runtime::exit_after(*grace),
            End::Changed(_) | End::Failed(_) => runtime::exit_after(runtime::EXIT_LIMIT),
        }
        let stopping = running.stop();
        if let End::Failed(error) = &end {
            match error {
                WorkError::Lost { grace, .. } => {
                    let _ = tokio::time::timeout(*grace, stopping).await;
                }
                WorkError::Start(_) => {
                    stopping.await; // the lease, if there is one, is kept until then
                }
            }
            return fail(FAILED, error);
        }
        let left = stopping.await;
        if left.is_empty() {
            ExitCode::SUCCESS
        } else {
            error!(actors = ?left, "stopped by force");
            ExitCode::from(FAILED)
        }
    })
}

pub(super) fn crds(set: CrdSet) -> ExitCode {
    let crds = match set {
        CrdSet::Hub => muster_api::crds::hub(),
        CrdSet::Spoke => muster_api::crds::spoke(),
        CrdSet::Rules => muster_api::crds::rules(),
        CrdSet::All => muster_api::crds::all(),
    };
    match muster_api::crds::to_yaml_stream(&crds) {
        Ok(yaml) => show(yaml),
        Err(error) => fail(FAILED, &error),
    }
}

/// Reads one line, so that it is the same from a terminal and from a file.
pub(super) fn hash_password() -> ExitCode {
    let mut line = String::new();
    if let Err(error) = std::io::stdin().read_line(&mut line) {
        return fail(FAILED, &error);
    }
    let password = line.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return fail(MISUSED, &NoPassword);
    }
    show(format!("{}\n", muster_broker::hash_password(password)))
}

#[derive(Debug, thiserror::Error)]
#[error("no password on standard input")]
struct NoPassword;

pub(super) fn kubeconfig(sources: &Sources) -> ExitCode {
    let settings = match Settings::load(sources) {
        Ok(settings) => settings,
        Err(error) => return fail(MISUSED, &error),
    };
    let Some(dir) = settings.hub.data_dir else {
        return match running_hub(settings.hub.listen) {
            Ok((_, text)) => show(text),
            Err(error) => finish(Err(error.into())),
        };
    };
    let file = runtime::kubeconfig_file(&dir);
    match std::fs::read_to_string(&file) {
        Ok(text) => show(text),
        Err(error) => fail(
            FAILED,
            &format!(
                "failed to read {}: {error} (has the hub been started?)",
                file.display()
            ),
        ),
    }
}

/// Checks the settings as a start of `roles` does; `files`: those that they name, too.
pub(super) fn config_check(sources: &Sources, roles: Roles, files: bool) -> ExitCode {
    let checked = effective(sources).and_then(|listing| {
        if files {
            let settings = Settings::load(sources)?;
            runtime::block_on(runtime::preflight(sources, &settings, roles))?;
        }
        Ok(listing)
    });
    let listing = match checked {
        Ok(listing) => listing,
        Err(error) => return fail(MISUSED, &error),
    };
    let rows = listing.into_iter().map(|setting| {
        let value = setting.value.unwrap_or_default();
        [setting.key, value, setting.origin]
    });
    show(format!("{}\n", table(["KEY", "VALUE", "FROM"], rows)))
}
