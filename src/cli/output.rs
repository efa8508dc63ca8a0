//! How commands print.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use super::error::CommandError;
use crate::exit::{FAILED, fail};

/// What `-o` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Wide,
    Json,
    Yaml,
}

/// Prints a line. Unlike `println` it does not panic when nobody reads any more.
pub(super) fn say(text: impl Display) -> Result<(), CommandError> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Writes to standard output. Who reads it may have enough before the end, as `head` does.
pub(super) fn show(bytes: impl AsRef<[u8]>) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(FAILED, &error),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// A value as a document, without a line break at its end; JSON is one line, so that a reader of
/// several finds where one ends.
pub(super) fn document(
    value: &impl Serialize,
    what: &str,
    output: Output,
) -> Result<String, CommandError> {
    let what = what.to_owned();
    match output {
        Output::Json => {
            serde_json::to_string(value).map_err(|source| CommandError::Json { what, source })
        }
        Output::Yaml | Output::Wide => {
            let json = serde_json::to_string(value);
            match json.and_then(|json| muster_core::yaml::from_json(&json)) {
                Ok(yaml) => Ok(yaml.trim_end().to_owned()),
                Err(source) => Err(CommandError::Yaml { what, source }),
            }
        }
    }
}
