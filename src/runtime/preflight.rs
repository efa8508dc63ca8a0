//! What a start would refuse, found out before anything is started: files that settings name and that
//! are missing or something else than they should be.
//!
//! `muster config check` and every start ask here first, so that both refuse the same, with the place
//! where the file is named. What only the machine can tell (an address that is taken, a database that
//! is damaged) is left to the start.

use std::fmt::Display;

use super::cluster::config_of;
use super::events::{LinkError, Links, read};
use super::hub::config_of_hub;
use super::{Roles, hub_driver};
use crate::settings::{
    ClusterAccess, Driver, HubApi, Settings, SettingsError, SinkKind, Sources, Unusable, refuse,
};

/// Checks all that `roles` would read at their start.
///
/// # Errors
///
/// Everything that cannot be used, with its place in `sources`.
pub async fn preflight(
    sources: &Sources,
    settings: &Settings,
    roles: Roles,
) -> Result<(), SettingsError> {
    refuse(sources, unusable(settings, roles).await)
}

async fn unusable(settings: &Settings, roles: Roles) -> Vec<Unusable> {
    let mut found = Found::default();
    if roles.hub()
        && settings.hub.api == HubApi::Kubeconfig
        && settings.hub.kubeconfig.is_some()
        && let Err(error) = config_of_hub(settings).await
    {
        found.add("hub.kubeconfig", &error);
    }
    let mqtt = settings.transport.driver == Driver::Mqtt || settings.has_mqtt_sinks();
    if (mqtt || settings.broker.listen.is_some())
        && let Err(error) = Links::check(settings)
    {
        found.add(key_of(&error, settings), &error);
    }
    if roles.agents() {
        found.of_agents(settings).await;
    }
    found.0
}

/// The setting that an error of the links is about. Those about certificates name the file.
fn key_of(error: &LinkError, settings: &Settings) -> &'static str {
    let (mqtt, broker, text) = (&settings.mqtt, &settings.broker, error.to_string());
    let files = [
        ("mqtt.ca_file", &mqtt.ca_file),
        ("mqtt.client_cert_file", &mqtt.client_cert_file),
        ("mqtt.client_key_file", &mqtt.client_key_file),
        ("broker.cert_file", &broker.cert_file),
        ("broker.key_file", &broker.key_file),
        ("broker.client_ca_file", &broker.client_ca_file),
    ];
    let named = files.into_iter().find(|(_, file)| {
        let file = file.as_ref().map(|file| file.display().to_string());
        file.is_some_and(|file| text.contains(&file))
    });
    named.map_or_else(|| error.key(), |(key, _)| key)
}

#[derive(Default)]
struct Found(Vec<Unusable>);

impl Found {
    fn add(&mut self, key: impl Into<String>, message: &dyn Display) {
        self.0.push(Unusable {
            key: key.into(),
            message: message.to_string(),
        });
    }

    async fn of_agents(&mut self, settings: &Settings) {
        for (index, cluster) in settings.clusters.iter().enumerate() {
            let is_file = matches!(
                cluster.access,
                ClusterAccess::Kubeconfig { file: Some(_), .. }
            );
            if is_file && let Err(error) = config_of(&cluster.access).await {
                let message = format_args!("cluster {}: {error}", cluster.name);
                self.add(format!("clusters[{index}].kubeconfig"), &message);
            }
        }
        let of_hub = settings.transport.driver == Driver::Kube && settings.hub.kubeconfig.is_some();
        if of_hub && let Err(error) = hub_driver(settings).build().await {
            let message = format_args!("hub.kubeconfig: {}", told(&error));
            self.add("hub.kubeconfig", &message);
        }
        if let Some(file) = &settings.agent.lease_kubeconfig {
            let access = ClusterAccess::Kubeconfig {
                file: Some(file.clone()),
                context: None,
            };
            if let Err(error) = config_of(&access).await {
                let key = "agent.lease_kubeconfig";
                self.add(key, &format_args!("{key}: {error}"));
            }
        }
        for (index, sink) in settings.sinks.iter().enumerate() {
            if let SinkKind::Git(git) = &sink.kind
                && let Some((_, file)) = &git.login
                && let Err(error) = read("sinks.password_file", file)
            {
                let message = format_args!("sink {}: {error}", sink.name);
                self.add(format!("sinks[{index}].password_file"), &message);
            }
        }
    }
}

/// An error with its causes, which its text leaves out.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages about these settings, from the name of the file on.
    async fn told_of(text: &str, roles: Roles) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("muster.toml");
        std::fs::write(&file, text).unwrap();
        let sources = Sources::default().with_file(&file);
        let settings = Settings::load(&sources).unwrap();
        let Err(error) = preflight(&sources, &settings, roles).await else {
            return Vec::new();
        };
        let shown = |problem: &crate::settings::Problem| {
            let text = problem.to_string();
            text[text.find("muster.toml").unwrap()..].to_owned()
        };
        error.problems.iter().map(shown).collect()
    }

    #[tokio::test]
    async fn every_file_that_a_start_reads_is_told_with_its_line() {
        let agents = "\
[transport]
driver = \"kube\"
[hub]
kubeconfig = \"/no/hub\"
[agent]
lease_kubeconfig = \"/no/lease\"
[[clusters]]
name = \"a\"
kubeconfig = \"/no/cluster\"
[[sinks]]
name = \"git\"
kind = \"git\"
url = \"/srv/git\"
work_dir = \"/tmp\"
username = \"u\"
password_file = \"/no/password\"
";
        let told = told_of(agents, Roles::Agents).await;
        let expected = [
            ("muster.toml:9: cluster a: kubeconfig: ", "/no/cluster"),
            ("muster.toml:4: hub.kubeconfig: ", "/no/hub"),
            ("muster.toml:6: agent.lease_kubeconfig: ", "/no/lease"),
            ("muster.toml:16: sink git: ", "/no/password"),
        ];
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, (start, file)) in told.iter().zip(expected) {
            assert!(told.starts_with(start) && told.contains(file), "{told}");
        }
        // A hub reads less, and one with an API server of its own no kubeconfig.
        assert_eq!(told_of(agents, Roles::Hub).await, [""; 0]);
    }

    #[tokio::test]
    async fn files_of_broker_and_links_are_told_with_their_line() {
        let broker = "[broker]\nlisten = \"127.0.0.1:0\"\n";
        let mqtt = "[transport]\ndriver = \"mqtt\"\n[mqtt]\nbroker = \"b:1\"\n";
        let of_ocm = "[transport]\ndriver = \"mqtt\"\n[mqtt]\nconfig_file = \"/no/ocm\"\n";
        let certificate = "cert_file = \"/no/cert\"\nkey_file = \"/no/key\"\n";
        for (text, start, file) in [
            (
                format!("{broker}users_file = \"/no/users\"\n"),
                "muster.toml:3: broker.users_file: ",
                "/no/users",
            ),
            (
                format!("{broker}{certificate}"),
                "muster.toml:3: broker: ",
                "/no/cert",
            ),
            (
                format!("{mqtt}username = \"u\"\npassword_file = \"/no/password\"\n"),
                "muster.toml:6: mqtt.password_file: ",
                "/no/password",
            ),
            (
                format!("{mqtt}ca_file = \"/no/ca\"\n"),
                "muster.toml:5: mqtt: ",
                "/no/ca",
            ),
            (
                format!("{mqtt}source = \"a/b\"\n"),
                "muster.toml:5: mqtt: ",
                "a/b",
            ),
            (
                of_ocm.to_owned(),
                "muster.toml:4: mqtt.config_file: ",
                "/no/ocm",
            ),
        ] {
            let told = told_of(&text, Roles::HubAndAgents).await;
            assert_eq!(told.len(), 1, "{text}{told:?}");
            assert!(
                told[0].starts_with(start) && told[0].contains(file),
                "{told:?}"
            );
        }
        assert_eq!(told_of(mqtt, Roles::HubAndAgents).await, [""; 0]);
    }
}
