//! Webhook configurations: every webhook is the manifest's, save for the CA that the cluster
//! injects.

use std::collections::HashMap;

use serde_json::Value;

use super::defaults::{fill, object, object_at, objects};
use super::policies::fill_match_defaults;
use super::{Object, Rule, keep};

/// ValidatingWebhookConfiguration and MutatingWebhookConfiguration.
#[derive(Debug)]
pub(super) struct Webhooks;

impl Rule for Webhooks {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        let known = live.get("webhooks").and_then(Value::as_array);
        let known = known.into_iter().flatten().filter_map(Value::as_object);
        let mut by_name: HashMap<&str, &Object> = HashMap::new();
        for webhook in known {
            by_name.entry(name(webhook)).or_insert(webhook);
        }
        for webhook in objects(wanted, "webhooks") {
            let same = by_name.get(name(webhook));
            if let Some(Value::Object(known)) = same.and_then(|known| known.get("clientConfig"))
                && let Some(config) = object(webhook, "clientConfig")
            {
                keep_ca(config, known);
            }
        }
    }

    fn owned(&self) -> &'static [&'static str] {
        &["webhooks"]
    }

    fn fill_defaults(&self, configuration: &mut Object) {
        for webhook in objects(configuration, "webhooks") {
            fill(webhook, "failurePolicy", "Fail");
            fill(webhook, "timeoutSeconds", 10);
            // One that validates has none; on both sides it does not count.
            fill(webhook, "reinvocationPolicy", "Never");
            fill_match_defaults(webhook);
            for rule in objects(webhook, "rules") {
                fill(rule, "scope", "*");
            }
            if let Some(service) = object_at(webhook, &["clientConfig", "service"]) {
                fill(service, "port", 443);
            }
        }
    }
}

fn name(webhook: &Object) -> &str {
    let name = webhook.get("name").and_then(Value::as_str);
    name.unwrap_or_default()
}

/// Keeps the CA of a webhook's client if the manifest leaves it open.
pub(super) fn keep_ca(config: &mut Object, known: &Object) {
    let is_open = |value: &Value| value.is_null() || *value == "";
    if config.get("caBundle").is_some_and(is_open) {
        config.remove("caBundle");
    }
    keep(config, known, "caBundle");
}
