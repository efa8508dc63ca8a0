//! The ManifestWorkReplicaSet that a command is about.

use std::fmt::Display;

use clap::Args;
use kube::api::Api;
use muster_api::replicaset::ManifestWorkReplicaSet;

use super::access::{Access, AccessArgs, is_missing};
use super::error::CommandError;
use super::names::set_name;

/// Which set.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Name of the ManifestWorkReplicaSet.
    #[arg(value_parser = set_name)]
    name: String,
    #[command(flatten)]
    access: AccessArgs,
}

/// One set on the hub.
pub(super) struct Target {
    pub(super) access: Access,
    pub(super) name: String,
}

/// `mwrs NAMESPACE/NAME`
impl Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mwrs {}/{}", self.access.namespace, self.name)
    }
}

impl Target {
    pub(super) async fn of(args: &SetArgs) -> Result<Self, CommandError> {
        Ok(Self {
            access: Access::open(&args.access).await?,
            name: args.name.clone(),
        })
    }

    pub(super) fn sets(&self) -> Api<ManifestWorkReplicaSet> {
        Api::namespaced(self.access.client.clone(), &self.access.namespace)
    }

    pub(super) async fn get(&self) -> Result<ManifestWorkReplicaSet, CommandError> {
        match self.sets().get(&self.name).await {
            Ok(set) => Ok(set),
            Err(error) if is_missing(&error, &self.name) => {
                Err(self.access.missing(&self.to_string()).await)
            }
            Err(source) => Err(self.failed("read", source)),
        }
    }

    pub(super) fn failed(&self, verb: &str, source: kube::Error) -> CommandError {
        CommandError::Api {
            what: format!("{verb} {self}"),
            source,
        }
    }
}
