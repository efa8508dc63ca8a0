//! Group F: values of live objects.
//!
//! | Rows | Story |
//! |---|---|
//! | F01, F02, W28, W29, C041 | `f01_f02_w28_w29_a_deployment_reports_its_replicas` |
//! | F03–F05, C027, C028 | `f03_f05_what_cannot_be_reported_costs_only_itself` |
//! | F06 | `f06_lists_are_reported_as_json_where_allowed` |
//! | F07, F08 | `f07_f08_a_daemon_set_reports_its_numbers` |
//! | F09, F10 | `f09_f10_wildcards_give_rules_to_several_objects` |
//! | F11, C039 | `f11_the_first_matching_rules_win` |
//! | F12 | `f12_a_watched_object_reports_without_a_poll` |
//! | F13, C052 | `f13_a_cluster_scoped_object_is_watched_too` |
//! | C022, C023, C025, C029, C033 | `paths_follow_the_dialect_of_kubectl` |
//! | C036 | `raw_json_is_refused_above_the_limit_exactly` |
//! | C040 | `rules_that_do_not_fit_an_object_are_told` |

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::basic::Guestbook;
use crate::support::agent::Agent;
use crate::support::works::{
    integer, json_raw, manifest_condition, manifests, shows, string, values,
};
use crate::support::{Story, World, eventually, live::LIMIT};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        f01_f02_w28_w29_a_deployment_reports_its_replicas,
        f03_f05_what_cannot_be_reported_costs_only_itself,
        f06_lists_are_reported_as_json_where_allowed,
        f07_f08_a_daemon_set_reports_its_numbers,
        f09_f10_wildcards_give_rules_to_several_objects,
        f11_the_first_matching_rules_win,
        f12_a_watched_object_reports_without_a_poll,
        f13_a_cluster_scoped_object_is_watched_too,
        paths_follow_the_dialect_of_kubectl,
        raw_json_is_refused_above_the_limit_exactly,
        rules_that_do_not_fit_an_object_are_told,
    ]
}

const SYNCED: &str = "StatusFeedbackSynced";

fn well_known() -> Value {
    json!({"type": "WellKnownStatus"})
}

/// Rule with a path for each name.
fn paths(paths: &[(&str, &str)]) -> Value {
    let paths: Vec<_> = paths
        .iter()
        .map(|(name, path)| json!({"name": name, "path": path}))
        .collect();
    json!({"type": "JSONPaths", "jsonPaths": paths})
}

/// A config of Deployments with these feedback rules.
#[allow(
    clippy::needless_pass_by_value,
    reason = "a literal is written in its place"
)]
fn deployments(agent: &Agent, name: &str, rules: Value) -> Value {
    let mut config = agent.configure("apps", "deployments", name, json!({}));
    config["feedbackRules"] = rules;
    config
}

fn spec(objects: impl Into<Vec<Value>>, configs: impl Into<Vec<Value>>) -> Value {
    let mut spec = manifests(objects);
    spec["manifestConfigs"] = Value::from(configs.into());
    spec
}

fn replicas(replicas: i64, ready: i64, available: i64) -> Value {
    json!({"replicas": replicas, "readyReplicas": ready, "availableReplicas": available})
}

/// In the order in which they are reported.
fn replica_values(replicas: i64, ready: i64, available: i64) -> [Value; 3] {
    [
        integer("ReadyReplicas", ready),
        integer("Replicas", replicas),
        integer("AvailableReplicas", available),
    ]
}

/// Waits until the manifests of a work report exactly these values, and feedback is synced as the
/// letters say. That a value cannot be had changes nothing else about the work.
async fn reports(
    agent: &Agent,
    work: &str,
    synced: &str,
    expected: impl AsRef<[Value]>,
) -> Result<Value> {
    let expected = expected.as_ref();
    let what = format!("work {work} to report {expected:?}, synced {synced}");
    eventually(LIMIT, &what, || async {
        let work = agent.work(work).get().await?;
        shows(&work, SYNCED, synced)?;
        for (ordinal, expected) in expected.iter().enumerate() {
            let seen = values(&work, ordinal);
            ensure!(seen == *expected, "manifest {ordinal} reports {seen}");
        }
        let all = "T".repeat(synced.len());
        shows(&work, "Applied", &all)?;
        shows(&work, "Available", &all)?;
        Ok(work)
    })
    .await
}

async fn f01_f02_w28_w29_a_deployment_reports_its_replicas(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let config = deployments(&agent, "deploy1", json!([well_known()]));
    let spec = spec([agent.deployment("deploy1", 3)], [config]);
    agent.applied("work", spec).await?;
    let live = agent.object("deployments", "deploy1");

    live.set_status(replicas(3, 2, 2)).await?;
    let before = reports(&agent, "work", "T", [json!(replica_values(3, 2, 2))]).await?;
    live.set_status(replicas(3, 3, 3)).await?;
    reports(&agent, "work", "T", [json!(replica_values(3, 3, 3))]).await?;

    // Times have seconds: values change until the second in which the first were reported is over.
    let since = |work: &Value| -> Result<String> {
        let condition = manifest_condition(work, 0, SYNCED)?;
        let since = condition["lastTransitionTime"].as_str();
        Ok(since.context("no time")?.to_owned())
    };
    let begin = since(&before)?;
    let mut count = 3;
    let moved = eventually(LIMIT, "the time of the condition to move", || {
        count += 1;
        let (agent, live, begin, since) = (&agent, &live, &begin, &since);
        async move {
            live.set_status(replicas(count, count, count)).await?;
            let expected = [json!(replica_values(count, count, count))];
            let work = reports(agent, "work", "T", expected).await?;
            let since = since(&work)?;
            ensure!(since > *begin, "{since}");
            Ok(work)
        }
    })
    .await?;
    // And only then.
    agent.looks_again("work", 2).await?;
    let after = agent.work("work").get().await?;
    ensure!(since(&after)? == since(&moved)?, "{after}");
    Ok(())
}

/// Go writes times that are not set as null.
fn available() -> Value {
    json!([{"type": "Available", "status": "True", "lastTransitionTime": null,
        "lastUpdateTime": null}])
}

/// [`available`] as it is reported: sorted and compact.
const AVAILABLE: &str =
    r#"[{"lastTransitionTime":null,"lastUpdateTime":null,"status":"True","type":"Available"}]"#;

async fn f03_f05_what_cannot_be_reported_costs_only_itself(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let mut config = deployments(
        &agent,
        "*1",
        json!([paths(&[
            (
                "Available",
                r#".status.conditions[?(@.type=="Available")].status"#
            ),
            ("conditions", ".status.conditions"),
        ])]),
    );
    config["resourceIdentifier"]["namespace"] = "*".into();
    let by_path = spec([agent.deployment("deploy1", 1)], [config]);
    agent.applied("paths", by_path).await?;
    let live = agent.object("deployments", "deploy1");
    live.set_status(json!({"conditions": available()})).await?;
    let work = reports(&agent, "paths", "F", [json!([string("Available", "True")])]).await?;
    let condition = manifest_condition(&work, 0, SYNCED)?;
    let message = condition["message"].as_str().unwrap_or_default();
    ensure!(
        condition["reason"] == "StatusFeedbackSyncFailed" && message.contains("conditions"),
        "{condition}"
    );

    let accounts = agent.configure(
        "",
        "serviceaccounts",
        "sa",
        json!({"feedbackRules": [well_known()]}),
    );
    let by_kind = spec(
        [agent.deployment("deploy2", 1), agent.service_account("sa")],
        [
            deployments(&agent, "deploy2", json!([well_known()])),
            accounts,
        ],
    );
    agent.applied("kinds", by_kind).await?;
    let live = agent.object("deployments", "deploy2");
    live.set_status(replicas(1, 1, 1)).await?;
    let expected = [json!(replica_values(1, 1, 1)), json!([])];
    // Upstream: an error of the second. A kind without well-known values has none, which is none.
    reports(&agent, "kinds", "TT", expected).await?;
    Ok(())
}

async fn f06_lists_are_reported_as_json_where_allowed(world: World) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    agent.set("[feedback]\nraw_json = true");
    agent.run().await?;
    let config = deployments(
        &agent,
        "deploy1",
        json!([paths(&[("conditions", ".status.conditions")])]),
    );
    let spec = spec([agent.deployment("deploy1", 1)], [config]);
    agent.applied("work", spec).await?;
    let live = agent.object("deployments", "deploy1");
    live.set_status(json!({"conditions": available()})).await?;
    reports(
        &agent,
        "work",
        "T",
        [json!([json_raw("conditions", AVAILABLE)])],
    )
    .await?;
    Ok(())
}

async fn f07_f08_a_daemon_set_reports_its_numbers(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let config = agent.configure(
        "apps",
        "daemonsets",
        "ds1",
        json!({"feedbackRules": [well_known()]}),
    );
    agent
        .applied("work", spec([agent.daemon_set("ds1")], [config]))
        .await?;
    for (ready, desired, available) in [(2, 3, 2), (3, 3, 3)] {
        let status = json!({
            "numberReady": ready, "desiredNumberScheduled": desired,
            "numberAvailable": available, "currentNumberScheduled": desired,
            "numberMisscheduled": 0});
        agent.object("daemonsets", "ds1").set_status(status).await?;
        let expected = json!([
            integer("NumberReady", ready),
            integer("DesiredNumberScheduled", desired),
            integer("NumberAvailable", available),
        ]);
        reports(&agent, "work", "T", [expected]).await?;
    }
    Ok(())
}

async fn f09_f10_wildcards_give_rules_to_several_objects(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let rules = json!([well_known(), paths(&[("name", ".metadata.name")])]);
    let mut config = deployments(&agent, "deploy*", rules);
    config["resourceIdentifier"]["namespace"] = "*".into();
    let spec = spec(
        [
            agent.deployment("deploy1", 3),
            agent.deployment("deploy2", 4),
        ],
        [config],
    );
    agent.applied("work", spec).await?;
    for (name, count) in [("deploy1", 3), ("deploy2", 4)] {
        let live = agent.object("deployments", name);
        live.set_status(replicas(count, count, count)).await?;
    }
    let of = |name, count| {
        let mut values = replica_values(count, count, count).to_vec();
        values.push(string("name", name));
        Value::from(values)
    };
    reports(&agent, "work", "TT", [of("deploy1", 3), of("deploy2", 4)]).await?;
    Ok(())
}

async fn f11_the_first_matching_rules_win(world: World) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    agent.set("[feedback]\nraw_json = true");
    agent.run().await?;
    let first = paths(&[
        ("conditions", ".status.conditions"),
        ("name", ".metadata.name"),
    ]);
    let second = json!([well_known(), paths(&[("name", ".metadata.name")])]);
    let spec = spec(
        [
            agent.deployment("deploy1", 3),
            agent.deployment("deploy2", 4),
        ],
        [
            deployments(&agent, "deploy1", json!([first])),
            deployments(&agent, "*", second),
        ],
    );
    agent.applied("work", spec).await?;
    for (name, count) in [("deploy1", 3), ("deploy2", 4)] {
        let mut status = replicas(count, count, count);
        status["conditions"] = available();
        agent.object("deployments", name).set_status(status).await?;
    }
    let mut of_second = replica_values(4, 4, 4).to_vec();
    of_second.push(string("name", "deploy2"));
    let of_first = json!([json_raw("conditions", AVAILABLE), string("name", "deploy1")]);
    reports(&agent, "work", "TT", [of_first, of_second.into()]).await?;
    Ok(())
}

async fn f12_a_watched_object_reports_without_a_poll(world: World) -> Result<()> {
    // Far longer than the story may wait.
    let agent = Agent::start_with(&world, &["--status-sync-interval=1h"]).await?;
    let rules = json!([paths(&[
        ("replicas", ".spec.replicas"),
        ("availableReplicas", ".status.availableReplicas"),
    ])]);
    let mut config = deployments(&agent, "deploy1", rules);
    config["feedbackScrapeType"] = "Watch".into();
    let spec = spec([agent.deployment("deploy1", 3)], [config]);
    agent.applied("work", spec).await?;
    reports(&agent, "work", "T", [json!([integer("replicas", 3)])]).await?;
    let live = agent.object("deployments", "deploy1");
    live.set_status(replicas(3, 3, 3)).await?;
    let expected = json!([integer("replicas", 3), integer("availableReplicas", 3)]);
    reports(&agent, "work", "T", [expected]).await?;
    Ok(())
}

async fn f13_a_cluster_scoped_object_is_watched_too(world: World) -> Result<()> {
    let agent = Agent::start_with(&world, &["--status-sync-interval=1h"]).await?;
    let name = crate::support::unique_name("watched");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let config = json!({
    "resourceIdentifier": {"group": "", "resource": "namespaces", "name": name},
    "feedbackScrapeType": "Watch",
    "feedbackRules": [paths(&[
        ("phase", ".status.phase"),
        ("name", ".metadata.name"),
        ("zone", ".metadata.labels.zone"),
    ])]});
    agent.applied("work", spec([namespace], [config])).await?;
    let mut expected = vec![string("phase", "Active"), string("name", &name)];
    reports(&agent, "work", "T", [Value::from(expected.clone())]).await?;
    let live = agent.object("namespaces", &name);
    live.merge(json!({"metadata": {"labels": {"zone": "z1"}}}))
        .await?;
    expected.push(string("zone", "z1"));
    reports(&agent, "work", "T", [Value::from(expected)]).await?;
    Ok(())
}

/// A work with an object whose status may be anything, and paths into it.
async fn anything(agent: &Agent, status: Value, wanted: &[(&str, &str)]) -> Result<()> {
    let guestbook = Guestbook::new(agent);
    let mut spec = guestbook.work(json!({}));
    spec["manifestConfigs"] = json!([agent.configure(
        guestbook.group(),
        "guestbooks",
        "guestbook1",
        json!({"feedbackRules": [paths(wanted)]})
    )]);
    agent.applied("work", spec).await?;
    guestbook.live(agent).set_status(status).await?;
    Ok(())
}

async fn paths_follow_the_dialect_of_kubectl(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let status = json!({
        "big": 9_007_199_254_740_993_i64, "least": i64::MIN, "zero": 0, "empty": "", "no": false,
        "letters": ["a", "b"],
        "conditions": [{"reason": "r"}, {"type": "Ready", "status": "True"}],
        "items": [{"m": {"k": "v"}, "n": "a"}, {"n": "b"}],
        "used": {"requests.cpu": "1500m"}, "hard": {"count/jobs.batch": "4"}});
    let wanted = [
        ("big", ".status.big"),
        ("least", ".status.least"),
        ("zero", ".status.zero"),
        ("empty", ".status.empty"),
        ("no", ".status.no"),
        ("first", ".status.letters[0]"),
        ("last", ".status.letters[-1]"),
        ("beyond", ".status.letters[5]"),
        ("slice", ".status.letters[0:2]"),
        ("nowhere", ".status.none[0].x"),
        ("missing", ".status.none"),
        ("ready", r#".status.conditions[?(@.type=="Ready")].status"#),
        ("single", ".status.conditions[?(@.type=='Ready')].status"),
        ("nested", r#".status.items[?(@.m.k=="v")].n"#),
        ("dotted", r".status.used.requests\.cpu"),
        ("quoted", r".status.hard['count/jobs\.batch']"),
        ("whole", r".status.used['requests.cpu']"),
        ("text", ".status.letters[0][0]"),
    ];
    anything(&agent, status, &wanted).await?;
    let expected = json!([
        integer("big", 9_007_199_254_740_993),
        integer("least", i64::MIN),
        integer("zero", 0),
        string("empty", ""),
        {"name": "no", "fieldValue": {"type": "Boolean", "boolean": false}},
        string("first", "a"),
        string("last", "b"),
        string("slice", "a"),
        string("ready", "True"),
        string("single", "True"),
        string("nested", "a"),
        string("dotted", "1500m"),
        string("quoted", "4"),
        string("whole", "1500m"),
    ]);
    let work = reports(&agent, "work", "TF", [json!([]), expected]).await?;
    // What is not there is no error; what is no list is.
    let condition = manifest_condition(&work, 1, SYNCED)?;
    ensure!(
        condition["message"]
            == "Sync status feedback failed with error failed to find value for text with error: \
                string is not array or slice",
        "{condition}"
    );
    Ok(())
}

async fn raw_json_is_refused_above_the_limit_exactly(world: World) -> Result<()> {
    let mut agent = Agent::prepare(&world, &[]).await?;
    agent.set("[feedback]\nraw_json = true");
    agent.run().await?;
    // `{"phase":"…"}` is 12 bytes and the text.
    let status = |bytes: usize| json!({"phase": "x".repeat(bytes - 12)});
    let of_phase = |bytes: usize| string("phase", &"x".repeat(bytes - 12));
    let wanted = [("phase", ".status.phase"), ("root", ".status")];
    anything(&agent, status(1024), &wanted).await?;
    let raw = status(1024).to_string();
    ensure!(raw.len() == 1024, "{raw}");
    let expected = json!([of_phase(1024), json_raw("root", &raw)]);
    let work = reports(&agent, "work", "TT", [json!([]), expected]).await?;

    let group = &work["spec"]["workload"]["manifests"][0]["spec"]["group"];
    let group = group.as_str().context("no group")?;
    Guestbook::live_in(&agent, group)
        .set_status(status(1025))
        .await?;
    let expected = [json!([]), json!([of_phase(1025)])];
    let work = reports(&agent, "work", "TF", expected).await?;
    let condition = manifest_condition(&work, 1, SYNCED)?;
    ensure!(
        condition["message"]
            == "Sync status feedback failed with error the length of returned json raw string for \
                name root is larger than the maximum length 1024",
        "{condition}"
    );
    Ok(())
}

async fn rules_that_do_not_fit_an_object_are_told(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let versions = json!({"type": "JSONPaths", "jsonPaths": [
        {"name": "other", "version": "v1beta1", "path": ".spec.replicas"},
        {"name": "same", "version": "v1", "path": ".spec.replicas"}]});
    let maps = agent.configure(
        "",
        "configmaps",
        "cm1",
        json!({"feedbackRules": [well_known()]}),
    );
    let spec = spec(
        [
            agent.deployment("deploy1", 3),
            agent.config_map("cm1", json!({"a": "b"})),
        ],
        [deployments(&agent, "deploy1", json!([versions])), maps],
    );
    agent.create("work", spec).await?;
    let expected = [json!([integer("same", 3)]), json!([])];
    let work = reports(&agent, "work", "FT", expected).await?;
    for (ordinal, text) in [
        (0, "version set in the path other is not matched"),
        (1, "v1, Kind=ConfigMap has no well-known status values"),
    ] {
        let condition = manifest_condition(&work, ordinal, SYNCED)?;
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(message.contains(text), "{condition}");
    }
    Ok(())
}
