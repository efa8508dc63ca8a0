//! In which version a type is served, when it is not in the one that is known.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::api::GetParams;
use kube::core::Request;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::calls::{ApiError, Calls, Lookup};

/// Where objects of a type can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Served {
    /// In this version.
    In(String),
    /// In none, but the type is there, and so may be its objects.
    Nowhere,
    /// The type is gone, and its objects with it.
    Gone,
}

/// Asks the server which versions of a group have a resource, the preferred one first.
pub(super) async fn served(calls: &Calls, group: &str, resource: &str) -> Result<Served, ApiError> {
    for version in versions(calls, group).await? {
        let path = match group {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        let Some(list) = get::<APIResourceList>(calls, &path, &version).await? else {
            continue;
        };
        if list.resources.iter().any(|known| known.name == resource) {
            return Ok(Served::In(version));
        }
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let name = format!("{resource}.{group}");
    match get::<IgnoredAny>(calls, definitions, &name).await {
        Ok(Some(_)) => Ok(Served::Nowhere),
        Ok(None) => Ok(Served::Gone),
        // Who may not read definitions goes by what is served.
        Err(error) if error.is_forbidden() => Ok(Served::Gone),
        Err(error) => Err(error),
    }
}

async fn versions(calls: &Calls, group: &str) -> Result<Vec<String>, ApiError> {
    if group.is_empty() {
        return Ok(vec!["v1".to_owned()]);
    }
    let Some(found) = get::<APIGroup>(calls, "/apis", group).await? else {
        return Ok(Vec::new());
    };
    let preferred = found.preferred_version.into_iter();
    let all = preferred.chain(found.versions);
    let mut versions: Vec<String> = Vec::new();
    for version in all {
        if !versions.contains(&version.version) {
            versions.push(version.version);
        }
    }
    Ok(versions)
}

async fn get<T: DeserializeOwned>(
    calls: &Calls,
    path: &str,
    name: &str,
) -> Result<Option<T>, ApiError> {
    let request = Request::new(path).get(name, &GetParams::default());
    match Lookup::of(calls.send(request).await)? {
        Lookup::Found(found) => Ok(Some(found)),
        Lookup::NoObject | Lookup::NoRoute => Ok(None),
    }
}
