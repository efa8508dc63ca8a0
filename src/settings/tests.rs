use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A file with this text, and sources that read it.
fn file(text: &str) -> (TempDir, Sources) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.toml");
    fs::write(&path, text).unwrap();
    let sources = Sources::default().with_file(path);
    (directory, sources)
}

/// The problems as text, with the directory taken out.
fn problems(text: &str) -> Vec<String> {
    let (directory, sources) = file(text);
    let error = Settings::load(&sources).unwrap_err();
    let directory = format!("{}/", directory.path().display());
    error
        .problems
        .iter()
        .map(|problem| problem.to_string().replace(&directory, ""))
        .collect()
}

fn default_rules() -> Rules {
    Rules {
        data_dir: None,
        queue_events: 1024.try_into().unwrap(),
        queue_bytes: (8 << 20).try_into().unwrap(),
        never_watch: [
            "pods",
            "events",
            "events.events.k8s.io",
            "endpoints",
            "endpointslices.discovery.k8s.io",
            "leases.coordination.k8s.io",
            "controllerrevisions.apps",
            "flowschemas.flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
            "jobs.batch",
            "cronjobs.batch",
        ]
        .map(str::to_owned)
        .to_vec(),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a line for each key")]
fn defaults_are_those_of_the_design() {
    let settings = Settings::load(&Sources::default()).unwrap();
    assert_eq!(
        settings,
        Settings {
            hub: Hub {
                api: HubApi::Embedded,
                listen: "127.0.0.1:6443".parse().unwrap(),
                max_connections: None,
                data_dir: None,
                kubeconfig: None,
                context: None,
                install_crds: true,
                resolve_placements: None,
                abandon_after: Duration::from_mins(5),
                leader_election: None,
                lease_namespace: None,
                lease_duration: Duration::from_secs(137),
                lease_renew_deadline: Duration::from_secs(107),
                lease_retry_period: Duration::from_secs(26),
            },
            transport: Transport {
                driver: Driver::Loopback
            },
            mqtt: Mqtt {
                broker: None,
                username: None,
                password_file: None,
                tls: None,
                ca_file: None,
                client_cert_file: None,
                client_key_file: None,
                config_file: None,
                dialect: EventDialect::SdkGo,
                source: None,
                client_id: None,
                resync_interval: Duration::from_mins(10),
                away_after: Duration::from_secs(30),
                presence: true,
                data_dir: None,
                except_clusters: Vec::new(),
            },
            broker: Broker {
                listen: None,
                users_file: None,
                cert_file: None,
                key_file: None,
                client_ca_file: None,
                allow_anonymous: false,
                max_packet_bytes: (1024 * 1024).try_into().unwrap(),
                max_connections: 5_000.try_into().unwrap(),
                max_connections_of_address: 2_500.try_into().unwrap(),
                max_sessions: 10_000.try_into().unwrap(),
                max_sessions_of_user: 8.try_into().unwrap(),
                max_queued_messages: 10_000.try_into().unwrap(),
            },
            clusters: Vec::new(),
            feedback: Feedback {
                poll_interval: Duration::from_mins(1),
                max_json_raw_bytes: 1024.try_into().unwrap(),
                coalesce: Duration::from_millis(20),
                raw_json: false,
            },
            watch: Watch {
                max_watches: 50,
                widen_after: 2.try_into().unwrap(),
                stop_when_ready: false,
                debounce: Duration::from_secs(2),
                debounce_max: Duration::from_secs(3),
                heartbeat: Duration::from_secs(30),
                restart: Restart::Wholesale,
            },
            rules: default_rules(),
            sinks: Vec::new(),
            agent: Agent {
                workers: 10.try_into().unwrap(),
                agent_id: None,
                eviction_grace: Duration::from_hours(1),
                spoke_qps: 50.0,
                spoke_burst: 100.try_into().unwrap(),
                hub_qps: 50.0,
                hub_burst: 100.try_into().unwrap(),
                leader_election: None,
                lease_namespace: None,
                lease_kubeconfig: None,
                lease_duration: Duration::from_secs(137),
                lease_renew_deadline: Duration::from_secs(107),
                lease_retry_period: Duration::from_secs(26),
                terminate_on_files: Vec::new(),
            },
            simulator: Simulator {
                pace: Duration::from_millis(300),
            },
            telemetry: Telemetry {
                listen: "127.0.0.1:9090".parse().unwrap(),
                https_listen: None,
                tls_min_version: None,
                tls_cipher_suites: Vec::new(),
                allowed_hosts: Vec::new(),
                max_connections: None,
                log_format: LogFormat::Text,
                log_level: "info".to_owned(),
            },
        }
    );
}

#[test]
fn every_file_in_config_loads() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut loaded = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let settings = Settings::load(&Sources::default().with_file(&path));
        settings.unwrap_or_else(|error| panic!("{error}"));
        loaded.push(path.file_name().unwrap().to_owned());
    }
    loaded.sort();
    assert_eq!(
        loaded,
        ["agent-kube.toml", "default.toml", "demo.toml", "hub.toml"]
    );
}

/// Keys without a default are commented out there; all others have to be there.
#[test]
fn default_file_shows_every_key() {
    let text = include_str!("../../config/default.toml");
    let mut section = "";
    let mut shown = Vec::new();
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
        }
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some((key, _)) = line.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            shown.push(format!("{section}.{key}"));
        }
    }
    for key in check::keys() {
        assert!(shown.contains(&key.to_owned()), "{key}");
    }
}

#[test]
fn each_layer_lies_over_the_one_before() {
    let (_directory, sources) = file(
        "[hub]\ncontext = \"file\"\n[feedback]\npoll_interval = \"2s\"\ncoalesce = \"5ms\"\n[agent]\nworkers = 3\n",
    );
    let sources = sources
        .with_environment([
            ("MUSTER__FEEDBACK__POLL_INTERVAL", "3s"),
            ("MUSTER__AGENT__WORKERS", "4"),
            ("MUSTER__FEEDBACK__RAW_JSON", "true"),
            ("MUSTER_CONFIG", "ignored"),
            ("HOME", "ignored"),
        ])
        .with_flag("agent.workers", "5");
    let settings = Settings::load(&sources).unwrap();
    assert_eq!(settings.hub.context.as_deref(), Some("file"));
    assert_eq!(settings.feedback.coalesce, Duration::from_millis(5));
    assert_eq!(settings.feedback.poll_interval, Duration::from_secs(3));
    assert!(settings.feedback.raw_json);
    assert_eq!(settings.agent.workers.get(), 5);
    assert_eq!(settings.transport.driver, Driver::Loopback);
}

#[test]
fn listing_tells_where_each_value_comes_from() {
    let (directory, sources) =
        file("[hub]\ncontext = \"x\"\n\n[[clusters]]\nname = \"a\"\nsimulated = true\n");
    let sources = sources
        .with_environment([("MUSTER__FEEDBACK__COALESCE", "1ms")])
        .with_flag("transport.driver", "kube");
    let listing = effective(&sources).unwrap();
    let find = |key: &str| {
        let found = listing.iter().find(|setting| setting.key == key).unwrap();
        (found.value.as_deref(), found.origin.as_str())
    };
    let path = directory.path().join("muster.toml").display().to_string();
    assert_eq!(
        find("hub.context"),
        (Some("x"), format!("{path}:2").as_str())
    );
    assert_eq!(
        find("clusters[0].name"),
        (Some("a"), format!("{path}:5").as_str())
    );
    assert_eq!(
        find("feedback.coalesce"),
        (Some("1ms"), "MUSTER__FEEDBACK__COALESCE")
    );
    assert_eq!(find("transport.driver"), (Some("kube"), "command line"));
    assert_eq!(find("hub.listen"), (Some("127.0.0.1:6443"), "default"));
    assert_eq!(find("hub.data_dir"), (None, "unset"));
}

#[test]
fn clusters_are_reached_in_one_way_each() {
    let (_directory, sources) = file(
        r#"
        [[clusters]]
        name = "a"
        simulated = true
        labels = { region = "north", "example.com/tier" = "edge" }
        [[clusters]]
        name = "b"
        context = "admin"
        [[clusters]]
        name = "c"
        in_cluster = true
        "#,
    );
    let clusters = Settings::load(&sources).unwrap().clusters;
    assert_eq!(clusters[0].access, ClusterAccess::Simulated);
    assert_eq!(clusters[0].labels["example.com/tier"], "edge");
    assert_eq!(
        clusters[1].access,
        ClusterAccess::Kubeconfig {
            file: None,
            context: Some("admin".to_owned())
        }
    );
    assert_eq!(clusters[2].access, ClusterAccess::InCluster);
}

#[test]
fn all_problems_are_told_at_once_with_their_lines() {
    let (directory, sources) = file(
        r#"[hub]
api = "etcd"
listen = "localhost"
context = ""
[feedback]
pol_interval = "1s"
coalesce = "soon"
max_json_raw_bytes = "1024"
raw_json = 1
[agent]
workers = 0
[telemetry]
log_level = "loud=very"
[metric]
port = 1
"#,
    );
    let sources = sources
        .with_environment([
            ("MUSTER__AGENT__WORKERS", "many"),
            ("MUSTER__CLUSTERS__0__NAME", "a"),
        ])
        .with_flag("hub.lisen", "x");
    let error = Settings::load(&sources).unwrap_err().to_string();
    let found = error.replace(&format!("{}/", directory.path().display()), "");
    assert_eq!(
        found,
        r#"bad settings, 13 problems:
  muster.toml:2: hub.api is "etcd", expected "embedded" or "kubeconfig"
  muster.toml:3: hub.listen is "localhost", expected an address with port, such as "127.0.0.1:6443"
  muster.toml:4: hub.context is "", expected a text that is not empty
  muster.toml:6: unknown key feedback.pol_interval, the nearest is feedback.poll_interval
  muster.toml:7: feedback.coalesce is "soon", expected a duration, such as "60s" or "10m"
  muster.toml:8: feedback.max_json_raw_bytes is "1024", expected a whole number from 1 to 4294967295
  muster.toml:9: feedback.raw_json is 1, expected true or false
  muster.toml:11: agent.workers is 0, expected a whole number from 1 to 4294967295
  muster.toml:13: telemetry.log_level is "loud=very", expected a log level, such as "info" or "info,kube=debug"
  muster.toml:14: unknown key metric, the nearest is telemetry
  MUSTER__AGENT__WORKERS: agent.workers is "many", expected a whole number from 1 to 4294967295
  MUSTER__CLUSTERS__0__NAME: clusters is "a", expected a list in the settings file
  command line: unknown key hub.lisen, the nearest is hub.listen"#
    );
}

#[test]
fn clusters_with_problems_are_named() {
    assert_eq!(
        problems(
            r#"[[clusters]]
name = "a"
simulated = true
in_cluster = true
[[clusters]]
simulated = true
[[clusters]]
name = "Not-A-Namespace"
simulated = true
[[clusters]]
name = "b"
nmae = "c"
[[clusters]]
name = "c"
[[clusters]]
name = "d"
simulated = true
[[clusters]]
name = "d"
simulated = true
[[clusters]]
name = "e"
simulated = true
labels = { a = 1 }
"#
        ),
        [
            "muster.toml:1: clusters[0] (a) needs exactly one of: kubeconfig and/or context, in_cluster = true, simulated = true",
            "muster.toml:5: clusters[1] has no name",
            "muster.toml:7: clusters[2] (Not-A-Namespace) needs a name that can be a namespace: at most 63 of a-z, 0-9 and -, with a letter or digit at both ends",
            "muster.toml:12: unknown key clusters[3].nmae, the nearest is clusters[3].name",
            "muster.toml:13: clusters[4] (c) needs exactly one of: kubeconfig and/or context, in_cluster = true, simulated = true",
            "muster.toml:18: clusters[6] (d) has the name of clusters[5]",
            "muster.toml:24: clusters[7].labels is a section, expected a table of texts",
        ]
    );
}

#[test]
fn sinks_are_read() {
    let sources = Sources::default();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("muster.toml");
    let text = r#"
        [[sinks]]
        name = "out"
        kind = "log"
        [[sinks]]
        name = "file"
        kind = "log"
        path = "/var/log/events.log"
        max_bytes = 1000
        keep = 0
        [[sinks]]
        name = "bus"
        kind = "mqtt"
        [[sinks]]
        name = "other"
        kind = "mqtt"
        topic = "here/{cluster}"
        plain_secrets = true
        [[sinks]]
        name = "repository"
        kind = "git"
        url = "https://git.example.com/fleet.git"
        folder = ""
        work_dir = "/var/lib/git"
        username = "bot"
        password_file = "/etc/token"
        encrypt = ["sops", "--encrypt"]
        window = "250ms"
        [mqtt]
        broker = "broker:1883"
    "#;
    fs::write(&path, text).unwrap();
    let sinks = Settings::load(&sources.with_file(path)).unwrap().sinks;
    let log = |path: Option<&str>, max_bytes: u64, keep| SinkKind::Log {
        path: path.map(Into::into),
        max_bytes: max_bytes.try_into().unwrap(),
        keep,
        plain_secrets: false,
    };
    assert_eq!(sinks[0].kind, log(None, 100 << 20, 3));
    assert_eq!(sinks[1].kind, log(Some("/var/log/events.log"), 1_000, 0));
    let mqtt = |topic: &str| SinkKind::Mqtt {
        topic: topic.to_owned(),
        plain_secrets: topic.starts_with("here"),
    };
    assert_eq!(sinks[2].kind, mqtt("muster/clusters/{cluster}/rules/bus"));
    assert_eq!(sinks[3].kind, mqtt("here/{cluster}"));
    let git = GitSink {
        url: "https://git.example.com/fleet.git".to_owned(),
        branch: "main".to_owned(),
        folder: String::new(),
        author_name: "muster".to_owned(),
        author_email: "muster@localhost".to_owned(),
        login: Some(("bot".to_owned(), "/etc/token".into())),
        ca_file: None,
        work_dir: Some("/var/lib/git".into()),
        encrypt: Some(vec!["sops".to_owned(), "--encrypt".to_owned()]),
        window: Duration::from_millis(250),
    };
    assert_eq!(sinks[4].kind, SinkKind::Git(Box::new(git)));
}

#[test]
fn sinks_with_problems_are_named() {
    assert_eq!(
        problems(
            r#"[[sinks]]
kind = "log"
[[sinks]]
name = "a"
[[sinks]]
name = "b"
kind = "kafka"
[[sinks]]
name = "c"
kind = "log"
keep = 1
[[sinks]]
name = "d"
kind = "log"
[[sinks]]
name = "d"
kind = "log"
[[sinks]]
name = "e"
kind = "log"
topic = "t"
[[sinks]]
name = "f"
kind = "mqtt"
path = "p"
[[sinks]]
name = "g"
kind = "mqtt"
topic = "a/+"
[[sinks]]
name = "h"
kind = "git"
[[sinks]]
name = "i"
kind = "git"
url = "/srv/git"
username = "u"
[[sinks]]
name = "j"
kind = "git"
url = "/srv/git"
window = "soon"
"#
        ),
        [
            "muster.toml:1: sinks[0] has no name",
            "muster.toml:3: sinks[1] (a) has no kind: \"log\", \"mqtt\" or \"git\"",
            "muster.toml:7: sinks[2].kind is \"kafka\", expected \"log\" or \"mqtt\" or \"git\"",
            "muster.toml:8: sinks[3] (c) has max_bytes or keep, which are for a file, and no path",
            "muster.toml:15: sinks[5] (d) has the name of sinks[4]",
            "muster.toml:18: sinks[6] (e) has topic, which a sink of kind \"log\" has not",
            "muster.toml:22: sinks[7] (f) has path, which a sink of kind \"mqtt\" has not",
            "muster.toml:26: sinks[8] (g) has a topic with a wildcard: a/+",
            "muster.toml:30: sinks[9] (h) has no url",
            "muster.toml:33: sinks[10] (i) has one of username and password_file without the other",
            "muster.toml:42: sinks[11].window is \"soon\", expected a duration, such as \"60s\" or \"10m\"",
        ]
    );
    assert_eq!(
        problems("[[sinks]]\nname = \"a\"\nkind = \"mqtt\"\n"),
        [
            "muster.toml:1: sinks is \"mqtt\", which needs mqtt.broker, mqtt.config_file or broker.listen"
        ]
    );
    assert_eq!(
        problems("[[sinks]]\nname = \"a\"\nkind = \"git\"\nurl = \"/srv/git\"\n"),
        ["muster.toml:1: sinks[0] (a) needs work_dir, or rules.data_dir for all sinks"]
    );
    assert_eq!(
        problems("[watch]\ndebounce = \"5s\"\n"),
        ["muster.toml:2: watch.debounce is 5s, which must not be more than watch.debounce_max, 3s"]
    );
}

#[test]
fn sections_and_values_do_not_stand_in_for_each_other() {
    assert_eq!(
        problems("hub = 3\nclusters = { a = 1 }\n[feedback.coalesce]\nx = 1\n"),
        [
            "muster.toml:1: hub is 3, expected a section",
            "muster.toml:2: clusters is a section, expected a list in the settings file",
            "muster.toml:3: feedback.coalesce is a section, expected a duration, such as \"60s\" or \"10m\"",
        ]
    );
    assert_eq!(
        problems("clusters = [1]"),
        ["muster.toml:1: clusters[0] is 1, expected a table"]
    );
}

#[test]
fn numbers_too_large_and_polling_too_fast_are_refused() {
    assert_eq!(
        problems(
            "[feedback]\npoll_interval = \"1ms\"\nmax_json_raw_bytes = 99999999999999999999\n[agent]\nworkers = 1.5\n"
        ),
        [
            "muster.toml:2: feedback.poll_interval is \"1ms\", expected a duration of at least 100ms, such as \"60s\" or \"10m\"",
            "muster.toml:3: feedback.max_json_raw_bytes is \"99999999999999999999\", expected a whole number from 1 to 4294967295",
            "muster.toml:5: agent.workers is 1.5, expected a whole number from 1 to 4294967295",
        ]
    );
}

#[test]
fn a_cap_of_no_watches_is_a_cap() {
    let (_directory, sources) = file("[watch]\nmax_watches = 0\n");
    assert_eq!(Settings::load(&sources).unwrap().watch.max_watches, 0);
    let sources = sources.with_environment([("MUSTER__WATCH__MAX_WATCHES", "0")]);
    assert_eq!(Settings::load(&sources).unwrap().watch.max_watches, 0);
    assert_eq!(
        problems("[watch]\nmax_watches = -1\nwiden_after = 0\nstop_when_ready = 0\n"),
        [
            "muster.toml:2: watch.max_watches is -1, expected a whole number from 0 to 4294967295",
            "muster.toml:3: watch.widen_after is 0, expected a whole number from 1 to 4294967295",
            "muster.toml:4: watch.stop_when_ready is 0, expected true or false",
        ]
    );
}

#[test]
fn text_that_is_not_toml_is_told_with_its_line() {
    let found = problems("[hub]\napi = \n");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("muster.toml:2: not TOML: "),
        "{found:?}"
    );
}

#[test]
fn file_that_is_missing_is_named_beside_other_problems() {
    let sources = Sources::default()
        .with_file("/nowhere/muster.toml")
        .with_environment([("MUSTER__HUB__API", "x")]);
    let error = Settings::load(&sources).unwrap_err();
    let [
        Problem::Unreadable { file, .. },
        Problem::WrongValue { key, .. },
    ] = error.problems.as_slice()
    else {
        panic!("{error}");
    };
    assert_eq!(
        (file.as_str(), key.as_str()),
        ("/nowhere/muster.toml", "hub.api")
    );
    assert!(effective(&sources).is_err());
}

#[test]
fn lists_and_rates_are_read_from_every_layer() {
    let (_directory, sources) = file(
        "[agent]\nspoke_qps = 0.5\nterminate_on_files = [\"/a\", \"/b\"]\n[telemetry]\ntls_min_version = \"VersionTLS13\"\n",
    );
    let sources = sources
        .with_environment([("MUSTER__AGENT__HUB_QPS", "-1")])
        .with_flag("telemetry.tls_cipher_suites", "A, B,");
    let settings = Settings::load(&sources).unwrap();
    assert!((settings.agent.spoke_qps - 0.5).abs() < f64::EPSILON);
    assert!((settings.agent.hub_qps + 1.0).abs() < f64::EPSILON);
    assert_eq!(settings.agent.terminate_on_files, ["/a", "/b"]);
    assert_eq!(settings.telemetry.tls_min_version, Some(TlsVersion::V13));
    assert_eq!(settings.telemetry.tls_cipher_suites, ["A", "B"]);

    let found = problems(
        "[agent]\nspoke_qps = 0\nhub_qps = \"50\"\nhub_burst = 0\nlease_duration = \"500ms\"\nterminate_on_files = [\"\"]\n[telemetry]\ntls_min_version = \"VersionTLS11\"\n",
    );
    let keys: Vec<_> = found.iter().map(|p| p.split(' ').nth(1).unwrap()).collect();
    let wrong = [
        "agent.spoke_qps",
        "agent.hub_qps",
        "agent.hub_burst",
        "agent.lease_duration",
        "agent.terminate_on_files",
        "telemetry.tls_min_version",
    ];
    assert_eq!(keys, wrong, "{found:?}");
}

#[test]
fn times_of_a_lease_go_together() {
    for section in ["hub", "agent"] {
        let text =
            format!("[{section}]\nlease_duration = \"10s\"\nlease_renew_deadline = \"10s\"\n");
        assert_eq!(
            problems(&text),
            [
                format!(
                    "muster.toml:2: {section}.lease_duration is 10s, which must be more than \
                     {section}.lease_renew_deadline, 10s"
                ),
                format!(
                    "muster.toml:3: {section}.lease_renew_deadline is 10s, which must be more than 1.2 times \
                     {section}.lease_retry_period, 26s"
                ),
            ]
        );
        let text = format!(
            "[{section}]\nlease_duration = \"900ms\"\nlease_renew_deadline = \"99ms\"\n\
             lease_retry_period = 1\n"
        );
        let found = problems(&text);
        let keys: Vec<_> = found.iter().map(|p| p.split(' ').nth(1).unwrap()).collect();
        let wrong = ["duration", "renew_deadline", "retry_period"];
        assert_eq!(keys, wrong.map(|key| format!("{section}.lease_{key}")));
    }
}

#[test]
fn hubs_of_several_processes_need_an_api_server_that_they_share() {
    assert_eq!(
        problems("[hub]\nleader_election = true\n"),
        [
            "muster.toml:2: hub.leader_election is true, which needs hub.api = \"kubeconfig\": the objects of an \
          embedded API server belong to one process"
        ]
    );
    for fine in [
        "[hub]\nleader_election = true\napi = \"kubeconfig\"\n",
        "[hub]\nleader_election = false\n",
        "[hub]\nlease_namespace = \"n\"\n",
    ] {
        let (_directory, sources) = file(fine);
        Settings::load(&sources).unwrap();
    }
}

/// The table of keys and the types are two lists; this keeps them one.
#[test]
fn every_choice_in_the_table_of_keys_is_one_of_the_types() {
    for (key, choices) in [
        ("hub.api", ["embedded", "kubeconfig"]),
        ("transport.driver", ["loopback", "kube"]),
        (
            "telemetry.tls_min_version",
            ["VersionTLS12", "VersionTLS13"],
        ),
        ("telemetry.log_format", ["text", "json"]),
    ] {
        for choice in choices {
            Settings::load(&Sources::default().with_flag(key, choice)).unwrap();
        }
    }
}

/// The place is that of the key that was set, be it the other one.
#[test]
fn what_does_not_go_together_has_a_place_and_is_told_by_every_reader() {
    let (_directory, sources) = file("[watch]\ndebounce_max = \"1s\"\n");
    let sources = sources
        .with_environment([("MUSTER__TRANSPORT__DRIVER", "mqtt")])
        .with_named_flag(
            "agent.lease_duration",
            "10s",
            "--leader-election-lease-duration",
        );
    let told = |error: SettingsError| {
        let places = error.problems.iter().map(|problem| {
            let text = problem.to_string();
            let (place, rest) = text.split_once(": ").unwrap();
            let place = place.rsplit('/').next().unwrap();
            (place.to_owned(), rest.split(' ').next().unwrap().to_owned())
        });
        places.collect::<Vec<_>>()
    };
    let expected = [
        ("--leader-election-lease-duration", "agent.lease_duration"),
        ("MUSTER__TRANSPORT__DRIVER", "transport.driver"),
        ("muster.toml:2", "watch.debounce"),
    ];
    let expected = expected.map(|(place, key)| (place.to_owned(), key.to_owned()));
    assert_eq!(told(Settings::load(&sources).unwrap_err()), expected);
    assert_eq!(told(effective(&sources).unwrap_err()), expected);
}

#[test]
fn what_cannot_be_used_is_told_with_its_place() {
    let (_directory, sources) =
        file("[mqtt]\npassword_file = \"/f\"\n[[clusters]]\nname = \"a\"\nkubeconfig = \"/k\"\n");
    let unusable = |key: &str| Unusable {
        key: key.to_owned(),
        message: format!("{key}: gone"),
    };
    refuse(&sources, Vec::new()).unwrap();
    let all = [
        "mqtt.password_file",
        "clusters[0].kubeconfig",
        "hub.kubeconfig",
    ];
    let error = refuse(&sources, all.map(unusable).into()).unwrap_err();
    let texts: Vec<String> = error
        .problems
        .iter()
        .map(|problem| problem.to_string().rsplit('/').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        texts,
        [
            "muster.toml:2: mqtt.password_file: gone",
            "muster.toml:5: clusters[0].kubeconfig: gone",
            "hub.kubeconfig: gone",
        ]
    );
}
