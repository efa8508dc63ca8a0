//! jq path expressions: which parts of an object they point at.
//!
//! The expression comes from a work, so that nothing it says may cost the agent more than a
//! moment or read anything but the object. [`guard`] makes sure of both; the interpreter is
//! `jaq`.
//!
//! Differs from upstream: upstream lets the expression compute the object without the fields and
//! stops waiting after a second, while the computation goes on. Here the expression only says
//! which fields it means, so that the numbers of the object stay as they are, and a budget of
//! steps and sizes ends it. Definitions, assignments, multiplication and functions that have no
//! use for pointing at fields (input, dates, encodings, …) are refused.

mod guard;

use std::cell::Cell;
use std::fmt;

use jaq_core::data::{DataT, HasLut};
use jaq_core::load::lex::{StrPart, Tok, Token};
use jaq_core::load::parse::{Def, Term};
use jaq_core::load::{Arena, File, Lexer, Loader, Parser};
use jaq_core::{Compiler, Ctx, Filter, Lut, Vars, unwrap_valr};
use jaq_json::Val;
use serde_json::{Number, Value};
use thiserror::Error;

use guard::Guard;

use super::removal::{Place, Step, TooManyPlaces, remove_places};
use crate::go_format::prefix;

/// Longest expression.
pub(super) const MAX_JQ_BYTES: usize = 1024;

/// Most words and signs of an expression. With [`MAX_JQ_NESTING`] it bounds the depth of the
/// parser's and the interpreter's stack.
pub(super) const MAX_JQ_TOKENS: usize = 100;

/// How deep brackets may nest.
pub(super) const MAX_JQ_NESTING: usize = 32;

/// Bytes of an error of the interpreter that are shown, since it may show whole values.
const MAX_SHOWN_BYTES: usize = 512;

/// Name under which the expression is called. No user can write it.
const ENTRY: &str = "!fields";

/// Why a jq expression cannot be used, or failed on an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JqError {
    /// No jq.
    #[error("failed to parse jq expression: {0}")]
    Syntax(String),
    /// A name that means nothing, or nothing here.
    #[error("failed to compile jq expression: {0} is not defined")]
    Undefined(String),
    /// Something that jq has and path expressions here do not.
    #[error("failed to compile jq expression: {0} cannot be used to name fields")]
    Refused(&'static str),
    /// An expression beyond 1,024 bytes, 100 tokens or 32 nested brackets.
    #[error("failed to parse jq expression: it is too long or nests too deep")]
    TooLong,
    /// An error while it ran: null cannot be iterated, a text has no keys …
    #[error("failed to execute jq expression: {0}")]
    Failed(String),
    /// It used up its steps. The text is upstream's, which has a clock instead.
    #[error("jq expression timed out after 1s")]
    TimedOut,
    /// Without the field nothing would be left.
    #[error("jq expression result is not a valid object")]
    NotAnObject,
}

/// A compiled path expression.
pub(super) struct JqPath {
    /// For manifests: what the user wrote.
    strict: Filter<Paths>,
    /// For live objects, in which others put things: a container without `env` is no error of
    /// `.containers[].env[]`.
    lenient: Filter<Paths>,
}

impl fmt::Debug for JqPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JqPath")
    }
}

/// What the interpreter works on: JSON values, and a budget.
struct Paths;

#[derive(Clone, Copy)]
struct Run<'a> {
    lut: &'a Lut<Paths>,
    budget: &'a Cell<u64>,
}

impl DataT for Paths {
    type V<'a> = Val;
    type Data<'a> = Run<'a>;
}

impl<'a> HasLut<'a, Paths> for Run<'a> {
    fn lut(&self) -> &'a Lut<Paths> {
        self.lut
    }
}

impl JqPath {
    pub(super) fn compile(expression: &str) -> Result<Self, JqError> {
        if expression.len() > MAX_JQ_BYTES || nesting(expression) > MAX_JQ_NESTING {
            return Err(JqError::TooLong);
        }
        let term = parse(expression)?;
        guard::check(&term)?;
        Ok(Self {
            strict: compiled(term.clone(), Guard { lenient: false })?,
            lenient: compiled(term, Guard { lenient: true })?,
        })
    }

    /// Removes the fields from a manifest.
    pub(super) fn remove(&self, manifest: &mut Value) -> Result<(), JqError> {
        remove(&self.strict, manifest, guard::STEPS)
    }

    /// Removes the fields from a live object.
    pub(super) fn remove_from_live(&self, live: &mut Value) -> Result<(), JqError> {
        remove(&self.lenient, live, guard::STEPS)
    }
}

fn compiled<'s>(term: Term<&'s str>, guard: Guard) -> Result<Filter<Paths>, JqError> {
    let entry = Def {
        name: ENTRY,
        args: Vec::new(),
        body: Term::Call("path", vec![guard.term(term)]),
    };
    let arena = Arena::default();
    let program = File {
        code: ENTRY_CALL,
        path: (),
    };
    let modules = Loader::new(guard::definitions::<'s>().chain([entry, entry_alias()]))
        .load(&arena, program)
        .map_err(|_| JqError::Syntax("unexpected end".to_owned()))?;
    let filter = Compiler::default()
        .with_funs(guard::functions())
        .compile(modules)
        .map_err(|errors| {
            let name = errors.first().and_then(|(_, errors)| errors.first());
            JqError::Undefined(name.map_or_else(String::new, |(name, kind)| {
                format!("{} {name}", kind.as_str())
            }))
        })?;
    Ok(filter)
}

fn remove(filter: &Filter<Paths>, object: &mut Value, steps: u64) -> Result<(), JqError> {
    let places = places(filter, object, steps)?;
    if places.iter().any(Vec::is_empty) {
        return Err(JqError::NotAnObject);
    }
    remove_places(object, &places).map_err(|TooManyPlaces| JqError::TimedOut)
}

fn places(filter: &Filter<Paths>, object: &Value, steps: u64) -> Result<Vec<Place>, JqError> {
    let budget = Cell::new(steps);
    let run = Run {
        lut: &filter.lut,
        budget: &budget,
    };
    let ctx = Ctx::<Paths>::new(run, Vars::new([]));
    let mut places = Vec::new();
    for found in filter.id.run((ctx, to_val(object))).map(unwrap_valr) {
        let place = found.map(|path| place(&path)).map_err(|error| {
            let text = error.to_string();
            JqError::Failed(prefix(&text, MAX_SHOWN_BYTES).to_owned())
        });
        // A path may be as long as there are steps, without there being such a place.
        let length = place.as_ref().map_or(0, Vec::len) as u64;
        budget.set(budget.get().saturating_sub(length));
        if budget.get() == 0 {
            return Err(JqError::TimedOut);
        }
        places.push(place?);
    }
    if budget.get() == 0 {
        return Err(JqError::TimedOut);
    }
    Ok(places)
}

/// The main program, which only calls the expression: it was parsed before, to be guarded.
const ENTRY_CALL: &str = "fields_of_the_expression";

fn entry_alias() -> Def<&'static str> {
    Def {
        name: ENTRY_CALL,
        args: Vec::new(),
        body: Term::Call(ENTRY, Vec::new()),
    }
}

fn parse(expression: &str) -> Result<Term<&str>, JqError> {
    let syntax = |expected: &str, found: Option<&str>| {
        let found = found.filter(|found| !found.is_empty());
        let found = found.map_or("the end".to_owned(), |found| {
            format!("{:?}", prefix(found, 32))
        });
        JqError::Syntax(format!("expected {expected}, found {found}"))
    };
    let tokens = Lexer::new(expression).lex().map_err(|errors| {
        errors.first().map_or_else(
            || syntax("jq", None),
            |(expected, rest)| syntax(expected.as_str(), Some(rest)),
        )
    })?;
    if count(&tokens) > MAX_JQ_TOKENS {
        return Err(JqError::TooLong);
    }
    Parser::new(&tokens).parse(Parser::term).map_err(|errors| {
        errors.first().map_or_else(
            || syntax("jq", None),
            |(expected, found)| syntax(expected.as_str(), found.map(|token| token.0)),
        )
    })
}

/// How deep the brackets nest, those in texts included: a text may hold an expression.
fn nesting(expression: &str) -> usize {
    let mut open = 0_usize;
    let mut deepest = 0;
    for byte in expression.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// All tokens, also those within brackets and texts.
fn count(tokens: &[Token<&str>]) -> usize {
    let within = |token: &Token<&str>| match &token.1 {
        Tok::Block(tokens) => count(tokens),
        Tok::Str(parts) => parts
            .iter()
            .map(|part| match part {
                StrPart::Term(token) => count(std::slice::from_ref(token)),
                _ => 1,
            })
            .sum(),
        _ => 0,
    };
    tokens.iter().map(|token| 1 + within(token)).sum()
}

fn to_val(value: &Value) -> Val {
    match value {
        Value::Null => Val::Null,
        Value::Bool(flag) => Val::from(*flag),
        Value::Number(number) => number_val(number),
        Value::String(text) => Val::from(text.clone()),
        Value::Array(items) => items.iter().map(to_val).collect(),
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (Val::from(key.clone()), to_val(value)));
            Val::obj(entries.collect())
        }
    }
}

fn number_val(number: &Number) -> Val {
    match number
        .as_i64()
        .and_then(|integer| isize::try_from(integer).ok())
    {
        Some(integer) => Val::from(integer),
        None => Val::from(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// A path as the interpreter gives it: keys, indexes and ranges.
fn place(path: &Val) -> Place {
    let Val::Arr(steps) = path else {
        return Place::new();
    };
    let integer = |value: Option<&Val>| match value {
        Some(Val::Num(number)) => number.as_isize(),
        _ => None,
    };
    let step = |step: &Val| match step {
        Val::TStr(key) | Val::BStr(key) => Step::Key(String::from_utf8_lossy(key).into_owned()),
        Val::Obj(range) => Step::Range(
            integer(range.get(&Val::utf8_str("start"))),
            integer(range.get(&Val::utf8_str("end"))),
        ),
        other => Step::Index(integer(Some(other)).unwrap_or(isize::MAX)),
    };
    steps.iter().map(step).collect()
}

#[cfg(test)]
mod tests;
