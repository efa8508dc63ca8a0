//! `muster rollout`: follow, pause and take back what a ManifestWorkReplicaSet rolls out.

mod history;
mod pause;
mod status;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use kube::api::{Patch, PatchParams};
use muster_api::replicaset::ManifestWorkReplicaSet;
use serde_json::Value;

use super::error::{CommandError, finish};
use super::names::{cluster_name, revision_number};
use super::output::Output;
use super::set::{SetArgs, Target};
use crate::runtime;

/// How often a write is tried anew that met a newer state of the set.
const TRIES: usize = 5;

/// What is asked for.
#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    /// Follow a rollout until it is done; prints a line for each change.
    Status(StatusArgs),
    /// Pause a rollout, of the whole set or in some clusters.
    Pause(PauseArgs),
    /// Resume a paused rollout.
    Resume(PauseArgs),
    /// List the revisions of the template, or show one.
    History(HistoryArgs),
    /// Go back to the template of a revision.
    Undo(UndoArgs),
}

/// `muster rollout status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Follow the rollout; false: print the current state once.
    #[arg(
        short, long, default_value_t = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false"
    )]
    watch: bool,
    /// Give up after this time, with exit code 3. 0: never.
    #[arg(long, default_value = "0s", value_parser = super::duration, value_name = "DURATION")]
    timeout: Duration,
    /// Output format. wide: also a table of the placements. json, yaml: a document for each change.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// `muster rollout pause` and `resume`.
#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Only this cluster (repeatable). Default: the whole set.
    #[arg(long = "cluster", value_name = "CLUSTER", value_parser = cluster_name)]
    clusters: Vec<String>,
}

/// `muster rollout history`.
#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Print the template of this revision as YAML.
    #[arg(long, value_name = "N", value_parser = revision_number)]
    revision: Option<i64>,
}

/// `muster rollout undo`.
#[derive(Debug, Args)]
pub(super) struct UndoArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Revision to go back to. Default: the previous one.
    #[arg(long, value_name = "N", value_parser = revision_number)]
    to_revision: Option<i64>,
}

impl RolloutCommand {
    /// Does what was asked for.
    pub(super) fn run(self) -> ExitCode {
        runtime::block_on(async {
            let result = match self {
                Self::Status(args) => status::run(&args).await,
                Self::Pause(args) => pause::run(&args, pause::Wish::Pause).await,
                Self::Resume(args) => pause::run(&args, pause::Wish::Resume).await,
                Self::History(args) => history::show(&args).await,
                Self::Undo(args) => history::go_back(&args).await,
            };
            finish(result)
        })
    }
}

impl Target {
    /// Writes what `plan` makes of the set as it is; again where others were faster. Gives what
    /// `plan` has to say.
    async fn change(
        &self,
        plan: impl AsyncFn(&ManifestWorkReplicaSet) -> Result<Change, CommandError>,
    ) -> Result<String, CommandError> {
        let params = PatchParams {
            field_manager: Some("muster-rollout".to_owned()),
            ..PatchParams::default()
        };
        for _ in 0..TRIES {
            let set = self.get().await?;
            let Change { patch, says } = plan(&set).await?;
            let version = set.metadata.resource_version.unwrap_or_default();
            let patch: Patch<Value> = match patch {
                None => return Ok(says),
                Some(Write::Merge(mut patch)) => {
                    patch["metadata"]["resourceVersion"] = version.into();
                    Patch::Merge(patch)
                }
                Some(Write::Json(operations)) => {
                    let bound = serde_json::json!(
                        {"op": "replace", "path": "/metadata/resourceVersion", "value": version});
                    let all = std::iter::once(bound).chain(operations).collect();
                    let patch = serde_json::from_value(Value::Array(all));
                    Patch::Json(patch.map_err(|error| {
                        CommandError::Refused(format!("{self}: no patch can be made: {error}"))
                    })?)
                }
            };
            match self.sets().patch(&self.name, &params, &patch).await {
                Ok(_) => return Ok(says),
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(source) => return Err(self.failed("change", source)),
            }
        }
        Err(CommandError::Refused(format!(
            "{self}: changed by others at each of {TRIES} tries"
        )))
    }
}

/// What is to become of a set.
#[derive(Debug, PartialEq)]
struct Change {
    /// `None`: it is as it should be.
    patch: Option<Write>,
    /// What the user is told once it is so.
    says: String,
}

/// A patch, which will be bound to the state that it was made for.
#[derive(Debug, PartialEq)]
enum Write {
    Merge(Value),
    /// Operations: a merge could not replace a template.
    Json(Vec<Value>),
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::api::PostParams;
    use muster_apiserver::{ApiServer, Storage};
    use serde_json::json;

    use super::super::access::Access;
    use super::*;

    /// A set on a hub that nobody works for.
    async fn target(api: &ApiServer) -> Target {
        let target = Target {
            access: Access {
                client: api.client(),
                namespace: "default".to_owned(),
            },
            name: "web".to_owned(),
        };
        let set = json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1",
            "kind": "ManifestWorkReplicaSet", "metadata": {"name": "web"},
            "spec": {"placementRefs": [{"name": "all"}]}});
        let set = serde_json::from_value(set).unwrap();
        target
            .sets()
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
        target
    }

    async fn server() -> ApiServer {
        let mut builder = ApiServer::builder().storage(Storage::Memory);
        for crd in muster_api::crds::hub() {
            builder = builder.crd(crd);
        }
        builder.build().await.unwrap()
    }

    fn marked(by: &str) -> Value {
        json!({"metadata": {"annotations": {by: "x"}}})
    }

    #[tokio::test]
    async fn a_write_that_others_were_faster_than_is_planned_anew() {
        let api = server().await;
        let target = target(&api).await;
        let ours = |json: bool| {
            if json {
                let path = "/metadata/annotations/json";
                Write::Json(vec![json!({"op": "add", "path": path, "value": "x"})])
            } else {
                Write::Merge(marked("merge"))
            }
        };
        for json in [false, true] {
            let plans = Cell::new(0);
            let says = target
                .change(async |_: &ManifestWorkReplicaSet| {
                    plans.set(plans.get() + 1);
                    if plans.get() < 3 {
                        let other = Patch::Merge(marked(&format!("other-{json}-{}", plans.get())));
                        let params = PatchParams::default();
                        target.sets().patch("web", &params, &other).await.unwrap();
                    }
                    Ok(Change {
                        patch: Some(ours(json)),
                        says: format!("plan {}", plans.get()),
                    })
                })
                .await
                .unwrap();
            assert_eq!(says, "plan 3");
        }
        let set = target.get().await.unwrap();
        let annotations: Vec<String> = set.metadata.annotations.unwrap().into_keys().collect();
        assert_eq!(
            annotations,
            [
                "json",
                "merge",
                "other-false-1",
                "other-false-2",
                "other-true-1",
                "other-true-2"
            ]
        );
        api.shutdown().await;
    }

    #[tokio::test]
    async fn a_write_is_given_up_when_others_are_always_faster() {
        let api = server().await;
        let target = target(&api).await;
        let plans = Cell::new(0);
        let given_up = target
            .change(async |_: &ManifestWorkReplicaSet| {
                plans.set(plans.get() + 1);
                let other = Patch::Merge(marked(&format!("other-{}", plans.get())));
                let params = PatchParams::default();
                target.sets().patch("web", &params, &other).await.unwrap();
                Ok(Change {
                    patch: Some(Write::Merge(marked("ours"))),
                    says: String::new(),
                })
            })
            .await
            .unwrap_err();
        assert_eq!(
            given_up.to_string(),
            "mwrs default/web: changed by others at each of 5 tries"
        );
        assert_eq!((given_up.code(), plans.get()), (crate::exit::FAILED, TRIES));
        api.shutdown().await;
    }
}
