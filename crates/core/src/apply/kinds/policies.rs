//! Policies: what somebody adds to the spec on the cluster is taken away again.

use serde_json::{Value, json};

use super::defaults::{fill, object, objects};
use super::{Object, Rule};

#[derive(Debug)]
pub(super) struct NetworkPolicy;

impl Rule for NetworkPolicy {
    fn owned(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn fill_defaults(&self, policy: &mut Object) {
        let Some(spec) = object(policy, "spec") else {
            return;
        };
        fill(spec, "podSelector", json!({}));
        // A policy that has rules for traffic that leaves applies to it.
        let egress = spec.get("egress").and_then(Value::as_array);
        let types = match egress {
            Some(rules) if !rules.is_empty() => json!(["Ingress", "Egress"]),
            _ => json!(["Ingress"]),
        };
        fill(spec, "policyTypes", types);
        for direction in ["ingress", "egress"] {
            for rule in objects(spec, direction) {
                for port in objects(rule, "ports") {
                    fill(port, "protocol", "TCP");
                }
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct PodDisruptionBudget;

impl Rule for PodDisruptionBudget {
    fn owned(&self) -> &'static [&'static str] {
        &["spec"]
    }
}

/// ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding.
#[derive(Debug)]
pub(super) struct AdmissionPolicy;

impl Rule for AdmissionPolicy {
    fn owned(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn fill_defaults(&self, policy: &mut Object) {
        let Some(spec) = object(policy, "spec") else {
            return;
        };
        // A binding has none; on both sides it does not count.
        fill(spec, "failurePolicy", "Fail");
        for field in ["matchConstraints", "matchResources"] {
            let Some(criteria) = object(spec, field) else {
                continue;
            };
            fill_match_defaults(criteria);
            for field in ["resourceRules", "excludeResourceRules"] {
                for rule in objects(criteria, field) {
                    fill(rule, "scope", "*");
                }
            }
        }
    }
}

/// What admission policies and webhooks have in common.
pub(super) fn fill_match_defaults(criteria: &mut Object) {
    fill(criteria, "matchPolicy", "Equivalent");
    fill(criteria, "namespaceSelector", json!({}));
    fill(criteria, "objectSelector", json!({}));
}
