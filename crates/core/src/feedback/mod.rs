//! Which values a work reports of its live objects (`ocm`: `pkg/work/spoke/statusfeedback`).
//!
//! The feedback rules of a manifest are compiled once for each work spec into a
//! [`FeedbackPlan`]; each look at the object then evaluates the plan and gives the values, and the
//! errors beside them: a path that fails does not hide the values of the others.
//!
//! Differs from upstream: a value whose name was used before is left out with an error, since the
//! API server would refuse the whole status over it; values that would show data of a Secret are
//! refused; more kinds have well-known values, and a kind without any is no error; an integer
//! beyond 64 bits is reported with all its digits or as an error, never rounded; errors name the
//! type that was found and those that can be reported.

mod refused;
mod secret;
mod well_known;

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::constants::{
    NO_STATUS_FEEDBACK_SYNCED, STATUS_FEEDBACK_SYNC_FAILED, STATUS_FEEDBACK_SYNCED,
    STATUS_FEEDBACK_SYNCED_REASON,
};
use muster_api::work::{FeedBackType, FeedbackRule, FeedbackValue, FieldValue, ManifestCondition};
use serde_json::Value;

use crate::conditions::{self, Status};
use crate::go_format::{NotExact, Numeric, write_exact_json};
use crate::jsonpath::{Found, JsonPath, MAX_VISITS, Matches};
use crate::manifest::Gvk;
pub use refused::RefusedValues;
use secret::SecretGuard;

/// Most values that all paths of one manifest together may visit in one object: some 40 ms of
/// work. The paths that come after are errors.
pub const MAX_PLAN_VISITS: usize = 2 * MAX_VISITS;

/// Most bytes that the values of one manifest take together. An API server stores no work that is
/// larger than 1.5 MB.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The feedback rules of a manifest, compiled.
#[derive(Debug, Clone, Default)]
pub struct FeedbackPlan {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
enum Rule {
    WellKnown,
    Paths(Vec<Wanted>),
    /// A rule of a type that this version does not know gives nothing and no error, as upstream.
    Unrecognized,
}

/// A value to report.
#[derive(Debug, Clone)]
struct Wanted {
    name: String,
    /// The API version that the object has to have; empty for any.
    version: String,
    /// What is wrong with the path is reported at each evaluation.
    path: Result<JsonPath, String>,
    /// Several matches always mean the first one.
    first_only: bool,
}

/// Settings of the agent that change how values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedbackLimits {
    /// Report lists, objects and fractions as raw JSON, too (upstream's feature gate
    /// `RawFeedbackJsonString`).
    pub raw_json: bool,
    /// Longest raw JSON, in bytes (upstream's flag `--max-json-raw-length`). The CRD of works
    /// admits 1,024.
    pub max_json_raw_bytes: usize,
}

impl Default for FeedbackLimits {
    fn default() -> Self {
        Self {
            raw_json: false,
            max_json_raw_bytes: 1024,
        }
    }
}

/// What one look at an object gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Feedback {
    /// The values, in the order of the rules; each name once.
    pub values: Vec<FeedbackValue>,
    /// What could not be reported, in the same order; each text once.
    pub errors: Vec<String>,
    /// What else there is to say about the values and how they come, for people.
    pub notes: Vec<String>,
}

impl FeedbackPlan {
    /// Compiles the rules. A bad path costs only its own value.
    pub fn compile(rules: &[FeedbackRule]) -> Self {
        let compile_rule = |rule: &FeedbackRule| match rule.type_ {
            FeedBackType::WellKnownStatus => Rule::WellKnown,
            FeedBackType::JsonPaths => Rule::Paths(
                rule.json_paths
                    .iter()
                    .map(|wanted| Wanted {
                        name: wanted.name.clone(),
                        version: wanted.version.clone(),
                        path: JsonPath::parse(&wanted.path).map_err(|error| {
                            let (path, name) = (&wanted.path, &wanted.name);
                            format!(
                                "failed to parse json path {path} of {name} with error: {error}"
                            )
                        }),
                        first_only: false,
                    })
                    .collect(),
            ),
            FeedBackType::Unrecognized(_) => Rule::Unrecognized,
        };
        Self {
            rules: rules.iter().map(compile_rule).collect(),
        }
    }

    /// No rule at all: nothing is to be reported.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the values of an object of this type may depend on this field of the object itself.
    /// What they do not depend on, [`FeedbackPlan::evaluate`] does not need, save for `apiVersion`
    /// and `kind`; of a Secret it needs everything.
    pub fn may_read(&self, gvk: Gvk<'_>, field: &str) -> bool {
        let any = |wanted: &[Wanted]| {
            let mut paths = wanted.iter().filter_map(|wanted| wanted.path.as_ref().ok());
            paths.any(|path| path.may_read(field))
        };
        SecretGuard::is_for(gvk)
            || self.rules.iter().any(|rule| match rule {
                Rule::WellKnown => well_known::values_of(gvk).map_or(field == "status", any),
                Rule::Paths(wanted) => any(wanted),
                Rule::Unrecognized => false,
            })
    }

    /// Reads the values of a live object.
    pub fn evaluate(&self, object: &Value, limits: FeedbackLimits) -> Feedback {
        let gvk = Gvk::of(object);
        let mut evaluation = Evaluation {
            object,
            version: gvk.version,
            limits,
            secret: SecretGuard::of(object, gvk),
            visits: MAX_PLAN_VISITS,
            bytes: MAX_VALUE_BYTES,
            names: HashSet::new(),
            told: HashSet::new(),
            feedback: Feedback::default(),
        };
        for rule in &self.rules {
            match rule {
                Rule::WellKnown => match well_known::values_of(gvk) {
                    Some(values) => evaluation.read_all(values),
                    None => evaluation.read_common(gvk),
                },
                Rule::Paths(wanted) => evaluation.read_all(wanted),
                Rule::Unrecognized => {}
            }
        }
        evaluation.feedback
    }
}

struct Evaluation<'o> {
    object: &'o Value,
    version: &'o str,
    limits: FeedbackLimits,
    secret: Option<SecretGuard>,
    /// How many more values may be visited.
    visits: usize,
    /// How many more bytes the values may take.
    bytes: usize,
    /// Names of the values so far.
    names: HashSet<String>,
    /// The errors so far.
    told: HashSet<String>,
    feedback: Feedback,
}

impl Evaluation<'_> {
    fn read_all(&mut self, wanted: &[Wanted]) {
        for wanted in wanted {
            match self.read(wanted) {
                Ok(None) => {}
                Ok(Some(value)) => self.report(&wanted.name, value),
                Err(error) => self.fail(error),
            }
        }
    }

    /// Reads the values that any kind may have. A kind without them is as good as one where they
    /// are not set yet, but the user should know that there is nothing to wait for.
    fn read_common(&mut self, gvk: Gvk<'_>) {
        let mut any = false;
        for (name, integer) in well_known::common_values(self.object) {
            any = true;
            self.report(name, FieldValue::integer(integer));
        }
        if !any {
            let note = format!("{gvk} has no well-known status values");
            if !self.feedback.notes.contains(&note) {
                self.feedback.notes.push(note);
            }
        }
    }

    fn report(&mut self, name: &str, value: FieldValue) {
        if self.names.contains(name) {
            self.fail(format!("the value name {name} is used more than once"));
            return;
        }
        let texts = [&value.string, &value.json_raw].into_iter().flatten();
        let bytes = name.len() + texts.map(String::len).sum::<usize>();
        let Some(left) = self.bytes.checked_sub(bytes) else {
            self.fail(left_out(name));
            return;
        };
        self.bytes = left;
        self.names.insert(name.to_owned());
        self.feedback.values.push(FeedbackValue {
            name: name.to_owned(),
            value,
        });
    }

    fn fail(&mut self, error: String) {
        if self.told.insert(error.clone()) {
            self.feedback.errors.push(error);
        }
    }

    fn read(&mut self, wanted: &Wanted) -> Result<Option<FieldValue>, String> {
        let name = &wanted.name;
        if !wanted.version.is_empty() && wanted.version != self.version {
            return Err(format!(
                "version set in the path {name} is not matched for the related resource"
            ));
        }
        let path = wanted.path.as_ref().map_err(Clone::clone)?;
        let found = path.eval_within(self.object, &mut self.visits);
        if let Some(secret) = &self.secret
            && secret.shows_in(&found, path)
        {
            return Err(format!("the value for {name} would show data of a secret"));
        }
        let blocks = found
            .map_err(|error| format!("failed to find value for {name} with error: {error}"))?;
        field_value(name, &blocks, wanted.first_only, self.limits, self.bytes)
    }
}

/// Converts what a path found. Only the first block of a path counts.
fn field_value(
    name: &str,
    blocks: &[Matches<'_>],
    first_only: bool,
    limits: FeedbackLimits,
    room: usize,
) -> Result<Option<FieldValue>, String> {
    let Some(matches) = blocks.first() else {
        return Ok(None);
    };
    let mut set = matches.iter().filter(|found| !found.value().is_null());
    let Some(first) = set.next() else {
        return Ok(None);
    };
    let several = !first_only && (blocks.len() > 1 || matches.len() > 1);
    if limits.raw_json && several {
        return raw_json_list(name, matches, limits).map(Some);
    }
    match first.value() {
        Value::Null => Ok(None),
        // Not even copied.
        Value::String(text) if text.len() > room => Err(left_out(name)),
        Value::String(text) => Ok(Some(FieldValue::string(text))),
        Value::Bool(flag) => Ok(Some(FieldValue::boolean(*flag))),
        Value::Number(number)
            if let (Numeric::Integer(integer), Found::Object(_)) = (number.into(), first) =>
        {
            Ok(Some(FieldValue::integer(integer)))
        }
        value if limits.raw_json => raw_json(name, value, limits).map(Some),
        _ => Err(format!(
            "the value for {name} is {}, but only a string, a boolean or an integer of 64 bits can \
             be reported without the feature gate RawFeedbackJsonString",
            type_of(*first)
        )),
    }
}

fn left_out(name: &str) -> String {
    format!(
        "the value for {name} is left out: the values of a manifest take at most {MAX_VALUE_BYTES} \
         bytes"
    )
}

/// The type of a value that is no string, boolean or integer of 64 bits, for people.
fn type_of(found: Found<'_>) -> &'static str {
    match (found, found.value()) {
        (_, Value::Null) => "null",
        (_, Value::Bool(_)) => "a boolean",
        (_, Value::String(_)) => "a string",
        (_, Value::Array(_)) => "a list",
        (_, Value::Object(_)) => "an object",
        (_, Value::Number(number)) if number.is_f64() => "a floating-point number",
        (Found::Literal(_), Value::Number(_)) => "a number of the path itself",
        (Found::Object(_), Value::Number(_)) => "an integer beyond 64 bits signed",
    }
}

fn raw_json(name: &str, value: &Value, limits: FeedbackLimits) -> Result<FieldValue, String> {
    let mut json = String::new();
    write_exact_json(&mut json, value, limits.max_json_raw_bytes)
        .map_err(|error| not_exact(name, error, limits))?;
    Ok(FieldValue::json_raw(json))
}

fn raw_json_list(
    name: &str,
    matches: &Matches<'_>,
    limits: FeedbackLimits,
) -> Result<FieldValue, String> {
    let most = limits.max_json_raw_bytes;
    let mut json = String::from("[");
    for (position, found) in matches.iter().enumerate() {
        if position > 0 {
            json.push(',');
        }
        // The bracket that is still to come counts.
        write_exact_json(&mut json, found.value(), most.saturating_sub(1))
            .map_err(|error| not_exact(name, error, limits))?;
    }
    json.push(']');
    Ok(FieldValue::json_raw(json))
}

fn not_exact(name: &str, error: NotExact, limits: FeedbackLimits) -> String {
    match error {
        NotExact::TooLong => format!(
            "the length of returned json raw string for name {name} is larger than the maximum \
             length {}",
            limits.max_json_raw_bytes
        ),
        NotExact::Rounded => format!(
            "the value for {name} holds a number beyond 64 bits, whose digits are not all known"
        ),
    }
}

/// Puts what a look at the object gave into the status of its manifest; says whether the status
/// changed.
///
/// Without rules the values of earlier rules vanish. When values change, the condition's
/// transition time moves even though it stays True, so that a reader sees when.
pub fn record(
    status: &mut ManifestCondition,
    plan: &FeedbackPlan,
    feedback: Feedback,
    now: Timestamp,
) -> bool {
    let condition = feedback_condition(plan, &feedback, now);
    if status.status_feedback.values == feedback.values {
        return conditions::set(&mut status.conditions, condition);
    }
    status.status_feedback.values = feedback.values;
    conditions::replace(&mut status.conditions, condition);
    true
}

/// The condition `StatusFeedbackSynced` of a manifest.
pub fn feedback_condition(plan: &FeedbackPlan, feedback: &Feedback, now: Timestamp) -> Condition {
    let notes = feedback.notes.join("; ");
    let (status, reason, message) = match feedback.errors.as_slice() {
        _ if plan.is_empty() => (Status::True, NO_STATUS_FEEDBACK_SYNCED, notes),
        [] => (Status::True, STATUS_FEEDBACK_SYNCED_REASON, notes),
        errors => {
            let errors = join_errors(errors);
            let mut message = format!("Sync status feedback failed with error {errors}");
            if !notes.is_empty() {
                message = format!("{message}; {notes}");
            }
            (Status::False, STATUS_FEEDBACK_SYNC_FAILED, message)
        }
    };
    conditions::new(STATUS_FEEDBACK_SYNCED, status, reason, message, None, now)
}

/// Several errors in one text, as Go's aggregate prints them.
pub fn join_errors(errors: &[String]) -> String {
    match errors {
        [error] => error.clone(),
        errors => format!("[{}]", errors.join(", ")),
    }
}

#[cfg(test)]
mod tests;
