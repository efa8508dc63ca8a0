//! `muster agent`: the settings of a file, and the flags that OCM's work agent takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::flags::{Meaning, OcmFlags};
use super::{ConfigArgs, commands};
use crate::runtime::Roles;
use crate::settings::{
    Cluster, ClusterAccess, Driver, Problem, Settings, SettingsError, Sources, check_name, value_of,
};

/// Where OCM's deployment of the agent mounts the secret with access to the hub.
const HUB_KUBECONFIG: &str = "/spoke/hub-kubeconfig/kubeconfig";
/// What lists and objects may be at most in the CRD that OCM installs.
const CRD_JSON_BYTES: u32 = 1024;
/// The codec of OCM's agent for works as CloudEvents.
const CODEC: &str = "manifestbundle";
/// Port of the probes in OCM's deployment.
const HEALTH_PORT: u16 = 8443;

/// Flags of `muster agent`. Those named as in OCM's work agent mean the same.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    ocm: OcmFlags,
}

/// What flags come to, beside the settings that they set.
#[derive(Default)]
struct Reading {
    problems: Vec<Problem>,
    /// What the user should know, for the log.
    notes: Vec<String>,
}

impl Reading {
    fn wrong(&mut self, flag: &str, message: impl Into<String>) {
        self.problems.push(Problem::Flag {
            flag: format!("--{flag}"),
            message: message.into(),
        });
    }
}

impl AgentArgs {
    /// The settings that file and flags make, and notes for the log.
    ///
    /// # Errors
    ///
    /// Every problem of every layer, each with the flag it is about.
    pub(crate) fn settings(&self) -> Result<(Settings, Vec<String>), SettingsError> {
        let mut reading = Reading::default();
        let sources = self.sources(&mut reading);
        let cluster = self.cluster(&mut reading);
        let mut settings = match Settings::load(&sources) {
            Ok(settings) if reading.problems.is_empty() => settings,
            Ok(_) => {
                return Err(SettingsError {
                    problems: reading.problems,
                });
            }
            Err(error) => {
                let mut problems = reading.problems;
                problems.extend(error.problems);
                return Err(SettingsError { problems });
            }
        };
        if settings.transport.driver == Driver::Loopback {
            settings.transport.driver = Driver::Kube;
        }
        if let Some(cluster) = cluster {
            settings.clusters = vec![cluster];
        }
        if settings.hub.kubeconfig.is_none() && Path::new(HUB_KUBECONFIG).exists() {
            settings.hub.kubeconfig = Some(HUB_KUBECONFIG.into());
        }
        if self.ocm.value("max-json-raw-length").is_some()
            && settings.feedback.max_json_raw_bytes.get() > CRD_JSON_BYTES
        {
            reading.notes.push(format!(
                "--max-json-raw-length: the ManifestWork definition of OCM allows {CRD_JSON_BYTES} \
                 bytes; a hub with it refuses a status with more"
            ));
        }
        Ok((settings, reading.notes))
    }

    fn sources(&self, reading: &mut Reading) -> Sources {
        let mut sources = self.config.sources();
        for (flag, values) in self.ocm.given() {
            let pairs = match flag.meaning {
                // An empty value is the default of most flags upstream, spelled out.
                Meaning::Setting(key) => {
                    let value = self.ocm.value(flag.name);
                    value
                        .map(|value| (key, value.to_owned()))
                        .into_iter()
                        .collect()
                }
                Meaning::Several => self.several(flag.name, values, reading),
            };
            for (key, value) in pairs {
                sources = sources.with_named_flag(key, value, format!("--{}", flag.name));
            }
        }
        for (flag, key, value) in self.hub().into_iter().chain(self.https(reading)) {
            sources = sources.with_named_flag(key, value, format!("--{flag}"));
        }
        sources
    }

    /// Keys and values of a flag that is not simply one setting.
    fn several(
        &self,
        name: &str,
        values: &[String],
        reading: &mut Reading,
    ) -> Vec<(&'static str, String)> {
        let Some(value) = self.ocm.value(name) else {
            return Vec::new();
        };
        let one = |key, value: &str| vec![(key, value.to_owned())];
        match name {
            "kubeconfig" => one("agent.lease_kubeconfig", value),
            "terminate-on-files" => one("agent.terminate_on_files", &values.join(",")),
            "workload-source-driver" if ["kube", "mqtt"].contains(&value) => {
                one("transport.driver", value)
            }
            "workload-source-driver" => {
                let known = ["grpc", "kafka"].contains(&value);
                reading.wrong(
                    name,
                    if known {
                        format!("{value} is not supported, only kube and mqtt")
                    } else {
                        format!("{value:?} is not a driver: kube or mqtt")
                    },
                );
                Vec::new()
            }
            "cloudevents-client-codecs" => {
                let codecs = values.iter().flat_map(|value| value.split(','));
                for codec in codecs.map(str::trim).filter(|codec| !codec.is_empty()) {
                    match codec {
                        CODEC | "[]" => {}
                        "manifest" => reading.notes.push(format!(
                            "--{name}: {codec} has no effect: all works come as {CODEC}"
                        )),
                        _ => {
                            let message = format!("{codec:?} is not a codec: {CODEC}");
                            reading.wrong(name, message);
                        }
                    }
                }
                Vec::new()
            }
            "workload-agent-workers" => {
                if value.parse::<i64>().is_ok_and(|count| count < 1) {
                    let message = format!("workload-agent-workers must be >= 1, got {value}");
                    reading.wrong(name, message);
                    return Vec::new();
                }
                one("agent.workers", value)
            }
            "disable-leader-election" => {
                if let Some(disabled) = boolean(value) {
                    one("agent.leader_election", &(!disabled).to_string())
                } else {
                    reading.wrong(name, format!("{value:?} is neither true nor false"));
                    Vec::new()
                }
            }
            "feature-gates" => match raw_json(values) {
                Ok(Some(raw_json)) => one("feedback.raw_json", &raw_json.to_string()),
                Ok(None) => Vec::new(),
                Err(problems) => {
                    for problem in problems {
                        reading.wrong(name, problem);
                    }
                    Vec::new()
                }
            },
            "v" => match value.parse::<u8>() {
                Ok(0..4) => Vec::new(),
                Ok(4..8) => one("telemetry.log_level", "info,muster=debug"),
                Ok(8..) => one("telemetry.log_level", "debug,muster=trace"),
                Err(_) => {
                    reading.wrong(name, format!("{value:?} is not a log level (example: 4)"));
                    Vec::new()
                }
            },
            // Those below take several flags together: `hub`, `https`, `cluster`.
            _ => Vec::new(),
        }
    }

    /// Whether works come as CloudEvents, by the flag, else by the settings below it.
    fn takes_events(&self) -> bool {
        if let Some(driver) = self.ocm.value("workload-source-driver") {
            return driver == "mqtt";
        }
        value_of(&self.config.sources(), "transport.driver").as_deref() == Some("mqtt")
    }

    /// Access to the hub: with CloudEvents the driver's file; else the driver's file, else the hub's, else the one in the directory.
    fn hub(&self) -> Option<(&'static str, &'static str, String)> {
        let file = |flag| Some((flag, "hub.kubeconfig", self.ocm.value(flag)?.to_owned()));
        let (dir, source) = ("hub-kubeconfig-dir", "workload-source-config");
        if self.takes_events() {
            return Some((
                source,
                "mqtt.config_file",
                self.ocm.value(source)?.to_owned(),
            ));
        }
        file(source).or_else(|| file("hub-kubeconfig")).or_else(|| {
            let path = Path::new(self.ocm.value(dir)?).join("kubeconfig");
            let path = path.to_string_lossy().into_owned();
            Some((dir, "hub.kubeconfig", path))
        })
    }

    /// Where probes are served. `:8443` means all addresses, as in Go.
    fn https(&self, reading: &mut Reading) -> Option<(&'static str, &'static str, String)> {
        const KEY: &str = "telemetry.https_listen";
        if let Some(address) = self.ocm.value("listen") {
            let all = if address.starts_with(':') {
                "0.0.0.0"
            } else {
                ""
            };
            return Some(("listen", KEY, format!("{all}{address}")));
        }
        let port = self.ocm.value("health-port")?;
        match port.parse::<u16>() {
            Ok(0) => Some(("health-port", KEY, format!("0.0.0.0:{HEALTH_PORT}"))),
            Ok(port) => Some(("health-port", KEY, format!("0.0.0.0:{port}"))),
            Err(_) => {
                let message = format!("invalid value {port}: must be 0 or between 1 and 65535");
                reading.wrong("health-port", message);
                None
            }
        }
    }

    /// The cluster that the flags name.
    fn cluster(&self, reading: &mut Reading) -> Option<Cluster> {
        const NAME: &str = "spoke-cluster-name";
        let spoke = self.ocm.value("spoke-kubeconfig");
        let Some(name) = self.ocm.value(NAME) else {
            if spoke.is_some() {
                reading.wrong("spoke-kubeconfig", format!("needs --{NAME}"));
            }
            return None;
        };
        if let Err(message) = check_name(name) {
            reading.wrong(NAME, format!("{name:?} {message}"));
        }
        let file = spoke.or_else(|| self.ocm.value("kubeconfig"));
        let access = file.map_or(ClusterAccess::InCluster, |file| ClusterAccess::Kubeconfig {
            file: Some(PathBuf::from(file)),
            context: None,
        });
        Some(Cluster {
            name: name.to_owned(),
            access,
            labels: BTreeMap::default(),
        })
    }

    pub(super) fn run(&self) -> ExitCode {
        let sources = self.sources(&mut Reading::default()); // `settings` tells what is wrong
        commands::serve_with(&sources, || self.settings(), Roles::Agents)
    }
}

/// A boolean as Go's `strconv.ParseBool` reads it.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// What feature gates make of `feedback.raw_json`; `None` leaves it.
///
/// The gates of OCM's agent are all alpha, so `AllAlpha` switches those that are not named.
fn raw_json(values: &[String]) -> Result<Option<bool>, Vec<String>> {
    let (mut named, mut all, mut problems) = (None, None, Vec::new());
    let gates = values.iter().flat_map(|value| value.split(','));
    for gate in gates.map(str::trim).filter(|gate| !gate.is_empty()) {
        let Some((name, value)) = gate.split_once('=') else {
            problems.push(format!("missing bool value for {gate}"));
            continue;
        };
        let Some(on) = boolean(value) else {
            problems.push(format!("invalid value of {name}={value}"));
            continue;
        };
        match name {
            "RawFeedbackJsonString" => named = Some(on),
            "AllAlpha" => all = Some(on),
            // Who may do what is always asked for anew after a change of RBAC.
            "ExecutorValidatingCaches" | "AllBeta" => {}
            _ => problems.push(format!("unrecognized feature gate: {name}")),
        }
    }
    if problems.is_empty() {
        Ok(named.or(all))
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::flags::FLAGS;
    use super::*;
    use crate::settings::{TlsVersion, parse_duration};
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: AgentArgs,
    }

    fn read(flags: &[&str]) -> Result<(Settings, Vec<String>), SettingsError> {
        let line = std::iter::once(&"agent").chain(flags);
        Line::parse_from(line).agent.settings()
    }

    fn settings(flags: &[&str]) -> Settings {
        read(flags).unwrap().0
    }

    fn problems(flags: &[&str]) -> Vec<String> {
        let error = read(flags).unwrap_err();
        error.problems.iter().map(Problem::to_string).collect()
    }

    /// The flags of OCM's work agent and their defaults, from its sources.
    const UPSTREAM: &[(&str, &str)] = &[
        ("status-sync-interval", "10s"),
        ("max-json-raw-length", "1024"),
        ("max-feedback-watch", "50"),
        ("appliedmanifestwork-eviction-grace-period", "1h0m0s"),
        ("workload-agent-workers", "10"),
        ("workload-source-driver", "kube"),
        ("workload-source-config", "/spoke/hub-kubeconfig/kubeconfig"),
        ("cloudevents-client-id", ""),
        ("cloudevents-client-codecs", "[]"),
        ("spoke-cluster-name", ""),
        ("cluster-name", ""),
        ("agent-id", ""),
        ("spoke-kubeconfig", ""),
        ("hub-kubeconfig", ""),
        ("hub-kubeconfig-dir", "/spoke/hub-kubeconfig"),
        ("kube-api-qps", "50"),
        ("kube-api-burst", "100"),
        ("hub-kube-api-qps", "50"),
        ("hub-kube-api-burst", "100"),
        ("disable-leader-election", "false"),
        ("leader-election-lease-duration", "2m17s"),
        ("leader-election-renew-deadline", "1m47s"),
        ("leader-election-retry-period", "26s"),
        ("tls-min-version", ""),
        ("tls-cipher-suites", ""),
        ("health-port", "0"),
        ("feature-gates", ""),
        ("kubeconfig", ""),
        ("namespace", ""),
        ("listen", ""),
        ("terminate-on-files", "[]"),
        ("v", "0"),
    ];

    #[test]
    fn every_flag_of_upstream_is_taken_with_its_default() {
        let command = Line::command();
        for (name, default) in UPSTREAM {
            let arg = command.get_arguments().find(|arg| {
                arg.get_long() == Some(name)
                    || arg.get_visible_aliases().unwrap_or_default().contains(name)
            });
            let id = arg
                .unwrap_or_else(|| panic!("no --{name}"))
                .get_id()
                .as_str();
            let flag = FLAGS.iter().find(|flag| flag.name == id).unwrap();
            assert_eq!(flag.upstream_default, *default, "--{name}");
            // As a deployment spells it out.
            let given = if default.is_empty() || *default == "[]" {
                format!("--{name}=")
            } else {
                format!("--{name}={default}")
            };
            let line = ["--spoke-cluster-name=edge-1", given.as_str()];
            let line = if *name == "spoke-cluster-name" {
                &line[..1]
            } else {
                &line[..]
            };
            read(line).unwrap_or_else(|error| panic!("{given}: {error}"));
        }
        assert_eq!(UPSTREAM.len(), FLAGS.len() + 1, "one is an alias");
    }

    /// Without flags muster does what upstream does without flags.
    #[test]
    fn defaults_are_upstreams() {
        let ours = settings(&[]);
        for flag in FLAGS {
            let Meaning::Setting(_) = flag.meaning else {
                continue;
            };
            if flag.name == "status-sync-interval" || flag.upstream_default.is_empty() {
                continue; // upstream's deployment says 60s, and so does muster's default
            }
            let spelled = format!("--{}={}", flag.name, flag.upstream_default);
            assert_eq!(settings(&[&spelled]), ours, "{spelled}");
        }
        assert_eq!(ours.feedback.poll_interval, Duration::from_secs(60));
        assert_eq!(ours.agent.workers.get(), 10);
    }

    #[test]
    fn help_tells_what_each_flag_means() {
        let mut command = Line::command();
        let help = command.render_long_help().to_string();
        for flag in FLAGS {
            assert!(help.contains(&format!("--{}", flag.name)), "{help}");
            match flag.meaning {
                Meaning::Setting(key) => assert!(help.contains(&format!("[setting: {key}]"))),
                Meaning::Several => {}
            }
        }
        assert!(help.contains("aliases: --cluster-name") || help.contains("alias: --cluster-name"));
    }

    #[test]
    fn the_older_name_of_the_poll_interval_means_the_same() {
        let settings = settings(&["--cluster-name=edge-1", "--status-update-frequency=20s"]);
        assert_eq!(settings.feedback.poll_interval, Duration::from_secs(20));
    }

    #[test]
    fn the_flags_of_ocms_agent_become_settings() {
        let settings = settings(&[
            "--cluster-name=edge-1",
            "--spoke-kubeconfig",
            "/spoke",
            "--kubeconfig=/management",
            "--workload-source-driver=kube",
            "--workload-source-config=/hub",
            "--hub-kubeconfig=/other",
            "--agent-id=5b4f",
            "--status-sync-interval=1m0s",
            "--status-sync-interval=10s",
            "--max-json-raw-length=512",
            "--max-feedback-watch=0",
            "--workload-agent-workers=3",
            "--appliedmanifestwork-eviction-grace-period=1.5h",
            "--kube-api-qps=0.5",
            "--kube-api-burst=7",
            "--hub-kube-api-qps",
            "-1",
            "--hub-kube-api-burst=8",
            "--disable-leader-election",
            "--leader-election-lease-duration=30s",
            "--leader-election-renew-deadline=20s",
            "--leader-election-retry-period=5s",
            "--namespace=agents",
            "--listen=:9443",
            "--tls-min-version=VersionTLS13",
            "--tls-cipher-suites=A,B",
            "--terminate-on-files=/a,/b",
            "--terminate-on-files=/c",
            "--feature-gates=RawFeedbackJsonString=true,ExecutorValidatingCaches=true",
            "-v",
            "4",
        ]);
        assert_eq!(settings.transport.driver, Driver::Kube);
        assert_eq!(settings.hub.kubeconfig, Some("/hub".into()));
        assert_eq!(settings.feedback.poll_interval, Duration::from_secs(10));
        assert_eq!(settings.feedback.max_json_raw_bytes.get(), 512);
        assert_eq!(settings.watch.max_watches, 0);
        assert!(settings.feedback.raw_json);
        let agent = &settings.agent;
        assert_eq!(agent.workers.get(), 3);
        assert_eq!(agent.agent_id.as_deref(), Some("5b4f"));
        assert_eq!(agent.eviction_grace, Duration::from_secs(5400));
        assert!((agent.spoke_qps - 0.5).abs() < f64::EPSILON);
        assert!((agent.hub_qps + 1.0).abs() < f64::EPSILON);
        assert_eq!((agent.spoke_burst.get(), agent.hub_burst.get()), (7, 8));
        assert_eq!(agent.leader_election, Some(false));
        assert_eq!(agent.lease_duration, Duration::from_secs(30));
        assert_eq!(agent.lease_renew_deadline, Duration::from_secs(20));
        assert_eq!(agent.lease_retry_period, Duration::from_secs(5));
        assert_eq!(agent.lease_namespace.as_deref(), Some("agents"));
        assert_eq!(agent.lease_kubeconfig, Some("/management".into()));
        assert_eq!(agent.terminate_on_files, ["/a", "/b", "/c"]);
        let telemetry = &settings.telemetry;
        assert_eq!(telemetry.https_listen, "0.0.0.0:9443".parse().ok());
        assert_eq!(telemetry.tls_min_version, Some(TlsVersion::V13));
        assert_eq!(telemetry.tls_cipher_suites, ["A", "B"]);
        assert_eq!(telemetry.log_level, "info,muster=debug");
        assert_eq!(settings.clusters.len(), 1);
        assert_eq!(settings.clusters[0].name, "edge-1");
        let spoke = ClusterAccess::Kubeconfig {
            file: Some("/spoke".into()),
            context: None,
        };
        assert_eq!(settings.clusters[0].access, spoke);
    }

    #[test]
    fn access_falls_back_as_upstreams_does() {
        let access = |flags: &[&str]| settings(flags).clusters.remove(0).access;
        let pod = access(&["--cluster-name=edge-1"]);
        assert_eq!(pod, ClusterAccess::InCluster);
        let management = access(&["--cluster-name=edge-1", "--kubeconfig=/m"]);
        let file = Some("/m".into());
        assert_eq!(
            management,
            ClusterAccess::Kubeconfig {
                file,
                context: None
            }
        );
        let hub = |flags: &[&str]| settings(flags).hub.kubeconfig;
        assert_eq!(
            hub(&["--hub-kubeconfig=/h", "--hub-kubeconfig-dir=/d"]),
            Some("/h".into())
        );
        assert_eq!(
            hub(&["--hub-kubeconfig-dir=/d"]),
            Some("/d/kubeconfig".into())
        );
        let https = |flags: &[&str]| settings(flags).telemetry.https_listen;
        assert_eq!(https(&["--health-port=9000"]), "0.0.0.0:9000".parse().ok());
        assert_eq!(https(&["--health-port=0"]), "0.0.0.0:8443".parse().ok());
        assert_eq!(https(&[]), None);
    }

    #[test]
    fn works_come_as_events_when_asked_to() {
        let of_ocm = [
            "--spoke-cluster-name=edge-1",
            "--workload-source-driver=mqtt",
            "--workload-source-config=/spoke/config/mqtt.yaml",
            "--cloudevents-client-id=edge-1-client",
            "--cloudevents-client-codecs=manifest,manifestbundle",
        ];
        let (settings, notes) = read(&of_ocm).unwrap();
        assert_eq!(settings.transport.driver, Driver::Mqtt);
        let file = Path::new("/spoke/config/mqtt.yaml");
        assert_eq!(settings.mqtt.config_file.as_deref(), Some(file));
        assert_eq!(settings.mqtt.client_id.as_deref(), Some("edge-1-client"));
        assert_eq!(settings.hub.kubeconfig, None);
        // The settings may say so, too.
        let by_setting = [
            "--spoke-cluster-name=edge-1",
            "--set=transport.driver=mqtt",
            "--workload-source-config=/spoke/config/mqtt.yaml",
        ];
        let (settings_too, _) = read(&by_setting).unwrap();
        assert_eq!(settings_too.mqtt.config_file.as_deref(), Some(file));
        let note = "--cloudevents-client-codecs: manifest has no effect: all works come as \
                    manifestbundle";
        assert_eq!(notes, [note]);
        let (_, notes) = read(&["--max-json-raw-length=4096"]).unwrap();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("--max-json-raw-length: "), "{notes:?}");
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_flag() {
        assert_eq!(
            problems(&[
                "--spoke-cluster-name=Edge",
                "--workload-source-driver=grpc",
                "--cloudevents-client-codecs=protobuf",
                "--workload-agent-workers=0",
                "--status-sync-interval=soon",
                "--kube-api-qps=0",
                "--disable-leader-election=maybe",
                "--feature-gates=ManifestWorkReplicaSet=true,RawFeedbackJsonString,ExecutorValidatingCaches=2",
                "--health-port=70000",
                "--tls-min-version=VersionTLS11",
                "-v=loud",
            ]),
            [
                "--workload-source-driver: grpc is not supported, only kube and mqtt",
                "--workload-agent-workers: workload-agent-workers must be >= 1, got 0",
                "--disable-leader-election: \"maybe\" is neither true nor false",
                "--feature-gates: unrecognized feature gate: ManifestWorkReplicaSet",
                "--feature-gates: missing bool value for RawFeedbackJsonString",
                "--feature-gates: invalid value of ExecutorValidatingCaches=2",
                "--cloudevents-client-codecs: \"protobuf\" is not a codec: manifestbundle",
                "--v: \"loud\" is not a log level (example: 4)",
                "--health-port: invalid value 70000: must be 0 or between 1 and 65535",
                "--spoke-cluster-name: \"Edge\" needs a name that can be a namespace: at most 63 of a-z, 0-9 and -, with a letter or digit at both ends",
                "--kube-api-qps: agent.spoke_qps is \"0\", expected a number, such as 50 or 0.5, or -1 for no limit",
                "--status-sync-interval: feedback.poll_interval is \"soon\", expected a duration of at least 100ms, such as \"60s\" or \"10m\"",
                "--tls-min-version: telemetry.tls_min_version is \"VersionTLS11\", expected \"VersionTLS12\" or \"VersionTLS13\"",
            ]
        );
        assert_eq!(
            problems(&[
                "--spoke-kubeconfig=/x",
                "--workload-source-driver=carrier-pigeon"
            ]),
            [
                "--workload-source-driver: \"carrier-pigeon\" is not a driver: kube or mqtt",
                "--spoke-kubeconfig: needs --spoke-cluster-name",
            ]
        );
    }

    #[test]
    fn gates_and_switches_are_read_as_go_reads_them() {
        let gates = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            raw_json(&texts).unwrap()
        };
        assert_eq!(gates(&["AllAlpha=true"]), Some(true));
        assert_eq!(
            gates(&["AllAlpha=true", "RawFeedbackJsonString=F"]),
            Some(false)
        );
        assert_eq!(
            gates(&["ExecutorValidatingCaches=true,AllBeta=1", ""]),
            None
        );
        let election = |flag: &str| settings(&[flag]).agent.leader_election;
        assert_eq!(election("--disable-leader-election=false"), Some(true));
        assert_eq!(election("--disable-leader-election=T"), Some(false));
        for flag in FLAGS
            .iter()
            .filter(|flag| flag.upstream_default.ends_with('s'))
        {
            assert!(
                parse_duration(flag.upstream_default).is_some(),
                "{}",
                flag.name
            );
        }
    }
}
