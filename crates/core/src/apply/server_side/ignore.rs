//! The fields that server-side apply leaves to the managed cluster.

use md5::{Digest, Md5};
use muster_api::work::{IgnoreField, IgnoreFieldsCondition, ServerSideApplyConfig};
use serde_json::Value;
use thiserror::Error;

use super::jq::{JqError, JqPath};
use super::removal::{PathToKey, PointerError, remove_pointer, round_trip_doubles};
use crate::apply::hash::strip_empty;
use crate::go_format::write_value;

/// Most jq expressions of a strategy, each of which may take as many steps as one alone.
pub const MAX_JQ_EXPRESSIONS: usize = 20;

/// Most JSONPaths and JSON pointers of a strategy, each of which may go through the whole object.
pub const MAX_IGNORED_PATHS: usize = 1_000;

/// So many paths are followed where nobody else waits.
const FEW_PATHS: usize = 10;

/// Why the fields to ignore cannot be found. The texts begin as upstream's, since they end in a
/// condition.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IgnoreFieldsError {
    /// More than [`MAX_JQ_EXPRESSIONS`].
    #[error(
        "updateStrategy.serverSideApply.ignoreFields: {0} jqPathExpressions, more than \
         {MAX_JQ_EXPRESSIONS}"
    )]
    TooManyExpressions(usize),
    /// More than [`MAX_IGNORED_PATHS`].
    #[error(
        "updateStrategy.serverSideApply.ignoreFields: {0} jsonPaths and jsonPointers, more than \
         {MAX_IGNORED_PATHS}"
    )]
    TooManyPaths(usize),
    /// A JSON pointer to an item that is not there.
    #[error("JSON Pointer error in '{pointer}': {source}")]
    Pointer {
        /// The pointer.
        pointer: String,
        /// What is wrong.
        source: PointerError,
    },
    /// A jq expression that is none, or that fails.
    #[error("JQ expression error in '{expression}': {source}")]
    Jq {
        /// The expression.
        expression: String,
        /// What is wrong.
        source: JqError,
    },
    /// An expression that fails on the live object only. What it says about that is not shown: it
    /// may hold values that have no place on the hub.
    #[error("JQ expression error in '{0}': it fails on the object on the managed cluster")]
    OnLiveObject(String),
}

/// Which of the fields are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// Those left alone whenever the object exists (`OnSpokePresent`).
    Always,
    /// Also those left alone until the manifest changes (`OnSpokeChange`).
    UntilChange,
}

/// The compiled `ignoreFields` of a strategy.
#[derive(Debug, Default)]
pub struct IgnoreFields {
    entries: Vec<Entry>,
    /// Whether any were given, even if they name nothing: the annotation is set then.
    given: bool,
}

#[derive(Debug)]
struct Entry {
    condition: IgnoreFieldsCondition,
    paths: Vec<PathToKey>,
    pointers: Vec<String>,
    expressions: Vec<(String, JqPath)>,
}

impl IgnoreFields {
    /// Compiles the paths and expressions of a strategy.
    ///
    /// As upstream, a JSONPath that is none removes nothing. Differs from upstream: a jq
    /// expression of an `OnSpokeChange` entry is checked, too, since it is used here.
    pub fn compile(config: &ServerSideApplyConfig) -> Result<Self, IgnoreFieldsError> {
        let count = |of: fn(&IgnoreField) -> usize| config.ignore_fields.iter().map(of).sum();
        let expressions: usize = count(|field| field.jq_path_expressions.len());
        if expressions > MAX_JQ_EXPRESSIONS {
            return Err(IgnoreFieldsError::TooManyExpressions(expressions));
        }
        let paths: usize = count(|field| field.json_paths.len() + field.json_pointers.len());
        if paths > MAX_IGNORED_PATHS {
            return Err(IgnoreFieldsError::TooManyPaths(paths));
        }
        let entries: Result<_, _> = config.ignore_fields.iter().map(Entry::compile).collect();
        Ok(Self {
            entries: entries?,
            given: !config.ignore_fields.is_empty(),
        })
    }

    /// Whether the strategy has any.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Whether finding the fields may take long enough to be done aside.
    pub fn is_costly(&self) -> bool {
        let paths = |entry: &Entry| entry.paths.len() + entry.pointers.len();
        self.entries
            .iter()
            .any(|entry| !entry.expressions.is_empty())
            || self.entries.iter().map(paths).sum::<usize>() > FEW_PATHS
    }

    /// Removes the fields from a manifest.
    pub fn remove(&self, manifest: &mut Value, ignored: Ignored) -> Result<(), IgnoreFieldsError> {
        self.meant(ignored)
            .try_for_each(|entry| entry.remove(manifest))
    }

    /// Removes the fields from a live object. It may lack what the manifest has, which is no
    /// error.
    pub(super) fn remove_from_live(
        &self,
        live: &mut Value,
        ignored: Ignored,
    ) -> Result<(), IgnoreFieldsError> {
        self.meant(ignored)
            .try_for_each(|entry| entry.remove_from_live(live))
    }

    fn meant(&self, ignored: Ignored) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(move |entry| match entry.condition {
                IgnoreFieldsCondition::OnSpokePresent => true,
                IgnoreFieldsCondition::OnSpokeChange => ignored == Ignored::UntilChange,
                // Nobody knows when; that too little is left alone shows, too much does not.
                IgnoreFieldsCondition::Unrecognized(_) => false,
            })
    }

    /// What the annotation `open-cluster-management.io/config-spec-hash` says for a manifest: the
    /// MD5 of the text that Go prints for it, without the fields that are always ignored.
    ///
    /// The same digits as upstream's, so that a cluster that is taken over is not written to.
    pub fn spec_hash(&self, manifest: &Value) -> Result<String, IgnoreFieldsError> {
        use std::fmt::Write as _; // Writing to a String cannot fail.

        let mut remaining = manifest.clone();
        strip_empty(&mut remaining);
        self.remove(&mut remaining, Ignored::Always)?;
        let mut text = "&{".to_owned();
        write_value(&mut text, &remaining, usize::MAX);
        text.push('}');
        let digest = Md5::digest(text);
        Ok(digest.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }
}

impl Entry {
    fn compile(field: &IgnoreField) -> Result<Self, IgnoreFieldsError> {
        let expressions = field.jq_path_expressions.iter().map(|expression| {
            let path = JqPath::compile(expression).map_err(|source| IgnoreFieldsError::Jq {
                expression: expression.clone(),
                source,
            })?;
            Ok((expression.clone(), path))
        });
        let paths = field.json_paths.iter();
        Ok(Self {
            condition: field.condition.clone(),
            paths: paths.filter_map(|path| PathToKey::compile(path)).collect(),
            pointers: field.json_pointers.clone(),
            expressions: expressions.collect::<Result<_, _>>()?,
        })
    }

    fn remove(&self, object: &mut Value) -> Result<(), IgnoreFieldsError> {
        for path in &self.paths {
            path.remove(object);
        }
        for pointer in &self.pointers {
            remove_pointer(object, pointer).map_err(|source| IgnoreFieldsError::Pointer {
                pointer: pointer.clone(),
                source,
            })?;
        }
        if !self.pointers.is_empty() {
            round_trip_doubles(object);
        }
        for (expression, path) in &self.expressions {
            path.remove(object)
                .map_err(|source| IgnoreFieldsError::Jq {
                    expression: expression.clone(),
                    source,
                })?;
        }
        Ok(())
    }

    fn remove_from_live(&self, live: &mut Value) -> Result<(), IgnoreFieldsError> {
        for path in &self.paths {
            path.remove(live);
        }
        for pointer in &self.pointers {
            // An item that is not there is not to be kept either.
            let _ = remove_pointer(live, pointer);
        }
        for (expression, path) in &self.expressions {
            let expression = expression.clone();
            path.remove_from_live(live).map_err(|error| match error {
                JqError::Failed(_) => IgnoreFieldsError::OnLiveObject(expression),
                source => IgnoreFieldsError::Jq { expression, source },
            })?;
        }
        Ok(())
    }
}
