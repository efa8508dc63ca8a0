//! What of a change of settings takes effect in a process that runs.

use super::{Agent, Feedback, Hub, Settings, Telemetry, Transport, Watch};

/// What two settings differ in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What agents take over at once: feedback, watches, and some of their own.
    pub agents: bool,
    /// The filter of the log.
    pub log_level: bool,
    /// Keys, or sections, that are read only when a process starts.
    pub at_next_start: Vec<&'static str>,
}

impl Changes {
    /// From one to the other. Every key is looked at: one that is new in [`Settings`] does not
    /// compile before it has its place here.
    pub fn between(before: &Settings, after: &Settings) -> Self {
        let Settings {
            hub,
            transport,
            clusters,
            feedback,
            watch,
            agent,
            simulator,
            telemetry,
        } = before;
        let Feedback {
            poll_interval: _,
            max_json_raw_bytes: _,
            coalesce: _,
            raw_json: _,
        } = feedback;
        let Watch {
            max_watches: _,
            widen_after: _,
            stop_when_ready: _,
        } = watch;
        let mut changes = Self {
            agents: *feedback != after.feedback
                || *watch != after.watch
                || agent.workers != after.agent.workers
                || agent.eviction_grace != after.agent.eviction_grace,
            log_level: telemetry.log_level != after.telemetry.log_level,
            at_next_start: Vec::new(),
        };
        changes.of_hub(hub, &after.hub);
        let Transport { driver } = transport;
        changes.note("transport.driver", *driver != after.transport.driver);
        changes.note("clusters", *clusters != after.clusters);
        changes.of_agent(agent, &after.agent);
        changes.note("simulator", *simulator != after.simulator);
        changes.of_telemetry(telemetry, &after.telemetry);
        changes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn note(&mut self, key: &'static str, differs: bool) {
        if differs {
            self.at_next_start.push(key);
        }
    }

    fn of_hub(&mut self, before: &Hub, after: &Hub) {
        self.note("hub", before != after);
    }

    #[allow(clippy::float_cmp, reason = "the same text gives the same number")]
    fn of_agent(&mut self, before: &Agent, after: &Agent) {
        let Agent {
            workers: _,
            eviction_grace: _,
            agent_id,
            spoke_qps,
            spoke_burst,
            hub_qps,
            hub_burst,
            leader_election,
            lease_namespace,
            lease_kubeconfig,
            lease_duration,
            lease_renew_deadline,
            lease_retry_period,
            terminate_on_files,
        } = before;
        self.note("agent.agent_id", *agent_id != after.agent_id);
        self.note("agent.spoke_qps", *spoke_qps != after.spoke_qps);
        self.note("agent.spoke_burst", *spoke_burst != after.spoke_burst);
        self.note("agent.hub_qps", *hub_qps != after.hub_qps);
        self.note("agent.hub_burst", *hub_burst != after.hub_burst);
        self.note(
            "agent.leader_election",
            *leader_election != after.leader_election,
        );
        self.note(
            "agent.lease_namespace",
            *lease_namespace != after.lease_namespace,
        );
        self.note(
            "agent.lease_kubeconfig",
            *lease_kubeconfig != after.lease_kubeconfig,
        );
        self.note(
            "agent.lease_duration",
            *lease_duration != after.lease_duration,
        );
        self.note(
            "agent.lease_renew_deadline",
            *lease_renew_deadline != after.lease_renew_deadline,
        );
        self.note(
            "agent.lease_retry_period",
            *lease_retry_period != after.lease_retry_period,
        );
        self.note(
            "agent.terminate_on_files",
            *terminate_on_files != after.terminate_on_files,
        );
    }

    fn of_telemetry(&mut self, before: &Telemetry, after: &Telemetry) {
        let Telemetry {
            log_level: _,
            listen,
            https_listen,
            tls_min_version,
            tls_cipher_suites,
            log_format,
        } = before;
        self.note("telemetry.listen", *listen != after.listen);
        self.note(
            "telemetry.https_listen",
            *https_listen != after.https_listen,
        );
        self.note(
            "telemetry.tls_min_version",
            *tls_min_version != after.tls_min_version,
        );
        self.note(
            "telemetry.tls_cipher_suites",
            *tls_cipher_suites != after.tls_cipher_suites,
        );
        self.note("telemetry.log_format", *log_format != after.log_format);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    fn with(key: &str, value: &str) -> Settings {
        Settings::load(&Sources::default().with_flag(key, value)).unwrap()
    }

    fn changes(key: &str, value: &str) -> Changes {
        Changes::between(
            &Settings::load(&Sources::default()).unwrap(),
            &with(key, value),
        )
    }

    #[test]
    fn equal_settings_change_nothing() {
        assert!(changes("feedback.coalesce", "20ms").is_empty());
    }

    #[test]
    fn what_agents_take_over_at_once() {
        for (key, value) in [
            ("feedback.poll_interval", "7s"),
            ("feedback.max_json_raw_bytes", "7"),
            ("feedback.coalesce", "7ms"),
            ("feedback.raw_json", "true"),
            ("watch.max_watches", "0"),
            ("watch.widen_after", "7"),
            ("watch.stop_when_ready", "true"),
            ("agent.workers", "7"),
            ("agent.eviction_grace", "7s"),
        ] {
            let expected = Changes {
                agents: true,
                ..Changes::default()
            };
            assert_eq!(changes(key, value), expected, "{key}");
        }
        let expected = Changes {
            log_level: true,
            ..Changes::default()
        };
        assert_eq!(changes("telemetry.log_level", "debug"), expected);
    }

    #[test]
    fn what_needs_another_start_is_named() {
        for (key, value, named) in [
            ("hub.listen", "127.0.0.1:1", "hub"),
            ("transport.driver", "kube", "transport.driver"),
            ("agent.agent_id", "x", "agent.agent_id"),
            ("agent.spoke_qps", "7", "agent.spoke_qps"),
            ("agent.spoke_burst", "7", "agent.spoke_burst"),
            ("agent.hub_qps", "7", "agent.hub_qps"),
            ("agent.hub_burst", "7", "agent.hub_burst"),
            ("agent.leader_election", "true", "agent.leader_election"),
            ("agent.lease_namespace", "x", "agent.lease_namespace"),
            ("agent.lease_kubeconfig", "x", "agent.lease_kubeconfig"),
            ("agent.lease_duration", "200s", "agent.lease_duration"),
            (
                "agent.lease_renew_deadline",
                "100s",
                "agent.lease_renew_deadline",
            ),
            (
                "agent.lease_retry_period",
                "25s",
                "agent.lease_retry_period",
            ),
            ("agent.terminate_on_files", "x", "agent.terminate_on_files"),
            ("simulator.pace", "7ms", "simulator"),
            ("telemetry.listen", "127.0.0.1:1", "telemetry.listen"),
            (
                "telemetry.https_listen",
                "127.0.0.1:1",
                "telemetry.https_listen",
            ),
            (
                "telemetry.tls_min_version",
                "VersionTLS13",
                "telemetry.tls_min_version",
            ),
            (
                "telemetry.tls_cipher_suites",
                "x",
                "telemetry.tls_cipher_suites",
            ),
            ("telemetry.log_format", "json", "telemetry.log_format"),
        ] {
            let expected = Changes {
                at_next_start: vec![named],
                ..Changes::default()
            };
            assert_eq!(changes(key, value), expected, "{key}");
        }
    }
}
