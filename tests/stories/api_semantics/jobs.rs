//! Jobs: what the server fills in, and what it lets nobody change.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{has, text};
use crate::support::{Answer, Cluster, Story, World};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        a_new_job_is_completed,
        jobs_that_cannot_run_are_refused,
        a_job_keeps_its_template_and_its_mode,
        indexes_grow_with_the_pods_at_a_time,
        a_suspended_job_can_be_placed_elsewhere,
    ]
}

/// The Jobs of a namespace of the story's own.
struct Jobs {
    cluster: Cluster,
    path: String,
}

impl Jobs {
    async fn of(world: &World) -> Result<Self> {
        let cluster = world.hub().await?;
        let namespace = cluster.namespace().await?;
        let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
        Ok(Self { cluster, path })
    }

    async fn create(&self, job: &Value) -> Result<Value> {
        self.cluster.rest().post(&self.path, job).await?.created()
    }

    /// A user patches the spec of a Job.
    async fn patch(&self, name: &str, spec: Value) -> Result<Answer> {
        let job = format!("{}/{name}", self.path);
        let rest = self.cluster.rest();
        rest.merge_patch(&job, &json!({ "spec": spec })).await
    }

    async fn change(&self, name: &str, spec: Value) -> Result<Value> {
        self.patch(name, spec).await?.ok()
    }

    /// A controller patches the status of a Job.
    async fn report(&self, name: &str, status: Value) -> Result<Value> {
        let job = format!("{}/{name}/status", self.path);
        let rest = self.cluster.rest();
        let answer = rest.merge_patch(&job, &json!({ "status": status })).await?;
        answer.ok()
    }

    /// Requires that a new Job is refused with exactly these words.
    async fn refuses_new(&self, job: &Value, words: &str) -> Result<()> {
        let name = text(job, "/metadata/name")?;
        let message = format!("Job.batch \"{name}\" is invalid: {words}");
        let answer = self.cluster.rest().post(&self.path, job).await?;
        answer.refused(422, "Invalid", &message)?;
        Ok(())
    }

    /// Requires that a change is refused with exactly these words.
    async fn refuses(&self, name: &str, spec: Value, words: &str) -> Result<()> {
        let answer = self.patch(name, spec).await?;
        let message = format!("Job.batch \"{name}\" is invalid: {words}");
        answer.refused(422, "Invalid", &message)?;
        Ok(())
    }

    /// Requires that a change is refused for one field that cannot be changed. The value that is
    /// in the message is the real server's own form of a Pod, and not compared.
    async fn cannot_change(&self, name: &str, spec: Value, field: &str) -> Result<()> {
        let answer = self.patch(name, spec).await?;
        ensure!(answer.code == 422, "{field}: {}", answer.body);
        let status = answer.body;
        let message = text(&status, "/message")?;
        let begin = format!("Job.batch \"{name}\" is invalid: {field}: Invalid value: ");
        ensure!(
            message.starts_with(&begin) && message.ends_with(": field is immutable"),
            "{message}"
        );
        let causes = status.pointer("/details/causes").and_then(Value::as_array);
        let cause = causes.and_then(|causes| causes.last());
        let cause = cause.with_context(|| format!("no cause in {status}"))?;
        has(
            cause,
            &json!({"field": field, "reason": "FieldValueInvalid"}),
        )
    }
}

/// A Job with more fields in its spec.
fn job(name: &str, more: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": pod("example/main:1")}}});
    if let (Some(spec), Value::Object(more)) = (job["spec"].as_object_mut(), more) {
        spec.extend(more);
    }
    job
}

fn pod(image: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]})
}

async fn a_new_job_is_completed(world: World) -> Result<()> {
    let jobs = Jobs::of(&world).await?;
    let created = jobs.create(&job("pi", json!({}))).await?;
    let uid = text(&created, "/metadata/uid")?;
    let labels = json!({
        "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
        "job-name": "pi", "batch.kubernetes.io/job-name": "pi"});
    ensure!(created["metadata"]["labels"] == labels, "{created}");
    let mut spec = created["spec"].clone();
    let template = spec["template"].take();
    ensure!(
        template["metadata"] == json!({ "labels": labels }),
        "{template}"
    );
    let expected = json!({
        "parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": false,
        "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": false, "template": null,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}});
    ensure!(spec == expected, "{spec}");

    let queue = jobs
        .create(&job("queue", json!({"parallelism": 3})))
        .await?;
    ensure!(queue["spec"].get("completions").is_none(), "{queue}");
    let indexed = json!({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1});
    let indexed = jobs.create(&job("indexed", indexed)).await?;
    has(
        &indexed["spec"],
        &json!({"parallelism": 1, "backoffLimit": i32::MAX}),
    )?;
    let policy = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
    let policy = jobs
        .create(&job("policy", json!({ "podFailurePolicy": policy })))
        .await?;
    has(
        &policy["spec"],
        &json!({"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [
            {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}}),
    )?;
    let mut by_hand = job(
        "by-hand",
        json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}),
    );
    by_hand["spec"]["template"]["metadata"] = json!({"labels": {"a": "b"}});
    let by_hand = jobs.create(&by_hand).await?;
    has(
        &by_hand,
        &json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"selector": {"matchLabels": {"a": "b"}}}}),
    )?;
    let on_pods = &by_hand["spec"]["template"]["metadata"]["labels"];
    ensure!(*on_pods == json!({"a": "b"}), "{by_hand}");
    Ok(())
}

async fn jobs_that_cannot_run_are_refused(world: World) -> Result<()> {
    let jobs = Jobs::of(&world).await?;
    let mut always = job("always", json!({}));
    always["spec"]["template"]["spec"]["restartPolicy"] = "Always".into();
    let ends = "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \
                \"Never\"";
    jobs.refuses_new(&always, ends).await?;
    let empty = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "empty"}});
    let words = format!("[spec.template.spec.containers: Required value, {ends}]");
    jobs.refuses_new(&empty, &words).await?;
    let negative = json!({"parallelism": -1, "completions": -2, "backoffLimit": -3,
        "activeDeadlineSeconds": -4, "ttlSecondsAfterFinished": -5});
    let words = [
        ("parallelism", -1),
        ("completions", -2),
        ("activeDeadlineSeconds", -4),
        ("backoffLimit", -3),
        ("ttlSecondsAfterFinished", -5),
    ]
    .map(|(field, value)| {
        format!("spec.{field}: Invalid value: {value}: must be greater than or equal to 0")
    });
    let words = format!("[{}]", words.join(", "));
    jobs.refuses_new(&job("negative", negative), &words).await?;
    for (spec, words) in [
        (
            json!({"completionMode": "Indexed", "parallelism": 2}),
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            json!({"completionMode": "x"}),
            "spec.completionMode: Unsupported value: \"x\": supported values: \"NonIndexed\", \
             \"Indexed\"",
        ),
        (
            json!({"backoffLimitPerIndex": 1}),
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            json!({"manualSelector": true}),
            "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: \
             `selector` does not match template `labels`]",
        ),
    ] {
        jobs.refuses_new(&job("odd", spec), words).await?;
    }
    Ok(())
}

async fn a_job_keeps_its_template_and_its_mode(world: World) -> Result<()> {
    let jobs = Jobs::of(&world).await?;
    let created = jobs.create(&job("pi", json!({}))).await?;
    let image = json!({"template": {"spec": pod("example/main:2")}});
    jobs.cannot_change("pi", image, "spec.template").await?;
    let place = json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}});
    jobs.cannot_change("pi", place.clone(), "spec.template")
        .await?;
    // The Job was not suspended before.
    let mut suspended = place;
    suspended["suspend"] = true.into();
    jobs.cannot_change("pi", suspended, "spec.template").await?;
    for (field, value, told) in [
        ("completions", json!(3), "3"),
        ("completions", json!(null), "null"),
        ("completionMode", json!("Indexed"), "\"Indexed\""),
        ("managedBy", json!("example.com/a"), "\"example.com/a\""),
    ] {
        let words = format!("spec.{field}: Invalid value: {told}: field is immutable");
        let spec = [(field.to_owned(), value)];
        let spec = Value::Object(spec.into_iter().collect());
        jobs.refuses("pi", spec, &words).await?;
    }
    // Found wrong both as an object and as a change, and told once.
    jobs.refuses(
        "pi",
        json!({"backoffLimitPerIndex": 1}),
        "[spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode, \
         spec.backoffLimitPerIndex: Invalid value: 1: field is immutable]",
    )
    .await?;
    let free = json!({"parallelism": 3, "suspend": true, "activeDeadlineSeconds": 5,
        "ttlSecondsAfterFinished": 6, "backoffLimit": 7});
    let changed = jobs.change("pi", free.clone()).await?;
    has(&changed["spec"], &free)?;
    ensure!(
        changed["metadata"]["uid"] == created["metadata"]["uid"]
            && changed["metadata"]["generation"] == 2,
        "{changed}"
    );
    Ok(())
}

async fn indexes_grow_with_the_pods_at_a_time(world: World) -> Result<()> {
    let jobs = Jobs::of(&world).await?;
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    jobs.create(&job("pi", spec)).await?;
    let words = "spec.completions: Invalid value: 5: can only be modified in tandem with \
                 spec.parallelism";
    jobs.refuses("pi", json!({"completions": 5}), words).await?;
    jobs.change("pi", json!({"completions": 5, "parallelism": 5}))
        .await?;
    let words = "spec.completions: Required value: when completion mode is Indexed";
    jobs.refuses("pi", json!({"completions": null}), words)
        .await
}

async fn a_suspended_job_can_be_placed_elsewhere(world: World) -> Result<()> {
    let jobs = Jobs::of(&world).await?;
    jobs.create(&job("pi", json!({"suspend": true}))).await?;
    let place = |node: &str| json!({"template": {"spec": {"nodeSelector": {"a": node}}}});
    let image = json!({"template": {"spec": pod("example/main:2")}});
    let resources = json!({"template": {"spec": {"containers": [{"name": "main",
        "image": "example/main:1", "resources": {"requests": {"cpu": "1"}}}]}}});
    jobs.change("pi", place("b")).await?;
    jobs.change("pi", resources).await?;
    let noted = json!({"template": {"metadata": {"annotations": {"a": "b"}}}});
    jobs.change("pi", noted).await?;
    jobs.cannot_change("pi", image, "spec.template.spec")
        .await?;

    let time = "2026-01-02T03:04:05Z";
    jobs.report("pi", json!({"startTime": time})).await?;
    jobs.cannot_change("pi", place("c"), "spec.template")
        .await?;
    let condition = json!({"type": "Suspended", "status": "True", "reason": "JobSuspended",
        "message": "", "lastProbeTime": time, "lastTransitionTime": time});
    jobs.report("pi", json!({"active": 1, "conditions": [condition]}))
        .await?;
    jobs.cannot_change("pi", place("c"), "spec.template")
        .await?;
    jobs.report("pi", json!({"active": 0})).await?;
    let mut resumed = place("c");
    resumed["suspend"] = false.into();
    jobs.change("pi", resumed).await?;
    jobs.cannot_change("pi", place("d"), "spec.template").await
}
