//! Who may do what: access reviews, impersonation, refusals, and the check that nobody grants
//! more than they hold.
//!
//! Users are made up and acted as through the administrator. Every story binds users of its own,
//! since cluster-wide bindings of other stories would give rights to shared ones.

mod grants;
mod reviews;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{LIMIT, has, text};
use crate::support::{Cluster, Rest, Story, World, eventually, unique_name};

pub(super) fn stories() -> Vec<Story> {
    let own = on_each_backend![
        refusals_name_user_verb_and_place,
        refusals_name_groups_subresources_and_scope,
        impersonation_completes_an_identity,
        impersonation_needs_a_right_to_it,
        kubectl_asks_as_another_user,
    ];
    [own, reviews::stories(), grants::stories()]
        .into_iter()
        .flatten()
        .collect()
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A namespace with users of a story's own.
struct Scene {
    hub: Cluster,
    rest: Rest,
    namespace: String,
    /// A user without rights, until a story gives some.
    user: String,
}

impl Scene {
    async fn new(world: World) -> Result<Self> {
        let hub = world.hub().await?;
        let (rest, namespace) = (hub.rest(), hub.namespace().await?);
        Ok(Self {
            hub,
            rest,
            namespace,
            user: unique_name("user"),
        })
    }

    /// The path of the namespace's objects of a type of RBAC.
    fn local(&self, kind: &str) -> String {
        format!("{RBAC}/namespaces/{}/{kind}", self.namespace)
    }

    fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    async fn role(&self, name: &str, rules: Value) -> Result<()> {
        let role = json!({ "metadata": { "name": name }, "rules": rules });
        self.rest
            .post(&self.local("roles"), &role)
            .await?
            .created()?;
        Ok(())
    }

    async fn bind(&self, name: &str, role: (&str, &str), subjects: &Value) -> Result<()> {
        let bindings = self.local("rolebindings");
        let binding = binding(name, role, subjects);
        self.rest.post(&bindings, &binding).await?.created()?;
        Ok(())
    }

    /// Gives the story's user these rules, and waits until they are in force.
    async fn grant(&self, name: &str, rules: Value) -> Result<()> {
        self.role(name, rules).await?;
        let subjects = json!([{ "kind": "User", "name": self.user }]);
        self.bind(name, ("Role", name), &subjects).await?;
        self.bound(name).await
    }

    /// Waits until the server acts by a Role with rules that it has just bound to the story's
    /// user. The real one watches its own objects.
    async fn bound(&self, name: &str) -> Result<()> {
        let question = json!({ "spec": { "namespace": self.namespace } });
        let role = format!("{}/{name}", self.local("roles"));
        let wanted = self.rest.get(&role).await?.ok()?["rules"].clone();
        let me = self.rest.acting("Impersonate-User", &self.user);
        eventually(LIMIT, "the binding to be in force", || async {
            let path = format!("{REVIEWS}/selfsubjectrulesreviews");
            let answer = me.post(&path, &question).await?.created()?;
            let held = answer["status"]["resourceRules"].as_array();
            let all = wanted.as_array().is_some_and(|wanted| {
                wanted
                    .iter()
                    .all(|rule| held.is_some_and(|held| held.contains(rule)))
            });
            ensure!(all, "{answer}");
            Ok(())
        })
        .await
    }

    /// The story's user.
    fn me(&self) -> Rest {
        self.rest.acting("Impersonate-User", &self.user)
    }

    /// The verdict of a `SubjectAccessReview`.
    async fn review(&self, spec: Value) -> Result<Value> {
        let review = json!({ "spec": spec });
        let path = format!("{REVIEWS}/subjectaccessreviews");
        let answer = self.rest.post(&path, &review).await?.created()?;
        Ok(answer["status"].clone())
    }

    /// Requires that reviews come to have this verdict.
    async fn reviews(&self, cases: &[(Value, Value)]) -> Result<()> {
        for (spec, status) in cases {
            eventually(LIMIT, "the verdict", || async {
                let seen = self.review(spec.clone()).await?;
                ensure!(seen == *status, "{spec}\ngave {seen}\nand not {status}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// What the story's user cannot do, without the place.
    fn refusal(&self, verb: &str, resource: &str, group: &str) -> String {
        format!(
            "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{group}\"",
            self.user
        )
    }

    /// Attributes of a request for config maps in the namespace.
    fn asked(&self, verb: &str, name: &str) -> Value {
        let namespace = &self.namespace;
        json!({ "namespace": namespace, "verb": verb, "resource": "configmaps", "name": name })
    }
}

fn binding(name: &str, (kind, role): (&str, &str), subjects: &Value) -> Value {
    json!({
        "metadata": { "name": name },
        "subjects": subjects,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
    })
}

fn config_maps(verbs: &[&str]) -> Value {
    json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": verbs }])
}

fn allowed(by: &str) -> Value {
    json!({ "allowed": true, "reason": format!("RBAC: allowed by {by}") })
}

fn denied() -> Value {
    json!({ "allowed": false })
}

async fn refusals_name_user_verb_and_place(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let (n, me, maps) = (&scene.namespace, scene.me(), scene.config_maps());
    let cases = [
        (me.get(&format!("{maps}/a")).await?, "get", "a"),
        (me.get(&maps).await?, "list", ""),
        (me.get(&format!("{maps}?watch=1")).await?, "watch", ""),
        (
            me.get(&format!("{maps}?fieldSelector=metadata.name%3Db"))
                .await?,
            "list",
            "b",
        ),
        (me.post(&maps, &json!("no object")).await?, "create", ""),
        (me.delete(&maps).await?, "deletecollection", ""),
    ];
    for (answer, verb, name) in cases {
        let named = match name {
            "" => String::new(),
            name => format!(" \"{name}\""),
        };
        let message = format!(
            "configmaps{named} is forbidden: {} in the namespace \"{n}\"",
            scene.refusal(verb, "configmaps", "")
        );
        let details = answer.refused(403, "Forbidden", &message)?;
        let expected = match name {
            "" => json!({ "kind": "configmaps" }),
            name => json!({ "name": name, "kind": "configmaps" }),
        };
        ensure!(details == expected, "{message}\nhas details {details}");
    }
    Ok(())
}

async fn refusals_name_groups_subresources_and_scope(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let (n, user, me) = (&scene.namespace, &scene.user, scene.me());
    let deployment = format!("/apis/apps/v1/namespaces/{n}/deployments/d");
    let cases = [
        (
            me.get("/api/v1/configmaps").await?,
            format!(
                "configmaps is forbidden: {} at the cluster scope",
                scene.refusal("list", "configmaps", "")
            ),
            json!({ "kind": "configmaps" }),
        ),
        (
            me.get(&format!("/api/v1/namespaces/{n}")).await?,
            format!(
                "namespaces \"{n}\" is forbidden: {} in the namespace \"{n}\"",
                scene.refusal("get", "namespaces", "")
            ),
            json!({ "name": n, "kind": "namespaces" }),
        ),
        (
            me.merge_patch(&deployment, &json!({})).await?,
            format!(
                "deployments.apps \"d\" is forbidden: {} in the namespace \"{n}\"",
                scene.refusal("patch", "deployments", "apps")
            ),
            json!({ "name": "d", "group": "apps", "kind": "deployments" }),
        ),
        (
            me.get(&format!("{deployment}/scale")).await?,
            format!(
                "deployments.apps \"d\" is forbidden: {} in the namespace \"{n}\"",
                scene.refusal("get", "deployments/scale", "apps")
            ),
            json!({ "name": "d", "group": "apps", "kind": "deployments" }),
        ),
        (
            me.get("/apis/none.example.com/v1/things/x").await?,
            format!(
                "things.none.example.com \"x\" is forbidden: {} at the cluster scope",
                scene.refusal("get", "things", "none.example.com")
            ),
            json!({ "name": "x", "group": "none.example.com", "kind": "things" }),
        ),
        (
            me.get("/nonsense").await?,
            format!("forbidden: User \"{user}\" cannot get path \"/nonsense\""),
            json!({}),
        ),
    ];
    for (answer, message, details) in cases {
        let seen = answer.refused(403, "Forbidden", &message)?;
        ensure!(seen == details, "{message}\nhas details {seen}");
    }
    // What everybody may ask.
    me.get("/version").await?.ok()?;
    me.get("/apis").await?.ok()?;
    Ok(())
}

async fn impersonation_completes_an_identity(world: World) -> Result<()> {
    let rest = world.hub().await?.rest();
    let account = rest.acting("Impersonate-User", "system:serviceaccount:ns1:sa");
    let v = rest.acting("Impersonate-User", "v");
    let cases = [
        (
            v.clone(),
            json!({ "username": "v", "groups": ["system:authenticated"] }),
        ),
        (
            v.acting("Impersonate-Group", "g")
                .acting("Impersonate-Group", "h")
                .acting("Impersonate-Uid", "7")
                .acting("Impersonate-Extra-example.io%2fTenant", "blue"),
            json!({
                "username": "v", "uid": "7", "groups": ["g", "h", "system:authenticated"],
                "extra": { "example.io/tenant": ["blue"] },
            }),
        ),
        (
            account.clone(),
            json!({
                "username": "system:serviceaccount:ns1:sa",
                "groups": [
                    "system:serviceaccounts", "system:serviceaccounts:ns1", "system:authenticated",
                ],
            }),
        ),
        (
            account.acting("Impersonate-Group", "g"),
            json!({
                "username": "system:serviceaccount:ns1:sa",
                "groups": ["g", "system:authenticated"],
            }),
        ),
    ];
    for (rest, user) in cases {
        let answer = rest.post(WHO, &json!({})).await?.created()?;
        let seen = &answer["status"]["userInfo"];
        ensure!(*seen == user, "{seen} is not {user}");
        text(&answer, "/metadata/creationTimestamp")?;
    }
    let message = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, \
                   Extra:map[string][]string(nil)} without impersonating a user name";
    rest.acting("Impersonate-Group", "g")
        .post(WHO, &json!({}))
        .await?
        .refused(400, "BadRequest", message)?;
    Ok(())
}

/// One can act as one other only, so the right is asked about in a review.
async fn impersonation_needs_a_right_to_it(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    let n = &scene.namespace;
    let rules = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"],
        "resourceNames": ["sa"],
    }]);
    scene.grant("act", rules).await?;
    let ask = |name: &str| {
        json!({
            "user": scene.user,
            "resourceAttributes": {
                "verb": "impersonate", "resource": "serviceaccounts", "namespace": n, "name": name,
            },
        })
    };
    let by = format!(
        "RoleBinding \"act/{n}\" of Role \"act\" to User \"{}\"",
        scene.user
    );
    scene
        .reviews(&[(ask("sa"), allowed(&by)), (ask("other"), denied())])
        .await
}

/// `kubectl auth can-i` writes its review as protobuf only, so kubectl's plain commands ask.
async fn kubectl_asks_as_another_user(world: World) -> Result<()> {
    let scene = Scene::new(world).await?;
    scene.grant("reader", config_maps(&["get", "list"])).await?;
    let (n, user) = (scene.namespace.as_str(), scene.user.as_str());
    let listed = scene
        .hub
        .kubectl(&["get", "configmaps", "-n", n, "-o", "name", "--as", user])
        .await?
        .ok()?;
    ensure!(listed.is_empty(), "{listed}");
    let refused = scene
        .hub
        .kubectl(&["get", "secrets", "-n", n, "--as", user])
        .await?;
    let refusal = format!(
        "Error from server (Forbidden): secrets is forbidden: User \"{user}\" cannot list resource \
         \"secrets\" in API group \"\" in the namespace \"{n}\"\n"
    );
    ensure!(
        refused.code == Some(1) && refused.stderr == refusal,
        "{refused:?}"
    );
    let reviews = format!("{REVIEWS}/selfsubjectaccessreviews");
    let review = json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": { "resourceAttributes": scene.asked("get", "a") },
    });
    let answer = scene
        .hub
        .kubectl_with_input(
            &["create", "--raw", &reviews, "-f", "-", "--as", user],
            &review.to_string(),
        )
        .await?
        .ok()?;
    let answer: Value = serde_json::from_str(&answer)?;
    has(&answer, &json!({ "status": { "allowed": true } }))
}
