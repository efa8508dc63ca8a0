//! `muster completions` and `muster man`: what the command line says of itself.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;
use super::output::show;
use crate::exit::{FAILED, fail};

/// Prints the completions for a shell.
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "muster", &mut script);
    show(script)
}

/// Prints the page of the program, or writes the pages of all commands.
pub(super) fn man(dir: Option<&Path>) -> ExitCode {
    if let Some(dir) = dir {
        return match clap_mangen::generate_to(Cli::command(), dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(
                FAILED,
                &format!("failed to write pages to {}: {error}", dir.display()),
            ),
        };
    }
    let mut page = Vec::new();
    match Man::new(Cli::command()).render(&mut page) {
        Ok(()) => show(page),
        Err(error) => fail(FAILED, &format!("failed to make the page: {error}")),
    }
}
