//! Structural schemas: compiled once per version of a type, then used to prune, default and
//! validate objects.
//!
//! The same engine serves custom types (the schema is in the CRD) and built-in ones (derived
//! from the Rust types), so it knows `$ref`s beside the structural subset.

mod compile;
mod defaulting;
mod format;
mod path;
mod patterns;
mod pruning;
mod rules;
mod validate;

use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde_json::Value;

pub(crate) use compile::{CompileError, MAP_TYPE, ZEROS, compile, compile_builtin};
pub(crate) use defaulting::{Nulls, apply_defaults};
pub(crate) use path::Path;
pub(crate) use pruning::{add_nulls, drop_empty, prune};
pub(crate) use rules::problems as rule_problems;
pub(crate) use validate::{type_problem, validate};

/// Most errors that are collected about one object.
const MAX_ERRORS: usize = 100;
/// Most unknown fields that are named, as in the real server.
const MAX_UNKNOWN: usize = 100;

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// Not restricted.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// How an object merges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MapType {
    /// Field by field.
    #[default]
    Granular,
    /// As a whole.
    Atomic,
}

/// How a strategic merge patch changes a list, where the type says more than "replace".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatchMerge {
    /// Item by item, told apart by this field.
    Key(String),
    /// As a set of plain values.
    Set,
}

/// What an object may hold beside its properties.
#[derive(Clone, Debug, Default)]
pub(crate) enum Additional {
    #[default]
    Nothing,
    Anything,
    Schema(Child),
}

/// A schema inside another one. References to named schemas share one cell, which makes
/// recursive types possible.
#[derive(Clone)]
pub(crate) struct Child(Arc<OnceLock<Schema>>);

impl std::fmt::Debug for Child {
    /// Says no more, since schemas can be recursive.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Child")
    }
}

impl Child {
    fn new(schema: Schema) -> Self {
        Self(Arc::new(OnceLock::from(schema)))
    }
}

impl std::ops::Deref for Child {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        self.0
            .get()
            .expect("the compiler has filled every schema that it refers to")
    }
}

/// Bounds of a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) minimum: Option<serde_json::Number>,
    pub(crate) maximum: Option<serde_json::Number>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
}

/// Smallest and largest count of characters, items or properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
}

/// A compiled schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) kind: Type,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    /// Sorted by name.
    pub(crate) properties: Vec<(String, Child)>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Child>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) format: Option<String>,
    pub(crate) bounds: Bounds,
    pub(crate) length: Counts,
    pub(crate) item_count: Counts,
    pub(crate) property_count: Counts,
    pub(crate) default: Option<Value>,
    pub(crate) list_type: ListType,
    pub(crate) map_type: MapType,
    pub(crate) patch_merge: Option<PatchMerge>,
    /// Fields that Go writes even when they are empty, with their empty values.
    pub(crate) zeros: Vec<(String, Value)>,
    pub(crate) all_of: Vec<Child>,
    pub(crate) any_of: Vec<Child>,
    pub(crate) one_of: Vec<Child>,
    pub(crate) not: Option<Child>,
    /// Rules in CEL of this schema and all below it; at the root only.
    pub(crate) rules: Option<rules::Rules>,
    /// Name of the Go type that a built-in schema stands for.
    pub(crate) name: Option<String>,
}

impl Schema {
    /// The schema of a field, if the object may have it.
    pub(crate) fn property(&self, name: &str) -> Option<&Child> {
        self.properties
            .binary_search_by(|(property, _)| property.as_str().cmp(name))
            .ok()
            .map(|at| &self.properties[at].1)
    }
}

/// `parent.child`, or `child` at the root.
fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
