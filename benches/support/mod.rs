//! What the benches share: figures and their output, alternating rounds, clocks of CPU time,
//! the objects that are measured, and servers.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each bench is a program of its own and uses a part of this"
)]

pub mod figure;
pub mod fixtures;
pub mod hub;
pub mod machine;
pub mod open_loop;
pub mod replica_set;
pub mod rounds;
pub mod servers;
pub mod slow;
