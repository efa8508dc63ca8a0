//! The muster program. Everything it does is in the library beside it, where tests reach it.

use std::process::ExitCode;

use clap::Parser;
use muster::cli::Cli;

fn main() -> ExitCode {
    // One TLS provider for all of the process, chosen before the first connection; a second call
    // cannot happen in `main`.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Cli::parse().run()
}
