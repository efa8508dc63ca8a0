//! Branches against the real `git`: it serves the repositories, pushes in between, and is the
//! witness of what became of them.
//!
//! Needs the `git` program with `git daemon` and `git http-backend` on the PATH.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "helpers of tests are tests"
)]

mod commits;
mod conflicts;
mod http_server;
mod lab;
mod large;
mod local;
mod refusals;
mod servers;
