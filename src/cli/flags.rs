//! The flags that OCM's work agent takes, and what each means here.
//!
//! One table says it all: clap's definition, `--help` and the settings come from it.

use std::collections::BTreeMap;

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// What a flag does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Sets this key.
    Setting(&'static str),
    /// More than one key, or only parts of one: see `agent.rs`.
    Several,
}

/// A flag of OCM's work agent.
#[derive(Debug)]
pub(super) struct Flag {
    /// Name without dashes.
    pub(super) name: &'static str,
    /// Other names for it.
    aliases: &'static [&'static str],
    /// What its value is; none for a switch.
    value: Option<&'static str>,
    /// Default of upstream's flag, as upstream spells it.
    pub(super) upstream_default: &'static str,
    help: &'static str,
    pub(super) meaning: Meaning,
}

const fn flag(
    name: &'static str,
    value: &'static str,
    upstream_default: &'static str,
    help: &'static str,
    meaning: Meaning,
) -> Flag {
    Flag {
        name,
        aliases: &[],
        value: Some(value),
        upstream_default,
        help,
        meaning,
    }
}

use Meaning::{Setting, Several};

/// All of them. Upstream has them in its `pkg/work/spoke/options.go`, `pkg/common/options` and in
/// the controller command of library-go.
#[rustfmt::skip] // a table
pub(super) const FLAGS: &[Flag] = &[
    Flag {
        aliases: &["cluster-name"],
        ..flag("spoke-cluster-name", "NAME", "", "Name of the cluster, which is the namespace of its works on the hub. Replaces the clusters of the settings by one", Several)
    },
    flag("spoke-kubeconfig", "FILE", "", "Kubeconfig of the cluster; without it --kubeconfig, else the service account of the pod", Several),
    flag("kubeconfig", "FILE", "", "Kubeconfig of the cluster that has the lease, and of the cluster itself without --spoke-kubeconfig", Several),
    flag("namespace", "NAMESPACE", "", "Namespace of the lease; without it the pod's, else open-cluster-management-agent", Setting("agent.lease_namespace")),
    flag("workload-source-driver", "DRIVER", "kube", "How works come: kube, or mqtt as CloudEvents", Several),
    flag("workload-source-config", "FILE", "/spoke/hub-kubeconfig/kubeconfig", "Kubeconfig of the hub; with mqtt OCM's file for that driver", Several),
    flag("hub-kubeconfig", "FILE", "", "Kubeconfig of the hub, without --workload-source-config", Several),
    flag("hub-kubeconfig-dir", "DIR", "/spoke/hub-kubeconfig", "Directory with the hub's kubeconfig, without the two flags above", Several),
    flag("agent-id", "ID", "", "Whose AppliedManifestWorks are the agent's own; without it the hash of the hub's address", Setting("agent.agent_id")),
    Flag {
        aliases: &["status-update-frequency"],
        ..flag("status-sync-interval", "DURATION", "10s", "How often live objects are read", Setting("feedback.poll_interval"))
    },
    flag("max-json-raw-length", "BYTES", "1024", "Longest list or object, in bytes of JSON, that a feedback value may hold", Setting("feedback.max_json_raw_bytes")),
    flag("max-feedback-watch", "COUNT", "50", "Most watches for feedback", Setting("watch.max_watches")),
    flag("appliedmanifestwork-eviction-grace-period", "DURATION", "1h0m0s", "How long objects stay whose work is gone from the hub; 100 years mean for ever", Setting("agent.eviction_grace")),
    flag("workload-agent-workers", "COUNT", "10", "Works that are applied at the same time", Several),
    flag("kube-api-qps", "RATE", "50", "Requests a second to the cluster; below 0 without limit", Setting("agent.spoke_qps")),
    flag("kube-api-burst", "COUNT", "100", "Requests to the cluster that may come at once", Setting("agent.spoke_burst")),
    flag("hub-kube-api-qps", "RATE", "50", "Requests a second to the hub; below 0 without limit", Setting("agent.hub_qps")),
    flag("hub-kube-api-burst", "COUNT", "100", "Requests to the hub that may come at once", Setting("agent.hub_burst")),
    Flag {
        value: None,
        ..flag("disable-leader-election", "", "false", "Work without a lease", Several)
    },
    flag("leader-election-lease-duration", "DURATION", "2m17s", "How long others wait for a holder of the lease that does not renew", Setting("agent.lease_duration")),
    flag("leader-election-renew-deadline", "DURATION", "1m47s", "How long a holder of the lease goes on that cannot renew", Setting("agent.lease_renew_deadline")),
    flag("leader-election-retry-period", "DURATION", "26s", "Time between two tries to take or renew the lease", Setting("agent.lease_retry_period")),
    flag("listen", "ADDRESS", "", "Where metrics and probes are served over HTTPS; in a pod 0.0.0.0:8443 without it", Several),
    flag("health-port", "PORT", "0", "Port of 0.0.0.0 for metrics and probes over HTTPS, without --listen; 0 means 8443", Several),
    flag("tls-min-version", "VERSION", "", "Least version of TLS there: VersionTLS12 or VersionTLS13", Setting("telemetry.tls_min_version")),
    flag("tls-cipher-suites", "NAMES", "", "Cipher suites of TLS 1.2 there, with commas between them", Setting("telemetry.tls_cipher_suites")),
    flag("terminate-on-files", "FILES", "[]", "Files whose change ends the process; may be given several times", Several),
    flag("feature-gates", "GATES", "", "RawFeedbackJsonString=true reports lists and objects, as feedback.raw_json does; ExecutorValidatingCaches is always safe here", Several),
    flag("cloudevents-client-id", "ID", "", "Name of the client at a broker", Setting("mqtt.client_id")),
    flag("cloudevents-client-codecs", "NAMES", "[]", "Codecs of the client at a broker: manifestbundle", Several),
    flag("v", "LEVEL", "0", "Log level by klog's numbers: 4 and more is debug, 8 and more trace", Several),
];

impl Flag {
    fn arg(&self) -> Arg {
        let meaning = match self.meaning {
            Setting(key) => format!(" [setting: {key}]"),
            Several => String::new(),
        };
        let default = match self.upstream_default {
            "" | "[]" => String::new(),
            default => format!(" [OCM's default: {default}]"),
        };
        let help = format!("{}{meaning}{default}", self.help);
        let arg = Arg::new(self.name)
            .long(self.name)
            .visible_aliases(self.aliases.iter().copied())
            .action(ArgAction::Append)
            .allow_negative_numbers(true)
            .help_heading("Flags of OCM's work agent")
            .help(help);
        let arg = match self.value {
            Some(value) => arg.value_name(value),
            // As pflag: `--switch`, `--switch=false`, never `--switch false`.
            None => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_name("BOOL"),
        };
        if self.name.len() == 1 {
            arg.short(self.name.chars().next())
        } else {
            arg
        }
    }
}

/// The flags that a command line has, as texts.
#[derive(Debug, Clone, Default)]
pub(super) struct OcmFlags(BTreeMap<&'static str, Vec<String>>);

impl OcmFlags {
    /// Every flag given, in the order of the table, with its values.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static Flag, &[String])> {
        FLAGS
            .iter()
            .filter_map(|flag| Some((flag, self.0.get(flag.name)?.as_slice())))
    }

    /// The value of a flag: the last, as in pflag. An empty one is none.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let last = self.0.get(name)?.last()?;
        Some(last.as_str()).filter(|value| !value.is_empty())
    }
}

impl FromArgMatches for OcmFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = FLAGS.iter().filter_map(|flag| {
            let values = matches.get_many::<String>(flag.name)?;
            Some((flag.name, values.cloned().collect()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

impl Args for OcmFlags {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(Flag::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
