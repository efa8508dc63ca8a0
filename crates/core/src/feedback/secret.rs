//! Keeps the data of Secrets out of feedback.

use serde_json::Value;

use crate::jsonpath::{EvalError, Few, JsonPath, Matches};
use crate::manifest::Gvk;

/// Where `kubectl apply` keeps a copy of what was applied, data included.
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Most values of a path that are compared: the texts among them may be long. A path that finds more
/// counts as one that shows data.
const MAX_COMPARED: usize = 1_000;

/// A Secret without what is secret about it.
///
/// A path shows secret data exactly if its result changes when the data is taken away. That holds
/// for any way to reach the data (`.data.x`, `..x`, `.*`, a filter, an error that prints it) and
/// leaves everything else readable.
#[derive(Debug)]
pub(super) struct SecretGuard {
    without_data: Value,
}

impl SecretGuard {
    /// Whether objects of this type need a guard.
    pub(super) fn is_for(gvk: Gvk<'_>) -> bool {
        gvk.group.is_empty() && gvk.kind == "Secret"
    }

    /// The guard of an object, if it is a Secret.
    pub(super) fn of(object: &Value, gvk: Gvk<'_>) -> Option<Self> {
        if !Self::is_for(gvk) {
            return None;
        }
        // Entry by entry, so that the data is not even copied.
        let without_data = object
            .as_object()?
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "data" | "stringData"))
            .map(|(key, value)| {
                let mut value = value.clone();
                if key == "metadata"
                    && let Some(Value::Object(annotations)) = value.get_mut("annotations")
                {
                    annotations.remove(LAST_APPLIED_ANNOTATION);
                }
                (key.clone(), value)
            })
            .collect();
        Some(Self { without_data })
    }

    /// Whether the result of a path over the whole Secret shows data.
    pub(super) fn shows_in(
        &self,
        whole: &Result<Few<Matches<'_>>, EvalError>,
        path: &JsonPath,
    ) -> bool {
        let found = whole.iter().flat_map(|blocks| blocks.iter());
        if found.map(|matches| matches.len()).sum::<usize>() > MAX_COMPARED {
            return true;
        }
        match (whole, path.eval(&self.without_data)) {
            (Ok(whole), Ok(without)) => {
                let differ = |(whole, without): (&Matches<'_>, &Matches<'_>)| {
                    whole.len() != without.len()
                        || whole
                            .iter()
                            .zip(without.iter())
                            .any(|(a, b)| a.value() != b.value())
                };
                whole.len() != without.len() || whole.iter().zip(without.iter()).any(differ)
            }
            (Err(whole), Err(without)) => *whole != without,
            _ => true,
        }
    }
}
