//! The actors of muster: who does what.
//!
//! # The cast
//!
//! ```text
//!  ┌──────────────────────── hub ─────────────────────────┐   ┌──────── agent, one per cluster ────────┐
//!  │                                                      │   │                                        │
//!  │                hub API                               │   │   works of the cluster (hub API)       │
//!  │   ┌────────────┬──┴─────────────────┐                │   │     │ watch               ▲ status,    │
//!  │   │ watch      │ watch              ▲ works, status  │   │     ▼                     │ finalizer  │
//!  │   ▼            ▼                    │                │   │ ClusterAgent              │            │
//!  │ Placement-   ReplicaSets            │                │   │     │ WorkChanged         │            │
//!  │ Resolver       │ Fact       ▲       │                │   │     ▼                     │            │
//!  │   │ decisions  ▼            │ TellAgain              │   │ ManifestWork ─── one pass at a time,   │
//!  │   ▼          ReplicaSet- ───┘       │                │   │ (1 per work)     on the worker threads │
//!  │ hub API      Aggregator ────────────┘                │   │                           │            │
//!  │              (1 per replica set)                     │   │   ▲ what changed          ▼            │
//!  │                                                      │   │ WatchedResource ◄───  spoke API        │
//!  │                                                      │   │ (1 per open watch) ◄─ WatchSupervisor  │
//!  └──────────────────────────────────────────────────────┘   └────────────────────────────────────────┘
//! ```
//!
//! Hub and agents never talk to each other: both talk to the hub's API, each through a
//! `kube::Client`, and do not know what is behind it. Where works travel as events, an agent's is an
//! API server of its own, and [`WorkSource`](hub::WorkSource) is what joins the hub's to the bus.
//!
//! | Actor | One per | Started by | Owns | Hears | Says |
//! |---|---|---|---|---|---|
//! | [`PlacementResolver`](hub::PlacementResolver) | hub that decides placements itself | the runtime | what it knows of clusters, placements, decisions | three watches | PlacementDecisions, Placement status |
//! | [`ReplicaSets`](hub::ReplicaSets) | hub | the runtime | which object concerns which replica set | four watches, `TellAgain` | `Fact` to the aggregators |
//! | [`ReplicaSetAggregator`](hub::ReplicaSetAggregator) | ManifestWorkReplicaSet | `ReplicaSets` | wanted and existing works, counters, feedback sums | `Fact` | creates, patches, deletes works; the set's finalizer and status |
//! | [`FinishedWorks`](hub::FinishedWorks) | hub | the runtime | which finished works wait for their end | one watch, its timer | deletions of works |
//! | [`Departures`](hub::Departures) | hub | the runtime | which clusters' agents are away, and which clusters were given up | two watches, who is connected, its timer | conditions of works and ManagedClusters; finalizers of works that nobody else will take off |
//! | [`WorkSource`](hub::WorkSource) | hub whose works travel as events | the runtime | the link to the bus | one watch, how the link goes | works to the agents; statuses to the hub's API |
//! | [`ClusterAgent`](agent::ClusterAgent) | managed cluster | the runtime | which works there are | one watch, [`ChangeSettings`](agent::ChangeSettings) | [`WorkChanged`](agent::WorkChanged), [`SettingsChanged`](agent::SettingsChanged) |
//! | [`ManifestWork`](agent::ManifestWork) | work on a cluster | `ClusterAgent` | when to look at the work, what it remembers between two looks | `WorkChanged`, `SettingsChanged`, [`Sighted`](agent::Sighted), its timers | objects and the record on the cluster; finalizer and status of the work |
//! | [`WatchSupervisor`](watch::WatchSupervisor) | managed cluster | `ClusterAgent` | which watches there are, under the cap | subscriptions, [`ChangeLimits`](watch::ChangeLimits), [`RestartWatches`](watch::RestartWatches), [`WatchNews`](watch::WatchNews) | starts and stops of watches |
//! | [`WatchedResource`](watch::WatchedResource) | open watch | `WatchSupervisor` | one watch request | the watch | states of objects to their subscribers; `WatchNews` |
//! | `RuleStore` ([`rules`]) | managed cluster with a sink | `ClusterAgent` | its WatchRules and ClusterWatchRules, compiled | two watches | a signal that they mean something else now |
//! | `RuleSupervisor` ([`rules`]) | managed cluster with a sink | `ClusterAgent` | which areas are listened to, and for which sinks | the signal, a watch of CRDs, its timers | areas to the watches; statuses of rules |
//! | `EventQueue` ([`rules`]) | sink of a cluster | `RuleSupervisor` | what its sink is being given | what waits for the sink | batches to the sink |
//! | [`LeaseHolder`](lease::LeaseHolder) | process that must be the only one | the runtime | whether the lease is held, and until when | its timers | the Lease; [`Standing`](lease::Standing) to whoever follows it |
//!
//! Every actor also hears [`Snapshot`](supervision::Snapshot), which `/debug/actors` asks, and
//! [`Stop`](supervision::Stop), which it answers when it has flushed what it owes and its children
//! have ended.
//!
//! # Around the actors
//!
//! | Module | Gives |
//! |---|---|
//! | [`supervision`] | restart after a panic with the same mailbox, bounded mail, ordered stop, requests on worker threads, liveness for readiness |
//! | [`events`] | Kubernetes Events, counted and bounded |
//! | [`watching`] | a Kubernetes watch as a bounded stream of messages |
//! | [`watch`] | watches of objects on a cluster, shared by those who subscribe to an object or listen to an area |
//! | [`sinks`] | where events of rules go: lines of a log, MQTT, files on a branch of a Git repository |
//!
//! What is decided (which works, which writes, what a status says) is decided by pure functions of
//! `muster-core`; an actor keeps the state, asks them, and carries out the answer.
//! `docs/architecture.md` follows a spec change and a status change through all of it.

pub mod agent;
pub mod api_text;
mod event_link;
pub mod events;
pub mod hub;
pub mod lease;
pub mod rules;
pub mod sinks;
pub mod supervision;
pub mod watch;
pub mod watching;
