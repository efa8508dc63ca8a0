//! What can be wrong with settings.

use std::fmt;
use std::io;

use config::ConfigError;
use thiserror::Error;

/// All problems found, in the order of the layers and of the lines.
#[derive(Debug)]
pub struct SettingsError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [only] => write!(f, "bad settings: {only}"),
            problems => {
                write!(f, "bad settings, {} problems:", problems.len())?;
                problems
                    .iter()
                    .try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

// No `source`: the text above is complete, whatever the number of problems.
impl std::error::Error for SettingsError {}

impl From<Problem> for SettingsError {
    fn from(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}

/// One thing that is wrong. `place` is `<file>:<line>`, a variable, or the command line.
#[derive(Debug, Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("failed to read settings file {file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },

    /// The file is not TOML.
    #[error("{place}: not TOML: {message}")]
    Syntax {
        /// Where the error was noticed.
        place: String,
        /// What the TOML parser says.
        message: String,
    },

    /// There is no such key or section.
    #[error("{place}: unknown key {key}, the nearest is {nearest}")]
    UnknownKey {
        /// Where it is set.
        place: String,
        /// The key with its section.
        key: String,
        /// A key or section that exists.
        nearest: String,
    },

    /// The value does not fit the key.
    #[error("{place}: {key} is {found}, expected {expected}")]
    WrongValue {
        /// Where it is set.
        place: String,
        /// The key with its section.
        key: String,
        /// The value as it was found.
        found: String,
        /// What would do.
        expected: String,
    },

    /// A cluster or a sink has no name, a name that another has, or does not fit together: a cluster
    /// has not exactly one way to reach it.
    #[error("{place}: {entry} {message}")]
    Entry {
        /// Where it is set.
        place: String,
        /// The entry by its place in the list, with its name if it has one.
        entry: String,
        /// What is wrong.
        message: String,
    },

    /// The value fits its key, and not another one.
    #[error("{place}: {key} is {found}, which {rule}")]
    Together {
        /// Where it is set, or, where it is not, the other one.
        place: String,
        /// The key with its section.
        key: &'static str,
        /// The value in effect, wherever it was set.
        found: String,
        /// What it has to keep to.
        rule: String,
    },

    /// The value fits its key, and cannot be used: a file is missing, or something else than it should
    /// be.
    #[error("{}{message}", place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default())]
    Unusable {
        /// Where it is set, if it is a setting.
        place: Option<String>,
        /// What is wrong, with the key.
        message: String,
    },

    /// A flag has a value that it cannot have.
    #[error("{flag}: {message}")]
    Flag {
        /// The flag with its dashes.
        flag: String,
        /// What is wrong.
        message: String,
    },

    /// The layers do not go together. Cannot happen while the checks and the types agree.
    #[error("failed to bring the settings together: {source}")]
    Merged {
        /// Why.
        #[source]
        source: ConfigError,
    },
}

/// Settings that do not go together, before it is known where they are set.
#[derive(Debug)]
pub(super) struct Conflict {
    /// The key with its section.
    pub(super) key: &'static str,
    /// The value in effect.
    pub(super) found: String,
    /// What it has to keep to.
    pub(super) rule: String,
    /// The other keys that the rule is about.
    pub(super) others: &'static [&'static str],
}
