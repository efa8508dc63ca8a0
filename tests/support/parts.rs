//! Which real programs this machine has: `tests/parts/provide` finds or makes them and
//! names each by an environment variable.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// A real program that stories run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Buildah,
    /// A folder: definitions of widely used software, a folder for each.
    Bundles,
    Chromedriver,
    Crun,
    Etcd,
    Helm,
    /// A folder: what is to lie in the image.
    ImageRoot,
    KubeApiServer,
    Kubectl,
    /// Of a kubelet what `kubectl port-forward` needs.
    Kubelet,
    Mosquitto,
    MosquittoPasswd,
    MosquittoPub,
    MosquittoSub,
    /// A folder: the Prometheus operator's definitions, one a file.
    OperatorCrds,
    Prometheus,
    Promtool,
    Systemd,
}

impl Part {
    /// The environment variable that holds the program's path.
    const fn variable(self) -> &'static str {
        match self {
            Self::Chromedriver => "MUSTER_CHROMEDRIVER",
            Self::Buildah => "MUSTER_BUILDAH",
            Self::Bundles => "MUSTER_BUNDLES",
            Self::Crun => "MUSTER_CRUN",
            Self::Etcd => "MUSTER_ETCD",
            Self::Helm => "MUSTER_HELM",
            Self::ImageRoot => "MUSTER_IMAGE_ROOT",
            Self::KubeApiServer => "MUSTER_KUBE_APISERVER",
            Self::Kubectl => "MUSTER_KUBECTL",
            Self::Kubelet => "MUSTER_KUBELET",
            Self::Mosquitto => "MUSTER_MOSQUITTO",
            Self::MosquittoPasswd => "MUSTER_MOSQUITTO_PASSWD",
            Self::MosquittoPub => "MUSTER_MOSQUITTO_PUB",
            Self::MosquittoSub => "MUSTER_MOSQUITTO_SUB",
            Self::OperatorCrds => "MUSTER_OPERATOR_CRDS",
            Self::Prometheus => "MUSTER_PROMETHEUS",
            Self::Promtool => "MUSTER_PROMTOOL",
            Self::Systemd => "MUSTER_SYSTEMD",
        }
    }
}

/// A story needs a part that this machine does not have. The harness turns it into a
/// skipped story, or into a failed one where `CI=true`.
#[derive(Debug, thiserror::Error)]
#[error("no {} here; tests/parts/provide gets it or tells how to", .0.variable())]
pub(crate) struct MissingPart(pub(crate) Part);

/// The programs found.
#[derive(Debug)]
pub(crate) struct Parts {
    paths: HashMap<String, PathBuf>,
}

impl Parts {
    /// Takes what the environment names; for the rest, asks `tests/parts/provide --found`,
    /// which installs and builds nothing, so that a plain `cargo test` finds what an earlier
    /// `tests/run` made.
    pub(crate) fn find() -> Result<Self> {
        let provide = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parts/provide");
        let output = Command::new(&provide)
            .arg("--found")
            .output()
            .with_context(|| format!("failed to run {}", provide.display()))?;
        let paths = String::from_utf8(output.stdout)?
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
            .collect();
        Ok(Self { paths })
    }

    /// The path of `part`.
    pub(crate) fn path(&self, part: Part) -> Result<&Path, MissingPart> {
        self.paths
            .get(part.variable())
            .map(PathBuf::as_path)
            .ok_or(MissingPart(part))
    }
}
