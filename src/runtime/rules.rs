//! Watch rules, as settings have them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_actors::rules::{RuleSettings, RulesDeps, SinkMaker};
use muster_actors::sinks::{GitSinks, LogSinks, LogTarget, MqttSinks};
use muster_core::rule_events::Room;
use muster_core::watch_rules::Exclusions;

use muster_gitfiles::{Author, Branches, Config, Credentials};
use muster_workclient::Bus;

use super::events::{LinkError, Links, read};
use super::whole;
use crate::settings::{Restart, Settings, Sink, SinkKind};

/// How long an API server may take to tell what it serves: two requests, or one for each group.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(15);

/// What the agents of the process are given; `None` without a sink.
///
/// # Errors
///
/// The connection of a sink to its broker cannot be set up.
pub(super) fn rules_of(
    settings: &Settings,
    links: Option<&Links>,
) -> Result<Option<RulesDeps>, LinkError> {
    if settings.sinks.is_empty() {
        return Ok(None);
    }
    let mut sinks = BTreeMap::new();
    let branches = Branches::default();
    for sink in &settings.sinks {
        sinks.insert(sink.name.clone(), maker(sink, settings, links, &branches)?);
    }
    Ok(Some(RulesDeps {
        settings: RuleSettings {
            debounce: settings.watch.debounce,
            debounce_max: settings.watch.debounce_max,
            heartbeat: settings.watch.heartbeat,
            wholesale: settings.watch.restart == Restart::Wholesale,
            room: Room {
                events: whole(settings.rules.queue_events.get()),
                bytes: whole(settings.rules.queue_bytes.get()),
            },
            data_dir: settings.rules.data_dir.clone(),
            never_watch: never_watch(&settings.rules.never_watch),
            discovery_limit: DISCOVERY_LIMIT,
        },
        sinks,
    }))
}

fn maker(
    Sink { name, kind }: &Sink,
    settings: &Settings,
    links: Option<&Links>,
    branches: &Branches,
) -> Result<Arc<dyn SinkMaker>, LinkError> {
    Ok(match kind {
        SinkKind::Git(git) => {
            let kept = settings.rules.data_dir.as_ref().map(|dir| dir.join("git"));
            let work_dir = git.work_dir.clone().or(kept).unwrap_or_default();
            let credentials = match &git.login {
                None => Credentials::None,
                Some((user, file)) => Credentials::Basic {
                    user: user.clone(),
                    // Editors leave a line end.
                    password: read("sinks.password_file", file)?.trim_end().to_owned(),
                },
            };
            let config = Config {
                author: Author {
                    name: git.author_name.clone(),
                    email: git.author_email.clone(),
                },
                credentials,
                authorities: git.ca_file.clone(),
                ..Config::new(git.url.clone(), git.branch.clone(), work_dir)
            };
            let encrypt = git.encrypt.clone();
            Arc::new(GitSinks::new(
                config,
                git.folder.clone(),
                encrypt,
                branches.clone(),
                git.window,
            ))
        }
        SinkKind::Mqtt {
            topic,
            plain_secrets,
        } => {
            let mut buses: BTreeMap<String, Arc<dyn Bus>> = BTreeMap::new();
            for cluster in &settings.clusters {
                if let Some(links) = links {
                    let bus = links.sink_of(&cluster.name, name)?;
                    buses.insert(cluster.name.clone(), bus);
                }
            }
            Arc::new(MqttSinks::new(topic.clone(), buses).plain_secrets(*plain_secrets))
        }
        SinkKind::Log {
            path,
            max_bytes,
            keep,
            plain_secrets,
        } => {
            let target = match path {
                None => LogTarget::Stdout,
                Some(path) => LogTarget::File {
                    path: path.clone(),
                    max_bytes: max_bytes.get(),
                    keep: *keep,
                },
            };
            Arc::new(LogSinks::new(target).plain_secrets(*plain_secrets))
        }
    })
}

/// Each `resource` or `resource.group`.
fn never_watch(resources: &[String]) -> Exclusions {
    let split = |text| -> (&str, &str) {
        match str::split_once(text, '.') {
            Some((resource, group)) => (group, resource),
            None => ("", text),
        }
    };
    Exclusions::new(resources.iter().map(String::as_str).map(split))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    /// A log, and what else is said.
    fn settings_of(more: &str) -> RuleSettings {
        let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        let sink = "[[sinks]]\nname = \"file\"\nkind = \"log\"\n";
        std::fs::write(file.path(), format!("{sink}{more}")).unwrap();
        let settings = Settings::load(&Sources::default().with_file(file.path())).unwrap();
        let deps = rules_of(&settings, None).unwrap().unwrap();
        assert!(deps.sinks.keys().eq(["file"]));
        deps.settings
    }

    #[test]
    fn settings_of_rules_are_those_of_the_process() {
        assert!(
            rules_of(&Settings::load(&Sources::default()).unwrap(), None)
                .unwrap()
                .is_none()
        );
        let defaults = RuleSettings {
            debounce: Duration::from_secs(2),
            debounce_max: Duration::from_secs(3),
            heartbeat: Duration::from_secs(30),
            wholesale: true,
            room: Room::default(),
            never_watch: Exclusions::default(),
            data_dir: None,
            discovery_limit: DISCOVERY_LIMIT,
        };
        assert_eq!(settings_of(""), defaults);

        let set = r#"
            [rules]
            data_dir = "/var/lib/rules"
            queue_events = 5
            queue_bytes = 70000
            never_watch = ["secrets", "events.events.k8s.io"]
            [watch]
            debounce = "7s"
            debounce_max = "8s"
            heartbeat = "9s"
            restart = "incremental"
        "#;
        let wanted = RuleSettings {
            debounce: Duration::from_secs(7),
            debounce_max: Duration::from_secs(8),
            heartbeat: Duration::from_secs(9),
            wholesale: false,
            room: Room {
                events: 5,
                bytes: 70_000,
            },
            never_watch: Exclusions::new([("", "secrets"), ("events.k8s.io", "events")]),
            data_dir: Some("/var/lib/rules".into()),
            discovery_limit: DISCOVERY_LIMIT,
        };
        assert_eq!(settings_of(set), wanted);
    }
}
