//! Revisions of a set's template, as ControllerRevisions in its namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response, StatusCode};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::client::Body;

use super::*;

impl Hub {
    fn revisions(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// What the revisions of the set are: number, value in the template, and cause.
    pub(super) async fn history(&self, set: &str) -> Vec<(i64, String, Option<String>)> {
        let label = format!("{}=default.{set}", names::REPLICA_SET_REVISION_LABEL);
        let list = self
            .revisions()
            .list(&ListParams::default().labels(&label))
            .await
            .unwrap();
        let mut history: Vec<_> = list.items.iter().map(told).collect();
        history.sort();
        history
    }

    async fn history_is(&self, expected: &[(i64, &str)]) {
        eventually("the revisions are as expected", || async {
            let history = self.history("web").await;
            let seen: Vec<_> = history.iter().map(|(n, v, _)| (*n, v.as_str())).collect();
            if seen == expected {
                Ok(())
            } else {
                Err(history.clone())
            }
        })
        .await;
    }

    async fn give(&self, value: &str) {
        self.patch_set(
            "web",
            json!({"spec": {"manifestWorkTemplate": template(value)}}),
        )
        .await;
    }

    async fn annotate(&self, name: &str, value: Value) {
        self.patch_set("web", json!({"metadata": {"annotations": {name: value}}}))
            .await;
    }

    async fn message_is(&self, fits: impl Fn(&str) -> bool) -> String {
        eventually("the message is as expected", || async {
            let message = self.status("web").await.message;
            if fits(&message) {
                Ok(message)
            } else {
                Err(message)
            }
        })
        .await
    }

    async fn with_a_set(clusters: usize) -> Self {
        Self::with_a_set_through(clusters, Clone::clone, HubSettings::default()).await
    }

    async fn with_a_set_through(
        clusters: usize,
        through: impl FnOnce(&Client) -> Client,
        settings: HubSettings,
    ) -> Self {
        let hub = Self::start_with(clusters, through, settings).await;
        hub.place("all", json!({})).await;
        hub.create_set("web", &["all"], json!({})).await;
        hub
    }
}

fn told(revision: &ControllerRevision) -> (i64, String, Option<String>) {
    let value = revision
        .data
        .0
        .pointer("/spec/manifestWorkTemplate/workload/manifests/0/data/key");
    (
        revision.revision.unwrap(),
        value.unwrap().as_str().unwrap().to_owned(),
        revision
            .annotations()
            .get(names::CHANGE_CAUSE_ANNOTATION)
            .cloned(),
    )
}

/// A client that may not touch revisions by these methods while it is told so.
fn without_right(client: &Client, refuses: &Arc<AtomicBool>, methods: &'static [&str]) -> Client {
    let (client, refuses) = (client.clone(), Arc::clone(refuses));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, refuses) = (client.clone(), Arc::clone(&refuses));
        async move {
            let concerned = request.uri().path().contains("controllerrevisions")
                && methods.contains(&request.method().as_str());
            if concerned && refuses.load(Ordering::SeqCst) {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "reason": "Forbidden", "code": 403,
                    "message": "controllerrevisions.apps is forbidden: no right"});
                let body = Body::from(status.to_string().into_bytes());
                let response = Response::builder().status(StatusCode::FORBIDDEN);
                return Ok::<_, kube::Error>(response.body(body).unwrap());
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[actix::test]
async fn each_template_has_a_revision_and_one_of_before_moves() {
    let hub = Hub::with_a_set(1).await;
    hub.history_is(&[(1, "one")]).await;
    let list = hub.revisions().list(&ListParams::default()).await.unwrap();
    let (revision, set) = (&list.items[0], hub.sets().get("web").await.unwrap());
    assert!(
        revision.name_any().starts_with("web-"),
        "{}",
        revision.name_any()
    );
    assert_eq!(
        revision.data.0,
        json!({"spec": {"manifestWorkTemplate": template("one")}})
    );
    let owner = &revision.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.controller),
        ("ManifestWorkReplicaSet", "web", Some(true))
    );
    assert_eq!(Some(&owner.uid), set.metadata.uid.as_ref());
    assert_eq!(
        owner.api_version,
        "work.open-cluster-management.io/v1alpha1"
    );

    hub.give("two").await;
    hub.history_is(&[(1, "one"), (2, "two")]).await;
    hub.give("three").await;
    hub.history_is(&[(1, "one"), (2, "two"), (3, "three")])
        .await;
    hub.give("one").await;
    hub.history_is(&[(2, "two"), (3, "three"), (4, "one")])
        .await;
    // What is no change of the template is no revision.
    hub.patch_set(
        "web",
        json!({"spec": {"cascadeDeletionPolicy": "Foreground"}}),
    )
    .await;
    hub.annotate(names::CHANGE_CAUSE_ANNOTATION, json!("as it was"))
        .await;
    eventually("the cause is copied", || async {
        let history = hub.history("web").await;
        if history[2] == (4, "one".into(), Some("as it was".into())) {
            Ok(())
        } else {
            Err(history)
        }
    })
    .await;
    let numbers: Vec<_> = hub.history("web").await.into_iter().map(|r| r.0).collect();
    assert_eq!(numbers, [2, 3, 4]);
    hub.patch_set(
        "web",
        json!({"metadata": {"annotations": {names::CHANGE_CAUSE_ANNOTATION: "new"}},
            "spec": {"manifestWorkTemplate": template("four")}}),
    )
    .await;
    hub.history_is(&[(2, "two"), (3, "three"), (4, "one"), (5, "four")])
        .await;
    let causes: Vec<_> = hub.history("web").await.into_iter().map(|r| r.2).collect();
    assert_eq!(
        causes,
        [None, None, Some("as it was".into()), Some("new".into())]
    );
    hub.stop().await;
}

#[actix::test]
async fn as_many_old_ones_are_kept_as_the_set_asks_for() {
    let hub = Hub::with_a_set(1).await;
    hub.history_is(&[(1, "one")]).await;
    hub.annotate(names::REVISION_HISTORY_LIMIT_ANNOTATION, json!("1"))
        .await;
    for (number, value) in [(2, "two"), (3, "three")] {
        hub.give(value).await;
        eventually("the new one is there", || async {
            let history = hub.history("web").await;
            match history.last() {
                Some((n, v, _)) if *n == number && v == value => Ok(()),
                _ => Err(history),
            }
        })
        .await;
    }
    hub.history_is(&[(2, "two"), (3, "three")]).await;
    // An annotation that is no number keeps ten and says so; it changes nothing else.
    hub.annotate(names::REVISION_HISTORY_LIMIT_ANNOTATION, json!("few"))
        .await;
    let message = hub
        .message_is(|message| message.contains("revision-history-limit"))
        .await;
    assert!(
        message.ends_with(
            "; annotation muster.dev/revision-history-limit is \"few\" and not a number of \
             revisions: 10 are kept"
        ),
        "{message}"
    );
    hub.give("four").await;
    hub.history_is(&[(2, "two"), (3, "three"), (4, "four")])
        .await;
    hub.annotate(names::REVISION_HISTORY_LIMIT_ANNOTATION, json!("0"))
        .await;
    hub.history_is(&[(4, "four")]).await;
    hub.message_is(|message| !message.contains("revision"))
        .await;
    hub.stop().await;
}

#[actix::test]
async fn a_template_that_no_work_gets_is_no_revision() {
    let hub = Hub::with_a_set(1).await;
    hub.history_is(&[(1, "one")]).await;
    hub.annotate(names::PAUSED_ANNOTATION, json!("true")).await;
    hub.give("two").await;
    hub.give("three").await;
    let generation = hub.sets().get("web").await.unwrap().metadata.generation;
    eventually("the hub has seen the template", || async {
        let status = hub.status("web").await;
        let seen = status.conditions.iter().map(|c| c.observed_generation);
        let seen: Vec<_> = seen.collect();
        if seen.iter().all(|seen| *seen == generation) {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    hub.history_is(&[(1, "one")]).await;
    hub.annotate(names::PAUSED_ANNOTATION, Value::Null).await;
    hub.history_is(&[(1, "one"), (2, "three")]).await;
    hub.stop().await;
}

#[actix::test]
async fn who_may_not_write_revisions_rolls_out_says_so_and_makes_up_for_it() {
    let refuses = Arc::new(AtomicBool::new(true));
    let through = |client: &Client| without_right(client, &refuses, &["POST"]);
    let hub = Hub::with_a_set_through(2, through, HubSettings::default()).await;
    for work in hub.works_are_in(&["c1", "c2"]).await {
        hub.report(&work, &[("Applied", "True"), ("Available", "True")], 1)
            .await;
    }
    let message = hub
        .message_is(|message| message.starts_with("ManifestWorks available in 2/2 clusters; "))
        .await;
    assert_eq!(
        message,
        "ManifestWorks available in 2/2 clusters; revisions are not kept: \
         controllerrevisions.apps is forbidden: no right"
    );
    assert_eq!(
        hub.status("web").await.phase,
        Some(ReplicaSetPhase::Ready),
        "the rollout itself is done"
    );
    refuses.store(false, Ordering::SeqCst);
    hub.history_is(&[(1, "one")]).await;
    hub.message_is(|message| message == "ManifestWorks available in 2/2 clusters")
        .await;
    hub.stop().await;
}

#[actix::test]
async fn a_hub_that_starts_again_writes_none_of_what_there_is() {
    let hub = Hub::with_a_set(1).await;
    hub.history_is(&[(1, "one")]).await;
    hub.give("two").await;
    hub.history_is(&[(1, "one"), (2, "two")]).await;
    hub.works_are_in(&["c1"]).await;
    // All that the change asks for is done: what is not, the next hub would do.
    eventually("the change has reached the work and the status", || async {
        let set = hub.sets().get("web").await.unwrap();
        let status = set.status.unwrap_or_default();
        let ready = conditions::find(&status.conditions, "Ready");
        let observed = ready.and_then(|ready| ready.observed_generation);
        if status.summary.updated == 1 && observed == set.metadata.generation {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    assert!(stop(&hub.sets, Duration::from_secs(10)).await);
    let before = hub.revisions().list(&ListParams::default()).await.unwrap();
    let writes = || {
        let stats = hub.api.stats();
        ["create", "update", "patch", "delete"].map(|verb| stats.count_verb(verb))
    };
    let counted = writes();
    let sets = ReplicaSets::start(HubDeps {
        client: hub.client.clone(),
        io: Io::current(),
        registry: hub.registry.clone(),
        health: hub.health.clone(),
        agents: None,
        events: None,
        settings: HubSettings::default(),
    });
    // By the time a new set has its revision, the old one has been looked at.
    hub.create_set("other", &["none"], json!({})).await;
    eventually("another set has its revision and status", || async {
        let status = hub.status("other").await.message;
        let history = hub.history("other").await;
        if history.len() == 1 && !status.is_empty() {
            Ok(())
        } else {
            Err((history, status))
        }
    })
    .await;
    let after = hub.revisions().list(&ListParams::default()).await.unwrap();
    let of_web = |list: &kube::core::ObjectList<ControllerRevision>| -> Vec<_> {
        let ours = list
            .items
            .iter()
            .filter(|r| r.name_any().starts_with("web"));
        ours.cloned().collect()
    };
    assert_eq!(of_web(&before), of_web(&after));
    // The set and its revision; a finalizer and a status.
    let now = writes();
    assert_eq!((now[0] - counted[0], now[2] - counted[2]), (2, 2));
    // It knows what there was.
    hub.give("one").await;
    hub.history_is(&[(2, "two"), (3, "one")]).await;
    assert!(stop(&sets, Duration::from_secs(10)).await);
    hub.stop().await;
}

#[actix::test]
async fn a_revision_that_somebody_deleted_comes_back() {
    let settings = HubSettings {
        self_check: Duration::from_millis(100),
        ..HubSettings::default()
    };
    let hub = Hub::with_a_set_through(1, Clone::clone, settings).await;
    hub.history_is(&[(1, "one")]).await;
    let name = hub
        .revisions()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items[0]
        .name_any();
    hub.revisions()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    hub.history_is(&[(1, "one")]).await;
    hub.stop().await;
}

#[actix::test]
async fn a_foreign_object_of_the_same_name_stays_and_is_told() {
    let refuses = Arc::new(AtomicBool::new(true));
    let through = |client: &Client| without_right(client, &refuses, &["POST"]);
    let hub = Hub::with_a_set_through(1, through, HubSettings::default()).await;
    let set = hub.sets().get("web").await.unwrap();
    let hash = muster_core::apply::spec_hash(&set.spec.manifest_work_template).unwrap();
    let uid = set.metadata.uid.unwrap();
    let name = muster_core::replicaset::revision_name("web", &uid, &hash);
    let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"namespace": "default", "name": name}, "data": {}, "revision": 7});
    let foreign = serde_json::from_value(foreign).unwrap();
    let foreign = hub
        .revisions()
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    refuses.store(false, Ordering::SeqCst);
    let expected = format!(
        "revisions are not kept: ControllerRevision default/{name} exists and does not belong to \
         this replica set"
    );
    hub.message_is(|message| message.contains(&expected)).await;
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    hub.set_is_gone().await;
    assert_eq!(hub.revisions().get(&name).await.unwrap(), foreign);
    hub.stop().await;
}

impl Hub {
    async fn set_is_gone(&self) {
        eventually("the set is gone", || async {
            match self.sets().get_opt("web").await.unwrap() {
                None => Ok(()),
                Some(set) => Err(set.status.unwrap_or_default().message),
            }
        })
        .await;
    }
}

#[actix::test]
async fn revisions_go_before_their_set() {
    let hub = Hub::with_a_set(1).await;
    hub.history_is(&[(1, "one")]).await;
    hub.give("two").await;
    hub.history_is(&[(1, "one"), (2, "two")]).await;
    // One with the label, of somebody else.
    let label = json!({names::REPLICA_SET_REVISION_LABEL: "default.web"});
    let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"namespace": "default", "name": "foreign", "labels": label},
        "data": {}, "revision": 7});
    hub.revisions()
        .create(
            &PostParams::default(),
            &serde_json::from_value(foreign).unwrap(),
        )
        .await
        .unwrap();
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    hub.set_is_gone().await;
    let left = hub.revisions().list(&ListParams::default()).await.unwrap();
    let left: Vec<_> = left.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["foreign"], "nothing is left when the set is gone");
    hub.stop().await;
}

#[actix::test]
async fn who_may_not_delete_revisions_can_delete_the_set() {
    let refuses = Arc::new(AtomicBool::new(true));
    let through = |client: &Client| without_right(client, &refuses, &["DELETE"]);
    let hub = Hub::with_a_set_through(1, through, HubSettings::default()).await;
    hub.history_is(&[(1, "one")]).await;
    hub.sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    hub.set_is_gone().await;
    assert_eq!(hub.history("web").await.len(), 1, "left for a collector");
    // A new set of that name begins anew.
    refuses.store(false, Ordering::SeqCst);
    hub.create_set("web", &["all"], json!({})).await;
    hub.history_is(&[(1, "one"), (1, "one")]).await;
    hub.give("two").await;
    hub.history_is(&[(1, "one"), (1, "one"), (2, "two")]).await;
    hub.stop().await;
}
