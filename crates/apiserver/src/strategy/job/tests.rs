use super::*;
use crate::registry::Registry;

const UID: &str = "8d3f";

/// A Job as it is after its creation, with more in its spec.
fn job(more: &Value) -> Value {
    let mut job = json!({"metadata": {"name": "pi", "uid": UID}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "example/main:1"}]}}}});
    for (name, value) in more.as_object().unwrap() {
        job["spec"][name] = value.clone();
    }
    let types = Registry::new().types();
    crate::strategy::defaults::set(types.find("batch", "jobs").unwrap(), &mut job);
    complete(&mut job);
    default_labels(&mut job);
    job
}

fn problems(job: &Value, old: Option<&Value>) -> Vec<String> {
    let types = Registry::new().types();
    let mut errors = Vec::new();
    let def = types.find("batch", "jobs").unwrap();
    crate::strategy::rules::validate(def, job, old, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

/// What the server says to a change of one field, by JSON pointer.
fn change(old: &Value, pointer: &str, value: Value) -> Vec<String> {
    let mut job = old.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    job.pointer_mut(parent).unwrap()[name] = value;
    object::drop_nulls(&mut job);
    problems(&job, Some(old))
}

fn suspended(status: Value) -> Value {
    let mut job = job(&json!({"suspend": true}));
    job["status"] = status;
    job
}

#[test]
fn a_new_job_selects_and_labels_its_pods() {
    let job = job(&json!({}));
    let labels = json!({"controller-uid": UID, "batch.kubernetes.io/controller-uid": UID,
        "job-name": "pi", "batch.kubernetes.io/job-name": "pi"});
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(job["metadata"]["labels"], labels);
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": UID}});
    assert_eq!(job["spec"]["selector"], selector);
    assert_eq!(problems(&job, None), [""; 0]);
    assert_eq!(problems(&job, Some(&job)), [""; 0]);
}

#[test]
fn a_job_keeps_its_own_labels_and_gets_lost_ones_back() {
    let mut own = json!({"metadata": {"name": "pi", "uid": UID, "labels": {"a": "b"}},
        "spec": {"template": {}}});
    complete(&mut own);
    default_labels(&mut own);
    assert_eq!(own["metadata"]["labels"], json!({"a": "b"}));
    let mut lost = job(&json!({}));
    lost["metadata"].as_object_mut().unwrap().remove("labels");
    default_labels(&mut lost);
    assert_eq!(lost["metadata"]["labels"]["job-name"], "pi");
}

#[test]
fn a_selector_by_hand_is_left_and_has_to_fit() {
    let by_hand = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}});
    let mut job = job(&by_hand);
    assert!(job["spec"]["template"].get("metadata").is_none());
    assert_eq!(
        problems(&job, None),
        [
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match \
          template `labels`"
        ]
    );
    job["spec"]["template"]["metadata"] = json!({"labels": {"a": "b"}});
    assert_eq!(problems(&job, None), [""; 0]);
    job["spec"].as_object_mut().unwrap().remove("selector");
    assert_eq!(problems(&job, None)[0], "spec.selector: Required value");
}

#[test]
fn a_selector_or_label_of_the_users_is_refused() {
    let selector = job(&json!({"selector": {"matchLabels": {"a": "b"}}}));
    let found = problems(&selector, None);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].ends_with("`selector` not auto-generated"),
        "{found:?}"
    );
    assert!(
        found[1].ends_with("`selector` does not match template `labels`"),
        "{found:?}"
    );
    let mut labelled = job(&json!({}));
    let labels = &mut labelled["spec"]["template"]["metadata"]["labels"];
    labels["job-name"] = "other".into();
    labels.as_object_mut().unwrap().remove("controller-uid");
    let found = problems(&labelled, None);
    assert_eq!(
        found[0],
        "spec.template.metadata.labels[controller-uid]: Required value: must be '8d3f'"
    );
    assert!(
        found[1].starts_with("spec.template.metadata.labels[job-name]: Invalid value: {")
            && found[1].ends_with("}: must be 'pi'"),
        "{found:?}"
    );
}

#[test]
fn numbers_and_modes_are_checked() {
    let invalid = |more: Value| problems(&job(&more), None);
    let negative: Map<String, Value> = COUNTS[..5]
        .iter()
        .map(|name| ((*name).to_owned(), json!(-1)))
        .collect();
    let expected: Vec<String> = COUNTS[..5]
        .iter()
        .map(|name| format!("spec.{name}: Invalid value: -1: must be greater than or equal to 0"))
        .collect();
    assert_eq!(invalid(negative.into()), expected);
    for (more, expected) in [
        (
            json!({"completionMode": "Indexed", "parallelism": 2}),
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            json!({"completionMode": "Indexed", "parallelism": 200_000, "completions": 200_000}),
            "spec.parallelism: Invalid value: 200000: must be less than or equal to 100000 \
             when completion mode is Indexed",
        ),
        (
            json!({"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1,
                "maxFailedIndexes": 5}),
            "spec.maxFailedIndexes: Invalid value: 5: must be less than or equal to completions",
        ),
        (
            json!({"completionMode": "x"}),
            "spec.completionMode: Unsupported value: \"x\": supported values: \
             \"NonIndexed\", \"Indexed\"",
        ),
        (
            json!({"podReplacementPolicy": "x"}),
            "spec.podReplacementPolicy: Unsupported value: \"x\": supported values: \
             \"Failed\", \"TerminatingOrFailed\"",
        ),
        (
            json!({"backoffLimitPerIndex": 1}),
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
    ] {
        assert_eq!(invalid(more), [expected]);
    }
    assert_eq!(
        invalid(json!({"maxFailedIndexes": 1})),
        [
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
        ]
    );
}

#[test]
fn pods_of_a_job_have_to_end() {
    let with = |policy: Value, more: Value| {
        let mut job = job(&more);
        job["spec"]["template"]["spec"]["restartPolicy"] = policy;
        problems(&job, None)
    };
    let wants = "spec.template.spec.restartPolicy: Required value: valid values: \
        \"OnFailure\", \"Never\"";
    assert_eq!(with(json!("Always"), json!({})), [wants]);
    assert_eq!(with(json!("OnFailure"), json!({})), [""; 0]);
    assert_eq!(with(json!("x"), json!({})).len(), 2);
    let policy = json!({"podFailurePolicy": {"rules": []}});
    assert_eq!(
        with(json!("OnFailure"), policy),
        [
            "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is \
          supported when podFailurePolicy is specified"
        ]
    );
}

#[test]
fn most_of_a_job_stays_as_it_is() {
    let old = job(&json!({}));
    for (name, value) in [
        ("template", json!({"spec": {"nodeSelector": {"a": "b"}}})),
        ("completions", json!(3)),
        ("completions", json!(null)),
        ("completionMode", json!("Indexed")),
        ("managedBy", json!("example.com/queue")),
        ("selector", json!({"matchLabels": {"job-name": "pi"}})),
    ] {
        let mut value = value;
        if name == "template" {
            let mut template = old["spec"]["template"].clone();
            template["spec"]["nodeSelector"] = value["spec"]["nodeSelector"].take();
            value = template;
        }
        let found = change(&old, &format!("/spec/{name}"), value);
        let start = format!("spec.{name}: Invalid value: ");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&start), "{found:?}");
        assert!(found[0].ends_with(": field is immutable"), "{found:?}");
    }
    for (name, value) in [
        ("parallelism", json!(3)),
        ("suspend", json!(true)),
        ("activeDeadlineSeconds", json!(5)),
        ("ttlSecondsAfterFinished", json!(5)),
        ("backoffLimit", json!(2)),
        ("podReplacementPolicy", json!("Failed")),
    ] {
        assert_eq!(
            change(&old, &format!("/spec/{name}"), value),
            [""; 0],
            "{name}"
        );
    }
}

#[test]
fn a_problem_of_a_changed_job_is_found_twice() {
    let old = job(&json!({}));
    let found = change(&old, "/spec/backoffLimit", json!(-1));
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], found[1]);
}

#[test]
fn completions_of_a_job_with_indexes_go_with_its_parallelism() {
    let spec = |n: i64| json!({"completionMode": "Indexed", "completions": n, "parallelism": n});
    let old = job(&spec(3));
    assert_eq!(problems(&job(&spec(5)), Some(&old)), [""; 0]);
    assert_eq!(
        change(&old, "/spec/completions", json!(5)),
        [
            "spec.completions: Invalid value: 5: can only be modified in tandem with \
          spec.parallelism"
        ]
    );
}

#[test]
fn a_suspended_job_without_pods_can_be_placed_elsewhere() {
    let pod = "/spec/template/spec";
    let condition = json!([{"type": "Suspended", "status": "True"}]);
    let started = "2026-01-02T03:04:05Z";
    for status in [
        json!({}),
        json!({"startTime": started, "conditions": condition.clone()}),
    ] {
        let old = suspended(status);
        for (name, value) in [
            ("nodeSelector", json!({"a": "b"})),
            ("tolerations", json!([{"key": "a"}])),
            ("schedulingGates", json!([{"name": "a"}])),
            ("affinity", json!({"nodeAffinity": {"a": "b"}})),
            ("affinity", json!({})),
        ] {
            assert_eq!(
                change(&old, &format!("{pod}/{name}"), value),
                [""; 0],
                "{name}"
            );
        }
        let resources = format!("{pod}/containers/0/resources");
        let asked = json!({"requests": {"cpu": "1"}});
        let mut job = old.clone();
        *job.pointer_mut(&resources).unwrap() = asked;
        job["spec"]["suspend"] = json!(false);
        job["spec"]["template"]["metadata"]["annotations"] = json!({"a": "b"});
        assert_eq!(problems(&job, Some(&old)), [""; 0]);
        for (name, value) in [
            ("priorityClassName", json!("high")),
            ("affinity", json!({"podAffinity": {"a": "b"}})),
        ] {
            let found = change(&old, &format!("{pod}/{name}"), value);
            assert!(
                found[0].starts_with("spec.template.spec: Invalid value: ")
                    && found[0].ends_with(": field is immutable"),
                "{found:?}"
            );
        }
    }
    for status in [
        json!({"startTime": started}),
        json!({"active": 1}),
        json!({"startTime": started, "active": 1, "conditions": condition}),
    ] {
        let old = suspended(status);
        let found = change(&old, &format!("{pod}/nodeSelector"), json!({"a": "b"}));
        assert!(
            found[0].starts_with("spec.template: Invalid value: "),
            "{found:?}"
        );
    }
}
