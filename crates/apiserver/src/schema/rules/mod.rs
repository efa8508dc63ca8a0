//! `x-kubernetes-validations`: rules in CEL.
//!
//! Their texts are compiled with the schema. A rule whose estimated cost is too high is refused with
//! the schema, and what an evaluation really costs is counted, as kube-apiserver does both.
//!
//! Differs from upstream: the names and types in rules are not checked with the schema, only when
//! a rule is evaluated; all rules of a schema together have a longest text.

mod declared;
#[cfg(test)]
mod tests;
mod values;

use muster_cel::{Environment, Evaluation, Failure, Program, Value};
use serde_json::{Value as Json, json};

use super::{ListType, MAX_ERRORS, Path, Schema};
use crate::status::{FieldError, go_value};
use declared::{Sizes, sizes_of};
use values::{escape, value_of};

/// What one rule may cost by its estimate, in units of CEL.
const MAX_RULE_ESTIMATE: u64 = 10_000_000;
/// What all rules of a schema may cost together by their estimates.
const MAX_SCHEMA_ESTIMATE: u64 = 100_000_000;
/// How many of the most expensive rules are named when the sum is too high.
const NAMED_EXPENSIVE_RULES: usize = 4;
/// What one evaluation may cost.
const CALL_BUDGET: u64 = 1_000_000;
/// What all evaluations for one object may cost together.
const OBJECT_BUDGET: u64 = 10_000_000;
/// Least that an evaluation counts for, so that rules which cost nothing come to an end as well.
const LEAST_COST: u64 = 5;
/// Longest text of one rule, in characters, as in cel-go.
const MAX_RULE_CHARACTERS: usize = 100_000;
/// Longest text of all rules of a schema together, in bytes: parsing takes time with each.
const MAX_RULES_BYTES: usize = 512 << 10;
/// Longest message that an expression gives, in bytes.
const MAX_MESSAGE_BYTES: usize = 5120;

const RULES: &str = "x-kubernetes-validations";

/// What rules and their messages can refer to.
const ENVIRONMENT: Environment = Environment {
    variables: &["self", "oldSelf"],
    functions: &["sets.contains", "sets.equivalent", "sets.intersects"],
    max_characters: MAX_RULE_CHARACTERS,
};
/// Place of `oldSelf` among the variables.
const OLD: usize = 1;

/// The compiled rules of a schema.
pub(crate) struct Rules {
    root: Level,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

/// The rules of one schema, and those of the schemas below it that have some.
#[derive(Default)]
struct Level {
    rules: Vec<Rule>,
    properties: Vec<(String, Self)>,
    items: Option<Box<Self>>,
    additional: Option<Box<Self>>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
    }
}

struct Rule {
    /// Why there is none, if it does not compile. Schemas that were stored by another release can
    /// have such.
    program: Result<Program, Failure>,
    text: String,
    message: Option<String>,
    message_program: Option<Program>,
    reason: Option<String>,
    field_path: Option<String>,
    optional_old: bool,
}

impl Rule {
    /// The rule as failures name it.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(self.text.trim())
    }

    fn needs_old(&self) -> bool {
        let refers = |program: &Program| program.refers_to(OLD);
        !self.optional_old && self.program.as_ref().is_ok_and(refers)
    }
}

/// What is wrong with the rules of a schema document, at `path`; empty if nothing is.
pub(crate) fn problems(document: &Json, path: &str) -> Vec<FieldError> {
    let mut compiler = Compiler::new(true);
    compiler.level(document, path, true, Some(1));
    let mut errors = compiler.errors;
    if compiler.total > MAX_SCHEMA_ESTIMATE {
        let mut expensive = compiler.estimates;
        expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        expensive.truncate(NAMED_EXPENSIVE_RULES);
        for (_, path) in expensive {
            errors.push(FieldError::forbidden(
                path,
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            ));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let text = too_expensive(name, compiler.total, MAX_SCHEMA_ESTIMATE);
        errors.push(FieldError::forbidden(path, &text));
    }
    errors
}

/// In the words of kube-apiserver.
fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a factor for people")]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, \
         maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Compiles the rules of a document, and estimates them if there is somebody to tell.
struct Compiler {
    estimates_wanted: bool,
    errors: Vec<FieldError>,
    /// Of all rules.
    total: u64,
    estimates: Vec<(u64, String)>,
    bytes: usize,
}

impl Compiler {
    fn new(estimates_wanted: bool) -> Self {
        Self {
            estimates_wanted,
            errors: Vec::new(),
            total: 0,
            estimates: Vec::new(),
            bytes: 0,
        }
    }

    /// `count` is how many values of this schema an object can have; none if that has no bound
    /// but the size of a request.
    fn level(
        &mut self,
        document: &Json,
        path: &str,
        is_resource: bool,
        count: Option<u64>,
    ) -> (Level, Sizes) {
        let mut level = Level::default();
        let times = |name: &str| {
            let most = document.get(name).and_then(Json::as_u64);
            Some(count?.saturating_mul(most?))
        };
        let sizes = sizes_of(document, is_resource, |name, child| {
            let (kind, path, count) = match name {
                "items" if document.get("type") == Some(&json!("array")) => {
                    (name, format!("{path}.items"), times("maxItems"))
                }
                "additionalProperties" if document.get(name) == Some(child) => {
                    (name, format!("{path}.{name}"), times("maxProperties"))
                }
                _ => ("", format!("{path}.properties[{name}]"), count),
            };
            let (below, sizes) = self.level(child, &path, false, count);
            if !below.is_empty() {
                match kind {
                    "items" => level.items = Some(Box::new(below)),
                    "additionalProperties" => level.additional = Some(Box::new(below)),
                    _ => level.properties.push((name.to_owned(), below)),
                }
            }
            sizes
        });
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let parts = document.get(keyword).and_then(Json::as_array);
            for (at, part) in parts.into_iter().flatten().enumerate() {
                self.forbid(part, &format!("{path}.{keyword}[{at}]"));
            }
        }
        if let Some(part) = document.get("not") {
            self.forbid(part, &format!("{path}.not"));
        }
        let rules = document.get(RULES).and_then(Json::as_array);
        for (at, rule) in rules.into_iter().flatten().enumerate() {
            let path = format!("{path}.{RULES}[{at}]");
            level.rules.push(self.rule(rule, &path, &sizes, count));
        }
        (level, sizes)
    }

    /// Rules in parts of a schema that only say what a value must not look like.
    fn forbid(&mut self, document: &Json, path: &str) {
        if document.get(RULES).is_some() {
            let path = format!("{path}.{RULES}");
            self.report(|| FieldError::forbidden(path, "must be empty to be structural"));
        }
        let lists = ["allOf", "anyOf", "oneOf"].map(|name| document.get(name));
        let maps = ["properties"].map(|name| document.get(name));
        let children = ["not", "items", "additionalProperties"].map(|name| document.get(name));
        let lists = lists.into_iter().flatten().filter_map(Json::as_array);
        let maps = maps.into_iter().flatten().filter_map(Json::as_object);
        let all = lists
            .flatten()
            .chain(maps.flat_map(|fields| fields.values()))
            .chain(children.into_iter().flatten());
        for child in all {
            self.forbid(child, path);
        }
    }

    fn report(&mut self, error: impl FnOnce() -> FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error());
        }
    }

    fn rule(&mut self, rule: &Json, path: &str, sizes: &Sizes, count: Option<u64>) -> Rule {
        let text = |name: &str| rule.get(name).and_then(Json::as_str);
        let source = text("rule").unwrap_or_default();
        let program = self.compile(source);
        match &program {
            Ok(program) => self.estimate(program, "rule", path, sizes, count),
            Err(failure) => {
                let path = format!("{path}.rule");
                self.report(|| {
                    let value = spelled(rule);
                    let why = format!("compilation failed: {failure}");
                    FieldError::invalid_text(path, &value, &why)
                });
            }
        }
        let expression = text("messageExpression").filter(|text| !text.trim().is_empty());
        let message_program = expression.map(|source| self.compile(source));
        match &message_program {
            Some(Ok(program)) => self.estimate(program, "messageExpression", path, sizes, count),
            Some(Err(failure)) => {
                let path = format!("{path}.messageExpression");
                self.report(|| {
                    let value = spelled(rule);
                    let why = format!("messageExpression compilation failed: {failure}");
                    FieldError::invalid_text(path, &value, &why)
                });
            }
            None => {}
        }
        Rule {
            program,
            text: source.to_owned(),
            message: text("message").filter(|m| !m.is_empty()).map(str::to_owned),
            message_program: message_program.and_then(Result::ok),
            reason: text("reason").map(str::to_owned),
            field_path: text("fieldPath")
                .filter(|p| !p.is_empty())
                .map(str::to_owned),
            optional_old: rule.get("optionalOldSelf") == Some(&Json::Bool(true)),
        }
    }

    fn compile(&mut self, source: &str) -> Result<Program, Failure> {
        self.bytes = self.bytes.saturating_add(source.len());
        if self.bytes > MAX_RULES_BYTES {
            return Err(Failure::Error(format!(
                "the rules of a schema may have {MAX_RULES_BYTES} bytes together"
            )));
        }
        Program::compile(source, &ENVIRONMENT)
    }

    fn estimate(
        &mut self,
        program: &Program,
        what: &str,
        path: &str,
        sizes: &Sizes,
        count: Option<u64>,
    ) {
        if !self.estimates_wanted {
            return;
        }
        let variables = [sizes.declared.clone(), sizes.declared.clone()];
        let times = count.unwrap_or_else(|| sizes.max_count());
        let cost = program.estimate(&variables).saturating_mul(times);
        let path = format!("{path}.{what}");
        if cost > MAX_RULE_ESTIMATE {
            let path = path.clone();
            self.report(|| {
                let name = format!("estimated {what} cost");
                FieldError::forbidden(path, &too_expensive(&name, cost, MAX_RULE_ESTIMATE))
            });
        }
        self.total = self.total.saturating_add(cost);
        self.estimates.push((cost, path));
    }
}

/// A rule as Go spells it in errors.
fn spelled(rule: &Json) -> String {
    // Go escapes these in texts.
    let text = |name: &str| {
        let text = rule.get(name).and_then(Json::as_str).unwrap_or_default();
        let text = json!(text).to_string();
        text.replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
    };
    let given = |name: &str| rule.get(name).unwrap_or(&Json::Null).to_string();
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        given("reason"),
        text("fieldPath"),
        given("optionalOldSelf"),
    )
}

impl Rules {
    /// Compiles the rules of a schema that has some. Those that do not compile refuse every
    /// object; [`problems`] names them before a schema is stored.
    pub(super) fn compile(document: &Json) -> Option<Self> {
        let (root, _) = Compiler::new(false).level(document, "", true, Some(1));
        (!root.is_empty()).then_some(Self { root })
    }

    /// Checks an object, whose schema this is; transition rules compare it with the stored one.
    pub(crate) fn validate(
        &self,
        schema: &Schema,
        object: &Json,
        old: Option<&Json>,
        errors: &mut Vec<FieldError>,
    ) {
        self.validate_within(OBJECT_BUDGET, schema, object, old, errors);
    }

    fn validate_within(
        &self,
        budget: u64,
        schema: &Schema,
        object: &Json,
        old: Option<&Json>,
        errors: &mut Vec<FieldError>,
    ) -> u64 {
        let value = value_of(Some(schema), object);
        let old_value = old.map(|old| value_of(Some(schema), old));
        let mut check = Check {
            errors,
            left: budget,
        };
        let seen = Seen {
            json: object,
            value: &value,
        };
        let old = old.zip(old_value.as_ref());
        let old = old.map(|(json, value)| Seen { json, value });
        // Whoever gave up has reported why.
        let _ = check.level(&self.root, schema, seen, old, Path::ROOT);
        budget - check.left
    }
}

/// A part of an object, in both forms.
#[derive(Clone, Copy)]
struct Seen<'a> {
    json: &'a Json,
    value: &'a Value,
}

impl<'a> Seen<'a> {
    fn field(self, name: &str, known_as: &str) -> Option<Self> {
        Some(Self {
            json: self.json.get(name)?,
            value: muster_cel::field(self.value, known_as)?,
        })
    }

    fn items(self) -> impl Iterator<Item = Self> + 'a {
        let json = self.json.as_array().map(Vec::as_slice).unwrap_or_default();
        let pairs = json.iter().zip(muster_cel::items(self.value));
        pairs.map(|(json, value)| Self { json, value })
    }
}

/// No rules are evaluated any more, for a reason that has been reported.
struct GaveUp;

struct Check<'a> {
    errors: &'a mut Vec<FieldError>,
    /// What is left of the budget.
    left: u64,
}

impl Check<'_> {
    /// As deep as the object.
    fn level(
        &mut self,
        level: &Level,
        schema: &Schema,
        seen: Seen<'_>,
        old: Option<Seen<'_>>,
        path: Path<'_>,
    ) -> Result<(), GaveUp> {
        if seen.json.is_null() {
            return Ok(());
        }
        for rule in &level.rules {
            self.rule(rule, seen, old, path)?;
        }
        for (name, below) in &level.properties {
            let Some(property) = schema.property(name) else {
                continue;
            };
            let known_as = escape(name);
            if let Some(field) = seen.field(name, &known_as) {
                let old = old.and_then(|old| old.field(name, &known_as));
                self.level(below, property, field, old, path.field(name))?;
            }
        }
        if let (Some(below), super::Additional::Schema(values)) =
            (&level.additional, &schema.additional)
            && let Some(fields) = seen.json.as_object()
        {
            for name in fields.keys() {
                if let Some(field) = seen.field(name, name) {
                    let old = old.and_then(|old| old.field(name, name));
                    self.level(below, values, field, old, path.key(name))?;
                }
            }
        }
        if let (Some(below), Some(of)) = (&level.items, &schema.items) {
            let known = Correlated::new(&schema.list_type, old);
            for (at, item) in seen.items().enumerate() {
                let old = known.get(item.json);
                self.level(below, of, item, old, path.item(at))?;
            }
        }
        Ok(())
    }

    fn rule(
        &mut self,
        rule: &Rule,
        seen: Seen<'_>,
        old: Option<Seen<'_>>,
        path: Path<'_>,
    ) -> Result<(), GaveUp> {
        let program = match &rule.program {
            Ok(program) => program,
            Err(failure) => {
                return self.fail(path, seen, &format!("rule compile error: {failure}"));
            }
        };
        if old.is_none() && rule.needs_old() {
            return Ok(());
        }
        let old = match (old, rule.optional_old) {
            (Some(old), true) => muster_cel::some(old.value.clone()),
            (None, true) => muster_cel::none(),
            (Some(old), false) => old.value.clone(),
            (None, false) => Value::Null,
        };
        let variables = [seen.value.clone(), old];
        let limit = self.left.min(CALL_BUDGET);
        let mut evaluation = Evaluation::new(&variables, limit);
        let outcome = evaluation.truth(program);
        let spent = evaluation.used().max(LEAST_COST);
        if spent > self.left {
            return self.run_out(path, seen);
        }
        self.left -= spent;
        match outcome {
            Ok(true) => Ok(()),
            Ok(false) => self.refuse(rule, &variables, seen, path),
            Err(failure @ Failure::TooExpensive) => {
                let name = rule.name();
                let why = format!(
                    "'{failure}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                self.fail(path, seen, &why)?;
                Err(GaveUp)
            }
            Err(Failure::Error(why)) if why.starts_with("no such overload") => {
                let name = rule.name();
                let why = format!(
                    "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                );
                self.fail(path, seen, &why)
            }
            Err(failure) => self.fail(
                path,
                seen,
                &format!("{failure} evaluating rule: {}", rule.name()),
            ),
        }
    }

    /// Reports that a rule does not hold.
    fn refuse(
        &mut self,
        rule: &Rule,
        variables: &[Value],
        seen: Seen<'_>,
        path: Path<'_>,
    ) -> Result<(), GaveUp> {
        let mut message = None;
        if let Some(program) = &rule.message_program {
            let mut evaluation = Evaluation::new(variables, self.left.min(CALL_BUDGET));
            let text = evaluation.text(program);
            let spent = evaluation.used().max(LEAST_COST);
            if spent > self.left {
                return self.run_out(path, seen);
            }
            self.left -= spent;
            let text = text.unwrap_or_default();
            let text = text.trim();
            let is_fine =
                !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
            message = is_fine.then(|| text.to_owned());
        }
        let detail = message
            .or_else(|| rule.message.clone())
            .unwrap_or_else(|| format!("failed rule: {}", rule.text.trim()));
        let (reason, prefix) = match rule.reason.as_deref() {
            Some("FieldValueForbidden") => ("FieldValueForbidden", "Forbidden"),
            Some("FieldValueRequired") => ("FieldValueRequired", "Required value"),
            Some("FieldValueDuplicate") => ("FieldValueDuplicate", "Duplicate value"),
            _ => ("FieldValueInvalid", "Invalid value"),
        };
        // A value with fields or items is left out, and so is that of another field.
        let is_plain = !seen.json.is_object() && !seen.json.is_array();
        let is_told = reason == "FieldValueInvalid" && is_plain && rule.field_path.is_none();
        let value = if is_told {
            format!(" {}:", go_value(seen.json))
        } else {
            String::new()
        };
        let field = match rule.field_path.as_deref() {
            Some(below) => format!("{path}{below}").trim_start_matches('.').to_owned(),
            None => path.to_string(),
        };
        self.push(FieldError {
            reason,
            message: format!("{prefix}:{value} {detail}"),
            field,
        })
    }

    fn run_out(&mut self, path: Path<'_>, seen: Seen<'_>) -> Result<(), GaveUp> {
        self.left = 0;
        let why = "validation failed due to running out of cost budget, no further validation rules will be run";
        self.fail(path, seen, why)?;
        Err(GaveUp)
    }

    /// Reports a rule that gave no answer, with the type of the value.
    fn fail(&mut self, path: Path<'_>, seen: Seen<'_>, why: &str) -> Result<(), GaveUp> {
        let kind = match seen.json {
            Json::Object(_) => "object",
            Json::Array(_) => "array",
            Json::String(_) => "string",
            Json::Bool(_) => "boolean",
            Json::Number(number) if number.is_f64() => "number",
            Json::Number(_) => "integer",
            Json::Null => "null",
        };
        self.push(FieldError::invalid_text(
            path.to_string(),
            &format!("{kind:?}"),
            why,
        ))
    }

    fn push(&mut self, error: FieldError) -> Result<(), GaveUp> {
        self.errors.push(error);
        if self.errors.len() < MAX_ERRORS {
            Ok(())
        } else {
            Err(GaveUp)
        }
    }
}

/// The items of a stored list, found by their keys.
struct Correlated<'a> {
    keys: &'a [String],
    known: std::collections::HashMap<String, Seen<'a>>,
}

impl<'a> Correlated<'a> {
    fn new(list_type: &'a ListType, old: Option<Seen<'a>>) -> Self {
        let keys: &[String] = match list_type {
            ListType::Map(keys) => keys,
            // Items that cannot be told apart have no past.
            ListType::Atomic | ListType::Set => &[],
        };
        let old = old.filter(|_| !keys.is_empty());
        let items = old.into_iter().flat_map(Seen::items);
        let known = items.map(|item| (key_of(keys, item.json), item)).collect();
        Self { keys, known }
    }

    fn get(&self, item: &Json) -> Option<Seen<'a>> {
        if self.known.is_empty() {
            return None;
        }
        self.known.get(&key_of(self.keys, item)).copied()
    }
}

fn key_of(keys: &[String], item: &Json) -> String {
    let parts = keys.iter().map(|key| item.get(key).unwrap_or(&Json::Null));
    Json::Array(parts.cloned().collect()).to_string()
}
