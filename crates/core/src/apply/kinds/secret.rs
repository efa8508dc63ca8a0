//! Secret: every entry is the manifest's, save for tokens that the cluster writes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::defaults::fill;
use super::{Object, Rule, entries, keep};
use crate::apply::ApplyError;

/// The type that a Secret without one has.
const OPAQUE: &str = "Opaque";

/// Into a Secret of this type the cluster writes a token, beside what the manifest has.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// The type of a Secret cannot be changed, and no entry of an immutable one can: such a Secret is
/// made anew.
#[derive(Debug)]
pub(super) struct Secret;

impl Rule for Secret {
    fn prepare(&self, manifest: &mut Object) -> Result<(), ApplyError> {
        fold_string_data(manifest)
    }

    fn keep(&self, wanted: &mut Object, live: &Object) {
        keep(wanted, live, "immutable");
        if secret_type(wanted) != secret_type(live) {
            return;
        }
        keep(wanted, live, "type");
        if secret_type(wanted) == SERVICE_ACCOUNT_TOKEN
            && let Some(Value::Object(known)) = live.get("data")
            && let Some(data) = entries(wanted, "data")
        {
            for key in known.keys() {
                keep(data, known, key);
            }
        }
    }

    fn owned(&self) -> &'static [&'static str] {
        &["data", "type"]
    }

    fn fill_defaults(&self, object: &mut Object) {
        fill(object, "type", OPAQUE);
    }

    fn must_recreate(&self, live: &Object, wanted: &Object) -> bool {
        secret_type(live) != secret_type(wanted)
            || live.get("immutable") == Some(&Value::Bool(true))
    }
}

fn secret_type(secret: &Object) -> &str {
    match secret.get("type").and_then(Value::as_str) {
        None | Some("") => OPAQUE,
        Some(kind) => kind,
    }
}

/// The server never shows `stringData`; to compare, it has to be where the server puts it. What is
/// not made of texts stays as it is, for the server to refuse.
fn fold_string_data(secret: &mut Object) -> Result<(), ApplyError> {
    let Some(texts) = secret.get("stringData").and_then(Value::as_object) else {
        return Ok(());
    };
    let mut data = match secret.get("data") {
        None | Some(Value::Null) => Object::new(),
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
