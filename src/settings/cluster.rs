//! Clusters whose agents run in this process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::check::Entry;

/// A cluster whose agent runs in this process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Cluster {
    /// Name, and the namespace on the hub that holds its works.
    pub name: String,
    /// How it is reached.
    pub access: ClusterAccess,
    /// Labels for placements to select by.
    pub labels: BTreeMap<String, String>,
}

/// How a cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterAccess {
    /// By a kubeconfig.
    Kubeconfig {
        /// The file; `None` infers it as kubectl does.
        file: Option<PathBuf>,
        /// The context in it; `None` takes the current one.
        context: Option<String>,
    },
    /// By the service account of the pod that muster runs in.
    InCluster,
    /// It lives in this process: an embedded API server with a workload simulator.
    Simulated,
}

/// A cluster as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Raw {
    name: Option<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    in_cluster: bool,
    simulated: bool,
    labels: BTreeMap<String, String>,
}

impl Entry for Raw {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn check(&self) -> Result<(), String> {
        let name = self.name.as_deref().ok_or("has no name")?;
        check_name(name)?;
        self.access().map(|_| ())
    }
}

impl Raw {
    fn access(&self) -> Result<ClusterAccess, String> {
        let by_kubeconfig = self.kubeconfig.is_some() || self.context.is_some();
        match (by_kubeconfig, self.in_cluster, self.simulated) {
            (true, false, false) => Ok(ClusterAccess::Kubeconfig {
                file: self.kubeconfig.clone(),
                context: self.context.clone(),
            }),
            (false, true, false) => Ok(ClusterAccess::InCluster),
            (false, false, true) => Ok(ClusterAccess::Simulated),
            _ => Err(
                "needs exactly one of: kubeconfig and/or context, in_cluster = true, \
                      simulated = true"
                    .to_owned(),
            ),
        }
    }
}

impl TryFrom<Raw> for Cluster {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        raw.check()?;
        let access = raw.access()?;
        Ok(Self {
            name: raw.name.unwrap_or_default(),
            access,
            labels: raw.labels,
        })
    }
}

/// Whether a cluster can have this name; if not, the rest of a sentence about it.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if is_namespace(name) {
        return Ok(());
    }
    Err(
        "needs a name that can be a namespace: at most 63 of a-z, 0-9 and -, \
         with a letter or digit at both ends"
            .to_owned(),
    )
}

/// RFC 1123 label, which the names of namespaces are.
fn is_namespace(name: &str) -> bool {
    let inside = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    name.len() <= 63
        && name.bytes().all(inside)
        && !name.is_empty()
        && !name.starts_with('-')
        && !name.ends_with('-')
}
