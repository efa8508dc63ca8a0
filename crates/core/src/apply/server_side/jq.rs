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

use super::removal::{Place, Step, remove_places};
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
    /// An expression beyond [`MAX_JQ_BYTES`], [`MAX_JQ_TOKENS`] or [`MAX_JQ_NESTING`].
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
        remove(&self.strict, manifest)
    }

    /// Removes the fields from a live object.
    pub(super) fn remove_from_live(&self, live: &mut Value) -> Result<(), JqError> {
        remove(&self.lenient, live)
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

fn remove(filter: &Filter<Paths>, object: &mut Value) -> Result<(), JqError> {
    let places = places(filter, object)?;
    if places.iter().any(Vec::is_empty) {
        return Err(JqError::NotAnObject);
    }
    remove_places(object, places);
    Ok(())
}

fn places(filter: &Filter<Paths>, object: &Value) -> Result<Vec<Place>, JqError> {
    let budget = Cell::new(guard::STEPS);
    let run = Run {
        lut: &filter.lut,
        budget: &budget,
    };
    let ctx = Ctx::<Paths>::new(run, Vars::new([]));
    let places: Result<Vec<Val>, _> = filter
        .id
        .run((ctx, to_val(object)))
        .map(unwrap_valr)
        .collect();
    if budget.get() == 0 {
        return Err(JqError::TimedOut);
    }
    let places = places.map_err(|error| {
        let text = error.to_string();
        JqError::Failed(prefix(&text, MAX_SHOWN_BYTES).to_owned())
    })?;
    Ok(places.iter().map(place).collect())
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
mod tests {
    use serde_json::json;

    use super::*;

    fn removed(expression: &str, mut object: Value) -> Result<Value, JqError> {
        JqPath::compile(expression)?.remove(&mut object)?;
        Ok(object)
    }

    #[test]
    fn expressions_name_what_is_removed() {
        let object = || {
            json!({"l": [
                {"name": "a", "v": 1.0}, {"name": "b", "v": 18_446_744_073_709_551_615_u64},
                {"name": "ab", "w": null},
            ], "t": {"x": "1", "y": 2}})
        };
        let cases = [
            (".t.x", "/t/x", json!(null)),
            (".t[\"x\"]", "/t", json!({"y": 2})),
            (
                ".l[] | select(.name == \"a\") | .v",
                "/l/0",
                json!({"name": "a"}),
            ),
            (
                ".l[] | select(.name | startswith(\"a\"))",
                "/l",
                json!([object()["l"][1]]),
            ),
            (".l[0, 1]", "/l", json!([object()["l"][2]])),
            (".l[1:]", "/l", json!([object()["l"][0]])),
            (".l[-1]", "/l/2", json!(null)),
            (".l[].nothing?", "", object()),
            (".no.such.key", "", object()),
            (".l[9]", "", object()),
            ("empty", "", object()),
            (
                ".. | objects | select(has(\"v\")) | .v",
                "/l/1",
                json!({"name": "b"}),
            ),
            (".l[] | select(.name | test(\"^a.$\"))", "/l/2", json!(null)),
            (
                ".l[] | select(.name | test(\"^A.$\"; \"i\"))",
                "/l/2",
                json!(null),
            ),
            (
                ".t | (to_entries[] | select(.value == 2)) as $e | .[$e.key]",
                "/t",
                json!({"x": "1"}),
            ),
            (
                ".t[(.t | keys[] | select(. == \"y\"))]",
                "/t",
                json!({"x": "1"}),
            ),
            (".l | first, last", "/l", json!([object()["l"][1]])),
            (
                ".l[] | select(any(.name, .v; . == \"b\"))",
                "/l/1/name",
                json!("ab"),
            ),
            (
                ".t | if .y == 2 then .y else .x end",
                "/t",
                json!({"x": "1"}),
            ),
            (
                ".l[] | select([.name] | inside([\"a\", \"b\"])).name",
                "/l/1/name",
                json!(null),
            ),
            ("(.t.x // .t.y)", "/t", json!({"y": 2})),
            (
                "paths as $p | getpath($p) | select(. == 2)",
                "",
                json!(null),
            ),
            (
                ".l[] | select((.name | length) > 1 and $ENV == {} and env == {})",
                "/l/2",
                json!(null),
            ),
            (
                ".l[] | select(.name | ascii_upcase | . + \"!\" | IN(\"A!\"))",
                "/l/0",
                object()["l"][1].clone(),
            ),
            (
                ".l[] | select(\"\\(.name)-\\(.v)\" == \"a-1.0\")",
                "/l/0/name",
                json!("b"),
            ),
            (
                ".l[] | select(.v) | select(.v | tostring | tonumber == 1)",
                "/l/0/name",
                json!("b"),
            ),
            (
                ".l[] | select([.name, \"x\"] | join(\"-\") == \"a-x\")",
                "/l/0/name",
                json!("b"),
            ),
            (
                "label $f | .l[] | if .name == \"b\" then break $f else . end",
                "/l/0/name",
                json!("b"),
            ),
            (
                ".l[] | select(reduce (1, 2) as $x (0; . + $x) == 3) | .name",
                "/l/0/name",
                json!(null),
            ),
            (".l[range(1; 3)]", "/l", json!([object()["l"][0]])),
            (
                ".l[] | select(.name | index(\"b\") == 1)",
                "/l/2",
                json!(null),
            ),
        ];
        for (expression, pointer, expected) in cases {
            let result = removed(expression, object());
            let result = result.unwrap_or_else(|error| panic!("{expression}: {error}"));
            let found = result.pointer(pointer).cloned().unwrap_or_default();
            if expression.starts_with("paths") {
                assert_eq!(result["t"], json!({"x": "1"}), "{expression}");
            } else {
                assert_eq!(found, expected, "{expression}: {result}");
            }
        }
    }

    #[test]
    fn a_live_object_may_lack_what_the_expression_goes_through() {
        let live =
            || json!({"l": [{"n": 1}, {"e": null}, {"e": [{"name": "x"}, {"name": "y"}, {}, 7]}]});
        for expression in [
            ".l[].e[] | select(.name | startswith(\"x\"))",
            ".l[].e[] | select(.name == \"x\")",
            ".l[] | .e[] | select(.name as $n | $n | test(\"x\"))",
        ] {
            let path = JqPath::compile(expression).unwrap();
            path.remove(&mut live()).unwrap_err();
            let mut changed = live();
            path.remove_from_live(&mut changed).unwrap();
            assert_eq!(
                changed["l"][2]["e"],
                json!([{"name": "y"}, {}, 7]),
                "{expression}"
            );
        }
    }

    #[test]
    fn what_is_left_keeps_its_numbers() {
        let object = json!({"a": 1, "f": 1.0, "big": u64::MAX, "e": 1e300});
        let expected = r#"{"big":18446744073709551615,"e":1e+300,"f":1.0}"#;
        assert_eq!(removed(".a", object).unwrap().to_string(), expected);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let object = || json!({"n": null, "s": "x", "d": {"k": "v"}});
        for (expression, text) in [
            (".d[", "failed to parse jq expression: expected "),
            (
                ".d |",
                "failed to parse jq expression: expected term, found the end",
            ),
            (
                ".spec.containers[] | invalid syntax here",
                "failed to parse jq expression: expected nothing, found \"syntax\"",
            ),
            (
                "nope",
                "failed to compile jq expression: filter nope is not defined",
            ),
            (
                "input",
                "failed to compile jq expression: filter input is not defined",
            ),
            ("$__prog_args", "failed to compile jq expression: variable "),
            (
                "debug",
                "failed to compile jq expression: filter debug is not defined",
            ),
            (
                "halt",
                "failed to compile jq expression: filter halt is not defined",
            ),
            ("import \"x\" as x; .", "failed to parse jq expression: "),
            (
                "def f: f; f",
                "failed to compile jq expression: a definition cannot be used",
            ),
            (
                ".d = 1",
                "failed to compile jq expression: an assignment cannot be used",
            ),
            (
                ".d |= 1",
                "failed to compile jq expression: an assignment cannot be used",
            ),
            (
                "select(\"x\" * 9 == .s)",
                "failed to compile jq expression: a multiplication cannot be used",
            ),
            (".n[]", "failed to execute jq expression: "),
            (".s.x", "failed to execute jq expression: "),
            ("1", "failed to execute jq expression: "),
            (".", "jq expression result is not a valid object"),
            (".d, .", "jq expression result is not a valid object"),
        ] {
            let error = removed(expression, object()).unwrap_err().to_string();
            assert!(error.starts_with(text), "{expression}: {error}");
        }
        let long = format!(".{}", "a".repeat(MAX_JQ_BYTES));
        assert_eq!(removed(&long, object()), Err(JqError::TooLong));
    }

    #[test]
    fn deep_expressions_do_not_exhaust_the_stack() {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{a:", "}"),
            ("\"\\(", ")\""),
            ("-", ""),
            ("try ", ""),
            ("1+", ""),
            ("1|", ""),
            (".,", ""),
            ("if 1 then ", " else 1 end"),
            ("first(", ")"),
            ("reduce 1 as $x (1;", ")"),
        ] {
            for depth in [16, 24, 31, 47, 90, 300] {
                let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let expression = format!("select({nested})");
                if let Ok(path) = JqPath::compile(&expression) {
                    let _ = path.remove(&mut json!({}));
                }
            }
            let deep = format!("{}1{}", open.repeat(300), close.repeat(300));
            assert_eq!(
                JqPath::compile(&deep).unwrap_err(),
                JqError::TooLong,
                "{open}"
            );
        }
    }

    #[test]
    fn whatever_would_not_end_is_given_up() {
        let zeros = || json!({"a": vec![0; 100_000], "s": "x".repeat(500_000)});
        for expression in [
            "repeat(.)",
            "repeat(empty)",
            "select([repeat(1)])",
            "recurse(.)",
            "until(false; .)",
            "select(last(while(true; .)))",
            "select(last(range(1e15)))",
            "select([range(1e15)])",
            "select([limit(1e15; repeat(1))])",
            "select(first(range(1e15) | select(. < 0)))",
            "select(reduce range(1e15) as $x (0; $x))",
            "select(last(try repeat(error) catch repeat(.)))",
            "(repeat(.))?",
            "select(isempty(range(1e15) | empty))",
            ".a[.a[]][.a[]]",
            "select(all(.a[]; .) | not)",
            "select(.a | contains(.))",
            "select(.a[] + .a[] + .a[] | empty)",
            "select([.a[] | {a: (1, 2, 3, 4), b: (1, 2, 3, 4), c: (1, 2, 3, 4)}])",
            "select(.s|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.|.+.)",
            "select(reduce range(100000) as $i (0; [.]))",
            "select(.s | [.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|[.,.]|tojson)",
            "select(.s | \"\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\\(.)\")",
            "select(.s | [.,.,.,.] | join(.))",
            "select(.a | .[.[1:]])",
        ] {
            let path = JqPath::compile(expression).unwrap_or_else(|e| panic!("{expression}: {e}"));
            let error = path.remove(&mut zeros()).unwrap_err();
            let expected = matches!(error, JqError::TimedOut)
                || error.to_string().contains("too large")
                || error.to_string().contains("index");
            assert!(
                expected,
                "{expression}: {}",
                prefix(&error.to_string(), 200)
            );
        }
        let doubled = vec!["(.,.,.)"; 14].join("|");
        let path = JqPath::compile(&format!("select({doubled}|false)")).unwrap();
        assert_eq!(path.remove(&mut zeros()), Err(JqError::TimedOut));
    }
}
