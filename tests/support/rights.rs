//! Rights of RBAC, and the requests of an audit log that need them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Rest;

/// One verb on one resource, of one name where a rule has names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    verb: String,
    group: String,
    /// With a subresource: `manifestworks/status`.
    resource: String,
    name: Option<String>,
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

impl Right {
    /// All that the rules of a role give.
    pub(crate) fn of_role(role: &Value) -> Vec<Self> {
        let mut all = Vec::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let names: Vec<Option<String>> = match texts(&rule["resourceNames"]) {
                names if names.is_empty() => vec![None],
                names => names.into_iter().map(Some).collect(),
            };
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        all.extend(names.iter().map(|name| Self {
                            verb: verb.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
        all
    }

    /// A rule that gives this and nothing else.
    pub(crate) fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource],
            "verbs": [self.verb]});
        if let Some(name) = &self.name {
            rule["resourceNames"] = json!([name]);
        }
        rule
    }

    /// Whether admission asks for this, and no request by itself.
    pub(crate) fn is_of_admission(&self) -> bool {
        self.resource.ends_with("/finalizers")
    }

    fn gives(&self, request: &Request) -> bool {
        (&self.verb, &self.group, &self.resource)
            == (&request.verb, &request.group, &request.resource)
            && (self.name.is_none() || self.name == request.name)
    }

    /// A request that needs this, of those an account has made.
    pub(crate) fn needed_by<'a>(&self, requests: &'a [Request]) -> Option<&'a Request> {
        requests.iter().find(|request| self.gives(request))
    }
}

/// A request that was authorized.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    verb: String,
    group: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    groups: Vec<String>,
}

impl Request {
    /// What an account asked for, by an audit log.
    pub(crate) fn of_account(asked: &[Value], account: &str) -> Vec<Self> {
        let by = asked.iter().filter(|event| {
            event["user"]["username"] == account && event["objectRef"]["resource"].is_string()
        });
        by.filter_map(Self::read).collect()
    }

    fn read(event: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let groups = texts(&event["user"]["groups"]);
        if let Some(other) = event["impersonatedUser"]["username"].as_str() {
            let account = other.strip_prefix("system:serviceaccount:")?;
            let (namespace, name) = account.split_once(':')?;
            return Some(Self {
                verb: "impersonate".to_owned(),
                group: String::new(),
                resource: "serviceaccounts".to_owned(),
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                groups,
            });
        }
        let object = &event["objectRef"];
        let resource = text(&object["resource"])?;
        Some(Self {
            verb: text(&event["verb"])?,
            group: text(&object["apiGroup"]).unwrap_or_default(),
            resource: match object["subresource"].as_str() {
                Some(sub) => format!("{resource}/{sub}"),
                None => resource,
            },
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            groups,
        })
    }

    /// Whether the API server would let the account do this now.
    pub(crate) async fn is_allowed(&self, rest: &Rest, account: &str) -> Result<bool> {
        let (resource, sub) = match self.resource.split_once('/') {
            Some((resource, sub)) => (resource, Some(sub)),
            None => (&*self.resource, None),
        };
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": account, "groups": self.groups, "resourceAttributes": {
                "verb": self.verb, "group": self.group, "resource": resource,
                "subresource": sub, "namespace": self.namespace, "name": self.name}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = rest.post(path, &review).await?.created()?;
        ensure!(answer["status"]["evaluationError"].is_null(), "{answer}");
        answer["status"]["allowed"].as_bool().context("no answer")
    }
}
