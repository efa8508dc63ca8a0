//! Which lease the agents of a process work under, if any.

use std::fs;

use kube::Client;
use muster_actors::lease::LeaseSettings;

use super::cluster::{ClusterError, config_of};
use crate::settings::{ClusterAccess, Settings};

/// Name of the lease of OCM's work agent, so that it and muster exclude each other while one
/// replaces the other. Source: the component's name in `pkg/cmd/spoke/work.go`, and what library-go
/// appends to it.
const NAME: &str = "work-agent-lock";
/// Where OCM installs its agents.
const NAMESPACE: &str = "open-cluster-management-agent";
/// Where a pod finds its own namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Whether this process runs in a pod.
pub(super) fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// The lease, and a client of the cluster that has it; `None` if agents work without.
pub(super) async fn wanted(
    settings: &Settings,
) -> Result<Option<(Client, LeaseSettings)>, ClusterError> {
    let agent = &settings.agent;
    let fits = in_pod() || agent.lease_namespace.is_some() || agent.lease_kubeconfig.is_some();
    if !agent.leader_election.unwrap_or(fits) {
        return Ok(None);
    }
    let access = if let Some(file) = &agent.lease_kubeconfig {
        ClusterAccess::Kubeconfig {
            file: Some(file.clone()),
            context: None,
        }
    } else if in_pod() {
        ClusterAccess::InCluster
    } else {
        match settings.clusters.as_slice() {
            [only] => only.access.clone(),
            _ => return Err(ClusterError::Lease),
        }
    };
    let Some(config) = config_of(&access).await? else {
        return Err(ClusterError::Lease); // simulated
    };
    let namespace = agent.lease_namespace.clone().unwrap_or_else(|| {
        let pod = fs::read_to_string(POD_NAMESPACE).unwrap_or_default();
        match pod.trim() {
            "" => NAMESPACE.to_owned(),
            pod => pod.to_owned(),
        }
    });
    let lease = LeaseSettings {
        namespace,
        name: NAME.to_owned(),
        identity: identity(),
        duration: agent.lease_duration,
        renew_deadline: agent.lease_renew_deadline,
        retry_period: agent.lease_retry_period,
    };
    Ok(Some((Client::try_from(config)?, lease)))
}

/// Host, which in a pod is the pod's name, and a random UUID, since hosts may run several processes.
fn identity() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let random: u128 = rand::random();
    // Version 4, variant 1 (RFC 9562).
    let bits = random & !(0xf << 76 | 0x3 << 62) | (0x4 << 76 | 0x2 << 62);
    let mut uuid = format!("{bits:032x}");
    for dash in [8, 13, 18, 23] {
        uuid.insert(dash, '-');
    }
    format!("{host}_{uuid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_a_host_and_a_uuid_and_differ() {
        let one = identity();
        let (host, uuid) = one.rsplit_once('_').unwrap();
        assert!(!host.is_empty());
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
        assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        assert_ne!(one, identity());
    }
}
