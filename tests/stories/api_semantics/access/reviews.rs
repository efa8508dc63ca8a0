//! Access reviews: who may do what, and by which binding.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{RBAC, REVIEWS, Scene, allowed, binding, config_maps, denied};
use crate::stories::api_semantics::has;
use crate::support::{Story, World, unique_name};

pub(super) fn stories() -> Vec<Story> {
    on_each_backend![
        reviews_answer_with_the_binding_that_allows,
        reviews_of_groups_subresources_and_paths,
        reviews_name_roles_that_are_missing,
        reviews_are_validated,
        a_local_review_is_of_its_namespace,
        a_cluster_role_counts_where_it_is_bound,
        roles_gather_the_rules_of_others,
        users_review_themselves,
    ]
}

async fn reviews_answer_with_the_binding_that_allows(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let n = scene.namespace.clone();
    let rules = json!([{
        "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update"],
        "resourceNames": ["one"],
    }]);
    scene.role("one", rules).await?;
    let account = json!([{ "kind": "ServiceAccount", "name": "sa", "namespace": n }]);
    scene.bind("bound", ("Role", "one"), &account).await?;
    let ask = |verb: &str, name: &str| {
        json!({
            "user": format!("system:serviceaccount:{n}:sa"),
            "groups": [
                "system:serviceaccounts", "system:authenticated",
                format!("system:serviceaccounts:{n}"),
            ],
            "resourceAttributes": scene.asked(verb, name),
        })
    };
    let by = allowed(&format!(
        "RoleBinding \"bound/{n}\" of Role \"one\" to ServiceAccount \"sa/{n}\""
    ));
    let mut other = ask("get", "one");
    other["user"] = json!(format!("system:serviceaccount:{n}:other"));
    let mut elsewhere = ask("get", "one");
    elsewhere["resourceAttributes"]["namespace"] = json!("default");
    let mut everywhere = ask("get", "one");
    everywhere["resourceAttributes"]["namespace"] = json!("");
    scene
        .reviews(&[
            (ask("get", "one"), by.clone()),
            (ask("update", "one"), by),
            (ask("delete", "one"), denied()),
            (ask("get", "two"), denied()),
            (ask("get", ""), denied()),
            (other, denied()),
            (elsewhere, denied()),
            (everywhere, denied()),
        ])
        .await?;

    // Rights end with their rule.
    let role = format!("{}/one", scene.local("roles"));
    let nothing = json!({ "rules": [] });
    scene.rest.merge_patch(&role, &nothing).await?.ok()?;
    scene.reviews(&[(ask("get", "one"), denied())]).await
}

async fn reviews_of_groups_subresources_and_paths(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let n = &scene.namespace;
    let rules = json!([{ "apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"] }]);
    scene.role("scaler", rules).await?;
    let group = unique_name("group");
    let subjects = json!([{ "kind": "Group", "name": group }]);
    scene.bind("scalers", ("Role", "scaler"), &subjects).await?;
    let ask = |subresource: &str, groups: &[&str]| {
        json!({
            "user": scene.user, "groups": groups,
            "resourceAttributes": {
                "namespace": n, "verb": "patch", "group": "apps", "resource": "deployments",
                "subresource": subresource,
            },
        })
    };
    let by = allowed(&format!(
        "RoleBinding \"scalers/{n}\" of Role \"scaler\" to Group \"{group}\""
    ));
    let path = |path: &str, groups: Value| {
        json!({
            "user": scene.user, "groups": groups,
            "nonResourceAttributes": { "verb": "get", "path": path },
        })
    };
    let discovery = allowed(
        "ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \
         \"system:authenticated\"",
    );
    let known = json!(["system:authenticated"]);
    scene
        .reviews(&[
            (ask("scale", &[&group]), by),
            (ask("scale", &["others"]), denied()),
            (ask("status", &[&group]), denied()),
            (ask("", &[&group]), denied()),
            (ask("", &["system:masters"]), json!({ "allowed": true })),
            (path("/apis/apps", known.clone()), discovery),
            (path("/metrics", known), denied()),
            (path("/apis/apps", json!([])), denied()),
        ])
        .await
}

async fn reviews_name_roles_that_are_missing(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let me = json!([{ "kind": "User", "name": scene.user }]);
    scene.bind("lost", ("Role", "none"), &me).await?;
    let reason = "RBAC: role.rbac.authorization.k8s.io \"none\" not found";
    let spec = json!({ "user": scene.user, "resourceAttributes": scene.asked("get", "a") });
    let verdict = json!({ "allowed": false, "reason": reason });
    scene.reviews(&[(spec, verdict)]).await?;
    let message = format!(
        "configmaps \"a\" is forbidden: User \"{}\" cannot get resource \"configmaps\" in API \
         group \"\" in the namespace \"{}\": {reason}",
        scene.user, scene.namespace
    );
    let path = format!("{}/a", scene.config_maps());
    scene
        .me()
        .get(&path)
        .await?
        .refused(403, "Forbidden", &message)?;
    Ok(())
}

async fn reviews_are_validated(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let both = "spec.resourceAttributes: Invalid value: null: exactly one of \
                nonResourceAttributes or resourceAttributes must be specified";
    let nobody = "spec.user: Invalid value: \"\": at least one of user or group must be specified";
    let cases = [
        (json!({ "user": "u" }), both.to_owned()),
        (json!({}), format!("[{both}, {nobody}]")),
        (
            json!({ "resourceAttributes": { "verb": "get" } }),
            nobody.to_owned(),
        ),
        (
            json!({
                "user": "u", "resourceAttributes": { "verb": "get" },
                "nonResourceAttributes": { "verb": "get", "path": "/api" },
            }),
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/api\",\"Verb\":\"get\"}: \
             cannot be specified in combination with resourceAttributes"
                .to_owned(),
        ),
    ];
    for (spec, problem) in cases {
        let review = json!({ "spec": spec });
        let path = format!("{REVIEWS}/subjectaccessreviews");
        let message = format!(".authorization.k8s.io \"\" is invalid: {problem}");
        let details = scene
            .rest
            .post(&path, &review)
            .await?
            .refused(422, "Invalid", &message)?;
        has(&details, &json!({ "group": "authorization.k8s.io" }))?;
    }
    Ok(())
}

async fn a_local_review_is_of_its_namespace(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    scene.grant("reader", config_maps(&["get"])).await?;
    let path = format!(
        "{REVIEWS}/namespaces/{}/localsubjectaccessreviews",
        scene.namespace
    );
    let spec = json!({ "user": scene.user, "resourceAttributes": scene.asked("get", "a") });
    let review = json!({ "spec": spec });
    let answer = scene.rest.post(&path, &review).await?.created()?;
    has(
        &answer,
        &json!({
            "metadata": { "namespace": scene.namespace }, "spec": spec,
            "status": { "allowed": true },
        }),
    )?;
    let mut other = review.clone();
    other["spec"]["resourceAttributes"]["namespace"] = json!("default");
    let message = ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: \
                   Invalid value: \"default\": must match metadata.namespace";
    scene
        .rest
        .post(&path, &other)
        .await?
        .refused(422, "Invalid", message)?;
    let paths = json!({ "spec": {
        "user": scene.user, "nonResourceAttributes": { "verb": "get", "path": "/api" },
    } });
    let message = ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid \
                   value: {\"Path\":\"/api\",\"Verb\":\"get\"}: disallowed on this kind of request";
    scene
        .rest
        .post(&path, &paths)
        .await?
        .refused(422, "Invalid", message)?;
    Ok(())
}

async fn a_cluster_role_counts_where_it_is_bound(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let (n, user) = (&scene.namespace, &scene.user);
    let name = unique_name("reader");
    let role = json!({ "metadata": { "name": name }, "rules": config_maps(&["get"]) });
    let roles = format!("{RBAC}/clusterroles");
    scene.rest.post(&roles, &role).await?.created()?;
    let me = json!([{ "kind": "User", "name": user }]);
    scene.bind("here", ("ClusterRole", &name), &me).await?;
    let ask = |namespace: &str| {
        let mut asked = scene.asked("get", "a");
        asked["namespace"] = json!(namespace);
        json!({ "user": user, "resourceAttributes": asked })
    };
    let here = format!("RoleBinding \"here/{n}\" of ClusterRole \"{name}\" to User \"{user}\"");
    scene
        .reviews(&[
            (ask(n), allowed(&here)),
            (ask("default"), denied()),
            (ask(""), denied()),
        ])
        .await?;
    let everywhere = binding(&name, ("ClusterRole", &name), &me);
    let bindings = format!("{RBAC}/clusterrolebindings");
    scene.rest.post(&bindings, &everywhere).await?.created()?;
    // Cluster-wide bindings are looked at first.
    let by = format!("ClusterRoleBinding \"{name}\" of ClusterRole \"{name}\" to User \"{user}\"");
    let by = allowed(&by);
    scene
        .reviews(&[
            (ask("default"), by.clone()),
            (ask(""), by.clone()),
            (ask(n), by),
        ])
        .await
}

/// No controller runs beside the real server, so there the story writes the gathered rules as
/// the controller would; the embedded server needs no controller.
async fn roles_gather_the_rules_of_others(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let (n, user) = (&scene.namespace, &scene.user);
    let (whole, part) = (unique_name("whole"), unique_name("part"));
    let get = config_maps(&["get"]);
    let roles = format!("{RBAC}/clusterroles");
    let labels = json!({ "example.com/gathered-by": whole });
    let parts = json!({ "metadata": { "name": part, "labels": labels }, "rules": get });
    scene.rest.post(&roles, &parts).await?.created()?;
    let gathers = json!({
        "metadata": { "name": whole },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": labels }] },
        "rules": get,
    });
    scene.rest.post(&roles, &gathers).await?.created()?;
    let me = json!([{ "kind": "User", "name": user }]);
    scene.bind("gathered", ("ClusterRole", &whole), &me).await?;
    let by = format!("RoleBinding \"gathered/{n}\" of ClusterRole \"{whole}\" to User \"{user}\"");
    let ask = |verb: &str| json!({ "user": user, "resourceAttributes": scene.asked(verb, "a") });
    scene
        .reviews(&[(ask("get"), allowed(&by)), (ask("update"), denied())])
        .await
}

async fn users_review_themselves(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    scene.grant("reader", config_maps(&["get"])).await?;
    let (n, user) = (&scene.namespace, &scene.user);
    let by = allowed(&format!(
        "RoleBinding \"reader/{n}\" of Role \"reader\" to User \"{user}\""
    ));
    let path = format!("{REVIEWS}/selfsubjectaccessreviews");
    for (verb, verdict) in [("get", by), ("delete", denied())] {
        let review = json!({ "spec": { "resourceAttributes": scene.asked(verb, "a") } });
        let answer = scene.me().post(&path, &review).await?.created()?;
        ensure!(answer["status"] == verdict, "{verb} gave {answer}");
    }
    let all = json!({ "spec": { "resourceAttributes": scene.asked("delete", "a") } });
    let answer = scene.rest.post(&path, &all).await?.created()?;
    ensure!(answer["status"] == json!({ "allowed": true }), "{answer}");

    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let review = json!({ "spec": { "namespace": n } });
    let answer = scene.me().post(&path, &review).await?.created()?;
    has(
        &answer,
        &json!({ "spec": {}, "status": { "incomplete": false } }),
    )?;
    let rule = &config_maps(&["get"])[0];
    let held = answer["status"]["resourceRules"].as_array();
    ensure!(held.is_some_and(|held| held.contains(rule)), "{answer}");
    let self_review = json!({
        "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    });
    ensure!(
        held.is_some_and(|held| held.contains(&self_review)),
        "{answer}"
    );
    scene
        .me()
        .post(&path, &json!({ "spec": {} }))
        .await?
        .refused(400, "BadRequest", "no namespace on request")?;
    Ok(())
}
