//! The decisions of muster, without input or output: nothing here awaits, logs or reads a clock.
//!
//! Each module answers one question of the agent with plain values in and plain values out, so
//! that an actor only carries out what was decided here.

pub mod applied_work;
pub mod apply;
pub mod availability;
pub mod condition_rules;
pub mod conditions;
pub mod departures;
pub mod events;
pub mod execute_as;
pub mod executor;
pub mod explain;
pub mod feedback;
pub mod finished_works;
pub mod fleet;
pub mod go_duration;
mod go_format;
pub mod jsonpath;
pub mod labels;
pub mod manifest;
pub mod manifest_config;
pub mod ownership;
pub mod placement;
pub mod replicaset;
pub mod rollout;
pub mod rule_events;
pub mod watch_plan;
pub mod watch_rules;
pub mod yaml;
