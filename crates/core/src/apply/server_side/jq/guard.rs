//! What keeps an expression within bounds.
//!
//! 1. Only the functions listed here exist; users cannot define others, so that nothing recurses
//!    but what loops here, which runs in constant stack.
//! 2. Every value that any part of the expression gives costs a step, and so does every call.
//!    When the steps are used up, every further one fails, so that also `try` and `?` end.
//! 3. Every value that is put together (sums, texts, lists, objects) is measured, in steps, and
//!    refused above [`MAX_SIZE`] or [`MAX_DEPTH`].
//! 4. What visits, copies or compares a whole value (`sort`, `.[]`, `==`, …) costs steps by the size
//!    of that value.
//!
//! So all that happens takes time in proportion to the steps, save for what happens between the last
//! two, which takes time in proportion to one value.

use jaq_core::box_iter::box_once;
use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::native::{Fun, bome, run, unary, v};
use jaq_core::ops::Math;
use jaq_core::path::{Opt, Part, Path};
use jaq_core::{Error, Native, ValR, ValT as _};
use jaq_json::{Num, Val};
use jaq_std::ValT as _;

use super::{JqError, Paths, Run};

/// Steps of one evaluation: some tenths of a second, and several times what an expression over a
/// large object takes.
pub(super) const STEPS: u64 = 500_000;

/// Largest value that is put together: bytes of texts, and 16 for each value.
const MAX_SIZE: u64 = 2 << 20;

/// Deepest value that is put together. serde_json reads objects half as deep.
const MAX_DEPTH: usize = 256;

/// Bytes that are as much work as a step.
const BYTES_A_STEP: u64 = 64;

/// Bounds a compiled regular expression, in bytes.
const MAX_REGEX_BYTES: usize = 256 << 10;

/// Names that no user can write.
const TICK: &str = "!tick";
const MEASURE: &str = "!measure";
const NO_LIST: &str = "!no_list";
const COST: &str = "!cost";
const COST_OF_LIST: &str = "!cost_of_list";
const COST_TO_COMPARE: &str = "!cost_to_compare";
const COMPARED: &str = "$!compared";

/// Functions that visit all of their input.
const VISIT_INPUT: [&str; 13] = [
    "ascii_downcase",
    "ascii_upcase",
    "group_by",
    "length",
    "ltrim",
    "max_by_or_empty",
    "min_by_or_empty",
    "reverse",
    "rtrim",
    "sort",
    "sort_by",
    "tonumber",
    "trim",
];

/// Functions that visit all of their argument.
const VISIT_ARGUMENT: [&str; 5] = ["endswith", "has", "ltrimstr", "rtrimstr", "startswith"];

/// Functions whose result is put together.
const MAKE_A_VALUE: [&str; 5] = [
    "key_values",
    "keys_unsorted",
    "path",
    "path_value",
    "tojson",
];

/// Definitions taken from the interpreter's libraries, by name and number of arguments.
const DEFINITIONS: [(&str, usize); 59] = [
    ("empty", 0),
    ("error", 0),
    ("error", 1),
    ("true", 0),
    ("false", 0),
    ("not", 0),
    ("select", 1),
    ("tostring", 0),
    ("repeat", 1),
    ("recurse", 0),
    ("recurse", 1),
    ("recurse", 2),
    ("while", 2),
    ("until", 2),
    ("paths", 0),
    ("paths", 1),
    ("getpath", 1),
    ("map", 1),
    ("first", 0),
    ("last", 0),
    ("nth", 1),
    ("nth", 2),
    ("to_entries", 0),
    ("from_entries", 0),
    ("with_entries", 1),
    ("isempty", 1),
    ("all", 0),
    ("all", 1),
    ("all", 2),
    ("any", 0),
    ("any", 1),
    ("any", 2),
    ("null", 0),
    ("isboolean", 0),
    ("isnumber", 0),
    ("isstring", 0),
    ("isarray", 0),
    ("isobject", 0),
    ("type", 0),
    ("values", 0),
    ("nulls", 0),
    ("booleans", 0),
    ("numbers", 0),
    ("strings", 0),
    ("arrays", 0),
    ("objects", 0),
    ("iterables", 0),
    ("scalars", 0),
    ("add", 0),
    ("add", 1),
    ("min_by", 1),
    ("max_by", 1),
    ("min", 0),
    ("max", 0),
    ("unique", 0),
    ("unique_by", 1),
    ("keys", 0),
    ("flatten", 0),
    ("split", 1),
];

/// Definitions of ours: what the libraries do natively without steps, or do not have.
const OWN_DEFINITIONS: &str = r#"
def range($from; $to; $by): $from |
    if $by > 0 then while(. < $to; . + $by)
    elif $by < 0 then while(. > $to; . + $by)
    else while(. != $to; . + $by) end;
def range(from; to): range(from; to; 1);
def range(to): range(0; to; 1);
def contains($x): _both($x) | _contains($x);
def indices($x): _both($x) | _indices($x);
def in(xs): . as $x | xs | has($x);
def inside(xs): . as $x | xs | contains($x);
def index($i): indices($i)[0];
def rindex($i): indices($i)[-1];
def IN(xs): any(xs == .; .);
def IN(source; xs): any(source == xs; .);
def join($s): reduce .[] as $x (null;
    (if . == null then "" else . + $s end)
    + ($x | if . == null then "" elif isstring then . else tojson end)) // "";
def test($re): test($re; "");
"#;

/// Native functions taken from the interpreter's libraries; `range`, `contains` and `indices` are
/// not among them, see above.
const FUNCTIONS: [&str; 30] = [
    "error_empty",
    "path",
    "path_value",
    "keys_unsorted",
    "key_values",
    "first",
    "last",
    "limit",
    "skip",
    "floor",
    "round",
    "ceil",
    "utf8bytelength",
    "ascii_downcase",
    "ascii_upcase",
    "reverse",
    "sort",
    "sort_by",
    "group_by",
    "min_by_or_empty",
    "max_by_or_empty",
    "startswith",
    "endswith",
    "ltrimstr",
    "rtrimstr",
    "trim",
    "ltrim",
    "rtrim",
    "tojson",
    "length",
];

/// Refuses what has no place in an expression.
pub(super) fn check(term: &Term<&str>) -> Result<(), JqError> {
    match term {
        Term::Def(..) => return Err(JqError::Refused("a definition")),
        Term::BinOp(_, operator, _) => match operator {
            BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt => {
                return Err(JqError::Refused("an assignment"));
            }
            BinaryOp::Math(Math::Mul) => return Err(JqError::Refused("a multiplication")),
            _ => {}
        },
        // Ours, for use behind the definitions above.
        Term::Call(name, _) if name.starts_with('_') => {
            return Err(JqError::Undefined(format!("filter {name}")));
        }
        _ => {}
    }
    let mut answer = Ok(());
    each_child(term, &mut |child| {
        if answer.is_ok() {
            answer = check(child);
        }
    });
    answer
}

fn each_child<'t>(term: &'t Term<&'t str>, visit: &mut dyn FnMut(&'t Term<&'t str>)) {
    match term {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Break(_) | Term::Var(_) => {}
        Term::Str(_, parts) => {
            for part in parts {
                if let StrPart::Term(term) = part {
                    visit(term);
                }
            }
        }
        Term::Arr(inner) => inner.iter().for_each(|inner| visit(inner)),
        Term::Obj(entries) => {
            for (key, value) in entries {
                visit(key);
                value.iter().for_each(&mut *visit);
            }
        }
        Term::Neg(inner) | Term::Label(_, inner) => visit(inner),
        Term::BinOp(left, operator, right) => {
            visit(left);
            if let BinaryOp::Pipe(Some(pattern)) = operator {
                each_key(pattern, visit);
            }
            visit(right);
        }
        Term::Fold(_, source, pattern, rest) => {
            visit(source);
            each_key(pattern, visit);
            rest.iter().for_each(visit);
        }
        Term::TryCatch(body, catch) => {
            visit(body);
            if let Some(catch) = catch {
                visit(catch);
            }
        }
        Term::IfThenElse(branches, otherwise) => {
            for (condition, then) in branches {
                visit(condition);
                visit(then);
            }
            if let Some(otherwise) = otherwise {
                visit(otherwise);
            }
        }
        Term::Def(definitions, body) => {
            for definition in definitions {
                visit(&definition.body);
            }
            visit(body);
        }
        Term::Call(_, args) => args.iter().for_each(visit),
        Term::Path(head, path) => {
            visit(head);
            for (part, _) in &path.0 {
                match part {
                    Part::Index(index) => visit(index),
                    Part::Range(from, to) => from.iter().chain(to).for_each(&mut *visit),
                }
            }
        }
    }
}

fn each_key<'t>(pattern: &'t Pattern<&'t str>, visit: &mut dyn FnMut(&'t Term<&'t str>)) {
    match pattern {
        Pattern::Var(_) => {}
        Pattern::Arr(items) => items.iter().for_each(|item| each_key(item, visit)),
        Pattern::Obj(entries) => {
            for (key, pattern) in entries {
                visit(key);
                each_key(pattern, visit);
            }
        }
    }
}

/// How an expression is guarded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    /// What is not there, or is of another type, is passed over instead of an error.
    pub(super) lenient: bool,
}

impl Guard {
    /// The term with steps counted and sizes measured.
    ///
    /// What passes the values of its parts on as they are is left alone, since its parts count them;
    /// calls count before and not after, so that a loop stays a tail call.
    pub(super) fn term(self, term: Term<&str>) -> Term<&str> {
        match term {
            Term::Var("$ENV") => Term::Obj(Vec::new()),
            Term::Id | Term::Recurse | Term::Num(_) | Term::Var(_) => then(term, TICK),
            Term::Break(_) => term,
            Term::Str(format, parts) => self.text(format, parts),
            Term::Arr(inner) => then(Term::Arr(inner.map(|term| self.boxed(term))), MEASURE),
            Term::Obj(entries) => {
                let entries = entries
                    .into_iter()
                    .map(|(key, value)| (self.key(key), value.map(|term| self.term(term))));
                then(Term::Obj(entries.collect()), MEASURE)
            }
            Term::Neg(inner) => then(Term::Neg(self.boxed(inner)), TICK),
            Term::BinOp(left, operator, right) => {
                let visits_both = matches!(operator, BinaryOp::Cmp(_) | BinaryOp::Math(Math::Sub));
                let after = match operator {
                    BinaryOp::Math(_) => Some(MEASURE),
                    BinaryOp::Cmp(_) | BinaryOp::And | BinaryOp::Or => Some(TICK),
                    _ => None,
                };
                let operator = match operator {
                    BinaryOp::Pipe(pattern) => {
                        BinaryOp::Pipe(pattern.map(|pattern| self.pattern(pattern)))
                    }
                    other => other,
                };
                let right = self.boxed(right);
                let term = if visits_both {
                    costly(self.term(*left), operator, right)
                } else {
                    Term::BinOp(self.boxed(left), operator, right)
                };
                match after {
                    Some(after) => then(term, after),
                    None => term,
                }
            }
            Term::Label(name, inner) => Term::Label(name, self.boxed(inner)),
            Term::Fold(name, source, pattern, rest) => {
                let rest = rest.into_iter().map(|term| self.term(term)).collect();
                then(
                    Term::Fold(name, self.boxed(source), self.pattern(pattern), rest),
                    TICK,
                )
            }
            Term::TryCatch(body, catch) => {
                Term::TryCatch(self.boxed(body), catch.map(|term| self.boxed(term)))
            }
            Term::IfThenElse(branches, otherwise) => {
                let branches = branches
                    .into_iter()
                    .map(|(condition, then)| (self.term(condition), self.term(then)));
                Term::IfThenElse(branches.collect(), otherwise.map(|term| self.boxed(term)))
            }
            Term::Def(definitions, body) => Term::Def(
                definitions
                    .into_iter()
                    .map(|def| self.definition(def))
                    .collect(),
                self.boxed(body),
            ),
            Term::Call("env", args) if args.is_empty() => Term::Obj(Vec::new()),
            Term::Call(name, args) => {
                let args = args.into_iter().map(|arg| match name {
                    // What fails to be compared is not meant.
                    "select" if self.lenient => self.term(Term::TryCatch(arg.into(), None)),
                    _ if VISIT_ARGUMENT.contains(&name) => then(self.term(arg), COST),
                    _ => self.term(arg),
                });
                let mut call = Term::Call(name, args.collect());
                if MAKE_A_VALUE.contains(&name) {
                    call = then(call, MEASURE);
                }
                if VISIT_INPUT.contains(&name) {
                    call = pipe(Term::Call(COST, Vec::new()), call);
                }
                pipe(Term::Call(TICK, Vec::new()), call)
            }
            Term::Path(head, path) => {
                let head = match *head {
                    Term::Id => Term::Id,
                    other => self.term(other),
                };
                then(self.path(head, path), TICK)
            }
        }
    }

    /// A path from a term; what is gone through item by item is copied for that, all of it at once.
    fn path<'s>(self, head: Term<&'s str>, path: Path<Term<&'s str>>) -> Term<&'s str> {
        let opt = |opt| if self.lenient { Opt::Optional } else { opt };
        let mut head = head;
        let mut parts = Vec::new();
        for (part, how) in path.0 {
            let part = match part {
                Part::Index(index) => Part::Index(then(self.term(index), NO_LIST)),
                Part::Range(from, to) => {
                    if !parts.is_empty() {
                        head = Term::Path(head.into(), Path(std::mem::take(&mut parts)));
                    }
                    head = then(head, COST_OF_LIST);
                    Part::Range(
                        from.map(|term| self.term(term)),
                        to.map(|term| self.term(term)),
                    )
                }
            };
            parts.push((part, opt(how)));
        }
        Term::Path(head.into(), Path(parts))
    }

    // A box in, a box out: terms are trees of boxes.
    #[allow(clippy::boxed_local, reason = "terms are made of boxes")]
    fn boxed(self, term: Box<Term<&str>>) -> Box<Term<&str>> {
        self.term(*term).into()
    }

    /// A key of an object that is a plain text means something to the compiler as it is.
    fn key(self, key: Term<&str>) -> Term<&str> {
        match key {
            Term::Str(..) | Term::Var(_) | Term::Num(_) => key,
            other => self.term(other),
        }
    }

    fn pattern(self, pattern: Pattern<&str>) -> Pattern<&str> {
        match pattern {
            Pattern::Var(_) => pattern,
            Pattern::Arr(items) => Pattern::Arr(
                items
                    .into_iter()
                    .map(|pattern| self.pattern(pattern))
                    .collect(),
            ),
            Pattern::Obj(entries) => Pattern::Obj(
                entries
                    .into_iter()
                    .map(|(key, pattern)| (self.key(key), self.pattern(pattern)))
                    .collect(),
            ),
        }
    }

    fn definition(self, definition: Def<&str>) -> Def<&str> {
        Def {
            body: self.term(definition.body),
            ..definition
        }
    }

    /// A text; one with values in it is put together piece by piece, each measured.
    fn text<'s>(
        self,
        format: Option<&'s str>,
        parts: Vec<StrPart<&'s str, Term<&'s str>>>,
    ) -> Term<&'s str> {
        if parts.iter().all(|part| !matches!(part, StrPart::Term(_))) {
            return then(Term::Str(format, parts), TICK);
        }
        let empty = Term::Str(None, Vec::new());
        parts.into_iter().fold(empty, |sum, part| {
            let part = match part {
                StrPart::Term(term) => StrPart::Term(self.term(term)),
                plain => plain,
            };
            let piece = then(Term::Str(format, vec![part]), MEASURE);
            let sum = Term::BinOp(sum.into(), BinaryOp::Math(Math::Add), piece.into());
            then(sum, MEASURE)
        })
    }
}

fn pipe<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    Term::BinOp(left.into(), BinaryOp::Pipe(None), right.into())
}

fn then<'s>(term: Term<&'s str>, name: &'static str) -> Term<&'s str> {
    pipe(term, Term::Call(name, Vec::new()))
}

/// An operator that visits both of its values: they are compared as far as the smaller one goes.
fn costly<'s>(
    left: Term<&'s str>,
    operator: BinaryOp<&'s str>,
    right: Box<Term<&'s str>>,
) -> Term<&'s str> {
    let compared = Term::Var(COMPARED);
    let left = pipe(left, Term::Call(COST_TO_COMPARE, vec![compared.clone()]));
    let term = Term::BinOp(left.into(), operator, compared.into());
    let bind = BinaryOp::Pipe(Some(Pattern::Var(COMPARED)));
    Term::BinOp(right, bind, term.into())
}

/// All definitions that an expression can use, guarded.
pub(super) fn definitions<'s>() -> impl Iterator<Item = Def<&'s str>> {
    let libraries = jaq_core::defs()
        .chain(jaq_std::defs())
        .filter(|def| DEFINITIONS.contains(&(def.name, def.args.len())));
    let own = jaq_core::load::parse(OWN_DEFINITIONS, |parser| parser.defs()).unwrap_or_default();
    let guard = Guard { lenient: false };
    libraries
        .chain(own)
        .map(move |definition| -> Def<&'s str> { guard.definition(definition) })
}

/// All functions that an expression can use.
pub(super) fn functions() -> impl Iterator<Item = Fun<Paths>> {
    let libraries = jaq_core::funs()
        .chain(jaq_std::base_funs())
        .chain(jaq_json::funs())
        .filter_map(|(name, args, function)| match name {
            "contains" => Some(("_contains", args, function)),
            "indices" => Some(("_indices", args, function)),
            "has" => Some((name, args, function)),
            _ => FUNCTIONS.contains(&name).then_some((name, args, function)),
        });
    libraries.chain(own_functions())
}

fn own_functions() -> Vec<Fun<Paths>> {
    let through = |name, check: Native<Paths>| (name, v(0), check);
    vec![
        through(
            TICK,
            Native::new(|cv| bome(spend(*cv.0.data(), 1).map(|()| cv.1)))
                .with_paths(|cv| {
                    let spent = spend(*cv.0.data(), 1);
                    box_once(spent.map(|()| cv.1).map_err(Into::into))
                })
                .with_update(|cv, update| match spend(*cv.0.data(), 1) {
                    Ok(()) => update(cv.1),
                    Err(error) => bome(Err(error)),
                }),
        ),
        through(
            COST_OF_LIST,
            Native::new(|cv| bome(spend(*cv.0.data(), cost_of_list(&cv.1)).map(|()| cv.1)))
                .with_paths(|cv| {
                    let spent = spend(*cv.0.data(), cost_of_list(&cv.1.0));
                    box_once(spent.map(|()| cv.1).map_err(Into::into))
                }),
        ),
        through(
            COST,
            Native::new(|cv| bome(spend(*cv.0.data(), cost(&cv.1)).map(|()| cv.1))),
        ),
        run((COST_TO_COMPARE, v(1), |cv| {
            let data = *cv.0.data();
            unary(cv, move |left, right| {
                spend(data, cost_to_compare(&left, &right))?;
                Ok(left)
            })
        })),
        through(
            MEASURE,
            Native::new(|cv| bome(measure(*cv.0.data(), &cv.1).map(|_| cv.1))),
        ),
        through(
            NO_LIST,
            Native::new(|cv| {
                bome(match cv.1 {
                    Val::Arr(_) => Err(fail("cannot use a list as an index")),
                    other => spend(*cv.0.data(), cost(&other)).map(|()| other),
                })
            }),
        ),
        run(("_both", v(1), |cv| {
            let data = *cv.0.data();
            unary(cv, move |left, right| {
                let (a, b) = (measure(data, &left)?, measure(data, &right)?);
                spend(data, (a / 16).saturating_mul(b / 16) / 8)?;
                Ok(left)
            })
        })),
        run(("tonumber", v(0), |cv| bome(to_number(cv.1)))),
        run(("test", v(2), |mut cv| {
            let flags = cv.0.pop_var();
            let pattern = cv.0.pop_var();
            let data = *cv.0.data();
            bome(matches(data, &cv.1, &pattern, &flags))
        })),
    ]
}

fn fail(text: &str) -> Error<Val> {
    Error::new(Val::from(text.to_owned()))
}

fn spend(run: Run<'_>, steps: u64) -> Result<(), Error<Val>> {
    let left = run.budget.get().saturating_sub(steps);
    run.budget.set(left);
    if left == 0 {
        return Err(fail("too many steps"));
    }
    Ok(())
}

/// The size of a value. Stops where it is too large: shared parts may make it far larger than
/// the memory it takes.
fn measure(run: Run<'_>, value: &Val) -> Result<u64, Error<Val>> {
    let mut walk = Walk::of(value);
    while walk.step() {
        if walk.size > MAX_SIZE || walk.depth > MAX_DEPTH {
            return Err(fail("value is too large"));
        }
    }
    spend(run, walk.size / BYTES_A_STEP + 1)?;
    Ok(walk.size)
}

/// Steps to visit all of a value; one that is small costs nothing beside the step of its own.
fn cost(value: &Val) -> u64 {
    let mut walk = Walk::of(value);
    while walk.size / BYTES_A_STEP < STEPS && walk.step() {}
    walk.size / BYTES_A_STEP
}

/// Steps to visit both of two values side by side until one comes to its end.
fn cost_to_compare(left: &Val, right: &Val) -> u64 {
    let (mut left, mut right) = (Walk::of(left), Walk::of(right));
    while left.size / BYTES_A_STEP < STEPS && left.step() && right.step() {}
    left.size.min(right.size) / BYTES_A_STEP
}

/// Steps to copy a list or an object, which are lists of references.
fn cost_of_list(value: &Val) -> u64 {
    let length = match value {
        Val::Arr(items) => items.len(),
        Val::Obj(entries) => entries.len(),
        _ => 0,
    };
    length as u64 * 16 / BYTES_A_STEP
}

/// Goes through a value part by part.
struct Walk<'v> {
    open: Vec<(&'v Val, usize)>,
    size: u64,
    depth: usize,
}

impl<'v> Walk<'v> {
    fn of(value: &'v Val) -> Self {
        Self {
            open: vec![(value, 0)],
            size: 0,
            depth: 0,
        }
    }

    /// Visits the next part, if there is one.
    fn step(&mut self) -> bool {
        let Some((value, depth)) = self.open.pop() else {
            return false;
        };
        self.depth = depth;
        self.size += 16;
        match value {
            Val::TStr(text) | Val::BStr(text) => self.size += text.len() as u64,
            Val::Num(Num::BigInt(integer)) => self.size += integer.bits() / 8,
            Val::Num(Num::Dec(digits)) => self.size += digits.len() as u64,
            Val::Arr(items) => self.open.extend(items.iter().map(|item| (item, depth + 1))),
            Val::Obj(entries) => {
                for (key, item) in entries.iter() {
                    self.open.extend([(key, depth + 1), (item, depth + 1)]);
                }
            }
            Val::Null | Val::Bool(_) | Val::Num(_) => {}
        }
        true
    }
}

fn to_number(value: Val) -> ValR<Val> {
    match &value {
        Val::Num(_) => Ok(value),
        _ => match value.as_utf8_bytes().map(str::from_utf8) {
            Some(Ok(text)) if text.parse::<f64>().is_ok() => Val::from_num(text),
            _ => Err(fail("cannot parse as number")),
        },
    }
}

/// Whether a text matches a regular expression; it takes linear time.
fn matches(run: Run<'_>, text: &Val, pattern: &Val, flags: &Val) -> ValR<Val> {
    let string = |value: &'_ Val| match value.as_utf8_bytes().map(str::from_utf8) {
        Some(Ok(text)) => Ok(text.to_owned()),
        _ => Err(fail("test needs texts")),
    };
    let (text, pattern) = (string(text)?, string(pattern)?);
    let mut builder = regex::RegexBuilder::new(&pattern);
    builder.size_limit(MAX_REGEX_BYTES);
    for flag in string(flags)?.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            'x' => builder.ignore_whitespace(true),
            's' => builder.dot_matches_new_line(true),
            'g' => &mut builder,
            _ => return Err(fail("test knows the flags i, x, s and g")),
        };
    }
    // Compiling is the larger part; it stops at its size limit.
    spend(run, 500 + text.len() as u64)?;
    let regex = builder
        .build()
        .map_err(|error| fail(&format!("bad regular expression: {error}")))?;
    Ok(Val::from(regex.is_match(&text)))
}
