//! The areas of a cluster that are listened to for rules, and the sinks that hear of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use muster_core::watch_plan::Resource;
use muster_core::watch_rules::{Audience, Routes, RulePlan, StreamKey};
use tokio::sync::Notify;

use super::destinations::Destinations;
use super::feed::{Feed, Feeds, Route};
use super::outlet::Outlet;
use crate::watch::{Area, AreaSubscription, Coverage, Unwatched, Watches};

/// What a plan has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    None,
    /// Who hears of what is watched.
    Routes,
    /// What is watched.
    Areas,
}

/// An area that is listened to.
#[derive(Debug)]
struct Listening {
    feed: Arc<Feed>,
    subscription: AreaSubscription,
    /// Who hears of it.
    routes: Routes,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Listeners {
    watches: Arc<Watches>,
    feeds: Arc<Feeds>,
    /// Told when the coverage of an area has changed.
    changed: Arc<Notify>,
    by_stream: BTreeMap<StreamKey, Listening>,
}

impl Listeners {
    pub(super) fn new(client: Client, watches: Arc<Watches>, changed: Arc<Notify>) -> Self {
        Self {
            watches,
            feeds: Arc::new(Feeds::new(client)),
            changed,
            by_stream: BTreeMap::new(),
        }
    }

    pub(super) const fn feeds(&self) -> &Arc<Feeds> {
        &self.feeds
    }

    /// Brings what is listened to in line with the plan. Of types that are not served any more sinks
    /// are told that everything is gone.
    pub(super) fn follow(
        &mut self,
        plan: &RulePlan,
        wanted: BTreeMap<StreamKey, Routes>,
        destinations: &Destinations,
        is_served: impl Fn(&Resource) -> bool,
    ) -> Change {
        let mut change = Change::None;
        let outlet = |sink: &Arc<str>| destinations.outlet(sink);
        // First what is new, so that it takes over what a sink has by what it leaves.
        for (key, routes) in &wanted {
            for outlet in routes.keys().filter_map(outlet) {
                outlet.join(&Area::from(key));
            }
        }
        for (key, listening) in &self.by_stream {
            let stays = |sink: &Arc<str>| wanted.get(key).is_some_and(|it| it.contains_key(sink));
            let area = Area::from(key);
            let left = listening.routes.iter().filter(|(sink, _)| !stays(sink));
            for (sink, audience) in left {
                let Some(outlet) = outlet(sink) else { continue };
                if is_served(&key.resource) {
                    outlet.leave(&area);
                } else {
                    outlet.end(&area, listening.feed.kind(), audience.all());
                }
            }
        }
        self.by_stream.retain(|key, _| {
            let stays = wanted.contains_key(key);
            if !stays {
                self.feeds.remove(&Area::from(key));
                change = Change::Areas;
            }
            stays
        });
        for (key, routes) in wanted {
            change = change.max(match self.by_stream.get_mut(&key) {
                Some(listening) if listening.routes == routes => Change::None,
                Some(listening) => {
                    listening.follow(&Area::from(&key), routes, outlet);
                    Change::Routes
                }
                None => {
                    let kind = plan.streams.get(&key).map(|it| Arc::clone(&it.kind));
                    self.listen(key, kind.unwrap_or_default(), routes, outlet);
                    Change::Areas
                }
            });
        }
        change
    }

    fn listen<'a>(
        &mut self,
        key: StreamKey,
        kind: Arc<str>,
        routes: Routes,
        outlet: impl Fn(&Arc<str>) -> Option<&'a Arc<Outlet>>,
    ) {
        let area = Area::from(&key);
        let feed = Feed::new(
            area.clone(),
            kind,
            with_outlets(&routes, outlet),
            Arc::clone(&self.changed),
        );
        let feed = Arc::new(feed);
        self.feeds.insert(Arc::clone(&feed));
        let listening = Listening {
            subscription: self.watches.listen(area, Arc::clone(&feed) as _),
            feed,
            routes,
        };
        self.by_stream.insert(key, listening);
    }

    /// Listens to nothing any more.
    pub(super) fn clear(&mut self) {
        self.by_stream.clear();
    }

    /// How many areas there are.
    pub(super) fn len(&self) -> usize {
        self.by_stream.len()
    }

    /// How many types there are among them of which a watch is open.
    pub(super) fn types(&self) -> usize {
        let watched = |(_, listening): &(&StreamKey, &Listening)| {
            listening.subscription.coverage() == Coverage::Watched
        };
        let watched = self.by_stream.iter().filter(watched);
        let types: BTreeSet<_> = watched.map(|(key, _)| &key.resource).collect();
        types.len()
    }

    /// The areas, for people.
    pub(super) fn areas(&self) -> Vec<String> {
        let keys = self.by_stream.keys();
        keys.map(|key| Area::from(key).to_string()).collect()
    }

    /// Whether an area has not been listed yet.
    pub(super) fn is_opening(&self) -> bool {
        let is_opening = |coverage| {
            matches!(
                coverage,
                Coverage::Opening | Coverage::Polled(Unwatched::Failing(_))
            )
        };
        let mut all = self.by_stream.values();
        all.any(|listening| is_opening(listening.subscription.coverage()))
    }

    /// Streams that the cluster does not allow to be watched.
    pub(super) fn refused(&self) -> BTreeSet<StreamKey> {
        let refused = |listening: &Listening| {
            let coverage = listening.subscription.coverage();
            matches!(coverage, Coverage::Polled(Unwatched::Refused(..)))
        };
        let all = self.by_stream.iter();
        all.filter(|(_, listening)| refused(listening))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// How each stream of the plan is watched: by its own area, or by that of the whole cluster.
    pub(super) fn coverage(&self, plan: &RulePlan) -> BTreeMap<StreamKey, Coverage> {
        let of = |key: &StreamKey| {
            let listening = self.by_stream.get(key);
            let listening = listening.or_else(|| self.by_stream.get(&key.of_cluster()))?;
            Some((key.clone(), listening.subscription.coverage()))
        };
        plan.streams.keys().filter_map(of).collect()
    }
}

impl Listening {
    /// Has these hear of the area. Its watch goes on, so they are owed a look at what is there.
    fn follow<'a>(
        &mut self,
        area: &Area,
        routes: Routes,
        outlet: impl Fn(&Arc<str>) -> Option<&'a Arc<Outlet>>,
    ) {
        self.feed.set_routes(with_outlets(&routes, &outlet));
        let is_new =
            |(sink, audience): &(&Arc<str>, &Audience)| self.routes.get(*sink) != Some(*audience);
        let new = routes.iter().filter(is_new);
        for outlet in new.filter_map(|(sink, _)| outlet(sink)) {
            outlet.is_behind(area);
        }
        self.routes = routes;
    }
}

fn with_outlets<'a>(
    routes: &Routes,
    outlet: impl Fn(&Arc<str>) -> Option<&'a Arc<Outlet>>,
) -> Vec<Route> {
    let routes = routes.iter().filter_map(|(sink, audience)| {
        Some(Route {
            outlet: Arc::clone(outlet(sink)?),
            audience: audience.clone(),
        })
    });
    routes.collect()
}
