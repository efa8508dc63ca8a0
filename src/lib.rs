//! The muster program as a library, so that tests reach all of it.
//!
//! | Module | What |
//! |---|---|
//! | [`cli`], [`exit`] | the command line and its exit codes |
//! | [`settings`] | the configuration file, environment and flags |
//! | [`runtime`] | what runs in a process, and in which order it starts and stops |
//! | [`demo`] | `muster demo` |
//! | [`http`], [`telemetry`] | metrics, probes, logs |
//! | [`reference`](mod@reference) | pages of the manual that are made from code |

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // see `print`

pub mod cli;
pub mod demo;
pub mod exit;
pub mod http;
mod print;
pub mod reference;
pub mod runtime;
pub mod settings;
pub mod telemetry;
mod terminal;
