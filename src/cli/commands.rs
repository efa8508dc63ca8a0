//! The commands that need few words.

use std::process::ExitCode;

use tracing::{error, info};

use super::{CrdSet, FAILED, MISUSED, fail};
use crate::runtime::{Roles, Runtime};
use crate::settings::{Settings, Sources, effective};
use crate::{runtime, telemetry};

/// Runs `roles` until a signal asks to stop. `given` are settings that flags completed already.
pub(super) fn serve(sources: &Sources, roles: Roles, given: Option<Settings>) -> ExitCode {
    let settings = match given.map_or_else(|| Settings::load(sources), Ok) {
        Ok(settings) => settings,
        Err(error) => return fail(MISUSED, &error),
    };
    let telemetry = match telemetry::init(&settings.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return fail(FAILED, &error),
    };
    runtime::block_on(async move {
        let stop = runtime::stop_signal();
        let running = match Runtime::start(&settings, roles, Some(telemetry)).await {
            Ok(running) => running,
            Err(error) => return fail(FAILED, &error),
        };
        info!(?roles, "muster is up");
        let signal = stop.await;
        info!(signal, "stopping");
        let left = running.stop().await;
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
        CrdSet::All => muster_api::crds::all(),
    };
    match muster_api::crds::to_yaml_stream(&crds) {
        Ok(yaml) => {
            print!("{yaml}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(FAILED, &error),
    }
}

pub(super) fn kubeconfig(sources: &Sources) -> ExitCode {
    let settings = match Settings::load(sources) {
        Ok(settings) => settings,
        Err(error) => return fail(MISUSED, &error),
    };
    let Some(dir) = settings.hub.data_dir else {
        return fail(
            MISUSED,
            &"hub.data_dir is not set: a hub without it makes a new identity at every start, which \
              no other process can know",
        );
    };
    let file = runtime::kubeconfig_file(&dir);
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(
            FAILED,
            &format!(
                "failed to read {}: {error} (has the hub been started?)",
                file.display()
            ),
        ),
    }
}

pub(super) fn config_check(sources: &Sources) -> ExitCode {
    match effective(sources) {
        Ok(settings) => {
            let mut table = comfy_table::Table::new();
            table.load_style(comfy_table::presets::NOTHING);
            table.set_header(["KEY", "VALUE", "FROM"]);
            for setting in settings {
                table.add_row([
                    setting.key,
                    setting.value.unwrap_or_default(),
                    setting.origin,
                ]);
            }
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(MISUSED, &error),
    }
}
