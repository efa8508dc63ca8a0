//! What the benches share: figures and their output, alternating rounds, clocks of CPU time,
//! the objects that are measured, servers, and an agent of its own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each bench is a program of its own and uses a part of this"
)]

pub mod agent;
pub mod bare_hub;
pub mod bare_mqtt;
pub mod event_side;
pub mod events;
pub mod figure;
pub mod fixtures;
pub mod hub;
pub mod idle;
pub mod machine;
pub mod open_loop;
pub mod process;
pub mod replica_set;
pub mod requests;
pub mod rounds;
pub mod ruled;
pub mod servers;
pub mod size;
pub mod slow;
pub mod watcher;
