//! Group X: works that may do no more than a service account.
//!
//! | Rows | Story |
//! |---|---|
//! | X01, X02 | `x01_x02_without_rights_nothing_is_applied` |
//! | X03, X04 | `x03_x04_each_manifest_needs_its_rights` |
//! | X05–X07 | `x05_x07_the_right_to_delete_is_needed_for_what_the_work_owns` |
//! | X08, X09, C095 | `x08_x09_nobody_grants_more_than_they_have` |
//! | X10, X11 | `x10_x11_escalate_and_bind_allow_it` |
//! | X12–X15, C097 | `x12_x15_rights_come_and_go` |
//! | C094 | `a_rule_taken_out_of_a_bound_cluster_role_counts_at_once` |

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::works::{manifest_condition, manifests};
use crate::support::{Story, World, unique_name};

pub(crate) fn stories() -> Vec<Story> {
    on_each_backend![
        x01_x02_without_rights_nothing_is_applied,
        x03_x04_each_manifest_needs_its_rights,
        x05_x07_the_right_to_delete_is_needed_for_what_the_work_owns,
        x08_x09_nobody_grants_more_than_they_have,
        x10_x11_escalate_and_bind_allow_it,
        x12_x15_rights_come_and_go,
        a_rule_taken_out_of_a_bound_cluster_role_counts_at_once,
    ]
}

const WRITE: [&str; 4] = ["create", "update", "patch", "get"];
const WRITE_AND_DELETE: [&str; 5] = ["create", "update", "patch", "get", "delete"];

/// A work that acts for this service account.
fn executed(agent: &Agent, account: &str, objects: impl Into<Vec<Value>>) -> Value {
    let mut spec = manifests(objects);
    spec["executor"] = json!({"subject": {"type": "ServiceAccount", "serviceAccount": {
        "namespace": agent.name(), "name": account}}});
    spec
}

fn map(agent: &Agent, name: &str) -> Value {
    agent.config_map(name, json!({"a": "b"}))
}

fn on_maps(verbs: &[&str], names: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs,
        "resourceNames": names}])
}

fn on_rbac(more: &[&str]) -> Value {
    let verbs = [&WRITE_AND_DELETE, more].concat();
    json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
        "verbs": verbs}])
}

/// Gives a service account of the namespace these rights there. The first call creates the
/// account.
async fn grant(agent: &Agent, account: &str, rules: Value) -> Result<()> {
    let role = agent.object("roles", account);
    if role.find().await?.is_some() {
        role.merge(json!({ "rules": rules })).await?;
        return Ok(());
    }
    let subject = agent.object("serviceaccounts", account);
    subject.create(&agent.service_account(account)).await?;
    role.create(&agent.role(account, rules)).await?;
    let binding = agent.role_binding(account, account, account);
    agent
        .object("rolebindings", account)
        .create(&binding)
        .await?;
    Ok(())
}

async fn shows_both(agent: &Agent, work: &str, letters: &str) -> Result<Value> {
    agent
        .shows(work, &[("Applied", letters), ("Available", letters)])
        .await
}

async fn x01_x02_without_rights_nothing_is_applied(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = executed(&agent, "sa", [map(&agent, "cm1"), map(&agent, "cm2")]);
    agent.create("work", spec).await?;
    let work = shows_both(&agent, "work", "FF").await?;
    let applied = manifest_condition(&work, 0, "Applied")?;
    let message = applied["message"].as_str().unwrap_or_default();
    let begin = format!(
        "Failed to apply manifest: not allowed to apply the resource  configmaps, {} cm1",
        agent.name()
    );
    ensure!(message.starts_with(&begin), "{applied}");
    let reviews = "muster_agent_access_reviews_total";
    ensure!(agent.metric(reviews, "answer=\"denied\"").await? >= 1.0);
    ensure!(agent.metric(reviews, "answer=\"allowed\"").await? < 1.0);
    agent.looks_again("work", 1).await?;
    agent.cm("cm1").is_absent().await?;
    agent.cm("cm2").is_absent().await
}

async fn x03_x04_each_manifest_needs_its_rights(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let spec = executed(&agent, "one", [map(&agent, "cm1"), map(&agent, "cm2")]);
    // `create` cannot be tied to a name by RBAC of a real request, but a review names the object.
    grant(&agent, "one", on_maps(&WRITE_AND_DELETE, &["cm1"])).await?;
    agent.create("one", spec).await?;
    shows_both(&agent, "one", "TF").await?;

    let spec = executed(&agent, "both", [map(&agent, "cm3"), map(&agent, "cm4")]);
    grant(&agent, "both", on_maps(&WRITE_AND_DELETE, &["cm3", "cm4"])).await?;
    agent.create("both", spec).await?;
    shows_both(&agent, "both", "TT").await?;
    Ok(())
}

async fn x05_x07_the_right_to_delete_is_needed_for_what_the_work_owns(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    grant(&agent, "sa", on_maps(&WRITE, &[])).await?;
    let rule = |name: &str| json!({"group": "", "resource": "configmaps", "namespace": agent.name(), "name": name});
    for (work, names, option, letters) in [
        (
            "foreground",
            ["cm1", "cm2"],
            json!({"propagationPolicy": "Foreground"}),
            "FF",
        ),
        (
            "orphan",
            ["cm3", "cm4"],
            json!({"propagationPolicy": "Orphan"}),
            "TT",
        ),
        (
            "selected",
            ["cm5", "cm6"],
            json!({"propagationPolicy": "SelectivelyOrphan",
                "selectivelyOrphans": {"orphaningRules": [rule("cm5")]}}),
            "TF",
        ),
    ] {
        let mut spec = executed(&agent, "sa", names.map(|name| map(&agent, name)));
        spec["deleteOption"] = option;
        agent.create(work, spec).await?;
        shows_both(&agent, work, letters).await?;
    }
    Ok(())
}

/// A work that would give its own account the right to create config maps.
fn self_granting(agent: &Agent) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"],
        "verbs": WRITE_AND_DELETE}]);
    let objects = [
        map(agent, "cm1"),
        agent.role("role-cm-creator", rules),
        agent.role_binding("role-cm-creator-binding", "role-cm-creator", "sa"),
    ];
    executed(agent, "sa", objects)
}

/// The role is there before the work, with fewer rights.
async fn small_role(agent: &Agent) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let role = agent.role("role-cm-creator", rules);
    agent
        .object("roles", "role-cm-creator")
        .create(&role)
        .await?;
    Ok(())
}

async fn x08_x09_nobody_grants_more_than_they_have(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    grant(&agent, "sa", on_rbac(&[])).await?;
    agent.create("work", self_granting(&agent)).await?;
    let work = agent.shows("work", &[("Applied", "FFF")]).await?;
    let applied = manifest_condition(&work, 1, "Applied")?;
    let message = applied["message"].as_str().unwrap_or_default();
    ensure!(message.contains("permission escalation"), "{applied}");
    agent.looks_again("work", 1).await?;
    agent.object("roles", "role-cm-creator").is_absent().await?;
    agent
        .object("rolebindings", "role-cm-creator-binding")
        .is_absent()
        .await?;

    let other = Agent::start(&world).await?;
    grant(&other, "sa", on_rbac(&[])).await?;
    small_role(&other).await?;
    other.create("work", self_granting(&other)).await?;
    other
        .shows("work", &[("Applied", "FFF"), ("Available", "FTF")])
        .await?;
    Ok(())
}

async fn x10_x11_escalate_and_bind_allow_it(world: World) -> Result<()> {
    for role_is_there in [false, true] {
        let agent = Agent::start(&world).await?;
        grant(&agent, "sa", on_rbac(&["escalate", "bind"])).await?;
        if role_is_there {
            small_role(&agent).await?;
        }
        agent.create("work", self_granting(&agent)).await?;
        shows_both(&agent, "work", "TTT").await?;
    }
    Ok(())
}

async fn x12_x15_rights_come_and_go(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let maps = |names: &[&str]| {
        let maps: Vec<_> = names.iter().map(|name| map(&agent, name)).collect();
        executed(&agent, "sa", maps)
    };
    agent.create("work", maps(&["cm1"])).await?;
    shows_both(&agent, "work", "F").await?;
    // C097: account and binding come after the work, and nothing else changes.
    grant(&agent, "sa", on_maps(&WRITE_AND_DELETE, &[])).await?;
    shows_both(&agent, "work", "T").await?;
    agent.edit("work", maps(&["cm1", "cm2"])).await?;
    shows_both(&agent, "work", "TT").await?;

    agent.object("rolebindings", "sa").delete().await?;
    agent.edit("work", maps(&["cm1", "cm2", "cm3"])).await?;
    agent
        .shows("work", &[("Applied", "FFF"), ("Available", "TTF")])
        .await?;
    agent.looks_again("work", 1).await?;
    agent.cm("cm1").get().await?;
    agent.cm("cm2").get().await?;
    agent.cm("cm3").is_absent().await
}

async fn a_rule_taken_out_of_a_bound_cluster_role_counts_at_once(world: World) -> Result<()> {
    let agent = Agent::start(&world).await?;
    let name = unique_name("edit-cm");
    let role = agent.object("clusterroles", &name);
    let rules = on_maps(&WRITE_AND_DELETE, &[]);
    let mut object = agent.role(&name, rules);
    object["kind"] = "ClusterRole".into();
    object["metadata"] = json!({ "name": name });
    role.create(&object).await?;
    let mut binding = agent.role_binding("edit", &name, "sa");
    binding["roleRef"]["kind"] = "ClusterRole".into();
    agent
        .object("rolebindings", "edit")
        .create(&binding)
        .await?;
    let account = agent.service_account("sa");
    agent
        .object("serviceaccounts", "sa")
        .create(&account)
        .await?;
    agent
        .create("work", executed(&agent, "sa", [map(&agent, "cm1")]))
        .await?;
    shows_both(&agent, "work", "T").await?;

    role.merge(json!({"rules": []})).await?;
    agent
        .shows("work", &[("Applied", "F"), ("Available", "T")])
        .await?;
    Ok(())
}
