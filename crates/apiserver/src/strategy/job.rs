//! Jobs: the selector and labels that the server makes, what a valid Job is, and what of it may
//! change.
//!
//! The rules are those that a kube-apiserver 1.36 answers with. It validates the new object twice
//! when one is changed, once as an object and once as a change, and tells the causes twice.

use serde_json::{Map, Value, json};

use super::rules::immutable;
use crate::object;
use crate::selector::LabelSelector;
use crate::status::FieldError;
use crate::verbs::scale::selector_text;

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// The most Pods at a time of a Job with indexes.
const MAX_INDEXED_PARALLELISM: i64 = 100_000;

/// Fields that count something, in the order in which they are checked.
const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];

/// The labels that a Job's Pods carry, by uid and name of the Job.
fn pod_labels(job: &Value) -> [(&'static str, &str); 4] {
    let (uid, name) = (object::meta_str(job, "uid"), object::meta_str(job, "name"));
    [
        ("controller-uid", uid),
        ("job-name", name),
        (UID_LABEL, uid),
        ("batch.kubernetes.io/job-name", name),
    ]
}

fn selects_by_hand(job: &Value) -> bool {
    job.pointer("/spec/manualSelector") == Some(&json!(true))
}

/// Makes a new Job select its own Pods, unless it does so by hand; what the user wrote stays, and
/// is refused later if it does not fit.
pub(super) fn complete(job: &mut Value) {
    if selects_by_hand(job) || job.get("spec").is_none() {
        return;
    }
    let labels = pod_labels(job).map(|(key, value)| (key, json!(value)));
    let uid = labels[0].1.clone();
    let spec = object::as_object_mut(&mut job["spec"]);
    let on_pods = field(field(field(spec, "template"), "metadata"), "labels");
    for (key, value) in labels {
        on_pods.entry(key).or_insert(value);
    }
    let selected = field(field(spec, "selector"), "matchLabels");
    selected.entry(UID_LABEL).or_insert(uid);
}

/// A field that is an object, made if need be.
fn field<'a>(fields: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    object::as_object_mut(fields.entry(name).or_insert_with(|| json!({})))
}

/// Gives a Job without labels those of its Pods.
pub(super) fn default_labels(job: &mut Value) {
    let labels = job.pointer("/metadata/labels").and_then(Value::as_object);
    if labels.is_none_or(Map::is_empty)
        && let Some(labels) = job.pointer("/spec/template/metadata/labels").cloned()
    {
        object::set_meta(job, "labels", labels);
    }
}

/// Checks that the selector is the Job's own, where the server makes it.
pub(super) fn own_selector(job: &Value, errors: &mut Vec<FieldError>) {
    let Some(selector) = job.pointer("/spec/selector") else {
        return; // told as a missing field
    };
    if selects_by_hand(job) {
        return;
    }
    let labels = job.pointer("/spec/template/metadata/labels");
    let wanted = pod_labels(job);
    for (key, value) in wanted {
        let field = format!("spec.template.metadata.labels[{key}]");
        let detail = format!("must be '{value}'");
        match labels.and_then(|labels| labels.get(key)) {
            None => errors.push(FieldError::required(field, &detail)),
            Some(found) if found != value => {
                let labels = labels.unwrap_or(&Value::Null);
                errors.push(FieldError::invalid(field, labels, &detail));
            }
            Some(_) => {}
        }
    }
    let wanted: Map<String, Value> = wanted
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    if !selects(selector, Some(&Value::Object(wanted))) {
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", selector, detail));
    }
}

/// Checks the spec.
pub(super) fn spec(job: &Value, errors: &mut Vec<FieldError>) {
    let spec = &job["spec"];
    let count = |name: &str| spec[name].as_i64();
    let path = |name: &str| format!("spec.{name}");
    let mut invalid = |name: &str, detail: &str| {
        errors.push(FieldError::invalid(path(name), &spec[name], detail));
    };
    for name in COUNTS {
        if count(name).is_some_and(|count| count < 0) {
            invalid(name, "must be greater than or equal to 0");
        }
    }
    if spec["completionMode"] == "Indexed" {
        let parallelism = count("parallelism");
        if parallelism > Some(MAX_INDEXED_PARALLELISM) {
            let detail = format!(
                "must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is \
                 Indexed"
            );
            invalid("parallelism", &detail);
        }
        if let (Some(failed), Some(completions)) = (count("maxFailedIndexes"), count("completions"))
            && failed > completions
        {
            invalid(
                "maxFailedIndexes",
                "must be less than or equal to completions",
            );
        }
        if count("completions").is_none() {
            let detail = "when completion mode is Indexed";
            errors.push(FieldError::required(path("completions"), detail));
        }
    } else if spec["completionMode"] == "NonIndexed" {
        let only_indexed = "requires indexed completion mode";
        if count("backoffLimitPerIndex").is_some() {
            invalid("backoffLimitPerIndex", only_indexed);
        } else if count("maxFailedIndexes").is_some() {
            let detail = "when maxFailedIndexes is specified";
            errors.push(FieldError::required(path("backoffLimitPerIndex"), detail));
        }
        for name in ["maxFailedIndexes", "successPolicy"] {
            if let Some(value) = spec.get(name) {
                errors.push(FieldError::invalid(path(name), value, only_indexed));
            }
        }
    }
    let mut one_of = |name: &str, supported: &[&str]| {
        let value = &spec[name];
        if !value.is_null() && !supported.iter().any(|supported| value == supported) {
            let supported: Vec<String> = supported.iter().map(ToString::to_string).collect();
            errors.push(FieldError::not_supported(path(name), value, &supported));
        }
    };
    one_of("completionMode", &["NonIndexed", "Indexed"]);
    let with_policy = spec.get("podFailurePolicy").is_some();
    if with_policy {
        one_of("podReplacementPolicy", &["Failed"]);
    } else {
        one_of("podReplacementPolicy", &["Failed", "TerminatingOrFailed"]);
    }
    selector(spec, errors);
}

fn selector(spec: &Value, errors: &mut Vec<FieldError>) {
    let selector = spec.get("selector");
    let labels = spec.pointer("/template/metadata/labels");
    if selector.is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if !selector.is_some_and(|selector| selects(selector, labels)) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels.unwrap_or(&Value::Null),
            "`selector` does not match template `labels`",
        ));
    }
}

fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let labels = labels
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    LabelSelector::parse(&selector_text(selector)).is_ok_and(|selector| selector.matches(&labels))
}

/// Checks that the Pods end some time.
pub(super) fn restart_policy(job: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.template.spec.restartPolicy";
    let policy = &job["spec"]["template"]["spec"]["restartPolicy"];
    match policy.as_str() {
        Some("Never") => {}
        Some("OnFailure") => {
            if job.pointer("/spec/podFailurePolicy").is_some() {
                let detail = "only \"Never\" is supported when podFailurePolicy is specified";
                errors.push(FieldError::invalid(field, policy, detail));
            }
        }
        None | Some("Always" | "") => {
            let detail = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(field, detail));
        }
        Some(_) => {
            for supported in [
                &["Always", "OnFailure", "Never"][..],
                &["OnFailure", "Never"],
            ] {
                let supported: Vec<String> = supported.iter().map(ToString::to_string).collect();
                errors.push(FieldError::not_supported(field, policy, &supported));
            }
        }
    }
}

/// Checks what of an existing Job is changed. Free are `parallelism`, `suspend`, the limits in
/// time and failures, `completions` together with `parallelism` of a Job with indexes, and of a
/// suspended Job without Pods what decides where they will run.
pub(super) fn changes(job: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    completions(job, old, errors);
    immutable(job, old, "/spec/selector", "spec.selector", errors);
    template(job, old, errors);
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        let (pointer, field) = (format!("/spec/{name}"), format!("spec.{name}"));
        immutable(job, old, &pointer, &field, errors);
    }
}

fn completions(job: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, before) = (&job["spec"]["completions"], &old["spec"]["completions"]);
    if job["spec"]["completionMode"] != "Indexed" {
        immutable(job, old, "/spec/completions", "spec.completions", errors);
    } else if new != before && !new.is_null() && *new != job["spec"]["parallelism"] {
        errors.push(FieldError::invalid(
            "spec.completions",
            new,
            "can only be modified in tandem with spec.parallelism",
        ));
    }
}

fn template(job: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !is_at_rest(old) {
        return immutable(job, old, "/spec/template", "spec.template", errors);
    }
    let new = &job["spec"]["template"]["spec"];
    if without_placing(new) != without_placing(&old["spec"]["template"]["spec"]) {
        let field = "spec.template.spec";
        errors.push(FieldError::invalid(field, new, "field is immutable"));
    }
}

/// Whether the Job is suspended and none of its Pods is left.
fn is_at_rest(job: &Value) -> bool {
    let status = &job["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut suspended = conditions.filter(|c| c["type"] == "Suspended" && c["status"] == "True");
    let active = status["active"].as_i64().unwrap_or_default();
    job["spec"]["suspend"] == true
        && active == 0
        && (status["startTime"].is_null() || suspended.next().is_some())
}

/// The spec of a Pod without what decides where it may run and what it asks of a node.
fn without_placing(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let Some(spec) = pod.as_object_mut() else {
        return pod;
    };
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        spec.remove(name);
    }
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            spec.remove("affinity");
        }
    }
    for name in ["containers", "initContainers"] {
        let containers = spec.get_mut(name).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("resources");
            }
        }
    }
    pod
}

#[cfg(test)]
mod tests;
