//! Which lease a process works under, if any, and what it knows of it.
//!
//! | Process | Under the lease | Where the lease is |
//! |---|---|---|
//! | agents alone | clusters and agents | the pod's cluster, else the agent's |
//! | a hub on a Kubernetes cluster, with agents or without | the hub's controllers | that cluster |
//! | a hub with the embedded API server | – | its objects belong to one process anyway |

use std::fs;
use std::time::Duration;

use actix::Addr;
use kube::Client;
use muster_actors::lease::{LeaseDeps, LeaseHolder, LeaseSettings, Standing};
use muster_actors::supervision::{Health, Io, Registry, stop};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::info;

use super::Roles;
use super::cluster::{ClusterError, config_of};
use crate::settings::{ClusterAccess, HubApi, LeaseTimes, Settings};

/// Where a pod finds its own namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// What works under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Hub,
    Agents,
}

impl Whose {
    /// What could work under a lease in such a process.
    fn of(roles: Roles, settings: &Settings) -> Option<Self> {
        match roles {
            Roles::Agents => Some(Self::Agents),
            Roles::Hub | Roles::HubAndAgents => {
                (settings.hub.api == HubApi::Kubeconfig).then_some(Self::Hub)
            }
        }
    }

    /// Name of the lease that OCM's counterpart uses, so that it and muster exclude each other
    /// while one replaces the other. Source: the components' names in `pkg/cmd/hub/work.go` and
    /// `pkg/cmd/spoke/work.go`, and what library-go appends to them.
    const fn name(self) -> &'static str {
        match self {
            Self::Hub => "work-manager-lock",
            Self::Agents => "work-agent-lock",
        }
    }

    /// Where OCM installs the counterpart.
    const fn usual_namespace(self) -> &'static str {
        match self {
            Self::Hub => "open-cluster-management-hub",
            Self::Agents => "open-cluster-management-agent",
        }
    }

    /// The lease; `None` if there is to be none.
    fn settings(self, settings: &Settings, pod: Option<&Pod>) -> Option<LeaseSettings> {
        let (hub, agent) = (&settings.hub, &settings.agent);
        let (wanted, namespace, elsewhere, times) = match self {
            Self::Hub => (
                hub.leader_election,
                &hub.lease_namespace,
                false,
                hub.lease_times(),
            ),
            Self::Agents => (
                agent.leader_election,
                &agent.lease_namespace,
                agent.lease_kubeconfig.is_some(),
                agent.lease_times(),
            ),
        };
        let fits = pod.is_some() || namespace.is_some() || elsewhere;
        if !wanted.unwrap_or(fits) {
            return None;
        }
        let of_pod = || pod.and_then(|pod| pod.namespace.clone());
        let namespace = namespace.clone().or_else(of_pod);
        let LeaseTimes {
            duration,
            renew_deadline,
            retry_period,
        } = times;
        let namespace = namespace.unwrap_or_else(|| self.usual_namespace().to_owned());
        // Processes for different clusters may have leases of one name.
        let clusters: Vec<&str> = settings
            .clusters
            .iter()
            .map(|cluster| cluster.name.as_str())
            .collect();
        let lease = format!(
            "{namespace}/{} {clusters:?} {:?}",
            self.name(),
            hub.kubeconfig
        );
        Some(LeaseSettings {
            namespace,
            name: self.name().to_owned(),
            identity: identity(&lease),
            duration,
            renew_deadline,
            retry_period,
        })
    }
}

/// The pod that this process runs in.
struct Pod {
    namespace: Option<String>,
}

impl Pod {
    fn own() -> Option<Self> {
        in_pod().then(|| {
            let namespace = fs::read_to_string(POD_NAMESPACE).unwrap_or_default();
            let namespace = namespace.trim();
            Self {
                namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            }
        })
    }
}

/// Whether this process runs in a pod.
pub(super) fn in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// The lease of such a process, and a client of the cluster that has it; `None` if it works
/// without. `hub` is the hub's API, where the process has a hub.
pub(super) async fn wanted(
    roles: Roles,
    settings: &Settings,
    hub: Option<Client>,
) -> Result<Option<(Client, LeaseSettings)>, ClusterError> {
    let pod = Pod::own();
    let Some(whose) = Whose::of(roles, settings) else {
        return Ok(None);
    };
    let Some(lease) = whose.settings(settings, pod.as_ref()) else {
        return Ok(None);
    };
    let client = match hub {
        // Where the objects are that no two hubs should write.
        Some(hub) => hub,
        None => agents_client(settings, pod.is_some()).await?,
    };
    Ok(Some((client, lease)))
}

/// A client of the cluster that has the agents' lease.
async fn agents_client(settings: &Settings, in_pod: bool) -> Result<Client, ClusterError> {
    let access = if let Some(file) = &settings.agent.lease_kubeconfig {
        ClusterAccess::Kubeconfig {
            file: Some(file.clone()),
            context: None,
        }
    } else if in_pod {
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
    Ok(Client::try_from(config)?)
}

/// Host, which in a pod is the pod's name, and a UUID.
///
/// A process that is started again after it was killed is the same holder, and need not wait until its
/// own lease has lapsed. So the UUID stands for the place of the process: this boot of the machine and
/// this network, which a pod keeps when its container is started again. That no two processes at one
/// place are the same holder is made sure of by a socket that only one can have, which the system
/// takes back when the process ends, however that is. The others, as on systems without such
/// sockets, are of a random UUID, and wait for one that was killed.
///
/// `lease` tells apart what works under different leases at one place.
fn identity(lease: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let place = place(lease).filter(|place| is_alone(place));
    let uuid = place.map_or_else(
        || uuid(4, rand::random()),
        |place| {
            let hash = Sha256::digest(place);
            uuid(
                8,
                hash[..16]
                    .iter()
                    .fold(0, |bits, byte| bits << 8 | u128::from(*byte)),
            )
        },
    );
    format!("{host}_{uuid}")
}

/// Where this process runs; `None` where that cannot be told.
fn place(lease: &str) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{lease} {} {}", boot.trim(), network.display()))
}

/// Whether this process is the first of its place, which it then is until it ends.
#[cfg(target_os = "linux")]
fn is_alone(place: &str) -> bool {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let name = format!("muster-lease-{:x}", Sha256::digest(place));
    let socket =
        SocketAddr::from_abstract_name(name).and_then(|address| UnixDatagram::bind_addr(&address));
    // For as long as the process lives: nobody else may be the same holder.
    socket.map(std::mem::forget).is_ok()
}

/// Nothing is given back when a process dies: no two may be one.
#[cfg(not(target_os = "linux"))]
const fn is_alone(_: &str) -> bool {
    false
}

/// A UUID of this version (RFC 9562).
fn uuid(version: u128, bits: u128) -> String {
    let bits = bits & !(0xf << 76 | 0x3 << 62) | (version << 76 | 0x2 << 62);
    let mut uuid = format!("{bits:032x}");
    for dash in [8, 13, 18, 23] {
        uuid.insert(dash, '-');
    }
    uuid
}

/// The lease of this process, held or waited for.
#[derive(Debug)]
pub(super) struct Lease {
    holder: Addr<LeaseHolder>,
    standing: watch::Receiver<Standing>,
    /// From its loss until another may work.
    grace: Duration,
}

impl Lease {
    /// Begins to ask for it.
    pub(super) fn start(
        client: Client,
        settings: LeaseSettings,
        io: Io,
        registry: Registry,
        health: Health,
    ) -> Self {
        info!(
            namespace = settings.namespace,
            name = settings.name,
            "waiting for the lease"
        );
        let grace = settings.duration.saturating_sub(settings.renew_deadline);
        let (holder, standing) = muster_actors::lease::start(LeaseDeps {
            client,
            settings,
            io,
            registry,
            health,
        });
        Self {
            holder,
            standing,
            grace,
        }
    }

    /// How long everything may take to end that works under it, once it is lost.
    pub(super) const fn grace(&self) -> Duration {
        self.grace
    }

    /// Waits until this process holds it; `false` if it never will.
    pub(super) async fn taken(&mut self) -> bool {
        let decided = |standing: &Standing| *standing != Standing::Waiting;
        self.next(decided).await == Standing::Leading
    }

    /// Waits until it is lost, and says why.
    pub(super) async fn lost(&mut self) -> String {
        let lost = |standing: &Standing| matches!(standing, Standing::Lost(_));
        match self.next(lost).await {
            Standing::Lost(why) => why,
            other => format!("{other:?}"), // not what was waited for
        }
    }

    /// A holder that has ended holds nothing.
    async fn next(&mut self, wanted: impl FnMut(&Standing) -> bool) -> Standing {
        let next = self.standing.wait_for(wanted).await;
        next.map_or_else(
            |_| Standing::Lost("the holder of the lease has ended".to_owned()),
            |standing| standing.clone(),
        )
    }

    /// Gives it back. Nothing may work under it any more.
    pub(super) async fn give_back(&self, limit: Duration) {
        stop(&self.holder, limit).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    const KUBECONFIG: (&str, &str) = ("hub.api", "kubeconfig");

    fn load(set: &[(&str, &str)]) -> Settings {
        let with = |sources: Sources, (key, value): &(&str, &str)| sources.with_flag(*key, *value);
        Settings::load(&set.iter().fold(Sources::default(), with)).unwrap()
    }

    /// Namespace and name of the lease of a process with these settings.
    fn lease(roles: Roles, pod: Option<&str>, set: &[(&str, &str)]) -> Option<String> {
        let settings = load(set);
        // A namespace that cannot be read is empty.
        let pod = pod.map(|name| Pod {
            namespace: (!name.is_empty()).then(|| name.to_owned()),
        });
        let lease = Whose::of(roles, &settings)?.settings(&settings, pod.as_ref())?;
        Some(format!("{}/{}", lease.namespace, lease.name))
    }

    #[test]
    fn a_hub_on_a_kubernetes_cluster_has_a_lease_in_a_pod_or_where_one_is_named() {
        let on = ("hub.leader_election", "true");
        let off = ("hub.leader_election", "false");
        let named = ("hub.lease_namespace", "named");
        let usual = Some("open-cluster-management-hub/work-manager-lock");
        for (pod, set, expected) in [
            (None, &[KUBECONFIG][..], None),
            (None, &[KUBECONFIG, on], usual),
            (None, &[KUBECONFIG, named], Some("named/work-manager-lock")),
            (None, &[KUBECONFIG, named, off], None),
            (Some("pods"), &[KUBECONFIG], Some("pods/work-manager-lock")),
            (Some(""), &[KUBECONFIG], usual),
            (
                Some("pods"),
                &[KUBECONFIG, named],
                Some("named/work-manager-lock"),
            ),
            (Some("pods"), &[KUBECONFIG, off], None),
            // Settings of the agents' lease say nothing about the hub's.
            (
                None,
                &[
                    KUBECONFIG,
                    ("agent.leader_election", "true"),
                    ("agent.lease_namespace", "agents"),
                    ("agent.lease_kubeconfig", "/f"),
                ],
                None,
            ),
        ] {
            for roles in [Roles::Hub, Roles::HubAndAgents] {
                let found = lease(roles, pod, set);
                assert_eq!(found.as_deref(), expected, "{roles:?} {pod:?} {set:?}");
            }
        }
    }

    #[test]
    fn a_hub_with_the_embedded_api_server_has_none() {
        for roles in [Roles::Hub, Roles::HubAndAgents] {
            let set = [("hub.lease_namespace", "named")];
            assert_eq!(lease(roles, Some("pods"), &set), None, "{roles:?}");
        }
    }

    #[test]
    fn agents_alone_have_a_lease_in_a_pod_or_where_one_is_named() {
        let on = ("agent.leader_election", "true");
        let off = ("agent.leader_election", "false");
        let named = ("agent.lease_namespace", "named");
        let elsewhere = ("agent.lease_kubeconfig", "/f");
        let usual = Some("open-cluster-management-agent/work-agent-lock");
        for (pod, set, expected) in [
            (None, &[][..], None),
            (None, &[on], usual),
            (None, &[elsewhere], usual),
            (None, &[named], Some("named/work-agent-lock")),
            (None, &[named, elsewhere, off], None),
            (Some("pods"), &[], Some("pods/work-agent-lock")),
            (Some("pods"), &[named], Some("named/work-agent-lock")),
            (Some("pods"), &[off], None),
            // The hub of an agent is elsewhere, and so is its lease.
            (None, &[KUBECONFIG, ("hub.leader_election", "true")], None),
            (None, &[KUBECONFIG, ("hub.lease_namespace", "hub")], None),
        ] {
            let found = lease(Roles::Agents, pod, set);
            assert_eq!(found.as_deref(), expected, "{pod:?} {set:?}");
        }
    }

    #[test]
    fn each_lease_has_the_times_of_its_section() {
        let settings = load(&[
            KUBECONFIG,
            ("hub.leader_election", "true"),
            ("hub.lease_duration", "9s"),
            ("hub.lease_renew_deadline", "8s"),
            ("hub.lease_retry_period", "6s"),
            ("agent.leader_election", "true"),
            ("agent.lease_duration", "6s"),
            ("agent.lease_renew_deadline", "5s"),
            ("agent.lease_retry_period", "4s"),
        ]);
        let times = |whose: Whose| {
            let lease = whose.settings(&settings, None).unwrap();
            [lease.duration, lease.renew_deadline, lease.retry_period]
        };
        assert_eq!(times(Whose::Hub), [9, 8, 6].map(Duration::from_secs));
        assert_eq!(times(Whose::Agents), [6, 5, 4].map(Duration::from_secs));
    }

    #[test]
    fn identities_are_a_host_and_a_uuid_and_differ() {
        let lease = format!("ns/{:x}", rand::random::<u64>());
        let identities = [(); 3].map(|()| identity(&lease));
        for (identity, version) in identities.iter().zip([b'8', b'4', b'4']) {
            let (host, uuid) = identity.rsplit_once('_').unwrap();
            assert!(!host.is_empty());
            let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            if cfg!(target_os = "linux") {
                assert_eq!(uuid.as_bytes()[14], version, "{uuid}");
            }
            assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
        let [first, second, third] = identities;
        assert!(first != second && second != third);
    }

    #[test]
    fn a_place_is_the_same_for_the_same_lease_only() {
        assert_eq!(place("ns/a"), place("ns/a"));
        if cfg!(target_os = "linux") {
            assert_ne!(place("ns/a"), place("ns/b"));
        }
    }
}
