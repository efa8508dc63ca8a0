//! `muster status`: how the fleet stands.

mod board;
mod follow;

use std::process::ExitCode;

use clap::Args;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use muster_api::cluster::ManagedCluster;
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::work::RawManifestWork;
use muster_core::explain::{State, agent_verdict};
use muster_core::fleet::{Fleet, FleetReport, Id, SetLine, WorkLine};

use super::access::{HubArgs, lacks_namespace};
use super::error::{CommandError, finish};
use super::names::namespace;
use super::output::Output;
use super::pages::{Notes, each, optional};
use crate::runtime;
use board::Board;

/// `muster status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Only the sets of this namespace, and their works.
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Option<String>,
    /// All namespaces (the default).
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Keep watching, and print the status again whenever it changes.
    #[arg(short, long)]
    watch: bool,
    /// Output format. wide: also what is wrong in each cluster.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    #[command(flatten)]
    hub: HubArgs,
}

impl StatusArgs {
    /// Does what was asked for.
    pub(super) fn run(&self) -> ExitCode {
        finish(runtime::block_on(async {
            let (client, namespace) = (self.hub.client().await?, self.namespace.as_deref());
            let apis = Apis::of(client.clone(), namespace);
            let mut board = Board::new(self.output, self.namespace.clone());
            if self.watch {
                return follow::follow(&apis, namespace, &mut board).await;
            }
            let (fleet, notes) = apis.read().await?;
            let report = fleet.report(namespace);
            if let Some(namespace) = namespace
                && report.sets.is_empty()
                && let Some(error) = lacks_namespace(&client, namespace).await
            {
                return Err(error);
            }
            board.show(&report, &notes)?;
            verdict(&report)
        }))
    }
}

/// What the command comes to.
fn verdict(report: &FleetReport) -> Result<(), CommandError> {
    if report.state != State::Failed {
        return Ok(());
    }
    let failed = |states: &mut dyn Iterator<Item = State>| {
        states.filter(|state| *state == State::Failed).count()
    };
    let sets = failed(&mut report.sets.iter().map(|row| row.state));
    let clusters = failed(&mut report.clusters.iter().map(|row| row.state));
    let plural = |number: usize, what: &str| {
        let s = if number == 1 { "" } else { "s" };
        format!("{number} {what}{s}")
    };
    Err(CommandError::NotThere(format!(
        "something has failed in {} and {}; muster explain says what",
        plural(sets, "set"),
        plural(clusters, "cluster")
    )))
}

/// Where the parts of a fleet are.
struct Apis {
    sets: Api<ManifestWorkReplicaSet>,
    works: Api<RawManifestWork>,
    clusters: Api<ManagedCluster>,
}

/// A set as a line of the report.
fn set_line(set: &ManifestWorkReplicaSet) -> (Id, SetLine) {
    let id = (set.namespace().unwrap_or_default(), set.name_any());
    (id, SetLine::read(set))
}

/// A work as a line of the report.
fn work_line(work: &RawManifestWork) -> (Id, WorkLine) {
    let id = (work.namespace().unwrap_or_default(), work.name_any());
    (id, WorkLine::read(work))
}

impl Apis {
    fn of(client: Client, namespace: Option<&str>) -> Self {
        Self {
            sets: match namespace {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            },
            works: Api::all(client.clone()),
            clusters: Api::all(client),
        }
    }

    /// Reads the fleet once.
    async fn read(&self) -> Result<(Fleet, Notes), CommandError> {
        let mut fleet = Fleet::default();
        let mut notes = Notes::new();
        let all = ListParams::default();
        let failed = |what: &str, source| CommandError::Api {
            what: format!("list {what}"),
            source,
        };
        each(&self.sets, &all, |set| {
            fleet.sets.extend([set_line(&set)]);
        })
        .await
        .map_err(|source| failed("ManifestWorkReplicaSets", source))?;
        each(&self.works, &all, |work| {
            fleet.works.extend([work_line(&work)]);
        })
        .await
        .map_err(|source| failed("ManifestWorks", source))?;
        let listed = each(&self.clusters, &all, |cluster| {
            let agent = agent_verdict(&cluster);
            fleet.clusters.insert(cluster.name_any(), agent);
        })
        .await;
        optional(listed, "ManagedClusters", &mut notes)?;
        Ok((fleet, notes))
    }
}
