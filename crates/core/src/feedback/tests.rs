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
        well_known(&secret).errors,
        ["cannot find the wellknown statuses for resource with gvk /v1, Kind=Secret"]
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
         unterminated array, the type map[string]interface {} of the value for c is not found]"
    );
}

#[test]
fn many_paths_share_a_budget_and_each_name_is_told_once() {
    let object = json!({"apiVersion": "v1", "kind": "X", "l": vec![0; 100_000], "s": "x"});
    let costly: Vec<String> = (0..100).map(|n| format!("v{n}")).collect();
    let mut rules: Vec<(&str, &str)> = vec![("first", ".s")];
    rules.extend(costly.iter().map(|name| (&**name, ".l[*]")));
    rules.push(("last", ".s"));
    let feedback = paths(&rules).evaluate(&object, FeedbackLimits::default());
    let names: Vec<&str> = feedback.values.iter().map(|value| &*value.name).collect();
    assert_eq!(names[0], "first");
    assert!((10..80).contains(&names.len()), "{}", names.len());
    let expected = "the feedback rules visit more than 4000000 values of the object, the rest is \
                    left out";
    assert_eq!(feedback.errors, [expected]);

    // Thousands of names and errors are told apart without comparing each with each.
    let many: Vec<String> = (0..50_000).map(|n| format!("v{n}")).collect();
    let rules: Vec<(&str, &str)> = many.iter().map(|name| (&**name, ".s")).collect();
    let feedback = paths(&rules).evaluate(&object, FeedbackLimits::default());
    assert_eq!((feedback.values.len(), feedback.errors.len()), (50_000, 0));
    let rules: Vec<(&str, &str)> = many
        .iter()
        .map(|name| (&**name, ".apiVersion[0]"))
        .collect();
    let feedback = paths(&rules).evaluate(&object, FeedbackLimits::default());
    assert_eq!((feedback.values.len(), feedback.errors.len()), (0, 50_000));
}

#[test]
fn values_are_large_together_only_up_to_a_limit() {
    let text = "x".repeat(MAX_FEEDBACK_BYTES / 4);
    let object = json!({"apiVersion": "v1", "kind": "X", "text": text, "small": "y"});
    let names = ["a", "b", "c", "d", "e"];
    let mut rules: Vec<(&str, &str)> = names.map(|name| (name, ".text")).to_vec();
    rules.push(("small", ".small"));
    let feedback = paths(&rules[..4]).evaluate(&object, FeedbackLimits::default());
    assert_eq!((feedback.values.len(), feedback.errors.len()), (4, 0));
    let feedback = paths(&rules).evaluate(&object, FeedbackLimits::default());
    assert_eq!(feedback.values.len(), 4);
    assert_eq!(
        feedback.errors,
        ["e", "small"].map(|name| format!(
            "the value for {name} is left out: all values have more than 1048576 bytes"
        ))
    );
}
