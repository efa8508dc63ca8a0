//! Watch rules: what changes on a cluster, told to sinks.
//!
//! ```text
//!  WatchRule, ClusterWatchRule          discovery
//!          │ watch                          │
//!          ▼       signal                   ▼
//!      RuleStore ──────────► RuleSupervisor: quiet for a while? plan ──areas──► Watches
//!                             (1 per cluster)                                      │
//!                                                                                  ▼ states
//!   sink ◄──batches── EventQueue (1 per sink) ◄── Outlet ◄───────────────── Feed (1 per area)
//! ```
//!
//! | File | What |
//! |---|---|
//! | `outlet` | what a sink has, and what waits for it |
//! | `event_queue` | actor: gives a sink what waits |
//! | `metrics` | what operators see |
//!
//! What matches a rule, which areas are wanted, what is stripped off an object and what a sink has to
//! hear is decided in `muster_core::watch_rules` and `muster_core::rule_events`.

mod event_queue;
mod metrics;
mod outlet;
#[cfg(test)]
mod tests;

pub use event_queue::EventQueueState;
