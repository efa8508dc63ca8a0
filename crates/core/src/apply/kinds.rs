//! How the content of an object is compared and replaced, by kind.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::ApplyError;
use super::contains::{contains, same_entries};
use crate::manifest::Gvk;

/// Fields outside the content.
const HEADER: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The rule for the content of a kind. A kind with needs of its own gets a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// The manifest replaces everything outside metadata and status.
    Whole,
    /// Content is written once, on creation: it cannot be changed or is filled in by the cluster.
    CreateOnly,
    /// `data` and `binaryData`, every entry of which is the manifest's.
    ConfigMap,
    /// `data`, every entry of which is the manifest's.
    Secret,
    /// As `Whole`, keeping addresses and ports that the cluster has assigned.
    Service,
}

impl Content {
    pub(super) fn of(gvk: Gvk<'_>) -> Self {
        match (gvk.group, gvk.kind) {
            ("", "Namespace" | "ServiceAccount" | "Pod") => Self::CreateOnly,
            ("", "ConfigMap") => Self::ConfigMap,
            ("", "Secret") => Self::Secret,
            ("", "Service") => Self::Service,
            _ => Self::Whole,
        }
    }

    /// Brings a manifest into the form in which it is compared and sent.
    pub(super) fn prepare(self, object: &mut Map<String, Value>) -> Result<(), ApplyError> {
        match self {
            Self::Secret => fold_string_data(object),
            _ => Ok(()),
        }
    }

    /// Whether the live object has the manifest's content.
    pub(super) fn is_current(
        self,
        live: &Map<String, Value>,
        desired: &Map<String, Value>,
    ) -> bool {
        let has_fields = |except: &[&str]| {
            desired
                .iter()
                .filter(|(key, _)| {
                    !HEADER.contains(&key.as_str()) && !except.contains(&key.as_str())
                })
                .all(|(key, value)| contains(live.get(key), value))
        };
        let same = |field: &str| same_entries(live.get(field), desired.get(field));
        match self {
            Self::Whole | Self::Service => has_fields(&[]),
            Self::CreateOnly => true,
            Self::ConfigMap => {
                same("data") && same("binaryData") && has_fields(&["data", "binaryData"])
            }
            Self::Secret if holds_service_account_token(desired) => has_fields(&[]),
            Self::Secret => same("data") && has_fields(&["data"]),
        }
    }

    /// The object to send in place of the live one, without its metadata.
    pub(super) fn replace(
        self,
        live: &Map<String, Value>,
        desired: &Map<String, Value>,
    ) -> Map<String, Value> {
        if self == Self::CreateOnly {
            return live.clone();
        }
        let mut object = desired.clone();
        // Where status is no resource of its own, an update without it would erase it.
        keep(&mut object, live, "status");
        match self {
            Self::Whole | Self::CreateOnly => {}
            Self::ConfigMap => keep(&mut object, live, "immutable"),
            Self::Secret => {
                keep(&mut object, live, "immutable");
                keep(&mut object, live, "type");
                if holds_service_account_token(desired) {
                    keep_entries(&mut object, live, "data");
                }
            }
            Self::Service => {
                if let Some(Value::Object(spec)) = object.get_mut("spec")
                    && let Some(Value::Object(live)) = live.get("spec")
                {
                    keep_assigned(spec, live);
                }
            }
        }
        object
    }
}

fn keep(object: &mut Map<String, Value>, live: &Map<String, Value>, field: &str) {
    if !object.contains_key(field)
        && let Some(value) = live.get(field)
    {
        object.insert(field.into(), value.clone());
    }
}

/// Keeps the entries of a map that the manifest does not mention.
fn keep_entries(object: &mut Map<String, Value>, live: &Map<String, Value>, field: &str) {
    let Some(Value::Object(live)) = live.get(field) else {
        return;
    };
    let entries = object
        .entry(field)
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(entries) = entries {
        for key in live.keys() {
            keep(entries, live, key);
        }
    }
}

/// The cluster writes the token into such a Secret, beside what the manifest has.
fn holds_service_account_token(secret: &Map<String, Value>) -> bool {
    secret
        .get("type")
        .is_some_and(|kind| kind == "kubernetes.io/service-account-token")
}

/// The server never shows `stringData`; to compare, it has to be where the server puts it. What is
/// not made of texts stays as it is, for the server to refuse.
fn fold_string_data(secret: &mut Map<String, Value>) -> Result<(), ApplyError> {
    let Some(texts) = secret.get("stringData").and_then(Value::as_object) else {
        return Ok(());
    };
    let mut data = match secret.get("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data.clone(),
        Some(_) => return Ok(()),
    };
    for (key, text) in texts {
        let Some(text) = text.as_str() else {
            return Ok(());
        };
        let encoded = Value::from(STANDARD.encode(text));
        if data.get(key).is_some_and(|known| *known != encoded) {
            return Err(ApplyError::SecretDataConflict { key: key.clone() });
        }
        data.insert(key.clone(), encoded);
    }
    secret.remove("stringData");
    secret.insert("data".into(), Value::Object(data));
    Ok(())
}

/// Copies what the cluster has assigned to a Service and the manifest leaves open; an update
/// without it would be refused or would assign anew.
fn keep_assigned(spec: &mut Map<String, Value>, live: &Map<String, Value>) {
    let kind = |spec: &Map<String, Value>| {
        spec.get("type")
            .and_then(Value::as_str)
            .unwrap_or("ClusterIP")
            .to_owned()
    };
    let (wanted, was) = (kind(spec), kind(live));
    if wanted == "ExternalName" || was == "ExternalName" {
        return;
    }
    // The list begins with the single address: one without the other would contradict it.
    if !spec.contains_key("clusterIP") && !spec.contains_key("clusterIPs") {
        keep(spec, live, "clusterIP");
        keep(spec, live, "clusterIPs");
    }
    keep(spec, live, "ipFamilies");
    keep(spec, live, "ipFamilyPolicy");
    if wanted == "ClusterIP" {
        return;
    }
    if wanted == "LoadBalancer"
        && spec
            .get("externalTrafficPolicy")
            .is_some_and(|p| p == "Local")
    {
        keep(spec, live, "healthCheckNodePort");
    }
    let Some(Value::Array(live_ports)) = live.get("ports") else {
        return;
    };
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let assigned = live_ports
            .iter()
            .filter_map(Value::as_object)
            .find(|live| port_identity(live) == port_identity(port));
        if let Some(assigned) = assigned {
            keep(port, assigned, "nodePort");
        }
    }
}

/// What makes two ports of a Service the same one.
fn port_identity(port: &Map<String, Value>) -> (Option<i64>, &str) {
    (
        port.get("port").and_then(Value::as_i64),
        port.get("protocol")
            .and_then(Value::as_str)
            .unwrap_or("TCP"),
    )
}
