//! `muster rollout`: follow, pause and take back what a ManifestWorkReplicaSet rolls out.

mod access;
mod history;
mod pause;
mod status;
mod table;

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use kube::api::{Api, Patch, PatchParams};
use muster_api::replicaset::ManifestWorkReplicaSet;
use serde_json::Value;

use crate::exit::{FAILED, MISUSED, NOT_THERE, fail};
use crate::runtime;
use access::{Access, AccessArgs, AccessError};

/// How often a write is tried anew that met a newer state of the set.
const TRIES: usize = 5;

/// What is asked for.
#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    /// Follow a rollout until it is done; a line at each change.
    Status(StatusArgs),
    /// Stop all writes of works, of the set or in some clusters.
    Pause(PauseArgs),
    /// Take a pause back.
    Resume(PauseArgs),
    /// List the revisions of the template, or show one.
    History(HistoryArgs),
    /// Go back to the template of a revision.
    Undo(UndoArgs),
}

/// Which set.
#[derive(Debug, Args)]
struct SetArgs {
    /// Name of the ManifestWorkReplicaSet.
    #[arg(value_parser = set_name)]
    name: String,
    #[command(flatten)]
    access: AccessArgs,
}

/// `muster rollout status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Follow the rollout; false: tell where it stands now.
    #[arg(
        short, long, default_value_t = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set, value_name = "true|false"
    )]
    watch: bool,
    /// How long to follow it at most; exit code 3 if it is not done then. 0: without end.
    #[arg(long, default_value = "0s", value_parser = super::duration, value_name = "DURATION")]
    timeout: Duration,
    /// wide: with a table of the placements at the end. json, yaml: a document at each change.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Wide,
    Json,
    Yaml,
}

/// `muster rollout pause` and `resume`.
#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Only in this cluster; may be given several times. Without it: the whole set.
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
    /// The revision to go back to; without it the one before.
    #[arg(long, value_name = "N", value_parser = revision_number)]
    to_revision: Option<i64>,
}

fn revision_number(text: &str) -> Result<i64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("\"{text}\" is no number of a revision: they begin with 1"))
}

/// Refuses what would leave its place in a URL or in a list, and `mwrs/NAME`.
fn part(text: &str, what: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if text.is_empty() || !text.chars().all(allowed) {
        return Err(format!("\"{text}\" is no name of a {what}"));
    }
    Ok(text.to_owned())
}

fn set_name(text: &str) -> Result<String, String> {
    // As kubectl takes it.
    let name = text
        .strip_prefix("mwrs/")
        .or_else(|| text.strip_prefix("manifestworkreplicaset/"))
        .unwrap_or(text);
    part(name, "ManifestWorkReplicaSet")
}

fn cluster_name(text: &str) -> Result<String, String> {
    part(text, "cluster")
}

/// Why a command ends without having done what it was asked for.
#[derive(Debug, thiserror::Error)]
enum RolloutError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("{0} not found")]
    NotFound(String),
    #[error("failed to {what}: {}", text(.source))]
    Api { what: String, source: kube::Error },
    #[error("{0}")]
    Refused(String),
    /// Not done in time, or failed.
    #[error("{0}")]
    NotThere(String),
    #[error("{what}: changed by others at each of {TRIES} tries")]
    Conflict { what: String },
    #[error("{what} cannot be written as YAML: {source}")]
    Yaml {
        what: String,
        source: serde_saphyr::ser::Error,
    },
    #[error("failed to print: {0}")]
    Print(#[from] std::io::Error),
}

/// The server's message without the client's wrapping.
fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => access::told(other),
    }
}

impl RolloutError {
    const fn code(&self) -> u8 {
        match self {
            Self::Access(AccessError::Settings(_) | AccessError::NoDataDir) => MISUSED,
            Self::NotThere(_) => NOT_THERE,
            _ => FAILED,
        }
    }
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
            match result {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(error.code(), &error),
            }
        })
    }
}

/// Prints a line. Unlike `println` it does not panic when nobody reads any more.
fn say(text: impl Display) -> Result<(), RolloutError> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// One set on the hub.
struct Target {
    access: Access,
    name: String,
}

/// `mwrs NAMESPACE/NAME`
impl Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mwrs {}/{}", self.access.namespace, self.name)
    }
}

impl Target {
    async fn of(args: &SetArgs) -> Result<Self, RolloutError> {
        Ok(Self {
            access: Access::open(&args.access).await?,
            name: args.name.clone(),
        })
    }

    fn sets(&self) -> Api<ManifestWorkReplicaSet> {
        Api::namespaced(self.access.client.clone(), &self.access.namespace)
    }

    async fn get(&self) -> Result<ManifestWorkReplicaSet, RolloutError> {
        match self.sets().get(&self.name).await {
            Ok(set) => Ok(set),
            Err(error) if access::is_missing(&error, &self.name) => {
                let missing = if self.access.lacks_namespace().await {
                    format!("namespace {}", self.access.namespace)
                } else {
                    self.to_string()
                };
                Err(RolloutError::NotFound(missing))
            }
            Err(source) => Err(self.failed("read", source)),
        }
    }

    fn failed(&self, verb: &str, source: kube::Error) -> RolloutError {
        RolloutError::Api {
            what: format!("{verb} {self}"),
            source,
        }
    }

    /// Writes what `plan` makes of the set as it is; again where others were faster. Gives what
    /// `plan` has to say.
    async fn change(
        &self,
        plan: impl AsyncFn(&ManifestWorkReplicaSet) -> Result<Change, RolloutError>,
    ) -> Result<String, RolloutError> {
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
                        RolloutError::Refused(format!("{self}: no patch can be made: {error}"))
                    })?)
                }
            };
            match self.sets().patch(&self.name, &params, &patch).await {
                Ok(_) => return Ok(says),
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(source) => return Err(self.failed("change", source)),
            }
        }
        Err(RolloutError::Conflict {
            what: self.to_string(),
        })
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
        assert_eq!((given_up.code(), plans.get()), (FAILED, TRIES));
        api.shutdown().await;
    }

    #[test]
    fn names_are_taken_as_kubectl_does_and_others_are_refused() {
        assert_eq!(set_name("web"), Ok("web".to_owned()));
        assert_eq!(set_name("mwrs/web.x"), Ok("web.x".to_owned()));
        for odd in ["", "mwrs/", "../x", "a/b", "A", "a,b"] {
            assert!(set_name(odd).is_err(), "{odd}");
            assert!(cluster_name(odd).is_err(), "{odd}");
        }
        assert_eq!(revision_number("3"), Ok(3));
        for odd in ["0", "-1", "x", ""] {
            let error = revision_number(odd).unwrap_err();
            assert!(error.contains("is no number of a revision"), "{error}");
        }
    }
}
