//! Printing for people and scripts, who may stop reading before the end, as `head` does.
//!
//! The macros of the standard library panic then, and are refused by the linter in this crate. Whoever
//! prints through here gets an error instead; [`failed`] makes the exit code of it: a closed pipe is
//! not a failure, and nothing is said about it.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use crate::exit::FAILED;

/// Prints a line to standard output.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Writes bytes to standard output.
pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes.as_ref())?;
    out.flush()
}

/// Prints a line to standard error with the name of the program in front. Nobody can be told if that
/// fails.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "muster: {text}");
}

/// Whether nobody reads any more.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Ends a command whose output could not be printed.
pub(crate) fn failed(error: &io::Error) -> ExitCode {
    if is_closed(error) {
        return ExitCode::SUCCESS;
    }
    note(format_args!("failed to print: {error}"));
    ExitCode::from(FAILED)
}
