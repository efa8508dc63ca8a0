//! Users, impersonation, RBAC and access reviews.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail by panicking and take what reads best"
)]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::Request;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use muster_apiserver::{ApiServer, Authorization, ServeOptions, UserInfo};
use serde_json::{Value, json};
use support::{config_map, refused};

const RBAC: &str = "rbac.authorization.k8s.io";
const NAMESPACE: &str = "default";

async fn server() -> ApiServer {
    let builder = ApiServer::builder().authorization(Authorization::Rbac);
    builder.build().await.unwrap()
}

/// Sends JSON and gives the answer, a Status as an error.
async fn send(client: &Client, method: &str, path: &str, body: Value) -> kube::Result<Value> {
    send_with(client, method, path, body, &[]).await
}

async fn send_with(
    client: &Client,
    method: &str,
    path: &str,
    body: Value,
    headers: &[(&str, &str)],
) -> kube::Result<Value> {
    let content_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
    client
        .request(request.body(body).map_err(kube::Error::HttpError)?)
        .await
}

fn path(kind: &str) -> String {
    match kind {
        "roles" | "rolebindings" => format!("/apis/{RBAC}/v1/namespaces/{NAMESPACE}/{kind}"),
        _ => format!("/apis/{RBAC}/v1/{kind}"),
    }
}

fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
    })
}

/// Gives `user` these rules in the namespace.
async fn grant(server: &ApiServer, name: &str, user: &str, rules: &[Value]) {
    let admin = server.client();
    send(&admin, "POST", &path("roles"), role(name, rules))
        .await
        .unwrap();
    let bound = binding(name, "Role", name, user);
    send(&admin, "POST", &path("rolebindings"), bound)
        .await
        .unwrap();
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, NAMESPACE)
}

fn message<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    let status = refused(result);
    (status.code, status.message)
}

#[tokio::test]
async fn users_do_what_their_roles_allow() {
    let server = server().await;
    let client = server.client_as(UserInfo::new("u"));
    let maps = maps(client.clone());
    let refusal = |verb: &str, name: &str| {
        format!(
            "configmaps{name} is forbidden: User \"u\" cannot {verb} resource \"configmaps\" in API group \"\" in the namespace \"default\""
        )
    };
    assert_eq!(
        message(maps.get("a").await),
        (403, refusal("get", " \"a\""))
    );
    grant(&server, "reader", "u", &[rule("configmaps", &["get"])]).await;
    assert_eq!(refused(maps.get("a").await).code, 404);
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await;
    assert_eq!(message(created), (403, refusal("create", "")));
    // A request for what is not there is refused in the same way, so that nothing leaks.
    let nothing: kube::Result<Value> = send(
        &client,
        "GET",
        "/apis/none.example.com/v1/things/x",
        json!(null),
    )
    .await;
    assert_eq!(refused(nothing).code, 403);
    // Rights end with the binding.
    let admin = server.client();
    let bound = format!("{}/reader", path("rolebindings"));
    send(&admin, "DELETE", &bound, json!({})).await.unwrap();
    assert_eq!(
        message(maps.get("a").await),
        (403, refusal("get", " \"a\""))
    );
}

#[tokio::test]
async fn without_rbac_everybody_may_do_everything() {
    let server = support::server().await;
    let client = server.client_as(UserInfo::new("u"));
    maps(client.clone())
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    send(
        &client,
        "POST",
        &path("clusterroles"),
        role("all", &[rule("*", &["*"])]),
    )
    .await
    .unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let info = review.status.unwrap().user_info.unwrap();
    assert_eq!(info.username.as_deref(), Some("u"));
    let answer = send_with(
        &client,
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        json!({}),
        &[
            ("Impersonate-User", "v"),
            ("Impersonate-Group", "system:masters"),
        ],
    );
    assert_eq!(
        answer.await.unwrap()["status"]["userInfo"],
        json!({"username": "v", "groups": ["system:masters", "system:authenticated"]})
    );
}

#[tokio::test]
async fn reviews_tell_who_may_do_what() {
    let server = server().await;
    grant(
        &server,
        "writer",
        "system:serviceaccount:ns:sa",
        &[rule("configmaps", &["get"])],
    )
    .await;
    let review = |user: &str, verb: &str, namespace: Option<&str>| SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                resource: Some("configmaps".to_owned()),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(server.client());
    for (user, verb, namespace, allowed) in [
        ("system:serviceaccount:ns:sa", "get", Some(NAMESPACE), true),
        (
            "system:serviceaccount:ns:sa",
            "list",
            Some(NAMESPACE),
            false,
        ),
        ("system:serviceaccount:ns:sa", "get", None, false),
        ("other", "get", Some(NAMESPACE), false),
    ] {
        let answer = reviews
            .create(&PostParams::default(), &review(user, verb, namespace))
            .await
            .unwrap()
            .status
            .unwrap();
        assert_eq!(answer.allowed, allowed, "{user} {verb} {namespace:?}");
        let reason = "RBAC: allowed by RoleBinding \"writer/default\" of Role \"writer\" to User \"system:serviceaccount:ns:sa\"";
        assert_eq!(answer.reason.as_deref(), allowed.then_some(reason));
    }
    let (code, text) = message(
        reviews
            .create(&PostParams::default(), &SubjectAccessReview::default())
            .await,
    );
    assert_eq!(code, 422);
    assert_eq!(
        text,
        ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]"
    );
    let odd = json!({"spec": {"user": 1}});
    let all = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let odd = send(&server.client(), "POST", all, odd).await;
    assert_eq!(refused(odd).code, 400);
}

#[tokio::test]
async fn rules_reviews_list_rights_and_what_could_not_be_found() {
    let server = server().await;
    grant(&server, "reader", "u", &[rule("configmaps", &["get"])]).await;
    let lost = binding("lost", "Role", "none", "u");
    send(&server.client(), "POST", &path("rolebindings"), lost)
        .await
        .unwrap();
    let client = server.client_as(UserInfo::new("u"));
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let asked = json!({"spec": {"namespace": NAMESPACE}});
    let answer = send(&client, "POST", reviews, asked).await.unwrap();
    let rules = answer["status"]["resourceRules"].as_array().unwrap();
    assert!(rules.contains(&rule("configmaps", &["get"])), "{answer}");
    assert_eq!(answer["status"]["incomplete"], false);
    assert_eq!(
        answer["status"]["evaluationError"],
        "role.rbac.authorization.k8s.io \"none\" not found"
    );
    let (code, text) = message(send(&client, "POST", reviews, json!({})).await);
    assert_eq!((code, text.as_str()), (400, "no namespace on request"));
}

#[tokio::test]
async fn impersonation_needs_rights_on_each_part() {
    let server = server().await;
    let admin = server.client();
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let account = [("Impersonate-User", "system:serviceaccount:ns1:sa")];
    let answer = send_with(&admin, "POST", who, json!({}), &account).await;
    assert_eq!(
        answer.unwrap()["status"]["userInfo"],
        json!({
            "username": "system:serviceaccount:ns1:sa",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:ns1", "system:authenticated"],
        })
    );

    let u = server.client_as(UserInfo::new("u"));
    let as_v = [("Impersonate-User", "v")];
    let first = message(send_with(&u, "POST", who, json!({}), &as_v).await);
    assert_eq!(
        first.1,
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"u\" cannot impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
    let mut users = rule("users", &["impersonate"]);
    users["resourceNames"] = json!(["v"]);
    let rules = [users, rule("serviceaccounts", &["impersonate"])];
    send(&admin, "POST", &path("clusterroles"), role("act", &rules))
        .await
        .unwrap();
    let bound = binding("act", "ClusterRole", "act", "u");
    send(&admin, "POST", &path("clusterrolebindings"), bound)
        .await
        .unwrap();
    let allowed: [&[(&str, &str)]; 2] = [&as_v, &account];
    for headers in allowed {
        let answer = send_with(&u, "POST", who, json!({}), headers)
            .await
            .unwrap();
        assert_eq!(answer["status"]["userInfo"]["username"], headers[0].1);
    }
    for more in [
        ("Impersonate-Group", "g"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-a", "b"),
    ] {
        let headers = [as_v[0], more];
        let refusal = refused(send_with(&u, "POST", who, json!({}), &headers).await);
        assert_eq!(refusal.code, 403, "{more:?}");
    }
    let (code, text) =
        message(send_with(&u, "POST", who, json!({}), &[("Impersonate-Uid", "7")]).await);
    assert_eq!(code, 400);
    assert!(
        text.ends_with("without impersonating a user name"),
        "{text}"
    );
}

#[tokio::test]
async fn impersonation_can_depend_on_the_request() {
    let server = server().await;
    let admin = server.client();
    let mut users = rule("users", &["impersonate:user-info"]);
    users["apiGroups"] = json!(["authentication.k8s.io"]);
    users["resources"] = json!(["users", "groups", "userextras/example.io/a"]);
    let rules = [users, rule("configmaps", &["impersonate-on:user-info:get"])];
    send(&admin, "POST", &path("clusterroles"), role("act", &rules))
        .await
        .unwrap();
    let bound = binding("act", "ClusterRole", "act", "u");
    send(&admin, "POST", &path("clusterrolebindings"), bound)
        .await
        .unwrap();
    grant(
        &server,
        "reader",
        "w",
        &[rule("configmaps", &["get", "list"])],
    )
    .await;
    let u = server.client_as(UserInfo::new("u"));
    let map = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/a");
    let get = async |path: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("Impersonate-User", "w")];
        headers.extend(more);
        message(send_with(&u, "GET", path, json!(null), &headers).await)
    };
    assert_eq!(get(&map, &[]).await.0, 404);
    assert_eq!(get(&map, &[("Impersonate-Group", "g")]).await.0, 404);
    let extra = ("Impersonate-Extra-example.io%2fa", "b");
    assert_eq!(get(&map, &[extra]).await.0, 404);
    let list = get(map.strip_suffix("/a").unwrap(), &[]).await;
    assert!(
        list.1.contains("cannot impersonate-on:user-info:list"),
        "{list:?}"
    );
    for (header, why) in [
        (
            ("Impersonate-Group", "system:masters"),
            "impersonating the system:masters group is not allowed",
        ),
        (
            ("Impersonate-Group", ""),
            "impersonating the empty string group is not allowed",
        ),
        (
            ("Impersonate-Extra-t", "b"),
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    ] {
        let (code, text) = get(&map, &[header]).await;
        assert_eq!(code, 403, "{header:?}");
        assert!(text.ends_with(why), "{text}");
    }
}

/// A server where `u` may write everything of RBAC and read config maps, no more.
async fn with_editor() -> (ApiServer, Client) {
    let server = server().await;
    let admin = server.client();
    let verbs = ["create", "update", "patch"];
    let all = [
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
    ];
    let edit = json!({"apiGroups": [RBAC], "resources": all, "verbs": verbs});
    let rules = [edit, rule("configmaps", &["get"])];
    send(
        &admin,
        "POST",
        &path("clusterroles"),
        role("edit-rbac", &rules),
    )
    .await
    .unwrap();
    let bound = binding("edit-rbac", "ClusterRole", "edit-rbac", "u");
    send(&admin, "POST", &path("clusterrolebindings"), bound)
        .await
        .unwrap();
    let client = server.client_as(UserInfo::new("u"));
    (server, client)
}

#[tokio::test]
async fn nobody_grants_more_than_they_hold() {
    let (_server, u) = with_editor().await;
    let get = role("get", &[rule("configmaps", &["get"])]);
    let all = role("all", &[rule("*", &["*"])]);
    let missing = |kind: &str, name: &str, rules: &str| {
        format!(
            "{kind}.{RBAC} \"{name}\" is forbidden: user \"u\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{rules}"
        )
    };
    let anything = "{APIGroups:[\"\"], Resources:[\"*\"], Verbs:[\"*\"]}";
    for kind in ["roles", "clusterroles"] {
        send(&u, "POST", &path(kind), get.clone()).await.unwrap();
        let dry = format!("{}?dryRun=All", path(kind));
        for path in [path(kind), dry] {
            let refusal = message(send(&u, "POST", &path, all.clone()).await);
            assert_eq!(refusal, (403, missing(kind, "all", anything)));
        }
        let one = format!("{}/get", path(kind));
        let more = json!({"rules": [rule("configmaps", &["get", "delete"])]});
        let text = "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}";
        let refusal = message(send(&u, "PATCH", &one, more).await);
        assert_eq!(refusal, (403, missing(kind, "get", text)));
    }
    let gathers = json!({"metadata": {"name": "g"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let (code, text) = message(send(&u, "POST", &path("clusterroles"), gathers).await);
    assert_eq!(code, 403);
    assert!(
        text.ends_with("must have cluster-admin privileges to use the aggregationRule"),
        "{text}"
    );

    for kind in ["rolebindings", "clusterrolebindings"] {
        let held = binding("held", "ClusterRole", "get", "u");
        send(&u, "POST", &path(kind), held).await.unwrap();
        let admin = binding("x", "ClusterRole", "cluster-admin", "u");
        let text = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
        let refusal = message(send(&u, "POST", &path(kind), admin).await);
        assert_eq!(refusal, (403, missing(kind, "x", text)));
        let none = binding("x", "ClusterRole", "none", "u");
        let (code, text) = message(send(&u, "POST", &path(kind), none).await);
        assert_eq!(
            (code, text),
            (404, format!("{kind}.{RBAC} \"none\" not found"))
        );
    }
    let odd = binding("x", "Odd", "none", "u");
    let refusal = message(send(&u, "POST", &path("rolebindings"), odd).await);
    assert_eq!(
        refusal,
        (500, "unsupported role reference kind: \"Odd\"".to_owned())
    );
}

#[tokio::test]
async fn escalate_and_bind_lift_the_check() {
    let (server, u) = with_editor().await;
    let all = role("all", &[rule("*", &["*"])]);
    let escalate = json!({"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["escalate"]});
    let bind = json!({"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["bind"], "resourceNames": ["all"]});
    grant(&server, "lift", "u", &[escalate, bind]).await;
    send(&u, "POST", &path("roles"), all).await.unwrap();
    let bound = binding("all", "Role", "all", "u");
    send(&u, "POST", &path("rolebindings"), bound)
        .await
        .unwrap();
    // Now the user holds everything in the namespace, but nothing outside.
    let cluster = message(
        send(
            &u,
            "POST",
            &path("clusterroles"),
            role("c", &[rule("pods", &["get"])]),
        )
        .await,
    );
    assert_eq!(cluster.0, 403);
}

#[tokio::test]
async fn finalizers_of_a_role_can_be_changed_without_holding_it() {
    let (server, u) = with_editor().await;
    let mut all = role("all", &[rule("*", &["*"])]);
    all["metadata"]["finalizers"] = json!(["example.com/f"]);
    send(&server.client(), "POST", &path("roles"), all)
        .await
        .unwrap();
    let one = format!("{}/all", path("roles"));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(refused(send(&u, "PATCH", &one, label).await).code, 403);
    let finished = json!({"metadata": {"finalizers": null}});
    send(&u, "PATCH", &one, finished).await.unwrap();
}

#[tokio::test]
async fn the_role_of_a_binding_cannot_change() {
    let (_server, u) = with_editor().await;
    let get = role("get", &[rule("configmaps", &["get"])]);
    send(&u, "POST", &path("roles"), get.clone()).await.unwrap();
    send(&u, "POST", &path("clusterroles"), get).await.unwrap();
    let bound = binding("b", "Role", "get", "u");
    send(&u, "POST", &path("rolebindings"), bound)
        .await
        .unwrap();
    let other = binding("b", "ClusterRole", "get", "u");
    let one = format!("{}/b", path("rolebindings"));
    let (code, text) = message(send(&u, "PUT", &one, other).await);
    assert_eq!(code, 422);
    assert_eq!(
        text,
        "RoleBinding.rbac.authorization.k8s.io \"b\" is invalid: roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"get\"}: cannot change roleRef"
    );
}

#[tokio::test]
async fn the_first_roles_are_made_once_and_gather_rules() {
    let server = server().await;
    let admin = server.client();
    let v = binding("edit", "ClusterRole", "edit", "v");
    send(&admin, "POST", &path("rolebindings"), v)
        .await
        .unwrap();
    let v = maps(server.client_as(UserInfo::new("v")));
    v.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    // `view` is gathered by `edit`.
    v.list(&ListParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    v.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let others: Api<ConfigMap> =
        Api::namespaced(server.client_as(UserInfo::new("v")), "kube-system");
    assert_eq!(refused(others.list(&ListParams::default()).await).code, 403);
}

async fn connect(mut kubeconfig: Kubeconfig, token: Option<&str>) -> Client {
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    user.token = token.map(|t| t.to_owned().into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn tokens_tell_users_apart() {
    let server = server().await;
    grant(&server, "reader", "u", &[rule("configmaps", &["list"])]).await;
    let mut user = UserInfo::new("u").group("g");
    user.uid = "7".to_owned();
    let serving = server
        .serve(ServeOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            dir: None,
            tokens: BTreeMap::from([("secret".to_owned(), user)]),
            limits: muster_apiserver::ConnectionLimits::default(),
        })
        .await
        .unwrap();
    let listed = async |token: Option<&str>| {
        let client = connect(serving.kubeconfig(), token).await;
        maps(client).list(&ListParams::default()).await
    };
    listed(Some(serving.token())).await.unwrap();
    listed(Some("secret")).await.unwrap();
    assert_eq!(
        message(listed(Some("wrong")).await),
        (401, "Unauthorized".to_owned())
    );
    let (code, text) = message(listed(None).await);
    assert_eq!(code, 403);
    assert!(
        text.contains("User \"system:anonymous\" cannot list"),
        "{text}"
    );
    let nobody = connect(serving.kubeconfig(), None).await;
    nobody.apiserver_version().await.unwrap();
    let (code, text) = message(send(&nobody, "GET", "/apis", json!(null)).await);
    assert_eq!(
        (code, text.as_str()),
        (
            403,
            "forbidden: User \"system:anonymous\" cannot get path \"/apis\""
        )
    );
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let client = connect(serving.kubeconfig(), Some("secret")).await;
    let answer = send(&client, "POST", who, json!({})).await.unwrap();
    assert_eq!(
        answer["status"]["userInfo"],
        json!({"username": "u", "uid": "7", "groups": ["g", "system:authenticated"]})
    );
}
