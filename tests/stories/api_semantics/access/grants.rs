//! Writes of roles and bindings: nobody grants more than they hold.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{RBAC, Scene, binding, config_maps};
use crate::stories::api_semantics::LIMIT;
use crate::support::{Story, World, eventually};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        nobody_grants_a_role_with_more_than_they_hold,
        nobody_binds_a_role_with_more_than_they_hold,
        escalate_and_bind_lift_the_check,
        applying_is_no_way_around,
        the_role_of_a_binding_cannot_change,
        roles_and_bindings_are_validated,
    ]
}

/// Lets the story's user write everything of RBAC in the namespace, and get config maps.
async fn editor(world: World) -> Result<Scene> {
    let scene = Scene::new(world).await?;
    let edit = json!([
        {
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
            "verbs": ["create", "update", "patch"],
        },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
    ]);
    scene.grant("editor", edit).await?;
    Ok(scene)
}

impl Scene {
    /// The refusal of a grant to the story's user.
    fn escalation(&self, kind: &str, name: &str, missing: &str) -> String {
        format!(
            "{kind}.rbac.authorization.k8s.io \"{name}\" is forbidden: user \"{}\" \
             (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{missing}",
            self.user
        )
    }
}

async fn nobody_grants_a_role_with_more_than_they_hold(world: World) -> Result<()> {
    let scene = editor(world).await?;
    let (me, roles) = (scene.me(), scene.local("roles"));
    let role = |name: &str, rules: Value| json!({ "metadata": { "name": name }, "rules": rules });
    let held = role("held", config_maps(&["get"]));
    me.post(&roles, &held).await?.created()?;
    let more = json!([
        { "apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "update"] },
        {
            "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"],
            "resourceNames": ["a", "b"],
        },
    ]);
    let missing = "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"update\"]}\n\
                   {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"update\"]}\n\
                   {APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"a\"], Verbs:[\"*\"]}\n\
                   {APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"b\"], Verbs:[\"*\"]}";
    let message = scene.escalation("roles", "more", missing);
    for path in [roles.clone(), format!("{roles}?dryRun=All")] {
        let details = me.post(&path, &role("more", more.clone())).await?.refused(
            403,
            "Forbidden",
            &message,
        )?;
        let named =
            json!({ "name": "more", "group": "rbac.authorization.k8s.io", "kind": "roles" });
        ensure!(details == named, "{details}");
    }
    let missing = scene.rest.get(&format!("{roles}/more")).await?;
    ensure!(missing.code == 404, "{missing:?}");

    // An existing role cannot be widened, nor one that holds more be touched at all.
    let one = format!("{roles}/held");
    let update = "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"update\"]}";
    let message = scene.escalation("roles", "held", update);
    let widened = role("held", config_maps(&["get", "update"]));
    let patch = json!({ "rules": widened["rules"] });
    me.merge_patch(&one, &patch)
        .await?
        .refused(403, "Forbidden", &message)?;
    me.put(&one, &widened)
        .await?
        .refused(403, "Forbidden", &message)?;
    scene.rest.merge_patch(&one, &patch).await?.ok()?;
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    me.merge_patch(&one, &label)
        .await?
        .refused(403, "Forbidden", &message)?;
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/f"] } });
    me.merge_patch(&one, &finalizer).await?.ok()?;

    // Nobody can create what is there already without holding it either.
    let message = scene.escalation("roles", "held", update);
    me.post(&roles, &widened)
        .await?
        .refused(403, "Forbidden", &message)?;
    let message = "roles.rbac.authorization.k8s.io \"held\" already exists";
    me.post(&roles, &held)
        .await?
        .refused(409, "AlreadyExists", message)?;
    Ok(())
}

async fn nobody_binds_a_role_with_more_than_they_hold(world: World) -> Result<()> {
    let scene = editor(world).await?;
    let (me, bindings) = (scene.me(), scene.local("rolebindings"));
    scene.role("held", config_maps(&["get"])).await?;
    scene.role("more", config_maps(&["get", "delete"])).await?;
    let subjects = json!([{ "kind": "User", "name": scene.user }]);
    let bind = |name: &str, kind: &str, role: &str| binding(name, (kind, role), &subjects);
    // The real server may take a moment to know the roles.
    eventually(LIMIT, "the role to be bound", || async {
        let answer = me.post(&bindings, &bind("held", "Role", "held")).await?;
        ensure!(answer.code == 201 || answer.code == 409, "{answer:?}");
        Ok(())
    })
    .await?;
    let all = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n\
               {NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    let delete = "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}";
    for (kind, role, missing) in [
        ("Role", "more", delete),
        ("ClusterRole", "cluster-admin", all),
    ] {
        let message = scene.escalation("rolebindings", "b", missing);
        for path in [bindings.clone(), format!("{bindings}?dryRun=All")] {
            me.post(&path, &bind("b", kind, role))
                .await?
                .refused(403, "Forbidden", &message)?;
        }
    }
    let message = "rolebindings.rbac.authorization.k8s.io \"none\" not found";
    me.post(&bindings, &bind("b", "Role", "none"))
        .await?
        .refused(404, "NotFound", message)?;
    Ok(())
}

async fn escalate_and_bind_lift_the_check(world: World) -> Result<()> {
    let scene = editor(world).await?;
    let me = scene.me();
    scene.role("more", config_maps(&["get", "delete"])).await?;
    scene.role("other", config_maps(&["get", "delete"])).await?;
    let lift = json!([
        {
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
            "verbs": ["bind"], "resourceNames": ["more"],
        },
        {
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"],
            "verbs": ["escalate"],
        },
    ]);
    scene.grant("lift", lift).await?;
    let subjects = json!([{ "kind": "ServiceAccount", "name": "sa", "namespace": "ns" }]);
    let bindings = scene.local("rolebindings");
    let bind = |role: &str| binding(role, ("Role", role), &subjects);
    let missing = "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}";
    let message = scene.escalation("rolebindings", "other", missing);
    me.post(&bindings, &bind("other"))
        .await?
        .refused(403, "Forbidden", &message)?;
    me.post(&bindings, &bind("more")).await?.created()?;
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    let role = json!({ "metadata": { "name": "all" }, "rules": all });
    me.post(&scene.local("roles"), &role).await?.created()?;
    Ok(())
}

async fn applying_is_no_way_around(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let held = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["patch"],
    }]);
    scene.grant("patcher", held.clone()).await?;
    let me = scene.me();
    let new = format!("{}/new?fieldManager=m&dryRun=All", scene.local("roles"));
    let apply = async |rules: &Value| {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "new" }, "rules": rules,
        });
        let content_type = Some("application/apply-patch+yaml");
        me.send(Method::PATCH, &new, content_type, Some(&role))
            .await
    };
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    let missing = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}";
    let message = scene.escalation("roles", "new", missing);
    apply(&all).await?.refused(403, "Forbidden", &message)?;
    // What would be created needs the right to create too.
    let message = format!(
        "roles.rbac.authorization.k8s.io \"new\" is forbidden: {} in the namespace \"{}\"",
        scene.refusal("create", "roles", "rbac.authorization.k8s.io"),
        scene.namespace
    );
    apply(&held).await?.refused(403, "Forbidden", &message)?;
    let create = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"],
    }]);
    scene.grant("creator", create).await?;
    apply(&held).await?.created()?;
    Ok(())
}

async fn the_role_of_a_binding_cannot_change(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let subjects = json!([{ "kind": "User", "name": scene.user }]);
    scene.bind("b", ("Role", "one"), &subjects).await?;
    let other = binding("b", ("ClusterRole", "two"), &json!([]));
    let path = format!("{}/b", scene.local("rolebindings"));
    let message = "RoleBinding.rbac.authorization.k8s.io \"b\" is invalid: roleRef: Invalid value: \
                   {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"two\"}: \
                   cannot change roleRef";
    scene
        .rest
        .put(&path, &other)
        .await?
        .refused(422, "Invalid", message)?;
    let same = binding("b", ("Role", "one"), &json!([]));
    scene.rest.put(&path, &same).await?.ok()?;
    Ok(())
}

async fn roles_and_bindings_are_validated(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let role = json!({
        "metadata": { "name": "x" },
        "rules": [{}, { "verbs": ["get"], "nonResourceURLs": ["/a"] }],
    });
    let message = "Role.rbac.authorization.k8s.io \"x\" is invalid: [rules[0].verbs: Required \
                   value: verbs must contain at least one value, rules[0].apiGroups: Required \
                   value: resource rules must supply at least one api group, rules[0].resources: \
                   Required value: resource rules must supply at least one resource, \
                   rules[1].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot \
                   apply to non-resource URLs]";
    scene
        .rest
        .post(&scene.local("roles"), &role)
        .await?
        .refused(422, "Invalid", message)?;
    let message = "RoleBinding.rbac.authorization.k8s.io \"x\" is invalid: [roleRef.kind: \
                   Unsupported value: \"\": supported values: \"Role\", \"ClusterRole\", \
                   roleRef.name: Required value]";
    scene
        .rest
        .post(
            &scene.local("rolebindings"),
            &json!({ "metadata": { "name": "x" } }),
        )
        .await?
        .refused(422, "Invalid", message)?;
    let subjects = json!([
        { "kind": "X", "name": "y" }, { "kind": "Group", "name": "y", "apiGroup": "z" },
        { "kind": "ServiceAccount", "name": "a" }, { "kind": "User", "name": "" },
    ]);
    let message = "ClusterRoleBinding.rbac.authorization.k8s.io \"x\" is invalid: \
                   [subjects[0].kind: Unsupported value: \"X\": supported values: \
                   \"ServiceAccount\", \"User\", \"Group\", subjects[1].apiGroup: Unsupported \
                   value: \"z\": supported values: \"rbac.authorization.k8s.io\", \
                   subjects[2].namespace: Required value, subjects[3].name: Required value]";
    scene
        .rest
        .post(
            &format!("{RBAC}/clusterrolebindings"),
            &binding("x", ("ClusterRole", "r"), &subjects),
        )
        .await?
        .refused(422, "Invalid", message)?;
    Ok(())
}
