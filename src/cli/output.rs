//! How commands print.

use std::fmt::Display;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use super::error::CommandError;
use crate::print;

/// What `-o` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Wide,
    Json,
    Yaml,
}

/// Prints a line.
pub(super) fn say(text: impl Display) -> Result<(), CommandError> {
    Ok(print::line(text)?)
}

/// Prints all that a command has to say.
pub(super) fn show(bytes: impl AsRef<[u8]>) -> ExitCode {
    match print::bytes(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print::failed(&error),
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
