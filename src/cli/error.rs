//! Why a command ends without having done what it was asked for.

use std::process::ExitCode;

use kube::core::Status;
use kube::runtime::watcher;

use super::access::{AccessError, told};
use crate::exit::{FAILED, MISUSED, NOT_THERE, fail};
use crate::print;

/// What went wrong with a command that talks to an API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// There is no way to the API server.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// What the command is about does not exist.
    #[error("{0} not found")]
    NotFound(String),
    /// The API server refused something, or did not answer.
    #[error("failed to {what}: {}", text(.source))]
    Api {
        /// What was tried.
        what: String,
        source: kube::Error,
    },
    /// It cannot be done as things are.
    #[error("{0}")]
    Refused(String),
    /// Not done in time, or something has failed on a cluster.
    #[error("{0}")]
    NotThere(String),
    /// There is no YAML for something.
    #[error("failed to write {what} as YAML: {source}")]
    Yaml {
        /// What was to be written.
        what: String,
        source: serde_json::Error,
    },
    /// There is no JSON for something.
    #[error("failed to write {what} as JSON: {source}")]
    Json {
        /// What was to be written.
        what: String,
        source: serde_json::Error,
    },
    /// Standard output takes nothing (more).
    #[error("failed to print: {0}")]
    Print(#[from] std::io::Error),
}

impl CommandError {
    /// The exit code for it.
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Access(AccessError::Settings(_) | AccessError::NoDataDir) => MISUSED,
            Self::NotThere(_) => NOT_THERE,
            _ => FAILED,
        }
    }
}

/// Ends a command.
pub(super) fn finish(result: Result<(), CommandError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Print(error)) => print::failed(&error),
        Err(error) => fail(error.code(), &error),
    }
}

/// The server's message without the client's wrapping.
pub(super) fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => told(other),
    }
}

/// The same for a watch, which goes on trying.
pub(super) fn watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => text(error),
        other => other.to_string(),
    }
}

/// Whether a list is refused because the user may not have it, or there is no such type: then an API
/// server answers with a code and no more.
pub(super) fn is_out_of_reach(status: &Status) -> bool {
    [403, 404].contains(&status.code)
}

/// What a watch is refused for, if trying again would not help.
pub(super) fn watch_refusal(error: &watcher::Error) -> Option<kube::Error> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            if is_out_of_reach(status) =>
        {
            Some(kube::Error::Api(status.clone()))
        }
        _ => None,
    }
}
