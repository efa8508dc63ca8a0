//! `JSONPath` in the dialect of `kubectl` and of the feedback rules of Open Cluster Management
//! (client-go, `util/jsonpath`, with missing keys allowed).
//!
//! A path is compiled once by [`JsonPath::parse`] and kept; [`JsonPath::eval`] borrows from the
//! object and from the path and copies nothing. Maps are walked in the order of their keys, where
//! the reference walks them in random order.
//!
//! Null, missing and empty are one thing, and give nothing: a filter, an index or a comparison on
//! null, an index or the bound of a slice outside of the list, and a `range` over nothing.
//!
//! Differs from upstream: there, most of those are errors, or crash; an empty list among several
//! is skipped instead of ending the step; a path that fails inside an existence filter means
//! "does not exist" instead of "exists"; `.*` on a string gives nothing instead of its bytes;
//! `['a.b']` is the key `a.b` where `.a.b` gives nothing; integers beyond 64 bits signed are
//! compared exactly or not at all. A path is at most [`MAX_PATH_BYTES`] long, an evaluation that
//! visits more than [`MAX_VISITS`] values is given up, and `range` nests at most [`MAX_RANGES`]
//! deep.
//!
//! ```
//! use muster_core::jsonpath::JsonPath;
//! use serde_json::json;
//!
//! let ready = JsonPath::parse(r#".status.conditions[?(@.type=="Ready")].status"#)?;
//! let pod = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
//! assert_eq!(ready.eval(&pod)?[0][0].value(), "True");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod eval;
mod parse;

use std::ops::Deref;

use serde_json::Value;

pub use eval::{EvalError, MAX_RANGES, MAX_VISITS};
pub use parse::{MAX_PATH_BYTES, ParseError};

/// A compiled path.
#[derive(Debug, Clone)]
pub struct JsonPath {
    parts: Vec<Part>,
}

/// One part of a template: literal text between actions, or an action in braces.
#[derive(Debug, Clone)]
enum Part {
    /// Text outside braces. Always a [`Value::String`].
    Text(Value),
    /// What stands in one pair of braces.
    Action(Vec<Step>),
}

/// What an action does with the values found so far.
#[derive(Debug, Clone)]
enum Step {
    /// Replaces everything found so far by one text.
    Text(Value),
    /// Replaces each value by a number or a truth value.
    Constant(Value),
    Field(String),
    /// `['key']`: what the reference makes of it, or else the entry of just that key.
    Quoted {
        key: String,
        steps: Vec<Self>,
    },
    Wildcard,
    Recursive,
    Slice(Slice),
    Filter {
        left: Vec<Self>,
        operator: Operator,
        right: Vec<Self>,
    },
    Exists(Vec<Self>),
    Union(Vec<Vec<Self>>),
    Range,
    End,
    /// A bare word that means nothing: an error when it is reached, not before.
    Unknown(String),
}

/// `[start:end:step]`, or `[start]` as the slice of one element.
#[derive(Debug, Clone, Copy)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// Only one index was written, so that an end of 0 means the end of the list.
    single: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Accepted by the grammar, refused when two values are to be compared.
    Unknown(String),
}

impl JsonPath {
    /// Whether the result may depend on this field of the object itself. A path that does not begin
    /// with the name of one may depend on all.
    pub fn may_read(&self, field: &str) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Text(_) => false,
            Part::Action(steps) => match steps.first() {
                Some(Step::Field(name)) => name == field,
                Some(Step::Quoted { key, steps }) => {
                    key == field
                        || !matches!(steps.first(), Some(Step::Field(name)) if name != field)
                }
                _ => true,
            },
        })
    }

    /// Compiles `path`, which comes without the outer braces, as a feedback rule carries it.
    pub fn parse(path: &str) -> Result<Self, ParseError> {
        if path.len() > MAX_PATH_BYTES {
            return Err(ParseError::TooLong(path.len()));
        }
        Ok(Self {
            parts: parse::template(&format!("{{{path}}}"))?,
        })
    }

    /// Finds the values of the path in `object`: one list for each action or text of the
    /// template. A path without `}{` or `range` gives exactly one list, and missing keys an empty
    /// one.
    pub fn eval<'a>(&'a self, object: &'a Value) -> Result<Few<Matches<'a>>, EvalError> {
        self.eval_within(object, &mut MAX_VISITS.clone())
    }

    /// As [`JsonPath::eval`], visiting at most `visits` values, of which those it visits are taken.
    pub fn eval_within<'a>(
        &'a self,
        object: &'a Value,
        visits: &mut usize,
    ) -> Result<Few<Matches<'a>>, EvalError> {
        eval::evaluate(&self.parts, object, visits)
    }
}

/// A value found by a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found<'a> {
    /// A part of the object.
    Object(&'a Value),
    /// A text, number or truth value that stands in the path itself.
    Literal(&'a Value),
}

impl<'a> Found<'a> {
    /// The value, wherever it comes from.
    pub fn value(self) -> &'a Value {
        match self {
            Self::Object(value) | Self::Literal(value) => value,
        }
    }

    /// The value's type under its Go name, as error texts of the reference show it.
    pub fn go_type(self) -> &'static str {
        use crate::go_format::Numeric;
        match (self, self.value()) {
            (_, Value::Null) => "<nil>",
            (_, Value::Bool(_)) => "bool",
            (_, Value::Number(number)) => match (Numeric::from(number), self) {
                (Numeric::Double(_), _) => "float64",
                (Numeric::Integer(_), Self::Object(_)) => "int64",
                (Numeric::Integer(_), Self::Literal(_)) => "int",
            },
            (_, Value::String(_)) => "string",
            (_, Value::Array(_)) => "[]interface {}",
            (_, Value::Object(_)) => "map[string]interface {}",
        }
    }
}

/// The values found by one action.
pub type Matches<'a> = Few<Found<'a>>;

/// A list that mostly holds one value or none; those cost no allocation. Reads as a slice.
#[derive(Debug, Clone, Default)]
pub enum Few<T> {
    /// Nothing.
    #[default]
    None,
    /// One value.
    One(T),
    /// Any number of values.
    Many(Vec<T>),
}

impl<T> Few<T> {
    fn push(&mut self, value: T) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(value),
            Self::One(first) => Self::Many(vec![first, value]),
            Self::Many(mut all) => {
                all.push(value);
                Self::Many(all)
            }
        }
    }

    fn append(&mut self, more: Self) {
        match (&mut *self, more) {
            (_, Self::None) => {}
            (Self::None, more) => *self = more,
            (_, Self::One(value)) => self.push(value),
            (_, Self::Many(values)) => values.into_iter().for_each(|value| self.push(value)),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::None => &[],
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(all) => all,
        }
    }
}
