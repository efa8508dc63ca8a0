//! Job: what the cluster has generated stays, and a Job is never made anew: it would run again.

use serde_json::Value;

use super::defaults::object;
use super::{Object, Rule, entries, keep};

/// Labels of the pods by which the cluster finds those of the Job.
const GENERATED_LABELS: [&str; 4] = [
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
];

/// Differs from upstream: upstream's updates lack the generated selector and labels, so that the
/// server refuses every one of them, even one that only suspends the Job. Here a change is refused
/// only if it is one that the server does not allow, and the refusal names the field.
#[derive(Debug)]
pub(super) struct Job;

impl Rule for Job {
    fn keep(&self, wanted: &mut Object, live: &Object) {
        let Some(Value::Object(live)) = live.get("spec") else {
            return;
        };
        let Some(spec) = object(wanted, "spec") else {
            return;
        };
        // Set once and for all when neither it nor `parallelism` was given.
        keep(spec, live, "completions");
        if spec.get("manualSelector") == Some(&Value::Bool(true)) {
            return;
        }
        keep(spec, live, "selector");
        let labels = live
            .get("template")
            .and_then(|template| template.get("metadata")?.get("labels")?.as_object());
        if let Some(labels) = labels
            && GENERATED_LABELS.iter().any(|key| labels.contains_key(*key))
            && let Some(template) = object(spec, "template")
            && let Some(metadata) = entries(template, "metadata")
            && let Some(wanted) = entries(metadata, "labels")
        {
            for key in GENERATED_LABELS {
                keep(wanted, labels, key);
            }
        }
    }

    /// Nothing can be taken from the template, so that there is nothing to try.
    fn is_applied(&self, _live: &Object, _wanted: &Object, known: Option<bool>) -> bool {
        known.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(wanted: &Value, live: &Value) -> Value {
        let mut wanted = wanted.as_object().unwrap().clone();
        Job.keep(&mut wanted, live.as_object().unwrap());
        wanted.into()
    }

    #[test]
    fn what_the_cluster_has_set_for_good_stays() {
        let labels = json!({"job-name": "pi", "controller-uid": "u"});
        let live = json!({"spec": {"completions": 1, "parallelism": 1,
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "template": {"metadata": {"labels": labels}}}});
        let wanted = json!({"spec": {"parallelism": 2, "template": {}}});
        let mut expected = live.clone();
        expected["spec"]["parallelism"] = 2.into();
        assert_eq!(kept(&wanted, &live), expected);
        let given = json!({"spec": {"completions": 5, "template": {}}});
        assert_eq!(kept(&given, &live)["spec"]["completions"], 5);
    }

    #[test]
    fn a_selector_by_hand_is_taken_as_it_is() {
        let live = json!({"spec": {"completions": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b", "job-name": "pi"}}}}});
        let wanted = json!({"spec": {"manualSelector": true, "template": {}}});
        let mut expected = wanted.clone();
        expected["spec"]["completions"] = 1.into();
        assert_eq!(kept(&wanted, &live), expected);
    }
}
