//! Which values a work reports of its live objects (`ocm`: `pkg/work/spoke/statusfeedback`).
//!
//! The feedback rules of a manifest are compiled once for each work spec into a
//! [`FeedbackPlan`]; each look at the object then evaluates the plan and gives the values, and the
//! errors beside them: a path that fails does not hide the values of the others.
//!
//! Differs from upstream: a value whose name was used before is left out with an error, since the
//! API server would refuse the whole status over it; values that would show data of a Secret are
//! refused; more kinds have well-known values.

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
use crate::go_format::{Numeric, write_json, write_json_list};
use crate::jsonpath::{Found, JsonPath, Matches};
use crate::manifest::Gvk;
use secret::SecretGuard;

/// Most values that all paths of a manifest may visit in one look at its object: some hundredths of
/// a second.
pub const MAX_FEEDBACK_VISITS: usize = 4_000_000;

/// Most bytes that all values of a manifest may have together. No API server stores a status of
/// twice that size.
pub const MAX_FEEDBACK_BYTES: usize = 1 << 20;

/// Bytes of JSON that take as long to write as a value to visit.
const BYTES_A_VISIT: usize = 16;

/// Visits that comparing what a path finds in a Secret with what it finds without the data counts as.
const SECRET_VISITS: usize = 1_000;

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
    /// What else there is to say about how the values come, for people.
    pub note: Option<String>,
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
                Rule::WellKnown => well_known::values_of(gvk).is_some_and(any),
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
            visits_left: MAX_FEEDBACK_VISITS,
            bytes_left: MAX_FEEDBACK_BYTES,
            names: HashSet::new(),
            failures: HashSet::new(),
            feedback: Feedback::default(),
        };
        for rule in &self.rules {
            match rule {
                Rule::WellKnown => match well_known::values_of(gvk) {
                    Some(values) => evaluation.read_all(values),
                    None => evaluation.fail(format!(
                        "cannot find the wellknown statuses for resource with gvk {gvk}"
                    )),
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
    visits_left: usize,
    bytes_left: usize,
    /// Of the values so far.
    names: HashSet<String>,
    /// The errors so far.
    failures: HashSet<String>,
    feedback: Feedback,
}

impl Evaluation<'_> {
    fn read_all(&mut self, wanted: &[Wanted]) {
        for wanted in wanted {
            match self.read(wanted) {
                Ok(None) => {}
                Ok(Some(_)) if !self.names.insert(wanted.name.clone()) => {
                    self.fail(format!(
                        "the value name {} is used more than once",
                        wanted.name
                    ));
                }
                Ok(Some(value)) => {
                    self.feedback.values.push(FeedbackValue {
                        name: wanted.name.clone(),
                        value,
                    });
                }
                Err(error) => self.fail(error),
            }
        }
    }

    fn fail(&mut self, error: String) {
        if self.failures.insert(error.clone()) {
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
        let found = path.eval_within(self.object, &mut self.visits_left);
        if let Some(secret) = &self.secret {
            let shows = secret.shows_in(&found, path, &mut self.visits_left);
            self.spend(SECRET_VISITS)?;
            if shows {
                return Err(format!("the value for {name} would show data of a secret"));
            }
        }
        self.spend(1)?;
        let blocks = found
            .map_err(|error| format!("failed to find value for {name} with error: {error}"))?;
        let (value, written) = field_value(name, &blocks, wanted.first_only, self.limits);
        self.spend(written / BYTES_A_VISIT)?;
        let value = value?;
        let bytes = value.as_ref().map_or(0, size_bytes);
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            format!("the value for {name} is left out: all values have more than {MAX_FEEDBACK_BYTES} bytes")
        })?;
        Ok(value)
    }

    /// Fails once all is spent, with the same text each time: it is not the path at hand alone that
    /// was too expensive.
    fn spend(&mut self, visits: usize) -> Result<(), String> {
        self.visits_left = self.visits_left.saturating_sub(visits);
        match self.visits_left {
            0 => Err(format!(
                "the feedback rules visit more than {MAX_FEEDBACK_VISITS} values of the object, \
                 the rest is left out"
            )),
            _ => Ok(()),
        }
    }
}

fn size_bytes(value: &FieldValue) -> usize {
    let texts = value.string.iter().chain(&value.json_raw);
    texts.map(String::len).sum()
}

/// Converts what a path found. Only the first block of a path counts. Says how many bytes were
/// written for that.
fn field_value(
    name: &str,
    blocks: &[Matches<'_>],
    first_only: bool,
    limits: FeedbackLimits,
) -> (Result<Option<FieldValue>, String>, usize) {
    let Some((matches, first)) = blocks
        .first()
        .and_then(|block| Some((block, *block.first()?)))
    else {
        return (Ok(None), 0);
    };
    let several = !first_only && (blocks.len() > 1 || matches.len() > 1);
    let raw = |write: &dyn Fn(&mut String)| {
        let mut json = String::new();
        write(&mut json);
        let written = json.len();
        (raw_json(name, json, limits).map(Some), written)
    };
    if limits.raw_json && several {
        return raw(&|json| write_json_list(json, matches.iter().map(|found| found.value())));
    }
    let value = match first.value() {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(FieldValue::string(text))),
        Value::Bool(flag) => Ok(Some(FieldValue::boolean(*flag))),
        Value::Number(number)
            if let (Numeric::Integer(integer), Found::Object(_)) = (number.into(), first) =>
        {
            Ok(Some(FieldValue::integer(integer)))
        }
        value if limits.raw_json => return raw(&|json| write_json(json, value)),
        _ => Err(format!(
            "the type {} of the value for {name} is not found",
            first.go_type()
        )),
    };
    (value, 0)
}

fn raw_json(name: &str, json: String, limits: FeedbackLimits) -> Result<FieldValue, String> {
    let most = limits.max_json_raw_bytes;
    if json.len() > most {
        return Err(format!(
            "the length of returned json raw string for name {name} is larger than the maximum length {most}"
        ));
    }
    Ok(FieldValue::json_raw(json))
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
    let note = feedback.note.clone().unwrap_or_default();
    let (status, reason, message) = match feedback.errors.as_slice() {
        _ if plan.is_empty() => (Status::True, NO_STATUS_FEEDBACK_SYNCED, note),
        [] => (Status::True, STATUS_FEEDBACK_SYNCED_REASON, note),
        errors => (
            Status::False,
            STATUS_FEEDBACK_SYNC_FAILED,
            format!(
                "Sync status feedback failed with error {}",
                join_errors(errors)
            ),
        ),
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
