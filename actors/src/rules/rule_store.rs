//! `RuleStore`: the WatchRules and ClusterWatchRules of a cluster, compiled.
//!
//! It watches both kinds and keeps what they are; a change that means something is signalled,
//! one that only touches an object is not. A rule that does not read is not in the snapshot: the
//! others go on, and its status says what is wrong with which field. Nothing is told before both
//! kinds have been listed, so that a start never looks as if there were no rules.

use std::collections::BTreeMap;

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, MessageResult, Recipient, SpawnHandle,
    StreamHandler, Supervised,
};
use futures::StreamExt;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use muster_api::rules::{ClusterWatchRule, WatchRule, WatchRuleStatus};
use muster_core::watch_rules::{
    CompiledRule, RuleError, RuleKind, RuleName, compile_cluster_watch_rule, compile_watch_rule,
};
use serde::Serialize;
use tracing::{info, warn};

use super::rule_supervisor::RulesChanged;
use super::signal::{RuleSender, RuleTable, SeenRule};
use crate::supervision::{Health, Io, Snapshot, Stop};
use crate::watching::{Seen, watch};

/// A rule as it was read.
#[derive(Debug)]
struct Read {
    name: RuleName,
    seen: SeenRule,
    compiled: Result<CompiledRule, RuleError>,
}

#[derive(Debug)]
struct Heard(RuleKind, Seen<Read>);

/// What the store shows of itself.
#[derive(Debug, Clone, Serialize)]
pub struct RuleStoreReport {
    /// Rules that read.
    pub rules: usize,
    /// Rules that do not, with why.
    pub wrong: BTreeMap<String, String>,
    /// Counts changes that mean something.
    pub revision: u64,
    /// Whether all rules have been listed.
    pub ready: bool,
}

/// The actor. See the module.
pub(super) struct RuleStore {
    cluster: String,
    client: Client,
    io: Io,
    health: Health,
    /// What the list under way of each kind has named.
    listing: BTreeMap<RuleKind, Vec<Read>>,
    /// Has what is known.
    sender: RuleSender,
    supervisor: Recipient<RulesChanged>,
    streams: Vec<SpawnHandle>,
}

impl std::fmt::Debug for RuleStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleStore")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl RuleStore {
    pub(super) fn new(
        cluster: String,
        client: Client,
        io: Io,
        health: Health,
        sender: RuleSender,
        supervisor: Recipient<RulesChanged>,
    ) -> Self {
        Self {
            cluster,
            client,
            io,
            health,
            listing: BTreeMap::new(),
            sender,
            supervisor,
            streams: Vec::new(),
        }
    }

    /// Keeps what a rule looks like; gives back what it means, if it means something.
    fn note(&self, table: &mut RuleTable, read: Read) -> (RuleName, Option<CompiledRule>) {
        let Read {
            name,
            mut seen,
            compiled,
        } = read;
        let compiled = match compiled {
            Ok(rule) => Some(rule),
            Err(error) => {
                let known = table.seen.get(&name).and_then(|seen| seen.error.as_ref());
                if known != Some(&error.fault()) {
                    warn!(cluster = self.cluster, %error, "rule does not read");
                }
                seen.error = Some(error.fault());
                None
            }
        };
        table.seen.insert(name.clone(), seen);
        (name, compiled)
    }

    fn take(&self, table: &mut RuleTable, read: Read) -> bool {
        let (name, compiled) = self.note(table, read);
        match compiled {
            Some(rule) => table.state.put(rule),
            None => table.state.remove(&name),
        }
    }

    /// A list of a kind is complete: others of that kind are gone.
    fn listed(&self, table: &mut RuleTable, kind: RuleKind, listed: Vec<Read>) -> bool {
        let known = std::mem::take(&mut table.seen);
        let (own, others) = known.into_iter().partition(|(name, _)| name.kind() == kind);
        let _: BTreeMap<RuleName, SeenRule> = own;
        table.seen = others;
        let rules: Vec<CompiledRule> = listed
            .into_iter()
            .filter_map(|read| self.note(table, read).1)
            .collect();
        let was_ready = table.state.ready();
        let changed = table.state.replace_all(kind, rules);
        if table.state.ready() && !was_ready {
            let (cluster, rules) = (&self.cluster, table.seen.len());
            info!(cluster, rules, "watch rules listed");
        }
        changed
    }

    fn hear(&mut self, Heard(kind, seen): Heard) {
        let wake = match seen {
            Seen::Listing => {
                self.listing.insert(kind, Vec::new());
                return;
            }
            Seen::Item(read) => {
                self.listing.entry(kind).or_default().push(read);
                return;
            }
            Seen::Listed => {
                let listed = self.listing.remove(&kind).unwrap_or_default();
                self.sender.change(|table| self.listed(table, kind, listed))
            }
            Seen::Changed(read) => self.sender.change(|table| self.take(table, read)),
            Seen::Gone(read) => self.sender.change(|table| {
                table.seen.remove(&read.name);
                table.state.remove(&read.name)
            }),
        };
        if wake {
            // One that has no room looks at its next beat.
            let _ = self.supervisor.try_send(RulesChanged);
        }
    }
}

/// A rule as its watch shows it.
fn read<K: ResourceExt>(
    rule: &K,
    status: Option<&WatchRuleStatus>,
    compiled: Result<CompiledRule, RuleError>,
) -> Read {
    Read {
        name: RuleName {
            namespace: rule.namespace().map(Into::into),
            name: rule.name_any().into(),
        },
        seen: SeenRule {
            generation: rule.meta().generation.unwrap_or_default(),
            status: status.cloned().unwrap_or_default(),
            error: None,
        },
        compiled,
    }
}

impl Actor for RuleStore {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let stream = |kind: &str| self.health.stream(format!("{} {kind}", self.cluster));
        let config = watcher::Config::default;
        let namespaced = watch(
            &self.io,
            Api::<WatchRule>::all(self.client.clone()),
            config(),
            stream("watch rules"),
            |rule| read(&rule, rule.status.as_ref(), compile_watch_rule(&rule)),
        );
        let cluster = watch(
            &self.io,
            Api::<ClusterWatchRule>::all(self.client.clone()),
            config(),
            stream("cluster watch rules"),
            |rule| {
                read(
                    &rule,
                    rule.status.as_ref(),
                    compile_cluster_watch_rule(&rule),
                )
            },
        );
        self.streams = vec![
            ctx.add_stream(namespaced.map(|seen| Heard(RuleKind::WatchRule, seen))),
            ctx.add_stream(cluster.map(|seen| Heard(RuleKind::ClusterWatchRule, seen))),
        ];
    }
}

impl Supervised for RuleStore {
    fn restarting(&mut self, _: &mut Self::Context) {
        // What is known stays until both kinds have been listed again.
        self.listing.clear();
        self.streams.clear();
    }
}

impl StreamHandler<Heard> for RuleStore {
    fn handle(&mut self, heard: Heard, _: &mut Self::Context) {
        self.hear(heard);
    }

    /// The streams end only with the runtime; the default would stop this actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Snapshot> for RuleStore {
    type Result = MessageResult<Snapshot>;

    fn handle(&mut self, _: Snapshot, _: &mut Self::Context) -> Self::Result {
        let report = self.sender.look(|table| {
            let snapshot = table.state.snapshot().unwrap_or_default();
            let wrong = table.seen.iter().filter_map(|(name, seen)| {
                let error = seen.error.clone()?;
                Some((name.to_string(), error))
            });
            RuleStoreReport {
                rules: snapshot.rules.len(),
                wrong: wrong.collect(),
                revision: snapshot.revision,
                ready: table.state.ready(),
            }
        });
        Snapshot::of(&report)
    }
}

impl Handler<Stop> for RuleStore {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        for stream in self.streams.drain(..) {
            ctx.cancel_future(stream);
        }
        ctx.stop();
    }
}
