use jiff::Timestamp;
use serde_json::json;

use super::*;

fn paths(paths: &[(&str, &str)]) -> FeedbackPlan {
    let json_paths = paths
        .iter()
        .map(|(name, path)| muster_api::work::JsonPath {
            name: (*name).into(),
            path: (*path).into(),
            ..Default::default()
        })
        .collect();
    FeedbackPlan::compile(&[FeedbackRule {
        type_: FeedBackType::JsonPaths,
        json_paths,
    }])
}

fn well_known(object: &Value) -> Feedback {
    let rule = FeedbackRule {
        type_: FeedBackType::WellKnownStatus,
        json_paths: Vec::new(),
    };
    FeedbackPlan::compile(&[rule]).evaluate(object, FeedbackLimits::default())
}

/// The values, all of which have to be texts.
fn texts(feedback: &Feedback) -> Vec<(&str, &str)> {
    let text = |value: &'_ FeedbackValue| value.value.string.is_some();
    assert!(feedback.values.iter().all(text), "{feedback:?}");
    feedback
        .values
        .iter()
        .map(|value| (&*value.name, value.value.string.as_deref().unwrap()))
        .collect()
}

#[test]
fn values_of_our_own_kinds_are_known() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "status": {"loadBalancer": {
        "ingress": [{"hostname": "a.example.org"}, {"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}],
    }}});
    let expected = [
        ("LoadBalancerIP", "192.0.2.1"),
        ("LoadBalancerHostname", "a.example.org"),
    ];
    assert_eq!(texts(&well_known(&service)), expected);
    let raw = FeedbackLimits {
        raw_json: true,
        ..FeedbackLimits::default()
    };
    let rule = FeedbackRule {
        type_: FeedBackType::WellKnownStatus,
        json_paths: Vec::new(),
    };
    let feedback = FeedbackPlan::compile(&[rule]).evaluate(&service, raw);
    assert_eq!(
        texts(&feedback),
        expected,
        "the first address, also where lists are allowed"
    );

    let empty = json!({"apiVersion": "v1", "kind": "Service", "status": {"loadBalancer": {}}});
    assert_eq!(well_known(&empty), Feedback::default());

    let claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Bound"}});
    assert_eq!(texts(&well_known(&claim)), [("Phase", "Bound")]);

    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "status": {
        "lastScheduleTime": "2026-03-01T10:00:00Z", "active": [{"name": "x"}],
    }});
    assert_eq!(
        texts(&well_known(&cron)),
        [("LastScheduleTime", "2026-03-01T10:00:00Z")]
    );
}

#[test]
fn every_well_known_path_is_a_path() {
    for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
        let gvk = Gvk::new("apps/v1", kind);
        let values = well_known::values_of(gvk).unwrap();
        assert!(
            values.len() == 3 && values.iter().all(|wanted| wanted.path.is_ok()),
            "{kind}"
        );
    }
    for (api_version, kind) in [
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("v1", "Pod"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "Service"),
    ] {
        let values = well_known::values_of(Gvk::new(api_version, kind)).unwrap();
        assert!(values.iter().all(|wanted| wanted.path.is_ok()), "{kind}");
    }
}

#[test]
fn no_way_leads_to_the_data_of_a_secret() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": "s", "labels": {"token": "harmless"},
            "annotations": {
                "note": "fine",
                "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"token\":\"aHVzaA==\"}}",
            },
        },
        "data": {"token": "aHVzaA=="},
        "stringData": {"other": "hush"},
    });
    let raw = FeedbackLimits {
        raw_json: true,
        max_json_raw_bytes: 1024,
    };
    for path in [
        ".data.token",
        ".data",
        ".stringData.other",
        "['data'].token",
        "['metadata','data']",
        "..token",
        "..",
        ".*",
        "",
        "@",
        ".data[?(@.x)]",
        ".metadata.annotations",
        ".metadata.annotations.kubectl\\.kubernetes\\.io/last-applied-configuration",
        "range .data.*}{@}{end",
    ] {
        for limits in [FeedbackLimits::default(), raw] {
            let feedback = paths(&[("v", path)]).evaluate(&secret, limits);
            assert_eq!(feedback.values, [], "{path}");
            assert_eq!(
                feedback.errors,
                ["the value for v would show data of a secret"],
                "{path}"
            );
        }
    }
    let allowed = [
        ("type", ".type"),
        ("name", ".metadata.name"),
        ("label", ".metadata.labels.token"),
        ("note", ".metadata.annotations.note"),
        ("missing", ".data.none"),
    ];
    let feedback = paths(&allowed).evaluate(&secret, FeedbackLimits::default());
    let expected = [
        ("type", "Opaque"),
        ("name", "s"),
        ("label", "harmless"),
        ("note", "fine"),
    ];
    assert_eq!(texts(&feedback), expected);
    assert_eq!(feedback.errors, [""; 0]);
    assert_eq!(
        well_known(&secret).notes,
        ["/v1, Kind=Secret has no well-known status values"]
    );

    let mut other = secret.clone();
    other["apiVersion"] = "example.org/v1".into();
    let feedback = paths(&[("v", ".data.token")]).evaluate(&other, FeedbackLimits::default());
    assert_eq!(
        texts(&feedback),
        [("v", "aHVzaA==")],
        "only Secrets of the core group"
    );
}

#[test]
fn the_condition_moves_when_values_do() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let plan = paths(&[("phase", ".status.phase")]);
    let read = |phase: &str| {
        plan.evaluate(
            &json!({"status": {"phase": phase}}),
            FeedbackLimits::default(),
        )
    };
    let mut status = ManifestCondition::default();
    let time = |status: &ManifestCondition| status.conditions[0].last_transition_time.0;

    assert!(record(&mut status, &plan, read("Pending"), at(1)));
    assert!(
        !record(&mut status, &plan, read("Pending"), at(2)),
        "nothing changed"
    );
    assert_eq!(time(&status), at(1));
    assert!(record(&mut status, &plan, read("Running"), at(3)));
    assert_eq!((time(&status), status.conditions.len()), (at(3), 1));

    let none = FeedbackPlan::default();
    assert!(record(&mut status, &none, Feedback::default(), at(4)));
    assert_eq!(status.status_feedback.values, []);
    assert_eq!(status.conditions[0].reason, "NoStatusFeedbackSynced");
}

#[test]
fn an_error_leaves_the_other_values() {
    let plan = paths(&[("a", ".["), ("b", ".kind"), ("c", ".metadata")]);
    let feedback = plan.evaluate(
        &json!({"kind": "K", "metadata": {}}),
        FeedbackLimits::default(),
    );
    assert_eq!(texts(&feedback), [("b", "K")]);
    let condition = feedback_condition(&plan, &feedback, Timestamp::UNIX_EPOCH);
    assert_eq!(
        (&*condition.status, &*condition.reason),
        ("False", "StatusFeedbackSyncFailed")
    );
    assert_eq!(
        condition.message,
        "Sync status feedback failed with error [failed to parse json path .[ of a with error: \
         unterminated array, the value for c is an object, but only a string, a boolean or an \
         integer of 64 bits can be reported without the feature gate RawFeedbackJsonString]"
    );
}

#[test]
fn a_type_mismatch_names_the_type_that_was_found_and_those_that_can_be_reported() {
    let object: Value = serde_json::from_str(
        r#"{"o": {}, "l": [], "f": 1.5, "b": 9223372036854775808, "n": null, "i": 1}"#,
    )
    .unwrap();
    for (path, found) in [
        (".o", "an object"),
        (".l", "a list"),
        (".f", "a floating-point number"),
        (".b", "an integer beyond 64 bits signed"),
        ("5", "a number of the path itself"),
    ] {
        let feedback = paths(&[("v", path)]).evaluate(&object, FeedbackLimits::default());
        let expected = format!(
            "the value for v is {found}, but only a string, a boolean or an integer of 64 bits can \
             be reported without the feature gate RawFeedbackJsonString"
        );
        assert_eq!((feedback.values, feedback.errors), (vec![], vec![expected]));
    }
}

const RAW: FeedbackLimits = FeedbackLimits {
    raw_json: true,
    max_json_raw_bytes: 1024,
};

#[test]
fn integers_beyond_64_bits_are_reported_with_all_digits_or_as_an_error() {
    let object: Value = serde_json::from_str(
        r#"{"a": 9223372036854775808, "b": 18446744073709551615, "c": 18446744073709551616,
            "d": -9223372036854775809, "e": 1.5e10, "least": -9223372036854775808,
            "deep": {"l": [18446744073709551615]}, "bad": {"l": [1, 18446744073709551617]},
            "list": [1, 9223372036854775809]}"#,
    )
    .unwrap();
    let raw = |path: &str| {
        let feedback = paths(&[("v", path)]).evaluate(&object, RAW);
        let value = feedback.values.into_iter().next();
        (
            value.and_then(|value| value.value.json_raw),
            feedback.errors,
        )
    };
    for (path, digits) in [
        (".a", "9223372036854775808"),
        (".b", "18446744073709551615"),
        (".e", "15000000000"),
        (".deep", r#"{"l":[18446744073709551615]}"#),
        (".list", "[1,9223372036854775809]"),
        (".list[*]", "[1,9223372036854775809]"),
    ] {
        assert_eq!(raw(path), (Some(digits.to_owned()), vec![]), "{path}");
    }
    for path in [".c", ".d", ".bad", ".bad.l", ".bad.l[*]"] {
        let unknown =
            "the value for v holds a number beyond 64 bits, whose digits are not all known";
        assert_eq!(raw(path), (None, vec![unknown.to_owned()]), "{path}");
    }
    let least = paths(&[("v", ".least")]).evaluate(&object, RAW);
    assert_eq!(least.values[0].value.integer, Some(i64::MIN));
}

#[test]
fn a_kind_without_well_known_values_has_a_note_and_no_error() {
    let note = "example.org/v1, Kind=Gear has no well-known status values";
    let rules = || FeedbackRule {
        type_: FeedBackType::WellKnownStatus,
        json_paths: Vec::new(),
    };
    let plan = FeedbackPlan::compile(&[rules(), rules()]);
    for status in [
        json!(null),
        json!({}),
        json!({"replicas": {"wanted": 3}}),
        json!({"readyReplicas": "3"}),
    ] {
        let gear = json!({"apiVersion": "example.org/v1", "kind": "Gear", "status": status});
        let feedback = plan.evaluate(&gear, FeedbackLimits::default());
        assert_eq!((&feedback.values, &feedback.errors), (&vec![], &vec![]));
        let condition = feedback_condition(&plan, &feedback, Timestamp::UNIX_EPOCH);
        assert_eq!((&*condition.status, &*condition.message), ("True", note));
    }
    // What such a kind has in common with a Deployment is reported.
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "status": {"replicas": 3, "readyReplicas": 2}});
    let feedback = well_known(&set);
    let values: Vec<_> = feedback
        .values
        .iter()
        .map(|value| (&*value.name, value.value.integer))
        .collect();
    assert_eq!(values, [("ReadyReplicas", Some(2)), ("Replicas", Some(3))]);
    assert_eq!((feedback.errors, feedback.notes), (vec![], vec![]));
    assert!(plan.may_read(Gvk::new("apps/v1", "ReplicaSet"), "status"));
}

#[test]
fn a_note_is_told_beside_errors() {
    let plan = paths(&[("a", ".metadata")]);
    let mut feedback = plan.evaluate(&json!({"metadata": {}}), FeedbackLimits::default());
    feedback.notes = vec!["polled".to_owned(), "other".to_owned()];
    let condition = feedback_condition(&plan, &feedback, Timestamp::UNIX_EPOCH);
    assert!(
        condition
            .message
            .starts_with("Sync status feedback failed with error the value")
    );
    assert!(
        condition.message.ends_with("; polled; other"),
        "{}",
        condition.message
    );
}

#[test]
fn raw_json_is_written_no_further_than_its_limit() {
    let limits = |max_json_raw_bytes| FeedbackLimits {
        raw_json: true,
        max_json_raw_bytes,
    };
    let object = json!({"o": {"k": "v"}, "l": ["v", "w"]});
    for (path, length) in [(".o", 9), (".l[*]", 9), (".l", 9)] {
        let plan = paths(&[("v", path)]);
        let at = plan.evaluate(&object, limits(length));
        let json = at.values[0].value.json_raw.as_deref();
        assert_eq!(json.map(str::len), Some(length), "{path}");
        assert_eq!(
            plan.evaluate(&object, limits(length - 1)).errors.len(),
            1,
            "{path}"
        );
    }
    // A million results of a megabyte each would not fit into memory.
    let big = json!({ "o": "x".repeat(1_000_000) });
    let many = vec!["'o'"; 1_000].join(",");
    let plan = paths(&[("v", &format!("[{many}]"))]);
    let error = &plan.evaluate(&big, limits(1024)).errors[0];
    assert!(
        error.ends_with("is larger than the maximum length 1024"),
        "{error}"
    );
}

#[test]
fn all_paths_of_a_manifest_share_one_budget() {
    let object = json!({ "l": vec![1; 100_000] });
    let path = format!(".l[*]['{}']", ["a"; 20].join("','"));
    let names: Vec<String> = (0..200).map(|name| name.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| (&**name, &*path)).collect();
    let feedback = paths(&many).evaluate(&object, FeedbackLimits::default());
    assert_eq!(feedback.values, []);
    assert!(feedback.errors.len() >= 198, "{}", feedback.errors.len());
    assert!(feedback.errors[199].ends_with("the path visits too many values"));
}

#[test]
fn a_path_with_very_many_results_counts_as_showing_data_of_a_secret() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque"});
    let path = |members: usize| format!("['{}']", vec!["type"; members].join("','"));
    let evaluate = |path: &str| paths(&[("v", path)]).evaluate(&secret, RAW);
    assert_eq!(
        evaluate(&path(1_001)).errors,
        ["the value for v would show data of a secret"]
    );
    let at_limit = evaluate(&path(1_000)).errors;
    assert!(
        at_limit[0].ends_with("is larger than the maximum length 1024"),
        "{at_limit:?}"
    );
}

#[test]
fn the_example_in_the_documents_is_a_work_whose_paths_find_values() {
    let page = include_str!("../../../../docs/feedback.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    let work: Value = serde_saphyr::from_str(yaml).unwrap();
    let work: muster_api::work::ManifestWork = serde_json::from_value(work).unwrap();
    let objects = [
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {
            "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "observedGeneration": 1,
            "conditions": [{"type": "Available", "status": "True"}]}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "status": {"used": {"requests.cpu": "2"}}}),
    ];
    let configs = &work.spec.manifest_configs;
    assert_eq!(configs.len(), objects.len());
    for (config, (object, count)) in configs.iter().zip(objects.iter().zip([5, 1])) {
        let scrape = serde_json::to_value(config).unwrap()["feedbackScrapeType"].clone();
        assert_eq!(scrape, "Watch");
        let plan = FeedbackPlan::compile(&config.feedback_rules);
        let feedback = plan.evaluate(object, FeedbackLimits::default());
        assert_eq!((feedback.values.len(), feedback.errors), (count, vec![]));
    }
}

#[test]
fn the_values_of_a_manifest_are_bounded_together() {
    let object = json!({ "long": "x".repeat(300_000), "short": "s" });
    let wanted: Vec<(String, &str)> = (0..10_000)
        .map(|n| (format!("v{n}"), ".long"))
        .chain([("last".to_owned(), ".short")])
        .collect();
    let wanted: Vec<(&str, &str)> = wanted.iter().map(|(name, path)| (&**name, *path)).collect();
    let feedback = paths(&wanted).evaluate(&object, FeedbackLimits::default());
    let names: Vec<&str> = feedback.values.iter().map(|value| &*value.name).collect();
    assert_eq!(names, ["v0", "v1", "v2", "last"], "what fits is reported");
    assert_eq!(feedback.errors.len(), 9_997);
    assert_eq!(
        feedback.errors[0],
        "the value for v3 is left out: the values of a manifest take at most 1048576 bytes"
    );
}
