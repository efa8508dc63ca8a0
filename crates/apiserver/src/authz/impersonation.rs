//! Acting as somebody else, by the `Impersonate-*` headers.
//!
//! Since Kubernetes 1.36 there are two ways to be allowed to: the old verb `impersonate` on each
//! part of the other identity, and one that depends on the request too. For that the user needs
//! `impersonate-on:MODE:VERB` on what the request asks for, and `impersonate:MODE` on each part.

use http::HeaderMap;

use super::attributes::{Attributes, ResourceAccess};
use super::user::{MASTERS, UserInfo, service_account_groups, split_service_account};
use crate::http::query::decode_percent;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};

const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// Whom the headers name, as they name it.
pub(crate) fn wanted(headers: &HeaderMap) -> ApiResult<Option<UserInfo>> {
    let texts = |name: &str| -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect()
    };
    let first = |name| texts(name).into_iter().next().unwrap_or_default();
    let mut wanted = UserInfo {
        username: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        ..UserInfo::default()
    };
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            wanted
                .extra
                .entry(decode_percent(key).to_ascii_lowercase())
                .or_default()
                .extend(texts(name.as_str()));
        }
    }
    if !wanted.username.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == UserInfo::default() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!(
        "requested {} without impersonating a user name",
        as_go_prints(&wanted)
    )))
}

/// The user as Go's `%#v` prints it.
fn as_go_prints(user: &UserInfo) -> String {
    let strings = |values: &[String]| {
        let values: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
        format!("[]string{{{}}}", values.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        strings(&user.groups)
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let pairs = user.extra.iter();
        let pairs: Vec<String> = pairs
            .map(|(key, values)| format!("{key:?}:{}", strings(values)))
            .collect();
        format!("map[string][]string{{{}}}", pairs.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}",
        user.username, user.uid
    )
}

/// A way to be allowed to act as somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Depends on the request.
    Constrained(&'static str),
    /// The verb `impersonate` alone.
    Legacy,
}

impl Mode {
    fn verb(self) -> String {
        match self {
            Self::Constrained(mode) => format!("impersonate:{mode}"),
            Self::Legacy => "impersonate".to_owned(),
        }
    }

    /// The group that users and groups are resources of.
    fn group(self) -> &'static str {
        match self {
            Self::Constrained(_) => AUTHENTICATION,
            Self::Legacy => "",
        }
    }
}

/// The identity asked for, complete, provided that `requestor` may take it.
///
/// Differs from the real server: that one tries first what it allowed this user last time, so
/// its refusal may be about the other of the two ways.
pub(crate) fn impersonate(
    server: &Inner,
    requestor: &UserInfo,
    wanted: &UserInfo,
    asked: &Attributes,
) -> ApiResult<UserInfo> {
    constrained(server, requestor, wanted, asked).or_else(|refusal| {
        authorize(server, requestor, wanted, Mode::Legacy)
            .map_err(|legacy| refusal.unwrap_or(legacy))
    })
}

/// Tries the way that depends on the request; no error when there is none to this identity.
fn constrained(
    server: &Inner,
    requestor: &UserInfo,
    wanted: &UserInfo,
    asked: &Attributes,
) -> Result<UserInfo, Option<ApiError>> {
    let name_only = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
    let special = if node_name(&wanted.username).is_some() {
        Some("arbitrary-node")
    } else {
        split_service_account(&wanted.username).map(|_| "serviceaccount")
    };
    let mode = match special {
        Some(mode) if name_only => mode,
        Some(_) => return Err(None),
        None => "user-info",
    };
    let on = asked.with_verb(|verb| format!("impersonate-on:{mode}:{verb}"));
    server.require(requestor, &on).map_err(Some)?;
    authorize(server, requestor, wanted, Mode::Constrained(mode)).map_err(Some)
}

fn node_name(username: &str) -> Option<&str> {
    username
        .strip_prefix(NODE_PREFIX)
        .filter(|name| crate::validation::is_dns_subdomain(name))
}

fn authorize(
    server: &Inner,
    requestor: &UserInfo,
    wanted: &UserInfo,
    mode: Mode,
) -> ApiResult<UserInfo> {
    let access = |group: &str, resource: &str, name: &str| ResourceAccess {
        verb: mode.verb(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..ResourceAccess::default()
    };
    let require = |access: ResourceAccess| server.require(requestor, &Attributes::Resource(access));
    let refuse = |access: ResourceAccess, why: &str| {
        Err(Attributes::Resource(access).forbidden(requestor, why))
    };
    let constrained = mode != Mode::Legacy;
    let mut user = wanted.clone();

    let mut identity = access(mode.group(), "users", &wanted.username);
    if let Some((namespace, name)) = split_service_account(&wanted.username) {
        let mut account = access(mode.group(), "serviceaccounts", name);
        namespace.clone_into(&mut account.namespace);
        identity = account;
        if wanted.groups.is_empty() {
            user.groups = service_account_groups(namespace);
        }
    } else if let Some(node) = node_name(&wanted.username).filter(|_| constrained) {
        identity = access(mode.group(), "nodes", node);
        user.groups = vec![NODES.to_owned()];
    }
    require(identity)?;
    if !wanted.uid.is_empty() {
        require(access(AUTHENTICATION, "uids", &wanted.uid))?;
    }
    let has = |group: &str| wanted.groups.iter().any(|g| g == group);
    if constrained && has("") {
        return refuse(
            access(mode.group(), "groups", ""),
            "impersonating the empty string group is not allowed",
        );
    }
    if constrained && has(MASTERS) {
        return refuse(
            access(mode.group(), "groups", MASTERS),
            "impersonating the system:masters group is not allowed",
        );
    }
    for group in &wanted.groups {
        require(access(mode.group(), "groups", group))?;
    }
    for (key, values) in &wanted.extra {
        if constrained && !is_domain_prefixed(key) {
            return refuse(
                access(AUTHENTICATION, "userextras", ""),
                &format!(
                    "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: must be a domain-prefixed path (such as \"acme.io/foo\")"
                ),
            );
        }
        for value in values {
            let mut extra = access(AUTHENTICATION, "userextras", value);
            key.clone_into(&mut extra.subresource);
            require(extra)?;
        }
    }
    Ok(user.authenticated())
}

fn is_domain_prefixed(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, path)| {
        crate::validation::is_dns_subdomain(domain) && !path.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn of(headers: &[(&str, &str)]) -> ApiResult<Option<UserInfo>> {
        wanted(&map(headers))
    }

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        map
    }

    #[test]
    fn headers_name_an_identity() {
        let got = of(&[
            ("Impersonate-User", "v"),
            ("Impersonate-Group", "g"),
            ("Impersonate-Group", "h"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Example.io%2fTenant", "blue"),
        ]);
        let mut want = UserInfo::new("v").group("g").group("h");
        want.uid = "7".to_owned();
        want.extra
            .insert("example.io/tenant".to_owned(), vec!["blue".to_owned()]);
        assert_eq!(got.unwrap(), Some(want));
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[("Impersonate-User", "")]).unwrap(), None);
    }

    #[test]
    fn an_identity_needs_a_user() {
        let cases = [
            (
                ("Impersonate-Group", "g"),
                r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name"#,
            ),
            (
                ("Impersonate-Extra-a", "g"),
                r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"g"}}} without impersonating a user name"#,
            ),
        ];
        for (header, message) in cases {
            let error = of(&[header]).unwrap_err();
            assert_eq!(
                (error.reason, error.message.as_str()),
                ("BadRequest", message)
            );
        }
    }
}
