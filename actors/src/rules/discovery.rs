//! What the API server serves.
//!
//! One pair of requests with aggregated discovery (Kubernetes 1.30 and later); else one for each
//! group version. A group version that does not answer is told as that, never as gone: an aggregated
//! API that is down must not end the watches of its types.

use http::header::ACCEPT;
use http::{Method, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::Client;
use muster_core::watch_rules::{Answer, FoundResource, GroupVersion, Scan};
use serde::Deserialize;

/// Aggregated discovery, or what was before it.
const ACCEPTED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                        application/json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "version")]
    name: String,
    #[serde(default)]
    resources: Vec<Served>,
    /// `Current`, or `Stale` where the group's server does not answer.
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    resource: String,
    #[serde(default)]
    response_kind: Kind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize, Default)]
struct Kind {
    #[serde(default)]
    kind: String,
}

/// Asks what the API server serves.
///
/// # Errors
///
/// The server does not answer at all: nothing is known.
pub(super) async fn scan(client: &Client) -> Result<Scan, kube::Error> {
    let core = ask(client, "/api").await?;
    let groups = ask(client, "/apis").await?;
    if [&core, &groups]
        .iter()
        .all(|it| it.kind == "APIGroupDiscoveryList")
    {
        return Ok(aggregated(core.items.into_iter().chain(groups.items)));
    }
    one_by_one(client).await
}

async fn ask(client: &Client, path: &str) -> Result<Discovered, kube::Error> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(ACCEPT, ACCEPTED)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

fn aggregated(groups: impl Iterator<Item = Group>) -> Scan {
    let mut scan = Scan {
        complete: true,
        ..Scan::default()
    };
    for Group { metadata, versions } in groups {
        for (index, version) in versions.into_iter().enumerate() {
            let resources = if version.freshness == "Stale" {
                Err("its server does not answer".to_owned())
            } else {
                let found = version.resources.into_iter().map(|served| FoundResource {
                    resource: served.resource,
                    kind: served.response_kind.kind,
                    namespaced: served.scope == "Namespaced",
                    verbs: served.verbs.into_iter().collect(),
                });
                Ok(found.collect())
            };
            let answer = Answer {
                // Versions come in the order of the group's preference.
                preferred: index == 0,
                resources,
            };
            let group_version = GroupVersion::new(&metadata.name, &version.name);
            scan.answers.insert(group_version, answer);
        }
    }
    scan
}

async fn one_by_one(client: &Client) -> Result<Scan, kube::Error> {
    let APIGroupList { groups, .. } = client.list_api_groups().await?;
    let mut scan = Scan {
        complete: true,
        ..Scan::default()
    };
    let core = client.list_core_api_resources("v1").await;
    scan.answers
        .insert(GroupVersion::new("", "v1"), answer(true, core));
    for group in groups {
        let preferred = group.preferred_version.map(|version| version.version);
        for version in group.versions {
            let is_preferred = preferred.as_ref().is_none_or(|own| *own == version.version);
            let listed = client
                .list_api_group_resources(&version.group_version)
                .await;
            let group_version = GroupVersion::new(&group.name, &version.version);
            scan.answers
                .insert(group_version, answer(is_preferred, listed));
        }
    }
    Ok(scan)
}

fn answer(preferred: bool, listed: Result<APIResourceList, kube::Error>) -> Answer {
    let found = |list: APIResourceList| {
        let found = list.resources.into_iter().map(|served| FoundResource {
            resource: served.name,
            kind: served.kind,
            namespaced: served.namespaced,
            verbs: served.verbs.into_iter().collect(),
        });
        found.collect()
    };
    Answer {
        preferred,
        resources: listed.map(found).map_err(|error| error.to_string()),
    }
}
