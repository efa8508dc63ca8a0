//! From the steps of a path to the values it finds.

use std::cmp::Ordering;

use serde_json::{Number, Value};
use thiserror::Error;

use super::{Few, Found, Matches, Operator, Part, Slice, Step};
use crate::go_format::{is_rounded, write_value};

/// Most values that one evaluation may visit: some 20 ms of work, and far above what a path over
/// one object of the largest size Kubernetes stores (1.5 MB) needs. Paths such as `..x..x..x`
/// would otherwise take time and memory without bound.
pub const MAX_VISITS: usize = 1_000_000;

/// Bytes of two texts that are compared at the price of one visit.
const COMPARED_PER_VISIT: usize = 1024;

/// How deep `range` may nest; bounds the depth of the stack.
pub const MAX_RANGES: usize = 16;

/// Bytes of a value that an error shows. A condition's message holds 32 KiB.
const MAX_SHOWN_BYTES: usize = 4096;

/// Why a path has no result for an object. The texts are those of the reference, since they end
/// in conditions; a missing key is no error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EvalError {
    /// A bare word that is neither `range`, `end`, `true` nor `false`.
    #[error("unrecognized identifier {0}")]
    UnknownIdentifier(String),
    /// `end` without `range`.
    #[error("not in range, nothing to end")]
    EndOutsideRange,
    /// An index or slice on something else than a list; names its Go type.
    #[error("{0} is not array or slice")]
    NotAList(&'static str),
    /// A filter on something else than a list; shows the value as Go prints it.
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFilterable(String),
    /// A slice that ends before it starts, whatever the length of the list.
    #[error("starting index {start} is greater than ending index {end}")]
    StartAfterEnd {
        /// First index.
        start: i64,
        /// Index after the last.
        end: i64,
    },
    /// A slice with a step of zero or less.
    #[error("step must be > 0")]
    StepNotPositive,
    /// A side of a comparison that gives several values.
    #[error("can only compare one element at a time")]
    SeveralCompared,
    /// A comparison by something like `=` or `=<`.
    #[error("unrecognized filter operator {0}")]
    UnknownOperator(String),
    /// A comparison of two kinds of value, such as an integer with a double or a string.
    #[error("incompatible types for comparison")]
    IncompatibleTypes,
    /// A comparison of a list or an object, or of the order of truth values.
    #[error("invalid type for comparison")]
    InvalidType,
    /// A comparison of a number that was rounded when it was read. Ours: the reference compares
    /// the rounded ones.
    #[error("{0} is beyond 64 bits and cannot be compared exactly")]
    Inexact(String),
    /// More than [`MAX_RANGES`] nested `range`s. Ours.
    #[error("range nests more than {MAX_RANGES} deep")]
    RangesTooDeep,
    /// More than [`MAX_VISITS`] values, or than are left for this path. Ours.
    #[error("the path visits too many values")]
    TooManyVisits,
}

/// The input of a `range` that has no element.
static NO_ELEMENT: Value = Value::Null;

pub(super) fn evaluate<'a>(
    parts: &'a [Part],
    object: &'a Value,
    visits: &mut usize,
) -> Result<Few<Matches<'a>>, EvalError> {
    let mut evaluation = Evaluation {
        visits_left: (*visits).min(MAX_VISITS),
        ranges_begun: 0,
        ranges_open: 0,
        ends_seen: 0,
        last_end: 0,
    };
    let granted = evaluation.visits_left;
    let found = evaluation.parts(parts, 0, Found::Object(object));
    *visits -= granted - evaluation.visits_left;
    found
}

/// The state of one evaluation.
///
/// `range` and `end` are words of an action, so that they take effect only once the action is
/// evaluated; the counters carry this to [`Evaluation::parts`].
struct Evaluation {
    visits_left: usize,
    ranges_begun: usize,
    ranges_open: usize,
    ends_seen: usize,
    /// Position of the part that ended the most recent range.
    last_end: usize,
}

impl Evaluation {
    /// Evaluates the parts from `first` on, up to the end of the range they are in.
    fn parts<'a>(
        &mut self,
        parts: &'a [Part],
        first: usize,
        input: Found<'a>,
    ) -> Result<Few<Matches<'a>>, EvalError> {
        let mut all = Few::None;
        let mut position = first;
        while let Some(part) = parts.get(position) {
            self.visit()?;
            let found = match part {
                Part::Text(text) => Matches::One(Found::Literal(text)),
                Part::Action(steps) => self.steps(Matches::One(input), steps)?,
            };
            if self.ends_seen > 0 && self.ends_seen <= self.ranges_open {
                self.ends_seen -= 1;
                self.last_end = position;
                break;
            }
            if self.ranges_begun > 0 {
                self.ranges_begun -= 1;
                self.range(parts, position + 1, &found, &mut all)?;
                // Goes on after the end of the range, if it has one.
                position = position.max(self.last_end) + 1;
            } else {
                all.push(found);
                position += 1;
            }
        }
        Ok(all)
    }

    /// Evaluates the parts from `first` on for each element.
    fn range<'a>(
        &mut self,
        parts: &'a [Part],
        first: usize,
        elements: &[Found<'a>],
        all: &mut Few<Matches<'a>>,
    ) -> Result<(), EvalError> {
        if self.ranges_open == MAX_RANGES {
            return Err(EvalError::RangesTooDeep);
        }
        self.ranges_open += 1;
        for &element in elements {
            all.append(self.parts(parts, first, element)?);
        }
        if elements.is_empty() {
            // Only to find where the range ends, and the errors of the path on the way.
            self.parts(parts, first, Found::Object(&NO_ELEMENT))?;
        }
        self.ranges_open -= 1;
        Ok(())
    }

    fn steps<'a>(
        &mut self,
        input: Matches<'a>,
        steps: &'a [Step],
    ) -> Result<Matches<'a>, EvalError> {
        steps
            .iter()
            .try_fold(input, |input, step| self.step(input, step))
    }

    fn step<'a>(&mut self, input: Matches<'a>, step: &'a Step) -> Result<Matches<'a>, EvalError> {
        self.charge(input.len())?;
        match step {
            Step::Text(text) => Ok(Matches::One(Found::Literal(text))),
            Step::Constant(value) => Ok(each(input, |_| Some(Found::Literal(value)))),
            Step::Field(key) => Ok(each(input, |found| match found.value() {
                Value::Object(entries) => entries.get(key).map(Found::Object),
                _ => None,
            })),
            Step::Quoted { key, steps } => {
                let mut output = Matches::None;
                for &found in input.iter() {
                    let as_reference = self.steps(Matches::One(found), steps);
                    let whole = found.value().get(key);
                    match (as_reference, whole) {
                        (Err(EvalError::TooManyVisits), _) => return Err(EvalError::TooManyVisits),
                        (Ok(some), _) if !some.is_empty() => {
                            for &found in some.iter() {
                                self.emit(&mut output, found)?;
                            }
                        }
                        (_, Some(whole)) => self.emit(&mut output, Found::Object(whole))?,
                        (Err(error), None) => return Err(error),
                        (Ok(_), None) => {}
                    }
                }
                Ok(output)
            }
            Step::Wildcard => {
                let mut output = Matches::None;
                for found in input.iter() {
                    for child in children(found.value()) {
                        self.emit(&mut output, child)?;
                    }
                }
                Ok(output)
            }
            Step::Recursive => {
                let mut output = Matches::None;
                for &found in input.iter() {
                    self.descend(found, &mut output)?;
                }
                Ok(output)
            }
            Step::Slice(slice) => self.slice(&input, *slice),
            Step::Exists(path) => self.filter(&input, |evaluation, element| {
                match evaluation.steps(element, path) {
                    Ok(found) => Ok(found.iter().any(|found| !found.value().is_null())),
                    Err(EvalError::TooManyVisits) => Err(EvalError::TooManyVisits),
                    Err(_) => Ok(false),
                }
            }),
            Step::Filter {
                left,
                operator,
                right,
            } => self.filter(&input, |evaluation, element| {
                let Some(left) = one(&evaluation.steps(element.clone(), left)?)? else {
                    return Ok(false);
                };
                let Some(right) = one(&evaluation.steps(element, right)?)? else {
                    return Ok(false);
                };
                if let (Value::String(left), Value::String(right)) = (left.value(), right.value()) {
                    evaluation.charge(left.len().min(right.len()) / COMPARED_PER_VISIT)?;
                }
                compare(left.value(), operator, right.value())
            }),
            Step::Union(members) => {
                let mut output = Matches::None;
                for member in members {
                    self.charge(input.len())?;
                    for &found in self.steps(input.clone(), member)?.iter() {
                        self.emit(&mut output, found)?;
                    }
                }
                Ok(output)
            }
            Step::Range => {
                self.ranges_begun += 1;
                Ok(input)
            }
            Step::End if self.ranges_open > 0 => {
                self.ends_seen += 1;
                Ok(Matches::None)
            }
            Step::End => Err(EvalError::EndOutsideRange),
            Step::Unknown(word) => Err(EvalError::UnknownIdentifier(word.clone())),
        }
    }

    fn visit(&mut self) -> Result<(), EvalError> {
        self.charge(1)
    }

    fn charge(&mut self, visits: usize) -> Result<(), EvalError> {
        let left = self.visits_left.checked_sub(visits);
        self.visits_left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(EvalError::TooManyVisits)
    }

    fn emit<'a>(&mut self, output: &mut Matches<'a>, found: Found<'a>) -> Result<(), EvalError> {
        self.visit()?;
        output.push(found);
        Ok(())
    }

    /// Gives a value and everything below it, as far as it has something below itself. In the
    /// reference a text has: its bytes. So texts that are not empty are given too.
    fn descend<'a>(&mut self, found: Found<'a>, output: &mut Matches<'a>) -> Result<(), EvalError> {
        self.visit()?;
        let value = found.value();
        let has_parts = match value {
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(entries) => !entries.is_empty(),
            _ => false,
        };
        if has_parts {
            self.emit(output, found)?;
        }
        children(value).try_for_each(|child| self.descend(child, output))
    }

    fn slice<'a>(&mut self, input: &Matches<'a>, slice: Slice) -> Result<Matches<'a>, EvalError> {
        let mut output = Matches::None;
        for &found in input.iter() {
            let items = match found.value() {
                Value::Null => continue,
                Value::Array(items) => items,
                _ => return Err(EvalError::NotAList(found.go_type())),
            };
            let Some((start, end, step)) = bounds(slice, items.len())? else {
                continue;
            };
            for item in items[start..end].iter().step_by(step) {
                self.emit(&mut output, Found::Object(item))?;
            }
        }
        Ok(output)
    }

    fn filter<'a>(
        &mut self,
        input: &Matches<'a>,
        keep: impl Fn(&mut Self, Matches<'a>) -> Result<bool, EvalError>,
    ) -> Result<Matches<'a>, EvalError> {
        let mut output = Matches::None;
        for found in input.iter() {
            let items = match found.value() {
                Value::Null => continue,
                Value::Array(items) => items,
                other => {
                    let mut shown = String::new();
                    write_value(&mut shown, other, MAX_SHOWN_BYTES);
                    return Err(EvalError::NotFilterable(shown));
                }
            };
            for item in items {
                self.visit()?;
                if keep(self, Matches::One(Found::Object(item)))? {
                    output.push(Found::Object(item));
                }
            }
        }
        Ok(output)
    }
}

/// Replaces each value by one or none.
fn each<'a>(input: Matches<'a>, replace: impl Fn(Found<'a>) -> Option<Found<'a>>) -> Matches<'a> {
    match input {
        Matches::None => Matches::None,
        Matches::One(found) => replace(found).map_or(Matches::None, Matches::One),
        Matches::Many(all) => Matches::Many(all.into_iter().filter_map(replace).collect()),
    }
}

fn children(value: &Value) -> impl Iterator<Item = Found<'_>> {
    let (items, entries) = match value {
        Value::Array(items) => (Some(items), None),
        Value::Object(entries) => (None, Some(entries)),
        _ => (None, None),
    };
    let entries = entries.into_iter().flat_map(|entries| entries.values());
    items
        .into_iter()
        .flatten()
        .chain(entries)
        .map(Found::Object)
}

/// The part of a list that a slice selects, and its step; `None` if that is no element. Bounds
/// beyond an end of the list mean that end: what is not there is not selected.
fn bounds(slice: Slice, length: usize) -> Result<Option<(usize, usize, usize)>, EvalError> {
    let count = i64::try_from(length).unwrap_or(i64::MAX);
    if let (Some(start), Some(end), false) = (slice.start, slice.end, slice.single)
        && start > end
        && (start < 0) == (end < 0)
    {
        return Err(EvalError::StartAfterEnd { start, end });
    }
    let within = |bound: i64| {
        let bound = if bound < 0 {
            bound.saturating_add(count)
        } else {
            bound
        };
        bound.clamp(0, count)
    };
    let start = within(slice.start.unwrap_or(0));
    let end = match slice.end {
        None => count,
        // The index after -1.
        Some(0) if slice.single => count,
        Some(end) => within(end),
    };
    if start >= end {
        return Ok(None);
    }
    let step = slice.step.unwrap_or(1);
    if step <= 0 {
        return Err(EvalError::StepNotPositive);
    }
    // Within the list from here on; a step beyond the address space selects one element.
    let index = |bound: i64| usize::try_from(bound).unwrap_or(usize::MAX);
    Ok(Some((index(start), index(end), index(step))))
}

/// The one value of a side of a comparison, if it has any; null is none.
fn one<'a>(found: &[Found<'a>]) -> Result<Option<Found<'a>>, EvalError> {
    match found {
        [] => Ok(None),
        [one] if one.value().is_null() => Ok(None),
        [one] => Ok(Some(*one)),
        _ => Err(EvalError::SeveralCompared),
    }
}

fn compare(left: &Value, operator: &Operator, right: &Value) -> Result<bool, EvalError> {
    if let Operator::Unknown(operator) = operator {
        return Err(EvalError::UnknownOperator(operator.clone()));
    }
    let ordering = match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => match operator {
            Operator::Equal | Operator::NotEqual => left.cmp(right),
            _ => return Err(EvalError::InvalidType),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => match (exact(left)?, exact(right)?) {
            (Exact::Integer(left), Exact::Integer(right)) => left.cmp(&right),
            // JSON has no NaN, so that two doubles always compare.
            (Exact::Double(left), Exact::Double(right)) => {
                left.partial_cmp(&right).unwrap_or(Ordering::Equal)
            }
            _ => return Err(EvalError::IncompatibleTypes),
        },
        _ if has_order(left) && has_order(right) => return Err(EvalError::IncompatibleTypes),
        _ => return Err(EvalError::InvalidType),
    };
    Ok(match operator {
        Operator::Equal => ordering.is_eq(),
        Operator::NotEqual => ordering.is_ne(),
        Operator::Less => ordering.is_lt(),
        Operator::LessOrEqual => ordering.is_le(),
        Operator::Greater => ordering.is_gt(),
        Operator::GreaterOrEqual => ordering.is_ge(),
        Operator::Unknown(_) => false,
    })
}

/// A number that has not been rounded.
enum Exact {
    Integer(i128),
    Double(f64),
}

fn exact(number: &Number) -> Result<Exact, EvalError> {
    if is_rounded(number) {
        return Err(EvalError::Inexact(number.to_string()));
    }
    let signed = number.as_i64().map(i128::from);
    Ok(match signed.or_else(|| number.as_u64().map(i128::from)) {
        Some(integer) => Exact::Integer(integer),
        None => Exact::Double(number.as_f64().unwrap_or(f64::NAN)),
    })
}

fn has_order(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}
