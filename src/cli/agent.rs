//! `muster agent`: the settings of a file, or the flags that OCM's work agent takes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{ConfigArgs, MISUSED, commands, duration, fail};
use crate::runtime::Roles;
use crate::settings::{Cluster, ClusterAccess, Driver, Settings, SettingsError, Sources};

/// Flags of `muster agent`. Those named as in OCM's work agent mean the same.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Name of the cluster, which is the namespace of its works on the hub. Replaces the clusters
    /// of the settings by one.
    #[arg(long, alias = "spoke-cluster-name", value_name = "NAME")]
    cluster_name: Option<String>,
    /// Kubeconfig of the cluster; without it, the service account of the pod.
    #[arg(long, value_name = "FILE", requires = "cluster_name")]
    spoke_kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the hub.
    #[arg(long, alias = "workload-source-config", value_name = "FILE")]
    hub_kubeconfig: Option<PathBuf>,
    /// How often live objects are read whose scrape type is Poll.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    status_sync_interval: Option<Duration>,
    /// Longest list or object, in bytes of JSON, that a feedback value may hold.
    #[arg(long, value_name = "BYTES")]
    max_json_raw_length: Option<u32>,
    /// Works that are applied at the same time.
    #[arg(long, value_name = "COUNT")]
    workload_agent_workers: Option<u32>,
}

impl AgentArgs {
    fn sources(&self) -> Sources {
        let mut sources = self.config.sources().with_flag("transport.driver", "kube");
        if let Some(file) = &self.hub_kubeconfig {
            sources = sources.with_flag("hub.kubeconfig", file.to_string_lossy());
        }
        if let Some(interval) = self.status_sync_interval {
            sources = sources.with_flag(
                "feedback.poll_interval",
                format!("{}ms", interval.as_millis()),
            );
        }
        if let Some(bytes) = self.max_json_raw_length {
            sources = sources.with_flag("feedback.max_json_raw_bytes", bytes.to_string());
        }
        if let Some(workers) = self.workload_agent_workers {
            sources = sources.with_flag("agent.workers", workers.to_string());
        }
        sources
    }

    /// The settings that file and flags make.
    ///
    /// # Errors
    ///
    /// Every problem of every layer.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let mut settings = Settings::load(&self.sources())?;
        settings.transport.driver = Driver::Kube;
        if let Some(name) = &self.cluster_name {
            let access = self
                .spoke_kubeconfig
                .clone()
                .map_or(ClusterAccess::InCluster, |file| ClusterAccess::Kubeconfig {
                    file: Some(file),
                    context: None,
                });
            let cluster = Cluster {
                name: name.clone(),
                access,
                labels: Default::default(),
            };
            settings.clusters = vec![cluster];
        }
        Ok(settings)
    }

    pub(super) fn run(&self) -> ExitCode {
        match self.settings() {
            Ok(settings) => commands::serve(&self.sources(), Roles::Agents, Some(settings)),
            Err(error) => fail(MISUSED, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: AgentArgs,
    }

    #[test]
    fn the_flags_of_ocms_agent_become_settings() {
        let line = Line::parse_from([
            "agent",
            "--spoke-cluster-name=edge-1",
            "--spoke-kubeconfig=/spoke",
            "--hub-kubeconfig=/hub",
            "--status-sync-interval=10s",
            "--max-json-raw-length=2048",
            "--workload-agent-workers=3",
        ]);
        let settings = line.agent.settings().unwrap();
        assert_eq!(settings.transport.driver, Driver::Kube);
        assert_eq!(settings.hub.kubeconfig, Some("/hub".into()));
        assert_eq!(settings.feedback.poll_interval, Duration::from_secs(10));
        assert_eq!(settings.feedback.max_json_raw_bytes.get(), 2048);
        assert_eq!(settings.agent.workers.get(), 3);
        assert_eq!(settings.clusters.len(), 1);
        assert_eq!(settings.clusters[0].name, "edge-1");
        let spoke = ClusterAccess::Kubeconfig {
            file: Some("/spoke".into()),
            context: None,
        };
        assert_eq!(settings.clusters[0].access, spoke);
    }

    #[test]
    fn a_cluster_without_kubeconfig_is_the_one_of_the_pod() {
        let line = Line::parse_from(["agent", "--cluster-name=edge-1"]);
        assert_eq!(
            line.agent.settings().unwrap().clusters[0].access,
            ClusterAccess::InCluster
        );
    }
}
