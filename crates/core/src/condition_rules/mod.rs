//! Conditions that the user of a work derives from live objects
//! (`manifestConfigs[].conditionRules`; `ocm`: `pkg/work/spoke/conditions`).
//!
//! Rules are CEL expressions over `object`, or well-known ones. `muster_cel` evaluates them within
//! a budget, which bounds time and memory of a hostile rule.

#[cfg(test)]
mod tests;
mod well_known;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use muster_api::constants as names;
use muster_api::work::{ConditionRule, ConditionRuleType};
use regex::Regex;
use serde_json::Value as Json;

use crate::conditions::{self, Status};
use crate::manifest::Gvk;
use muster_cel::{Environment, Evaluation, Failure, Program, Value};

/// What one expression may cost, in units of cel-go.
pub const EXPRESSION_BUDGET: u64 = 1_000_000;
/// What all rules of a manifest may cost together. Their messages may cost as much once more.
pub const MANIFEST_BUDGET: u64 = 10_000_000;
/// Most rules of a manifest.
pub const MAX_RULES: usize = 100;
/// Most bytes of all expressions of a manifest, of which each counts `EXPRESSION_BYTES` more:
/// compiling them takes tenths of a second at most.
pub const MAX_EXPRESSIONS_BYTES: usize = 64 << 10;
/// What an expression counts beside its text.
const EXPRESSION_BYTES: usize = 64;
/// How long whoever evaluates on a blocking thread should wait for it. The budgets end an
/// evaluation long before; a machine that is that slow has other work to do.
pub const EVALUATION_DEADLINE: Duration = Duration::from_secs(5);

/// Longest text of an expression, in characters.
const MAX_EXPRESSION_CHARACTERS: usize = 16 << 10;

/// What a rule can refer to.
const OF_RULES: Environment = Environment {
    variables: &["object"],
    functions: &["hasConditions"],
    max_characters: MAX_EXPRESSION_CHARACTERS,
};

/// What a message can refer to: also the answer of its rule.
const OF_MESSAGES: Environment = Environment {
    variables: &["object", "result"],
    ..OF_RULES
};

/// Type of the condition that names the rules which are not evaluated, muster's. It is True
/// while there are such rules.
///
/// Differs from upstream, where a rule may set the agent's own conditions, and the two overwrite
/// each other at each sync.
pub const CONDITION_RULES_REFUSED: &str = "ConditionRulesRefused";

/// Conditions that the agent sets, on a manifest or on the work that sums it up.
const OWN_CONDITIONS: [&str; 5] = [
    names::MANIFEST_APPLIED,
    names::WORK_AVAILABLE,
    names::STATUS_FEEDBACK_SYNCED,
    names::WORK_DELETING,
    CONDITION_RULES_REFUSED,
];

/// Longest type of a condition that the API admits.
const MAX_TYPE_BYTES: usize = 316;

/// What the API admits as the type of a condition. With another, no status would be written.
static CONDITION_TYPE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    ))
    .expect("the pattern is a constant")
});

/// The rules of one manifest, compiled. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RulePlan {
    rules: Arc<[Rule]>,
    /// Why rules are not evaluated; empty if all are.
    refused: Arc<str>,
}

#[derive(Debug)]
struct Rule {
    condition: String,
    test: Test,
    message: String,
    /// As what a failure to compile it says.
    message_expression: Option<Result<Program, Failure>>,
}

#[derive(Debug)]
enum Test {
    /// All have to hold. One that does not compile is only told when it is reached.
    All(Vec<Result<Program, Failure>>),
    /// The rule is wrong in itself; why.
    Invalid(String),
}

impl RulePlan {
    /// Whether both are the same compilation.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rules, &other.rules)
    }

    /// Compiles rules for objects of one type. What is wrong with a rule is told by its condition.
    ///
    /// A rule without a name, and a well-known one for which nothing is known, gives no condition.
    ///
    /// ```
    /// use muster_api::work::{ConditionRule, ConditionRuleType};
    /// use muster_core::{condition_rules::RulePlan, manifest::Gvk};
    /// use serde_json::json;
    ///
    /// let rule = ConditionRule {
    ///     condition: "Ready".into(),
    ///     type_: ConditionRuleType::Cel,
    ///     cel_expressions: vec!["object.status.?ready.orValue(0) > 1".into()],
    ///     message: String::new(),
    ///     message_expression: "string(object.status.ready) + ' are ready'".into(),
    /// };
    /// let plan = RulePlan::compile(&[rule], Gvk::new("example.org/v1", "Widget"));
    /// let now = jiff::Timestamp::UNIX_EPOCH;
    /// let conditions = plan.evaluate(&json!({"status": {"ready": 2}}), 7, now);
    /// assert_eq!(conditions[0].status, "True");
    /// assert_eq!(conditions[0].message, "2 are ready");
    /// ```
    pub fn compile(rules: &[ConditionRule], gvk: Gvk<'_>) -> Self {
        let mut refused = Vec::new();
        if rules.len() > MAX_RULES {
            refused.push(format!(
                "conditionRules: {} rules, of which only the first {MAX_RULES} are evaluated",
                rules.len()
            ));
        }
        let mut bytes_left = MAX_EXPRESSIONS_BYTES;
        let rules = rules
            .iter()
            .take(MAX_RULES)
            .filter_map(|rule| {
                let Some(left) = bytes_left.checked_sub(expression_bytes(rule)) else {
                    refused.push(format!(
                        "conditionRules: with those of {:?} the expressions have more than \
                         {MAX_EXPRESSIONS_BYTES} bytes",
                        rule.condition
                    ));
                    return None;
                };
                bytes_left = left;
                let compiled = Rule::compile(rule, gvk)?;
                match objection(&rule.condition) {
                    Some(why) => {
                        refused.push(why);
                        None
                    }
                    None => Some(compiled),
                }
            })
            .collect();
        Self {
            rules,
            refused: refused.join("; ").into(),
        }
    }

    /// Whether evaluating gives no conditions.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.refused.is_empty()
    }

    /// The conditions of an object, in the order of the rules. Rules that spend all of the
    /// budgets take seconds where nothing is optimized; see [`EVALUATION_DEADLINE`].
    pub fn evaluate(&self, object: &Json, generation: i64, now: Timestamp) -> Vec<Condition> {
        self.evaluate_within(MANIFEST_BUDGET, object, generation, now)
    }

    /// The same, with another budget for all rules together.
    pub fn evaluate_within(
        &self,
        budget: u64,
        object: &Json,
        generation: i64,
        now: Timestamp,
    ) -> Vec<Condition> {
        let object = muster_cel::from_json(object);
        let mut purse = Purse {
            rules: budget,
            messages: MANIFEST_BUDGET,
        };
        let rules = self.rules.iter().map(|rule| {
            let verdict = rule.judge(&object, &mut purse);
            verdict.condition(&rule.condition, generation, now)
        });
        rules.chain(self.refusal(generation, now)).collect()
    }

    /// The conditions while the object is not there: nothing can be told about it, except that
    /// what is complete stays so. An object that is complete is not written again, and may well
    /// be removed by its cluster, as finished Jobs are.
    ///
    /// `known` are the conditions that the manifest has.
    ///
    /// Differs from upstream, where all conditions keep what they said last.
    pub fn without_object(
        &self,
        known: &[Condition],
        generation: i64,
        now: Timestamp,
    ) -> Vec<Condition> {
        let complete = muster_api::conditions::find(known, names::WORK_COMPLETE)
            .filter(|known| known.status == muster_api::conditions::TRUE);
        let rules = self.rules.iter().map(|rule| match complete {
            Some(known) if rule.condition == names::WORK_COMPLETE => Condition {
                observed_generation: Some(generation),
                ..known.clone()
            },
            _ => rule.unknown("the object does not exist", generation, now),
        });
        rules.chain(self.refusal(generation, now)).collect()
    }

    /// The conditions where evaluating came to no end.
    pub fn unknown(&self, why: &str, generation: i64, now: Timestamp) -> Vec<Condition> {
        let rules = self.rules.iter();
        let rules = rules.map(|rule| rule.unknown(why, generation, now));
        rules.chain(self.refusal(generation, now)).collect()
    }

    fn refusal(&self, generation: i64, now: Timestamp) -> Option<Condition> {
        let refused = Verdict {
            status: Status::True,
            reason: names::CONDITION_RULE_INVALID,
            message: self.refused.to_string(),
        };
        (!self.refused.is_empty())
            .then(|| refused.condition(CONDITION_RULES_REFUSED, generation, now))
    }
}

fn expression_bytes(rule: &ConditionRule) -> usize {
    let expressions = rule
        .cel_expressions
        .iter()
        .chain([&rule.message_expression]);
    expressions.map(|text| text.len() + EXPRESSION_BYTES).sum()
}

/// Why a rule cannot set a condition of that name.
fn objection(condition: &str) -> Option<String> {
    let field = "conditionRules.condition";
    if OWN_CONDITIONS.contains(&condition) {
        Some(format!("{field}: {condition} is set by the agent"))
    } else if condition.len() > MAX_TYPE_BYTES || !CONDITION_TYPE.is_match(condition) {
        Some(format!("{field}: {condition:?} is no type of a condition"))
    } else {
        None
    }
}

/// What is left of the budgets.
struct Purse {
    rules: u64,
    messages: u64,
}

/// A condition but for its type, generation and time.
struct Verdict {
    status: Status,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn condition(self, type_: &str, generation: i64, now: Timestamp) -> Condition {
        let Self {
            status,
            reason,
            message,
        } = self;
        conditions::new(type_, status, reason, message, Some(generation), now)
    }

    fn failed(failure: &Failure) -> Self {
        let (status, reason) = match failure {
            Failure::Broken(_) => (Status::Unknown, names::CONDITION_RULE_INTERNAL_ERROR),
            _ => (Status::False, names::CONDITION_RULE_EXPRESSION_ERROR),
        };
        Self {
            status,
            reason,
            message: failure.to_string(),
        }
    }

    fn over_budget() -> Self {
        Self {
            status: Status::False,
            reason: names::CONDITION_RULE_EXPRESSION_ERROR,
            message: "CEL evaluation budget exceeded".into(),
        }
    }
}

impl Rule {
    fn unknown(&self, why: &str, generation: i64, now: Timestamp) -> Condition {
        let verdict = Verdict {
            status: Status::Unknown,
            reason: names::CONDITION_RULE_INTERNAL_ERROR,
            message: why.to_owned(),
        };
        verdict.condition(&self.condition, generation, now)
    }

    /// `None` for a rule that gives no condition.
    fn compile(rule: &ConditionRule, gvk: Gvk<'_>) -> Option<Self> {
        if rule.condition.is_empty() {
            return None;
        }
        let mut message_expression = rule.message_expression.as_str();
        let compile = |expressions: &[&str]| {
            let compile = |source: &&str| Program::compile(source, &OF_RULES);
            Test::All(expressions.iter().map(compile).collect())
        };
        let test = match &rule.type_ {
            // Differs from upstream, where a rule without expressions holds.
            ConditionRuleType::Cel if rule.cel_expressions.is_empty() => Test::Invalid(
                "conditionRules.celExpressions: a rule of type CEL needs an expression".into(),
            ),
            ConditionRuleType::Cel => {
                let expressions: Vec<&str> =
                    rule.cel_expressions.iter().map(String::as_str).collect();
                compile(&expressions)
            }
            ConditionRuleType::WellKnownConditions => {
                let known = well_known::rule_of(gvk, &rule.condition)?;
                if message_expression.is_empty() {
                    message_expression = known.message;
                }
                compile(&[known.expression])
            }
            ConditionRuleType::Unrecognized(text) => {
                Test::Invalid(format!("unrecognized condition rule type {text}"))
            }
        };
        Some(Self {
            condition: rule.condition.clone(),
            test,
            message: rule.message.clone(),
            message_expression: (!message_expression.is_empty())
                .then(|| Program::compile(message_expression, &OF_MESSAGES)),
        })
    }

    fn judge(&self, object: &Value, purse: &mut Purse) -> Verdict {
        let expressions = match &self.test {
            Test::All(expressions) => expressions,
            Test::Invalid(message) => {
                return Verdict {
                    status: Status::Unknown,
                    reason: names::CONDITION_RULE_INVALID,
                    message: message.clone(),
                };
            }
        };
        let mut holds = true;
        for expression in expressions {
            let node = match expression {
                Ok(node) => node,
                Err(failure) => return Verdict::failed(failure),
            };
            let limit = purse.rules.min(EXPRESSION_BUDGET);
            let mut evaluation = Evaluation::new(std::slice::from_ref(object), limit);
            let outcome = evaluation.truth(node);
            // Differs from upstream, where an expression that fails costs nothing.
            purse.rules = purse.rules.saturating_sub(evaluation.used());
            holds = match outcome {
                Ok(holds) => holds,
                Err(Failure::TooExpensive) if limit < EXPRESSION_BUDGET => {
                    return Verdict::over_budget();
                }
                Err(failure) => return Verdict::failed(&failure),
            };
            if !holds {
                break;
            }
        }
        Verdict {
            status: holds.into(),
            reason: names::CONDITION_RULE_EVALUATED,
            message: self.message(object, holds, purse),
        }
    }

    fn message(&self, object: &Value, holds: bool, purse: &mut Purse) -> String {
        let text = match &self.message_expression {
            None => Ok(String::new()),
            Some(Ok(node)) => {
                let limit = purse.messages.min(EXPRESSION_BUDGET);
                let variables = [object.clone(), Value::Bool(holds)];
                let mut evaluation = Evaluation::new(&variables, limit);
                let text = evaluation.text(node);
                purse.messages = purse.messages.saturating_sub(evaluation.used());
                text
            }
            Some(Err(failure)) => Err(failure.clone()),
        };
        match text {
            Ok(text) if !text.is_empty() => text,
            Ok(_) if !self.message.is_empty() => self.message.clone(),
            Ok(_) if holds => format!("Manifest is {}", self.condition),
            Ok(_) => format!("Manifest is not {}", self.condition),
            // Without the lines that show the source.
            Err(failure) => {
                let text = failure.to_string();
                text.lines().next().unwrap_or_default().into()
            }
        }
    }
}
