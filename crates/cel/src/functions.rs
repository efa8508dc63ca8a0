//! The functions that rules can call: those of the library, with what a call can cost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::{Context, Value};

use crate::failure::Failure;
use crate::meter::Meter;
use crate::program::Environment;

/// What the evaluator does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Dyn,
    HasConditions,
    Size,
    Type,
    OptionalNone,
    OptionalOf,
    OptionalOfNonZero,
    OptionalHasValue,
    OptionalValue,
    /// `or` and `orValue`, which look at their argument only if they need it.
    OptionalOr,
    OptionalOrValue,
    Matches,
    Find,
    FindAll,
}

/// A function by name, the same for calls on a target.
#[derive(Debug, Clone)]
pub(crate) enum Function {
    Own(Own),
    Library(Box<Call>),
}

/// A call of a library function, ready to be evaluated once its arguments have their names.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: String,
    expression: IdedExpr,
}

/// Name, fewest and most arguments with the target.
const OWN: &[(&str, Own, usize, usize)] = &[
    ("dyn", Own::Dyn, 1, 1),
    ("find", Own::Find, 2, 2),
    ("findAll", Own::FindAll, 2, 3),
    ("hasConditions", Own::HasConditions, 1, 1),
    ("hasValue", Own::OptionalHasValue, 1, 1),
    ("matches", Own::Matches, 2, 2),
    ("optional.none", Own::OptionalNone, 0, 0),
    ("optional.of", Own::OptionalOf, 1, 1),
    ("optional.ofNonZeroValue", Own::OptionalOfNonZero, 1, 1),
    ("or", Own::OptionalOr, 2, 2),
    ("orValue", Own::OptionalOrValue, 2, 2),
    ("size", Own::Size, 1, 1),
    ("type", Own::Type, 1, 1),
    ("value", Own::OptionalValue, 1, 1),
];

/// Those of the library that upstream has as well: the standard ones, strings, and from
/// Kubernetes lists, URLs, quantities, IP addresses, CIDR, named formats and semantic versions.
const LIBRARY: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "double",
    "duration",
    "endsWith",
    "family",
    "format",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.labelValue",
    "format.named",
    "format.qualifiedName",
    "format.uri",
    "format.uuid",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "indexOf",
    "int",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "masked",
    "max",
    "min",
    "minor",
    "patch",
    "prefixLength",
    "quantity",
    "replace",
    "reverse",
    "semver",
    "sign",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "uint",
    "upperAscii",
    "url",
    "validate",
];

/// Of Kubernetes' rules in schemas only.
const SETS: &[&str] = &["sets.contains", "sets.equivalent", "sets.intersects"];

/// The library's functions. Making this takes longer than evaluating most rules.
pub(crate) static CONTEXT: LazyLock<Context<'static>> =
    LazyLock::new(|| Context::default().with_all());

impl Function {
    /// The function of a name for a call with that many arguments, with the target as the first.
    pub(crate) fn find(
        environment: &Environment,
        name: &str,
        on_target: bool,
        count: usize,
    ) -> Result<Option<Self>, Failure> {
        let own = OWN.iter().find(|(known, ..)| *known == name);
        let own = own.filter(|(_, own, ..)| {
            *own != Own::HasConditions || environment.functions.contains(&name)
        });
        if let Some((_, own, least, most)) = own {
            // Upstream declares these two as functions only.
            let misplaced = on_target && matches!(own, Own::HasConditions | Own::Type);
            if misplaced || count < *least || count > *most {
                return Err(Failure::Error(format!(
                    "ERROR: <input>: found no matching overload for '{name}'"
                )));
            }
            return Ok(Some(Self::Own(*own)));
        }
        let is_set = SETS.contains(&name) && environment.functions.contains(&name);
        if !is_set && !LIBRARY.contains(&name) {
            return Ok(None);
        }
        let mut call = Call::of(name, count);
        if on_target {
            call.on_target();
        }
        Ok(Some(Self::Library(Box::new(call))))
    }
}

/// No expression can have such a name in it.
fn argument(at: usize) -> String {
    format!("@{at}")
}

impl Call {
    /// A call with that many arguments.
    pub(crate) fn of(name: &str, count: usize) -> Self {
        let ident = |at| IdedExpr {
            id: 0,
            expr: Expr::Ident(argument(at)),
        };
        let expr = Expr::Call(CallExpr {
            func_name: name.into(),
            target: None,
            args: (0..count).map(ident).collect(),
        });
        Self {
            name: name.into(),
            expression: IdedExpr { id: 0, expr },
        }
    }

    /// Makes the first argument the target.
    fn on_target(&mut self) {
        if let Expr::Call(call) = &mut self.expression.expr
            && !call.args.is_empty()
        {
            call.target = Some(Box::new(call.args.remove(0)));
        }
    }

    /// The price is paid before the call, as far as the library could take longer than its
    /// arguments are long. Arguments and result are copied.
    pub(crate) fn run(&self, arguments: Vec<Value>, meter: &mut Meter) -> Result<Value, Failure> {
        meter.charge(1)?;
        for argument in &arguments {
            meter.charge_copy(argument)?;
        }
        meter.charge_bytes(self.growth(&arguments))?;
        let mut scope = CONTEXT.new_inner_scope();
        for (at, value) in arguments.into_iter().enumerate() {
            scope.add_variable_from_value(argument(at), value);
        }
        // Quantities of hostile sizes overflow in there.
        let result = catch_unwind(AssertUnwindSafe(|| {
            Value::resolve(&self.expression, &scope)
        }))
        .map_err(|_| Failure::Broken(self.name.clone()))??;
        meter.charge_copy(&result)?;
        Ok(result)
    }

    /// Bytes that a call makes or visits beyond the length of its arguments.
    fn growth(&self, arguments: &[Value]) -> usize {
        let text = |at: usize| match arguments.get(at) {
            Some(Value::String(text)) => text.as_str(),
            _ => "",
        };
        match (self.name.as_str(), arguments) {
            ("replace", _) => {
                let found = text(0).matches(text(1)).count();
                found.saturating_mul(text(2).len())
            }
            ("join", [Value::List(items), ..]) => items.len().saturating_mul(text(1).len()),
            // Each part is a value of its own, and is copied.
            ("split", _) => {
                let parts = match text(1) {
                    "" => text(0).len(),
                    separator => text(0).matches(separator).count(),
                };
                parts.saturating_mul(6 * crate::meter::BYTES_A_UNIT)
            }
            // Compares at each place.
            ("indexOf" | "lastIndexOf", _) => text(0).len().saturating_mul(text(1).len()) / 10,
            ("format", _) => precision(text(0)),
            // Each item of one list is compared with each of the other one.
            ("sets.contains" | "sets.equivalent" | "sets.intersects", [a, b]) => {
                let size = |list: &Value| match list {
                    Value::List(items) => items.len(),
                    _ => 0,
                };
                let pairs = size(a).saturating_mul(size(b));
                pairs.saturating_mul(2 * crate::meter::BYTES_A_UNIT)
            }
            _ => 0,
        }
    }
}

/// The sum of all precisions (`%.6f`) of a format.
fn precision(format: &str) -> usize {
    let digits = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        match &part[..end.unwrap_or(part.len())] {
            "" => 0,
            digits => digits.parse().unwrap_or(usize::MAX),
        }
    };
    let parts = format.split("%.").skip(1);
    parts.map(digits).fold(0, usize::saturating_add)
}

/// Regular expressions of an evaluation, each compiled once.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: Vec<(Arc<String>, regex::Regex, usize)>,
    /// Whether one has been compiled, or could not be.
    tried: bool,
}

/// Sizes that a compiled pattern can have, in bytes, with what each ten bytes of text cost.
///
/// At worst a search visits each state of the pattern for each byte of the text.
const PATTERN_SIZES: [(usize, usize); 3] = [(4 << 10, 2), (16 << 10, 16), (64 << 10, 256)];
/// Cost of compiling the smallest; others cost more by the same factor.
const COMPILE: usize = 500;

impl Patterns {
    /// A pattern, paid for searching `text`.
    pub(crate) fn get(
        &mut self,
        pattern: &Arc<String>,
        text: &str,
        meter: &mut Meter,
    ) -> Result<&regex::Regex, Failure> {
        let at = match self.known.iter().position(|(known, ..)| known == pattern) {
            Some(at) => at,
            None => self.compile(pattern, meter)?,
        };
        let (_, regex, price) = &self.known[at];
        meter.charge(1 + (text.len() / crate::meter::BYTES_A_UNIT).saturating_mul(*price))?;
        Ok(regex)
    }

    fn compile(&mut self, pattern: &Arc<String>, meter: &mut Meter) -> Result<usize, Failure> {
        // The first is on the house: most rules have one, the same each time.
        let free = !std::mem::replace(&mut self.tried, true);
        for (size, price) in PATTERN_SIZES {
            if !free {
                meter.charge(COMPILE * price)?;
            }
            meter.charge_bytes(pattern.len())?;
            match regex::RegexBuilder::new(pattern).size_limit(size).build() {
                Ok(regex) => {
                    self.known.push((Arc::clone(pattern), regex, price));
                    return Ok(self.known.len() - 1);
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    let text = error.to_string();
                    let why = text.lines().last().unwrap_or_default();
                    let why = why.strip_prefix("error: ").unwrap_or(why);
                    return Err(Failure::Error(format!(
                        "error parsing regexp: {why}: `{pattern}`"
                    )));
                }
            }
        }
        Err(Failure::Error(format!(
            "error parsing regexp: expression is too large: `{pattern}`"
        )))
    }
}
