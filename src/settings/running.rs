//! What of newer settings takes effect while a process runs, and what needs a restart.

use std::time::Duration;

use super::Settings;

/// What a process runs with.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    settings: Settings,
    /// What its hub runs with of `feedback.coalesce`, which it reads at its start. `None` without a
    /// hub.
    hub_coalesce: Option<Duration>,
}

/// How newer settings differ from those that a process runs with, by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Take effect now.
    pub live: Vec<&'static str>,
    /// Wait for a restart. Told anew at each change, as long as the file has them.
    pub restart: Vec<&'static str>,
}

impl Changes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }
}

impl Running {
    /// A process that starts with these settings, with a hub or without.
    pub fn new(settings: Settings, hub: bool) -> Self {
        let hub_coalesce = hub.then_some(settings.feedback.coalesce);
        Self {
            settings,
            hub_coalesce,
        }
    }

    /// The settings in effect: those of the start, with what could be taken over since.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes over what can change while the process runs.
    pub fn take_over(&mut self, new: &Settings) -> Changes {
        let before = self.settings.clone();
        // All that `AgentSettings` has, and the filter of the log.
        let now = &mut self.settings;
        now.feedback.clone_from(&new.feedback);
        now.watch.max_watches = new.watch.max_watches;
        now.watch.widen_after = new.watch.widen_after;
        now.watch.stop_when_ready = new.watch.stop_when_ready;
        now.agent.workers = new.agent.workers;
        now.agent.eviction_grace = new.agent.eviction_grace;
        now.telemetry.log_level.clone_from(&new.telemetry.log_level);

        let mut restart = differences(&self.settings, new);
        if self
            .hub_coalesce
            .is_some_and(|own| own != new.feedback.coalesce)
        {
            restart.push(HUB_COALESCE);
        }
        Changes {
            live: differences(&before, &self.settings),
            restart,
        }
    }
}

/// `feedback.coalesce` where it is the hub that keeps the old one.
const HUB_COALESCE: &str = "feedback.coalesce (of the hub)";

fn differences(one: &Settings, other: &Settings) -> Vec<&'static str> {
    let differing = KEYS.iter().filter(|(_, differ)| differ(one, other));
    differing.map(|(key, _)| *key).collect()
}

/// A key, and whether two settings differ in it.
type Key = (&'static str, fn(&Settings, &Settings) -> bool);

macro_rules! keys {
    ($($section:ident . $key:ident),+ $(,)?) => {
        &[
            ("clusters", |one, other| one.clusters != other.clusters),
            ("sinks", |one, other| one.sinks != other.sinks),
            $((
                concat!(stringify!($section), ".", stringify!($key)),
                |one, other| one.$section.$key != other.$section.$key,
            )),+
        ]
    };
}

/// Every key, once more: a test compares them with those that are read.
#[allow(
    clippy::float_cmp,
    reason = "a rate that was not touched is the same to the bit"
)]
const KEYS: &[Key] = keys![
    hub.api,
    hub.listen,
    hub.max_connections,
    hub.data_dir,
    hub.kubeconfig,
    hub.context,
    hub.install_crds,
    hub.resolve_placements,
    hub.abandon_after,
    hub.leader_election,
    hub.lease_namespace,
    hub.lease_duration,
    hub.lease_renew_deadline,
    hub.lease_retry_period,
    transport.driver,
    mqtt.broker,
    mqtt.username,
    mqtt.password_file,
    mqtt.tls,
    mqtt.ca_file,
    mqtt.client_cert_file,
    mqtt.client_key_file,
    mqtt.config_file,
    mqtt.dialect,
    mqtt.source,
    mqtt.client_id,
    mqtt.resync_interval,
    mqtt.away_after,
    mqtt.presence,
    mqtt.data_dir,
    mqtt.except_clusters,
    broker.listen,
    broker.users_file,
    broker.cert_file,
    broker.key_file,
    broker.client_ca_file,
    broker.allow_anonymous,
    broker.max_packet_bytes,
    broker.max_connections,
    broker.max_connections_of_address,
    broker.max_sessions,
    broker.max_sessions_of_user,
    broker.max_queued_messages,
    feedback.poll_interval,
    feedback.max_json_raw_bytes,
    feedback.coalesce,
    feedback.raw_json,
    watch.max_watches,
    watch.widen_after,
    watch.stop_when_ready,
    watch.debounce,
    watch.debounce_max,
    watch.heartbeat,
    watch.restart,
    rules.data_dir,
    rules.queue_events,
    rules.queue_bytes,
    rules.never_watch,
    agent.workers,
    agent.agent_id,
    agent.eviction_grace,
    agent.spoke_qps,
    agent.spoke_burst,
    agent.hub_qps,
    agent.hub_burst,
    agent.leader_election,
    agent.lease_namespace,
    agent.lease_kubeconfig,
    agent.lease_duration,
    agent.lease_renew_deadline,
    agent.lease_retry_period,
    agent.terminate_on_files,
    simulator.pace,
    telemetry.listen,
    telemetry.https_listen,
    telemetry.tls_min_version,
    telemetry.tls_cipher_suites,
    telemetry.allowed_hosts,
    telemetry.max_connections,
    telemetry.log_format,
    telemetry.log_level,
];

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Cluster, ClusterAccess, Sources, check};
    use super::*;

    /// Every key with a value that is not its default, and whether it changes while agents run.
    const CHANGED: &[(&str, &str, bool)] = &[
        ("hub.api", "kubeconfig", false),
        ("hub.listen", "127.0.0.1:1", false),
        ("hub.max_connections", "1", false),
        ("hub.data_dir", "/d", false),
        ("hub.kubeconfig", "/k", false),
        ("hub.context", "c", false),
        ("hub.install_crds", "false", false),
        ("hub.resolve_placements", "true", false),
        ("hub.abandon_after", "1s", false),
        ("hub.leader_election", "false", false),
        ("hub.lease_namespace", "n", false),
        ("hub.lease_duration", "200s", false),
        ("hub.lease_renew_deadline", "100s", false),
        ("hub.lease_retry_period", "1s", false),
        ("transport.driver", "kube", false),
        ("mqtt.broker", "x", false),
        ("mqtt.username", "x", false),
        ("mqtt.password_file", "/f", false),
        ("mqtt.tls", "true", false),
        ("mqtt.ca_file", "/f", false),
        ("mqtt.client_cert_file", "/f", false),
        ("mqtt.client_key_file", "/f", false),
        ("mqtt.config_file", "/f", false),
        ("mqtt.dialect", "enhancement", false),
        ("mqtt.source", "x", false),
        ("mqtt.client_id", "x", false),
        ("mqtt.resync_interval", "1s", false),
        ("mqtt.away_after", "1s", false),
        ("mqtt.presence", "false", false),
        ("mqtt.data_dir", "x", false),
        ("mqtt.except_clusters", "a", false),
        ("broker.listen", "127.0.0.1:1", false),
        ("broker.users_file", "/f", false),
        ("broker.cert_file", "/f", false),
        ("broker.key_file", "/f", false),
        ("broker.client_ca_file", "/f", false),
        ("broker.allow_anonymous", "true", false),
        ("broker.max_packet_bytes", "1", false),
        ("broker.max_connections", "1", false),
        ("broker.max_connections_of_address", "1", false),
        ("broker.max_sessions", "1", false),
        ("broker.max_sessions_of_user", "1", false),
        ("broker.max_queued_messages", "1", false),
        ("feedback.poll_interval", "1s", true),
        ("feedback.max_json_raw_bytes", "1", true),
        ("feedback.coalesce", "1s", true),
        ("feedback.raw_json", "true", true),
        ("watch.max_watches", "0", true),
        ("watch.widen_after", "1", true),
        ("watch.stop_when_ready", "true", true),
        ("watch.debounce", "1s", false),
        ("watch.debounce_max", "4s", false),
        ("watch.heartbeat", "1s", false),
        ("watch.restart", "incremental", false),
        ("rules.data_dir", "/d", false),
        ("rules.queue_events", "1", false),
        ("rules.queue_bytes", "1", false),
        ("rules.never_watch", "pods", false),
        ("agent.workers", "1", true),
        ("agent.agent_id", "a", false),
        ("agent.eviction_grace", "1s", true),
        ("agent.spoke_qps", "1", false),
        ("agent.spoke_burst", "1", false),
        ("agent.hub_qps", "1", false),
        ("agent.hub_burst", "1", false),
        ("agent.leader_election", "true", false),
        ("agent.lease_namespace", "n", false),
        ("agent.lease_kubeconfig", "/k", false),
        ("agent.lease_duration", "200s", false),
        ("agent.lease_renew_deadline", "100s", false),
        ("agent.lease_retry_period", "1s", false),
        ("agent.terminate_on_files", "/f", false),
        ("simulator.pace", "1s", false),
        ("telemetry.listen", "127.0.0.1:1", false),
        ("telemetry.https_listen", "127.0.0.1:1", false),
        ("telemetry.tls_min_version", "VersionTLS13", false),
        ("telemetry.tls_cipher_suites", "A", false),
        ("telemetry.allowed_hosts", "h", false),
        ("telemetry.max_connections", "1", false),
        ("telemetry.log_format", "json", false),
        ("telemetry.log_level", "debug", true),
    ];

    /// Every key, and whether it changes at once.
    pub(in super::super) fn live_keys() -> impl Iterator<Item = (&'static str, bool)> {
        CHANGED.iter().map(|(key, _, live)| (*key, *live))
    }

    fn settings(set: &[(&str, &str)]) -> Settings {
        let with = |sources: Sources, (key, value): &(&str, &str)| sources.with_flag(*key, *value);
        Settings::load(&set.iter().fold(Sources::default(), with)).unwrap()
    }

    #[test]
    fn each_key_changes_at_once_or_waits_for_a_restart() {
        let keys: Vec<_> = CHANGED.iter().map(|(key, ..)| *key).collect();
        assert_eq!(keys, check::keys().collect::<Vec<_>>());
        for (key, value, live) in CHANGED {
            let new = settings(&[(key, value)]);
            let mut running = Running::new(settings(&[]), false);
            let changes = running.take_over(&new);
            let (taken, waiting) = if *live {
                (vec![*key], vec![])
            } else {
                (vec![], vec![*key])
            };
            assert_eq!(changes.live, taken, "{key}");
            assert_eq!(changes.restart, waiting, "{key}");
            assert_eq!(*running.settings() == new, *live, "{key}");
            assert!(!changes.is_empty());
            // The same again changes nothing, and what waits goes on waiting.
            let again = running.take_over(&new);
            assert_eq!((again.live, again.restart), (vec![], waiting), "{key}");
        }
    }

    #[test]
    fn clusters_need_a_restart() {
        let mut new = settings(&[]);
        new.clusters.push(Cluster {
            name: "a".to_owned(),
            access: ClusterAccess::Simulated,
            labels: [].into(),
        });
        let mut running = Running::new(settings(&[]), true);
        assert_eq!(running.take_over(&new).restart, ["clusters"]);
        assert!(running.settings().clusters.is_empty());
    }

    #[test]
    fn a_hub_goes_on_with_the_coalescing_that_it_started_with() {
        let (old, new) = (settings(&[]), settings(&[("feedback.coalesce", "1s")]));
        let mut running = Running::new(old.clone(), true);
        for live in [&["feedback.coalesce"][..], &[]] {
            let changes = running.take_over(&new);
            assert_eq!(changes.live, live);
            assert_eq!(changes.restart, [HUB_COALESCE]);
        }
        let back = running.take_over(&old);
        assert_eq!(back.live, ["feedback.coalesce"]);
        assert_eq!(back.restart, [""; 0]);
        assert!(running.take_over(&old).is_empty());
    }

    #[test]
    fn what_can_be_taken_over_is_though_other_keys_wait() {
        let new = settings(&[
            ("hub.context", "c"),
            ("watch.max_watches", "3"),
            ("agent.workers", "4"),
        ]);
        let mut running = Running::new(settings(&[]), false);
        let changes = running.take_over(&new);
        assert_eq!(changes.live, ["watch.max_watches", "agent.workers"]);
        assert_eq!(changes.restart, ["hub.context"]);
        let now = running.settings();
        assert_eq!((now.watch.max_watches, now.agent.workers.get()), (3, 4));
        assert_eq!(now.hub.context, None);
    }
}
