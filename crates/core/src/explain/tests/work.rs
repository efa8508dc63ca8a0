use super::super::work::explain_work;
use super::*;

fn manifest(kind: &str, name: &str, conditions: &[Value]) -> Value {
    json!({
        "resourceMeta": {"ordinal": 0, "group": "", "version": "v1", "kind": kind,
            "resource": "", "name": name, "namespace": "default"},
        "conditions": conditions})
}

/// A work with these conditions and manifests.
fn work_of(conditions: &[Value], manifests: &[Value]) -> Node {
    let mut work = work("c1", conditions);
    work["status"]["resourceStatus"] = json!({"manifests": manifests});
    explain_work(&read(&work))
}

fn applied() -> Value {
    condition("Applied", "True", 1, "AppliedManifestComplete", "done")
}

fn is(type_: &str, status: &str, reason: &str) -> Value {
    condition(type_, status, 1, reason, "why")
}

/// Conditions of a work and its manifests, and the cause.
type Case = (Vec<Value>, Vec<Value>, String);

#[track_caller]
fn have_their_cause(cases: &[Case]) {
    for (conditions, manifests, expected) in cases {
        let tree = work_of(conditions, manifests);
        assert_eq!(cause(&tree), *expected, "{conditions:?}");
    }
}

#[test]
fn what_a_work_says_of_itself_is_its_cause() {
    let name = work_name("default", "web", "all");
    have_their_cause(&[
        (
            well(),
            vec![manifest("ConfigMap", "a", &[applied()])],
            "none".to_owned(),
        ),
        (
            vec![],
            vec![],
            format!(
                "ManifestWork c1/{name} @c1 waiting NotSeen: no agent has looked at it since 00:00"
            ),
        ),
        (
            vec![condition("Applied", "True", 0, "R", "done")],
            vec![manifest("ConfigMap", "a", &[is("Applied", "False", "Old")])],
            format!(
                "ManifestWork c1/{name} @c1 waiting NotSeen: its agent has looked at generation 0 \
                 only, not at 1 since ?"
            ),
        ),
        (
            vec![is("Applied", "False", "AppliedManifestWorkFailed")],
            vec![
                manifest("ConfigMap", "a", &[applied()]),
                manifest(
                    "Widget",
                    "w",
                    &[is("Applied", "False", "AppliedManifestFailed")],
                ),
            ],
            "Widget default/w @c1 failed AppliedManifestFailed: why since 00:00".to_owned(),
        ),
        (
            // Over a bus: the hub says so, and no agent has the work.
            vec![is("Applied", "False", "NotSendable")],
            vec![],
            format!("ManifestWork c1/{name} @c1 failed NotSendable: why since 00:00"),
        ),
        (
            vec![is("Applied", "Unknown", "R")],
            vec![],
            format!("ManifestWork c1/{name} @c1 unknown R: why since 00:00"),
        ),
        (
            vec![is("Applied", "True", "R")],
            vec![],
            format!(
                "ManifestWork c1/{name} @c1 waiting NotSeen: it is applied, and its agent has not \
                 looked at the objects since 00:00"
            ),
        ),
    ]);
}

#[test]
fn what_an_object_says_is_nearer_to_the_point() {
    have_their_cause(&[
        (
            vec![is("Applied", "True", "R"), is("Available", "False", "R")],
            vec![manifest(
                "ConfigMap",
                "a",
                &[applied(), is("Available", "False", "ResourceNotAvailable")],
            )],
            "ConfigMap default/a @c1 failed ResourceNotAvailable: why since 00:00".to_owned(),
        ),
        (
            vec![is("Applied", "True", "R"), is("Available", "Unknown", "R")],
            vec![manifest(
                "ConfigMap",
                "a",
                &[
                    applied(),
                    is("Available", "Unknown", "FetchingResourceFailed"),
                ],
            )],
            "ConfigMap default/a @c1 unknown FetchingResourceFailed: why since 00:00".to_owned(),
        ),
        (
            [well(), vec![is("Progressing", "True", "R")]].concat(),
            vec![manifest(
                "Job",
                "j",
                &[applied(), is("Progressing", "True", "Rule")],
            )],
            "Job default/j @c1 waiting Rule: why since 00:00".to_owned(),
        ),
        (
            [well(), vec![is("Progressing", "False", "R")]].concat(),
            vec![manifest(
                "Job",
                "j",
                &[applied(), is("Progressing", "False", "Rule")],
            )],
            "none".to_owned(),
        ),
        (
            [
                well(),
                vec![is("Progressing", "True", "R"), is("Degraded", "True", "R")],
            ]
            .concat(),
            vec![manifest(
                "Job",
                "j",
                &[applied(), is("Degraded", "True", "Rule")],
            )],
            "Job default/j @c1 failed Rule: why since 00:00".to_owned(),
        ),
    ]);
}

#[test]
fn a_work_on_its_way_out_says_what_it_waits_for() {
    let mut work = work("c1", &well());
    work["metadata"]["deletionTimestamp"] = json!(SINCE);
    let tree = explain_work(&read(&work));
    assert!(
        cause(&tree).ends_with(
            "waiting Deleting: it is being deleted, and its agent has not begun to clean up since \
             00:00"
        ),
        "{}",
        cause(&tree)
    );
    let waits = "ManifestWork is being deleted: waiting for configmaps default/a (finalizer x/y)";
    work["status"]["conditions"] = json!([condition("Deleting", "True", 1, "WorkDeleting", waits)]);
    let tree = explain_work(&read(&work));
    assert!(
        cause(&tree).ends_with(&format!("waiting Deleting: {waits} since 00:00")),
        "{}",
        cause(&tree)
    );
}

#[test]
fn what_holds_nothing_up_is_a_warning() {
    let feedback = condition("StatusFeedbackSynced", "False", 1, "R", "no value");
    let rule = condition(
        "Mine",
        "Unknown",
        1,
        "ConditionRuleExpressionError",
        "no such key",
    );
    let refused = condition("ConditionRulesRefused", "True", 1, "R", "reserved");
    let there = condition("Available", "True", 1, "R", "");
    let tree = work_of(
        &well(),
        &[manifest(
            "ConfigMap",
            "a",
            &[applied(), there, feedback, rule, refused],
        )],
    );
    assert_eq!(
        tree.children[0].warnings,
        [
            "StatusFeedbackSynced: no value",
            "Mine: no such key",
            "ConditionRulesRefused: reserved"
        ]
    );
    assert_eq!((tree.state, cause(&tree).as_str()), (State::Ok, "none"));
}

#[test]
fn an_odd_status_is_told_and_an_odd_manifest_is_called_by_its_number() {
    let mut odd = work("c1", &[]);
    odd["status"] = json!({"conditions": 5});
    let tree = explain_work(&read(&odd));
    assert!(
        cause(&tree).contains("unknown NotRead: its status does not read: invalid type"),
        "{}",
        cause(&tree)
    );
    let failed = condition("Applied", "False", 1, "R", "no kind");
    let mut manifest = manifest("", "", std::slice::from_ref(&failed));
    manifest["resourceMeta"]["ordinal"] = json!(4);
    let tree = work_of(std::slice::from_ref(&failed), &[manifest]);
    assert_eq!(cause(&tree), "Manifest 4 @c1 failed R: no kind since 00:00");
}

#[test]
fn nothing_has_been_tried_of_a_manifest_without_conditions() {
    let failed = condition("Applied", "False", 1, "R", "why");
    let tree = work_of(&[failed], &[manifest("ConfigMap", "a", &[])]);
    let child = &tree.children[0];
    assert_eq!(
        (child.state, child.message.as_str()),
        (State::Waiting, "its agent has not tried to apply it")
    );
}

#[test]
fn a_work_alone_is_shown_on_its_cluster_with_the_set_that_made_it() {
    let unseen = read(&work("c1", &[]));
    let away = "ManifestWorks available in 0/1 clusters, unknown in 1: the agent of c1 is away since \
                2026-01-02T00:00:00Z";
    let tree = explain_work_on_cluster(&unseen, None, away);
    assert_eq!(
        cause(&tree),
        "ManagedCluster c1 @c1 unknown AgentAway: its agent is away since 00:00"
    );
    let tree = explain_work_on_cluster(&unseen, None, "");
    assert!(
        cause(&tree).starts_with("ManifestWork c1/"),
        "{}",
        cause(&tree)
    );

    let mut set = Fleet::over(&["c1"], "so").seen().set;
    let owner = explain_owner(&set, &unseen);
    assert_eq!(owner.to_string(), "ManifestWorkReplicaSet default/web");
    assert_eq!(owner.message, "0 of 1 clusters updated, 0 available; so");
    assert!(owner.warnings.is_empty());
    set.spec.manifest_work_template.workload.manifests.clear();
    let owner = explain_owner(&set, &unseen);
    assert_eq!(owner.warnings, ["the work has not its current template"]);
}
