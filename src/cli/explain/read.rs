//! The objects that an explanation is made of.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use muster_api::cluster::ManagedCluster;
use muster_api::constants as names;
use muster_api::placement::{Placement, PlacementDecision};
use muster_api::replicaset::ManifestWorkReplicaSet;
use muster_api::rules::{ClusterWatchRule, WatchRule};
use muster_api::work::RawManifestWork;
use muster_core::explain::{
    Found, RuleSeen, SetSeen, WorkSeen, explain_owner, explain_rule, explain_set,
    explain_work_on_cluster,
};
use muster_core::replicaset::{PlacementRef, owner_label};
use serde::de::DeserializeOwned;

use super::Explained;
use crate::cli::access::{Access, is_missing};
use crate::cli::error::{CommandError, text};
use crate::cli::names::RuleArg;
use crate::cli::pages::{Notes, each, optional};
use crate::cli::set::Target;

/// Reads a set with its placements, their decisions, its works and their clusters.
pub(super) async fn set(target: &Target) -> Result<Explained, CommandError> {
    let set = target.get().await?;
    let Access { client, namespace } = &target.access;
    let mut notes = Notes::new();
    let references = PlacementRef::read_all(&set.spec.placement_refs);

    let api: Api<Placement> = Api::namespaced(client.clone(), namespace);
    let mut placements = BTreeMap::new();
    let mut decisions = Some(Vec::new());
    for PlacementRef { name, .. } in &references {
        let found = match api.get(name).await {
            Ok(placement) => Found::There(placement),
            Err(error) if is_missing(&error, name) => Found::Missing,
            Err(error) => {
                let why = text(&error);
                optional(
                    Err::<(), _>(error),
                    &format!("placement {name}"),
                    &mut notes,
                )?;
                Found::Unread(format!("it could not be read: {why}"))
            }
        };
        placements.insert(name.clone(), found);
        let of_it = ListParams::default().labels(&format!("{}={name}", names::PLACEMENT_LABEL));
        let api: Api<PlacementDecision> = Api::namespaced(client.clone(), namespace);
        let mut read = Vec::new();
        let listed = each(&api, &of_it, |decision| read.push(decision)).await;
        let what = format!("decisions of placement {name}");
        match optional(listed, &what, &mut notes)? {
            Some(()) => decisions.iter_mut().for_each(|all| all.append(&mut read)),
            None => decisions = None,
        }
    }

    let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
    let owner = owner_label(namespace, &target.name);
    let of_set = ListParams::default().labels(&format!("{label}={owner}"));
    let api: Api<RawManifestWork> = Api::all(client.clone());
    let mut works = Vec::new();
    each(&api, &of_set, |work| works.push(WorkSeen::read(work)))
        .await
        .map_err(|source| target.failed("list the works of", source))?;

    let api: Api<ManagedCluster> = Api::all(client.clone());
    let mut clusters = BTreeMap::new();
    let listed = each(&api, &ListParams::default(), |mut cluster| {
        cluster.metadata.managed_fields = None;
        clusters.insert(cluster.name_any(), cluster);
    })
    .await;
    optional(listed, "ManagedClusters", &mut notes)?;

    let tree = explain_set(&SetSeen {
        set,
        placements,
        decisions,
        works,
        clusters,
        now: Timestamp::now(),
    });
    Ok(Explained {
        tree,
        owner: None,
        notes,
    })
}

/// Reads a work, its cluster, and the set that made it.
pub(super) async fn work(access: &Access, name: &str) -> Result<Explained, CommandError> {
    let cluster = &access.namespace;
    let what = format!("work {cluster}/{name}");
    let work: RawManifestWork = one(access, name, &what).await?;
    let work = WorkSeen::read(work);
    let mut notes = Notes::new();

    let api: Api<ManagedCluster> = Api::all(access.client.clone());
    let managed = match api.get(cluster).await {
        Err(error) if is_missing(&error, cluster) => None,
        result => optional(result, &format!("ManagedCluster {cluster}"), &mut notes)?,
    };
    let label = work.label(names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY);
    let set = owner(access, label, &mut notes).await?;
    let status = set.as_ref().and_then(|set| set.status.as_ref());
    let message = status.map_or("", |status| &*status.message);
    Ok(Explained {
        tree: explain_work_on_cluster(&work, managed.as_ref(), message),
        owner: set.map(|set| explain_owner(&set, &work)),
        notes,
    })
}

/// The set that a label names. A namespace has no dots; a name may be cut, and then only comparing
/// tells.
async fn owner(
    access: &Access,
    label: &str,
    notes: &mut Notes,
) -> Result<Option<ManifestWorkReplicaSet>, CommandError> {
    let Some((namespace, name)) = label.split_once('.') else {
        return Ok(None);
    };
    let api: Api<ManifestWorkReplicaSet> = Api::namespaced(access.client.clone(), namespace);
    let what = format!("mwrs {label}");
    let name = if owner_label(namespace, name) == label && !is_cut(label) {
        Some(name.to_owned())
    } else {
        let mut found = None;
        let listed = each(&api, &ListParams::default(), |set| {
            let name = set.name_any();
            if owner_label(namespace, &name) == label {
                found = Some(name);
            }
        })
        .await;
        optional(listed, &what, notes)?;
        found
    };
    let Some(name) = name else {
        notes.push(format!("the set that made it, {label}, does not exist"));
        return Ok(None);
    };
    match api.get(&name).await {
        Err(error) if is_missing(&error, &name) => {
            notes.push(format!("the set that made it, {label}, does not exist"));
            Ok(None)
        }
        result => optional(result, &what, notes),
    }
}

/// Whether a label may be the cut form of a longer one.
fn is_cut(label: &str) -> bool {
    label.len() == muster_core::replicaset::MAX_LABEL_VALUE
}

/// Reads a rule of the kind that was asked for, or of the one that there is.
pub(super) async fn rule(access: &Access, asked: &RuleArg) -> Result<Explained, CommandError> {
    let RuleArg { cluster_wide, name } = asked;
    let what = format!("watchrule {}/{name}", access.namespace);
    let wide_what = format!("clusterwatchrule {name}");
    let narrow = async || {
        one::<WatchRule>(access, name, &what)
            .await
            .map(RuleSeen::from)
    };
    let wide = async || {
        let api: Api<ClusterWatchRule> = Api::all(access.client.clone());
        match api.get(name).await {
            Ok(rule) => Ok(RuleSeen::from(rule)),
            Err(error) if is_missing(&error, name) => {
                Err(CommandError::NotFound(wide_what.clone()))
            }
            Err(source) => Err(CommandError::Api {
                what: format!("read {wide_what}"),
                source,
            }),
        }
    };
    let rule = match cluster_wide {
        Some(false) => narrow().await?,
        Some(true) => wide().await?,
        None => match (narrow().await, wide().await) {
            (Ok(_), Ok(_)) => {
                return Err(CommandError::Refused(format!(
                    "there is {what} and {wide_what}: say which, as watchrule/{name} or \
                     clusterwatchrule/{name}"
                )));
            }
            (Ok(rule), Err(_)) | (Err(CommandError::NotFound(_)), Ok(rule)) => rule,
            (Err(CommandError::NotFound(_)), Err(CommandError::NotFound(_))) => {
                return Err(CommandError::NotFound(format!("{what} or {wide_what}")));
            }
            (Err(CommandError::NotFound(_)), Err(error)) | (Err(error), _) => return Err(error),
        },
    };
    Ok(Explained {
        tree: explain_rule(&rule),
        owner: None,
        notes: Notes::new(),
    })
}

/// Reads one object of the namespace.
async fn one<K>(access: &Access, name: &str, what: &str) -> Result<K, CommandError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(access.client.clone(), &access.namespace);
    match api.get(name).await {
        Ok(object) => Ok(object),
        Err(error) if is_missing(&error, name) => Err(access.missing(what).await),
        Err(source) => Err(CommandError::Api {
            what: format!("read {what}"),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use muster_api::work::ManifestWork;
    use muster_apiserver::{ApiServer, Storage};
    use serde_json::{Value, json};

    use super::*;

    /// A hub that has the definitions of works, and with `all` those of placements and clusters.
    async fn server(all: bool) -> ApiServer {
        let mut builder = ApiServer::builder().storage(Storage::Memory);
        for crd in muster_api::crds::hub() {
            if all || crd.spec.group == names::WORK_GROUP_NAME {
                builder = builder.crd(crd);
            }
        }
        builder.build().await.unwrap()
    }

    fn access(server: &ApiServer) -> Access {
        Access {
            client: server.client(),
            namespace: "default".to_owned(),
        }
    }

    async fn create<K>(server: &ApiServer, object: Value)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(server.client(), "default");
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn create_set(server: &ApiServer, name: &str) {
        let set = json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1",
            "kind": "ManifestWorkReplicaSet", "metadata": {"name": name},
            "spec": {"placementRefs": [{"name": "all"}]}});
        create::<ManifestWorkReplicaSet>(server, set).await;
    }

    /// A work in the cluster `default`, with this label of its owner.
    async fn create_work(server: &ApiServer, name: &str, owner: &str) {
        let label = names::MANIFEST_WORK_REPLICA_SET_CONTROLLER_NAME_LABEL_KEY;
        let work = json!({
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "metadata": {"name": name, "labels": {label: owner}}, "spec": {}});
        create::<ManifestWork>(server, work).await;
    }

    #[tokio::test]
    async fn the_set_that_made_a_work_is_found_by_its_label() {
        let server = server(true).await;
        let access = access(&server);
        let long = "x".repeat(80);
        for name in ["web", &long] {
            create_set(&server, name).await;
            let work = format!("of-{name}");
            create_work(&server, &work, &owner_label("default", name)).await;
            let explained = super::work(&access, &work).await.unwrap();
            let owner = explained.owner.map(|owner| owner.name);
            assert_eq!(owner.as_deref(), Some(name));
            assert!(explained.notes.is_empty(), "{:?}", explained.notes);
        }
        for (work, label) in [
            ("one", "default.gone".to_owned()),
            ("two", owner_label("default", &"y".repeat(80))),
        ] {
            create_work(&server, work, &label).await;
            let explained = super::work(&access, work).await.unwrap();
            assert_eq!(
                explained.notes,
                [format!("the set that made it, {label}, does not exist")]
            );
            assert!(explained.owner.is_none());
        }
        create_work(&server, "own", "").await;
        let explained = super::work(&access, "own").await.unwrap();
        assert!(explained.owner.is_none() && explained.notes.is_empty());
        server.shutdown().await;
    }

    #[tokio::test]
    async fn what_a_hub_does_not_have_is_noted() {
        let server = server(false).await;
        create_set(&server, "web").await;
        create_work(&server, "w", "").await;
        let target = Target {
            access: access(&server),
            name: "web".to_owned(),
        };
        let explained = set(&target).await.unwrap();
        let missing = "could not be read: 404 page not found";
        assert_eq!(
            explained.notes,
            [
                format!("placement all {missing}"),
                format!("decisions of placement all {missing}"),
                format!("ManagedClusters {missing}")
            ]
        );
        let placement = &explained.tree.children[0];
        assert_eq!(
            (placement.reason.as_str(), placement.message.as_str()),
            ("NotRead", "it could not be read: 404 page not found")
        );
        let explained = work(&target.access, "w").await.unwrap();
        assert_eq!(
            explained.notes,
            [format!("ManagedCluster default {missing}")]
        );
        server.shutdown().await;
    }
}
