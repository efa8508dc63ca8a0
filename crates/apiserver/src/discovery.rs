//! What the server serves: legacy and aggregated discovery, version.

use serde_json::{Value, json};

use crate::registry::{ResourceDef, Types, VersionDef, api_version};

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The same in the order in which the real server lists them for custom types.
const CUSTOM_VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// `/version`
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.0+muster-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|v| json!({"groupVersion": api_version(name, v), "version": v}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
}

/// `/apis`
pub(crate) fn groups(types: &Types) -> Value {
    let groups: Vec<Value> = types
        .groups()
        .iter()
        .map(|(name, v)| group(name, v))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`
pub(crate) fn one_group(types: &Types, name: &str) -> Option<Value> {
    let (name, versions) = types.groups().into_iter().find(|(g, _)| g == name)?;
    let mut value = group(&name, &versions);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    Some(value)
}

fn served<'a>(
    types: &'a Types,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a ResourceDef, &'a VersionDef)> {
    types
        .all
        .iter()
        .filter(move |d| d.group == group)
        .filter_map(move |d| d.version(version).map(|v| (&**d, v)))
}

fn verbs(def: &ResourceDef) -> Vec<&'static str> {
    match def.builtin {
        Some(builtin) if builtin.review => vec!["create"],
        Some(_) => VERBS.to_vec(),
        None => CUSTOM_VERBS.to_vec(),
    }
}

/// Subresources with the kind that they speak.
fn subresources(def: &ResourceDef, version: &VersionDef) -> Vec<(&'static str, Value)> {
    let own = |kind: &str| json!({"group": def.group, "version": version.name, "kind": kind});
    let mut found = Vec::new();
    if &*def.key == crate::builtin::NAMESPACES {
        found.push(("finalize", own("Namespace")));
    }
    if version.scale.is_some() {
        found.push((
            "scale",
            json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
        ));
    }
    if version.status {
        found.push(("status", own(&def.kind)));
    }
    found
}

fn subresource_verbs(name: &str) -> Vec<&'static str> {
    if name == "finalize" {
        vec!["update"]
    } else {
        vec!["get", "patch", "update"]
    }
}

/// `/api/v1` and `/apis/<group>/<version>`
pub(crate) fn resources(types: &Types, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for (def, served) in served(types, group, version) {
        let mut resource = json!({
            "name": def.plural, "singularName": def.singular, "namespaced": def.namespaced,
            "kind": def.kind, "verbs": verbs(def),
        });
        if !def.short_names.is_empty() {
            resource["shortNames"] = json!(def.short_names);
        }
        if !def.categories.is_empty() {
            resource["categories"] = json!(def.categories);
        }
        list.push(resource);
        for (name, kind) in subresources(def, served) {
            let mut resource = json!({
                "name": format!("{}/{name}", def.plural), "singularName": "",
                "namespaced": def.namespaced, "kind": kind["kind"],
                "verbs": subresource_verbs(name),
            });
            if name == "scale" {
                resource["group"] = kind["group"].clone();
                resource["version"] = kind["version"].clone();
            }
            list.push(resource);
        }
    }
    let known = !list.is_empty() || (group.is_empty() && version == "v1");
    known.then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": api_version(group, version), "resources": list,
        })
    })
}

/// `/api` and `/apis` in one answer with all resources; `core` says which of the two.
pub(crate) fn aggregated(types: &Types, core: bool) -> Value {
    let groups = if core {
        vec![(String::new(), vec!["v1".to_owned()])]
    } else {
        types.groups()
    };
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = served(types, group, version)
                        .map(|(def, served)| aggregated_resource(def, served))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(def: &ResourceDef, version: &VersionDef) -> Value {
    let scope = if def.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let mut resource = json!({
        "resource": def.plural,
        "responseKind": {"group": def.group, "version": version.name, "kind": def.kind},
        "scope": scope, "singularResource": def.singular, "verbs": verbs(def),
    });
    if !def.short_names.is_empty() {
        resource["shortNames"] = json!(def.short_names);
    }
    if !def.categories.is_empty() {
        resource["categories"] = json!(def.categories);
    }
    let subresources: Vec<Value> = subresources(def, version)
        .into_iter()
        .map(|(name, kind)| {
            json!({"subresource": name, "responseKind": kind, "verbs": subresource_verbs(name)})
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}
