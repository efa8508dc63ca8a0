//! Whose turn it is: how a change of a template reaches the clusters of a placement.
//!
//! ```text
//! RolloutStrategy ─► Strategy ─┐
//! decision groups ─► Groups ───┼─► Rollout ─► next(): the cluster whose turn it is
//! work conditions ─► Report ───┘          ├─► wake_at(): when time alone changes something
//!                    (cluster_state)      └─► tally(), stopped(): how it stands
//! ```
//!
//! The rules are those of sdk-go's rollout handler as OCM's replica set controller uses it, with
//! its known defects corrected. Unlike that handler, which goes through all clusters at each sync,
//! a [`Rollout`] takes one report at a time and costs O(log) of the clusters (contract C10).

mod cluster;
mod engine;
mod stages;
mod strategy;

pub use cluster::{ClusterState, ConditionFacts, Truth, WorkConditions, cluster_state, is_refused};
pub use engine::{Report, Rollout, Stopped, Tally, Turn};
pub use stages::{Group, Groups};
pub use strategy::{Count, Strategy, StrategyError};
