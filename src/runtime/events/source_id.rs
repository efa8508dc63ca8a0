//! The id of a hub among sources, where the settings give it none: another for each hub, and the same
//! over restarts. A hub that takes over the id of another has its works removed from the clusters.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::settings::{HubApi, Settings};

/// What ids begin with, and what hubs were called before there were others.
const NAME: &str = "hub";
/// File in the hub's data directory that keeps its id.
const FILE: &str = "source-id";
/// The hub's objects there; with them and without the file it is a hub of before.
const STORE: &str = "hub.redb";
/// What EMQX's rules in `deploy/` put before the names of sources.
const LOGIN_PREFIX: &str = "source.";

/// The id of the file cannot be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("mqtt.source is not set, and {}: {source}", path.display())]
pub struct SourceIdError {
    path: PathBuf,
    source: io::Error,
}

/// The id of the hub of these settings at a broker elsewhere.
pub(super) fn of(settings: &Settings) -> Result<String, SourceIdError> {
    // The rules of a broker go by the login.
    let login = settings.mqtt.username.as_deref().and_then(of_login);
    if settings.hub.api == HubApi::Embedded
        && let Some(dir) = &settings.hub.data_dir
    {
        return kept_in(dir, login);
    }
    if let Some(login) = login {
        return Ok(login.to_owned());
    }
    let facts = match settings.hub.api {
        HubApi::Embedded => vec![
            fs::read_to_string("/etc/hostname").unwrap_or_default(),
            fs::read_to_string("/etc/machine-id").unwrap_or_default(),
            settings.hub.listen.to_string(),
            shown(std::env::current_dir().ok()),
        ],
        HubApi::Kubeconfig => vec![
            settings.hub.context.clone().unwrap_or_default(),
            server(settings).unwrap_or_default(),
        ],
    };
    Ok(derived(&facts))
}

/// The id that a login stands for: its name, as the rules for mosquitto have it, or what follows
/// `source.`, as those for EMQX.
fn of_login(user: &str) -> Option<&str> {
    let name = user.strip_prefix(LOGIN_PREFIX).unwrap_or(user);
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// The address of the hub's API server, and the CA that it is known by: in each cluster the address
/// for pods is the same.
fn server(settings: &Settings) -> Option<String> {
    const CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
    match &settings.hub.kubeconfig {
        Some(file) => {
            let kubeconfig = kube::config::Kubeconfig::read_from(file).ok()?;
            let context = settings.hub.context.clone().or(kubeconfig.current_context);
            let mut contexts = kubeconfig.contexts.into_iter();
            let context = contexts.find(|named| Some(&named.name) == context.as_ref())?;
            let name = context.context?.cluster;
            let mut clusters = kubeconfig.clusters.into_iter();
            clusters.find(|named| named.name == name)?.cluster?.server
        }
        None => fs::read_to_string(CA).ok(),
    }
}

fn shown(path: Option<PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

fn derived(facts: &[String]) -> String {
    let mut hasher = Sha256::new();
    for fact in facts {
        hasher.update(fact.len().to_le_bytes());
        hasher.update(fact);
    }
    let hash = hasher.finalize();
    // Ten hexadecimal digits.
    let bytes = hash.iter().take(5);
    let number = bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{NAME}-{number:010x}")
}

/// The id in a data directory; where there is none, that of the login or a new one.
fn kept_in(dir: &Path, login: Option<&str>) -> Result<String, SourceIdError> {
    let path = dir.join(FILE);
    let failed = |source| SourceIdError {
        path: path.clone(),
        source,
    };
    match fs::read_to_string(&path) {
        Ok(text) => {
            let id = text.trim();
            return match of_login(id) {
                Some(id) => Ok(id.to_owned()),
                None => Err(failed(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{id:?} is not a source id (a-z, 0-9 and -)"),
                ))),
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let id = if dir.join(STORE).exists() {
        NAME.to_owned()
    } else if let Some(login) = login {
        login.to_owned()
    } else {
        format!("{NAME}-{:010x}", rand::random::<u64>() & 0xFF_FFFF_FFFF)
    };
    fs::create_dir_all(dir).map_err(failed)?;
    // Whole or not at all: half an id would be another one.
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    file.write_all(id.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sources;

    fn settings(set: &[(&str, &str)]) -> Settings {
        let with = |sources: Sources, (key, value): &(&str, &str)| sources.with_flag(*key, *value);
        Settings::load(&set.iter().fold(Sources::default(), with)).unwrap()
    }

    #[test]
    fn hubs_with_default_settings_have_ids_of_their_own() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let ids = dirs.each_ref().map(|dir| {
            let set = settings(&[("hub.data_dir", dir.path().to_str().unwrap())]);
            let id = of(&set).unwrap();
            assert_eq!(of(&set).unwrap(), id, "after a restart");
            assert_eq!(of_login(&id), Some(&*id));
            id
        });
        assert_ne!(ids[0], ids[1]);
        let ports = ["127.0.0.1:7001", "127.0.0.1:7002"];
        let ids = ports.map(|listen| of(&settings(&[("hub.listen", listen)])).unwrap());
        assert_ne!(ids[0], ids[1]);
        assert_eq!(of(&settings(&[("hub.listen", ports[0])])).unwrap(), ids[0]);
    }

    #[test]
    fn hubs_of_different_clusters_have_ids_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let ids = ["https://one:6443", "https://two:6443"].map(|server| {
            let file = dir.path().join("config");
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\nclusters:\n- name: k\n  cluster: {{server: \"{server}\"}}\nusers: []\n"
            );
            fs::write(&file, text).unwrap();
            let file = file.to_str().unwrap();
            of(&settings(&[("hub.api", "kubeconfig"), ("hub.kubeconfig", file)])).unwrap()
        });
        assert_ne!(ids[0], ids[1]);
        assert!(ids[0].starts_with("hub-") && ids[0].len() == 14, "{ids:?}");
    }

    #[test]
    fn a_login_names_its_source_as_the_rules_of_brokers_do() {
        for (user, id) in [
            ("hub1", Some("hub1")),
            ("source.hub1", Some("hub1")),
            ("Hub One", None),
        ] {
            assert_eq!(of_login(user), id, "{user}");
        }
        let dir = tempfile::tempdir().unwrap();
        let dir = ("hub.data_dir", dir.path().to_str().unwrap());
        for set in [
            &[("mqtt.username", "hub1")][..],
            &[("mqtt.username", "hub1"), dir],
        ] {
            assert_eq!(of(&settings(set)).unwrap(), "hub1");
        }
    }

    #[test]
    fn a_hub_of_before_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STORE), "").unwrap();
        let set = settings(&[
            ("hub.data_dir", dir.path().to_str().unwrap()),
            ("mqtt.username", "operator"),
        ]);
        assert_eq!(of(&set).unwrap(), "hub");
        fs::write(dir.path().join(FILE), "a/b\n").unwrap();
        let error = of(&set).unwrap_err().to_string();
        assert!(error.contains("\"a/b\" is not a source id"), "{error}");
    }
}
