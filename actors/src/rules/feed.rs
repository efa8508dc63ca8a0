//! From what a watch shows to what sinks are told of it.
//!
//! A [`Feed`] listens to one area for all sinks that want something of it. An object is decoded and
//! stripped of what servers set once, whatever the number of sinks, and only if a rule wants it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::api::ListParams;
use muster_core::manifest::Gvk;
use muster_core::rule_events::{FIRST_LOOK, ObjectKey, Operation, State};
use muster_core::watch_rules::{Audience, Ordered, content_hash, sanitize};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::event_queue::Look;
use super::outlet::{Doubt, Outlet, Shown};
use crate::watch::{Area, AreaListener, Listed, WatchedObject, api_of, api_version};

/// Objects in one answer of a list.
const PAGE: u32 = 500;
/// How often a look at an area that is behind sees whether its sink has room again.
const EASE: Duration = Duration::from_millis(50);
/// How long the API server may take for an answer; a list's first page may be long in coming.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// One sink, and the rules because of which it wants something of an area.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) outlet: Arc<Outlet>,
    pub(super) audience: Audience,
}

/// Everything in one area, for the sinks that want it. See the module.
#[derive(Debug)]
pub(super) struct Feed {
    area: Area,
    kind: Arc<str>,
    routes: Mutex<Arc<[Route]>>,
    changed: Arc<Notify>,
}

impl Feed {
    pub(super) fn new(
        area: Area,
        kind: Arc<str>,
        routes: Vec<Route>,
        changed: Arc<Notify>,
    ) -> Self {
        Self {
            area,
            kind,
            routes: Mutex::new(routes.into()),
            changed,
        }
    }

    pub(super) const fn kind(&self) -> &Arc<str> {
        &self.kind
    }

    pub(super) fn set_routes(&self, routes: Vec<Route>) {
        *self.routes.lock().unwrap_or_else(PoisonError::into_inner) = routes.into();
    }

    fn routes(&self) -> Arc<[Route]> {
        let routes: MutexGuard<'_, Arc<[Route]>> =
            self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&routes)
    }

    /// The route to this sink, if the area still has one.
    fn route_to(&self, outlet: &Outlet) -> Option<Route> {
        let routes = self.routes();
        let mut routes = routes.iter();
        routes
            .find(|route| std::ptr::eq(Arc::as_ptr(&route.outlet), outlet))
            .cloned()
    }

    fn key(&self, object: &WatchedObject) -> ObjectKey {
        ObjectKey {
            resource: self.area.resource.clone(),
            namespace: object.namespace().into(),
            name: object.name().into(),
        }
    }

    /// Tells these sinks of a state that a watch or a look shows.
    fn show(&self, routes: &[Route], watch: u64, object: &WatchedObject) {
        let key = self.key(object);
        let decoded = object.decode(&api_version(&self.area.resource), &self.kind);
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                warn!(object = %key, %error, "failed to parse object, no sink hears of it");
                return;
            }
        };
        let meta = &decoded["metadata"];
        let uid: Arc<str> = meta["uid"].as_str().unwrap_or_default().into();
        // What is on its way out is gone as far as anybody wants it.
        let going = !meta["deletionTimestamp"].is_null();
        let labels: BTreeMap<String, String> = meta["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())))
            .collect();
        let (namespace, version) = (object.namespace(), object.version());
        let mut prepared: Option<(Arc<str>, [u8; 32])> = None;
        for route in routes {
            let (outlet, audience) = (&route.outlet, &route.audience);
            let of_namespace = (!namespace.is_empty()).then_some(namespace);
            let interest = audience.of(of_namespace, &labels);
            let Some(interest) = interest.filter(|_| !going) else {
                let wanted = audience.all();
                outlet.unwanted(&self.area, key.clone(), &self.kind, version, wanted);
                continue;
            };
            let (text, hash) = prepared.get_or_insert_with(|| {
                let gvk = Gvk {
                    group: self.area.resource.group(),
                    version: self.area.resource.version(),
                    kind: &self.kind,
                };
                let bare = sanitize(&decoded, gvk);
                (text_of(&bare), content_hash(&bare))
            });
            let shown = Shown {
                key: key.clone(),
                kind: Arc::clone(&self.kind),
                state: State {
                    uid: Arc::clone(&uid),
                    version,
                    hash: *hash,
                    on_delete: Arc::clone(interest.of(Operation::Delete)),
                },
                object: Arc::clone(text),
            };
            outlet.wanted(&self.area, watch, shown, &interest);
        }
    }
}

/// What the API server answers, or why it does not.
async fn answer<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_LIMIT, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {ANSWER_LIMIT:?}")),
    }
}

/// As people would write it.
fn text_of(object: &Value) -> Arc<str> {
    // An object that was decoded always has a text.
    let text = serde_json::to_string(&Ordered(object)).unwrap_or_else(|_| object.to_string());
    text.into()
}

impl AreaListener for Feed {
    fn listing(&self, watch: u64) {
        for route in self.routes().iter() {
            route.outlet.listing(&self.area, watch);
        }
    }

    fn seen(&self, watch: u64, object: &Arc<WatchedObject>) {
        self.show(&self.routes(), watch, object);
    }

    fn gone(&self, last: &Arc<WatchedObject>) {
        let key = self.key(last);
        for route in self.routes().iter() {
            let (outlet, wanted) = (&route.outlet, route.audience.all());
            outlet.unwanted(&self.area, key.clone(), &self.kind, last.version(), wanted);
        }
    }

    fn listed(&self, watch: u64, listed: &Listed) {
        for route in self.routes().iter() {
            let (outlet, wanted) = (&route.outlet, route.audience.all());
            outlet.listed(&self.area, watch, listed, &self.kind, wanted);
        }
    }

    fn coverage_changed(&self) {
        self.changed.notify_one();
    }
}

/// The feeds of a cluster, by area, and a look at the cluster for one of them.
#[derive(Debug)]
pub(super) struct Feeds {
    client: ClientOf,
    by_area: Mutex<HashMap<Area, Arc<Feed>>>,
    /// The number of the next look.
    looks: AtomicU64,
}

/// A client shows nothing of itself.
struct ClientOf(Client);

impl std::fmt::Debug for ClientOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Feeds {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client: ClientOf(client),
            by_area: Mutex::default(),
            looks: AtomicU64::new(FIRST_LOOK),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Area, Arc<Feed>>> {
        self.by_area.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, feed: Arc<Feed>) {
        self.lock().insert(feed.area.clone(), feed);
    }

    pub(super) fn remove(&self, area: &Area) {
        self.lock().remove(area);
    }

    /// The feed of an area and its route to a sink, unless it has ended.
    fn of(&self, area: &Area, outlet: &Outlet) -> Option<(Arc<Feed>, Route)> {
        let feed = Arc::clone(self.lock().get(area)?);
        let route = feed.route_to(outlet)?;
        Some((feed, route))
    }
}

impl Look for Feeds {
    fn settle<'a>(&'a self, outlet: &'a Outlet, doubt: &'a Doubt) -> BoxFuture<'a, ()> {
        async move {
            let api = api_of(
                self.client.0.clone(),
                &doubt.area.resource,
                Some(&doubt.namespace),
            );
            let read = answer(api.get_opt(&doubt.name)).await;
            let Some((feed, route)) = self.of(&doubt.area, outlet) else {
                return; // nobody wants to know any more
            };
            match read {
                Ok(Some(object)) => feed.show(&[route], FIRST_LOOK, &object),
                Ok(None) => outlet.absent(doubt, &feed.kind, route.audience.all()),
                Err(error) => {
                    debug!(area = %doubt.area, %error, "an object in doubt was not read");
                    outlet.is_behind(&doubt.area);
                }
            }
        }
        .boxed()
    }

    fn list<'a>(&'a self, outlet: &'a Outlet, area: &'a Area) -> BoxFuture<'a, bool> {
        async move {
            let api = api_of(
                self.client.0.clone(),
                &area.resource,
                area.namespace.as_deref(),
            );
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            outlet.listing(area, look);
            let mut listed = Listed::default();
            let mut params = ListParams::default().limit(PAGE);
            loop {
                let page = match answer(api.list(&params)).await {
                    Ok(page) => page,
                    Err(error) => {
                        debug!(%area, %error, "an area that is behind was not listed");
                        return false;
                    }
                };
                for object in page.items {
                    while !outlet.has_ease() {
                        sleep(EASE).await;
                    }
                    let Some((feed, route)) = self.of(area, outlet) else {
                        return true; // nobody wants to know any more
                    };
                    listed.add(object.namespace(), object.name());
                    feed.show(&[route], look, &object);
                }
                match page.metadata.continue_ {
                    Some(token) if !token.is_empty() => params = params.continue_token(&token),
                    _ => break,
                }
            }
            if let Some((feed, route)) = self.of(area, outlet) {
                outlet.listed(area, look, &listed, &feed.kind, route.audience.all());
            }
            true
        }
        .boxed()
    }
}
