//! What a rollout strategy asks for, read and checked.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use muster_api::rollout::{MandatoryDecisionGroup, RolloutConfig, RolloutStrategy, RolloutType};

use crate::go_duration;

/// Why a strategy cannot be carried out. The text begins with the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// The type is none of the three.
    #[error("type: incorrect rollout strategy type {0}")]
    Type(String),
    /// A duration does not read.
    #[error("{field}: {why}")]
    Duration {
        /// The field, from the strategy on.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// A number of clusters does not read.
    #[error("{field}: {why}")]
    Count {
        /// The field, from the strategy on.
        field: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A number of clusters, or a share of them in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Count {
    /// So many.
    Clusters(i32),
    /// This part of all, in percent.
    Percent(f64),
}

impl Count {
    /// Reads a field of the API.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, in the words of sdk-go.
    pub fn read(value: &IntOrString) -> Result<Self, String> {
        match value {
            IntOrString::Int(clusters) => Ok(Self::Clusters(*clusters)),
            IntOrString::String(text) => {
                let Some(number) = text.strip_suffix('%') else {
                    return Err(format!(
                        "'{text}' is an invalid maximum threshold value: string is not a percentage"
                    ));
                };
                let percent: f64 = number.parse().map_err(|_| {
                    format!("strconv.ParseFloat: parsing \"{number}\": invalid syntax")
                })?;
                // Differs from upstream, where these are 0 or all, by chance.
                if !percent.is_finite() {
                    return Err(format!("'{text}' is not a finite percentage"));
                }
                Ok(Self::Percent(percent))
            }
        }
    }

    fn is_negative(self) -> bool {
        match self {
            Self::Clusters(clusters) => clusters < 0,
            Self::Percent(percent) => percent < 0.0,
        }
    }

    fn is_nothing(self) -> bool {
        self.is_negative()
            || match self {
                Self::Clusters(clusters) => clusters == 0,
                Self::Percent(percent) => percent == 0.0,
            }
    }

    /// The number of clusters of `total`, rounded up; `None` where it is nothing, or negative.
    fn of(self, total: u32) -> Option<u32> {
        match self {
            Self::Clusters(clusters) => u32::try_from(clusters).ok().filter(|n| *n > 0),
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates"
            )]
            Self::Percent(percent) => {
                let clusters = (percent / 100.0 * f64::from(total)).ceil() as u32;
                (clusters > 0).then_some(clusters)
            }
        }
    }

    /// How many of `total` clusters may be on their way at once: all where it says 0, less, or
    /// more than there are.
    pub fn concurrency(self, total: u32) -> u32 {
        self.of(total).map_or(total, |clusters| clusters.min(total))
    }

    /// How many of `total` clusters may fail.
    ///
    /// Differs from upstream: more than there are means all. Upstream takes it as 0.
    pub fn failures(self, total: u32) -> u32 {
        self.of(total).map_or(0, |clusters| clusters.min(total))
    }
}

/// How changes roll out over the clusters of a placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategy {
    pub(super) order: Order,
    /// How long a cluster has to stay successful before the next takes its place.
    pub(super) soak: Duration,
    /// How long a cluster may take to succeed; `None`: for ever.
    pub(super) deadline: Option<Duration>,
    pub(super) max_failures: Count,
    pub(super) mandatory: Vec<MandatoryDecisionGroup>,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// Everybody's at once, whatever fails.
    All,
    /// As many at a time as may be on their way.
    Progressive(Option<Count>),
    /// Group by group.
    PerGroup,
}

/// All at once, without a deadline.
impl Default for Strategy {
    fn default() -> Self {
        Self {
            order: Order::All,
            soak: Duration::ZERO,
            deadline: None,
            max_failures: Count::Percent(100.0),
            mandatory: Vec::new(),
        }
    }
}

impl Strategy {
    /// Whether clusters that do not succeed are given up after a while.
    pub const fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// Reads the strategy of a placement reference. A missing body is an empty one.
    ///
    /// # Errors
    ///
    /// [`StrategyError`] for the first field that does not read.
    pub fn read(strategy: &RolloutStrategy) -> Result<Self, StrategyError> {
        let none = RolloutConfig::default();
        Ok(match &strategy.type_ {
            RolloutType::All => {
                let config = strategy.all.as_ref().map_or(&none, |all| &all.config);
                Self {
                    deadline: deadline("all", config)?,
                    ..Self::default()
                }
            }
            RolloutType::Progressive => {
                let body = strategy.progressive.clone().unwrap_or_default();
                let concurrency = body.max_concurrency.as_ref().map(Count::read);
                let concurrency = concurrency
                    .transpose()
                    .map_err(|why| count_error("progressive.maxConcurrency", why))?;
                let strategy = Self {
                    deadline: deadline("progressive", &body.config)?,
                    order: Order::Progressive(concurrency),
                    soak: soak("progressive", &body.config)?,
                    max_failures: max_failures("progressive", &body.config)?,
                    mandatory: body.mandatory_decision_groups,
                };
                // Differs from upstream, which takes these as all clusters at once.
                if concurrency.is_some_and(Count::is_nothing) {
                    let why = "must be more than 0; leave it out for all clusters at once";
                    return Err(count_error("progressive.maxConcurrency", why.to_owned()));
                }
                strategy
            }
            RolloutType::ProgressivePerGroup => {
                let body = strategy.progressive_per_group.clone().unwrap_or_default();
                Self {
                    deadline: deadline("progressivePerGroup", &body.config)?,
                    order: Order::PerGroup,
                    soak: soak("progressivePerGroup", &body.config)?,
                    max_failures: max_failures("progressivePerGroup", &body.config)?,
                    mandatory: body.mandatory_decision_groups,
                }
            }
            RolloutType::Unrecognized(other) => return Err(StrategyError::Type(other.clone())),
        })
    }

    /// Whether it asks for decision groups; else clusters without a group have their turn, too.
    pub const fn needs_groups(&self) -> bool {
        match self.order {
            Order::All => false,
            Order::PerGroup => true,
            Order::Progressive(_) => !self.mandatory.is_empty(),
        }
    }
}

fn count_error(field: &str, why: String) -> StrategyError {
    StrategyError::Count {
        field: field.to_owned(),
        why,
    }
}

fn max_failures(body: &str, config: &RolloutConfig) -> Result<Count, StrategyError> {
    let field = || format!("{body}.maxFailures");
    let count = Count::read(&config.max_failures).map_err(|why| count_error(&field(), why))?;
    // Differs from upstream, which takes it as 0.
    if count.is_negative() {
        return Err(count_error(&field(), "must not be negative".to_owned()));
    }
    Ok(count)
}

fn soak(body: &str, config: &RolloutConfig) -> Result<Duration, StrategyError> {
    if config.min_success_time.is_empty() {
        return Ok(Duration::ZERO);
    }
    go_duration::parse(&config.min_success_time).map_err(|error| StrategyError::Duration {
        field: format!("{body}.minSuccessTime"),
        why: error.to_string(),
    })
}

fn deadline(body: &str, config: &RolloutConfig) -> Result<Option<Duration>, StrategyError> {
    read_deadline(&config.progress_deadline).map_err(|why| StrategyError::Duration {
        field: format!("{body}.progressDeadline"),
        why,
    })
}

/// Reads `progressDeadline`: a duration that begins with whole hours, minutes or seconds; empty and
/// `None` mean none.
fn read_deadline(text: &str) -> Result<Option<Duration>, String> {
    if text.is_empty() || text == "None" {
        return Ok(None);
    }
    // The pattern of the CRD, which is anchored at one end only on either side of its `|`:
    // `^(([0-9])+[h|m|s])|None$`. What it lets through besides fails below, as in Go.
    let after_number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let begins_right =
        after_number.len() < text.len() && after_number.starts_with(['h', '|', 'm', 's']);
    if !begins_right && !text.ends_with("None") {
        return Err("invalid timeout format".to_owned());
    }
    go_duration::parse(text)
        .map(Some)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn golden() -> Value {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/golden/rollout.json"
        );
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn sizes_are_those_of_the_reference() {
        let golden = golden();
        let (mut same, mut corrected) = (0, 0);
        for record in golden["sizes"].as_array().unwrap() {
            let value: IntOrString = serde_json::from_value(record["value"].clone()).unwrap();
            let count = Count::read(&value);
            if let Some(error) = record["error"].as_str() {
                assert_eq!(count.unwrap_err(), error, "{record}");
                same += 1;
                continue;
            }
            if record["departs"]
                .as_str()
                .is_some_and(|why| why.contains("finite"))
            {
                assert!(count.unwrap_err().contains("not a finite percentage"));
                corrected += 1;
                continue;
            }
            let total = u32::try_from(record["total"].as_u64().unwrap()).unwrap();
            let size = match record["use"].as_str().unwrap() {
                "maxConcurrency" => count.unwrap().concurrency(total),
                _ => count.unwrap().failures(total),
            };
            if record["departs"].is_string() {
                assert_eq!(size, total, "{record}"); // more than there are may fail
                corrected += 1;
            } else {
                assert_eq!(json!(size), record["size"], "{record}");
                same += 1;
            }
        }
        assert_eq!((same + corrected, corrected > 10), (278, true));
    }

    #[test]
    fn deadlines_are_those_of_the_reference() {
        for record in golden()["deadlines"].as_array().unwrap() {
            let text = record["value"].as_str().unwrap();
            let expected = match (&record["error"], record["nanoseconds"].as_u64()) {
                (Value::String(error), _) => Err(error.clone()),
                (_, Some(nanoseconds)) => Ok(Some(Duration::from_nanos(nanoseconds))),
                _ => Ok(None),
            };
            assert_eq!(read_deadline(text), expected, "{text:?}");
        }
    }

    fn read(strategy: Value) -> Result<Strategy, String> {
        let strategy: RolloutStrategy =
            serde_json::from_value(strategy).map_err(|error| error.to_string())?;
        Strategy::read(&strategy).map_err(|error| error.to_string())
    }

    #[test]
    fn errors_name_the_field() {
        for (strategy, error) in [
            (
                json!({"type": "Other"}),
                "type: incorrect rollout strategy type Other",
            ),
            (
                json!({"type": "Progressive", "progressive": {"maxConcurrency": "3"}}),
                "progressive.maxConcurrency: '3' is an invalid maximum threshold value: string is \
                 not a percentage",
            ),
            (
                json!({"type": "Progressive", "progressive": {"minSuccessTime": "soon"}}),
                "progressive.minSuccessTime: time: invalid duration \"soon\"",
            ),
            (
                json!({"type": "ProgressivePerGroup", "progressivePerGroup": {"maxFailures": "x%"}}),
                "progressivePerGroup.maxFailures: strconv.ParseFloat: parsing \"x\": invalid syntax",
            ),
            (
                json!({"type": "ProgressivePerGroup",
                    "progressivePerGroup": {"minSuccessTime": "-1m"}}),
                "progressivePerGroup.minSuccessTime: time: negative duration \"-1m\"",
            ),
            (
                json!({"type": "All", "all": {"progressDeadline": "1d"}}),
                "all.progressDeadline: invalid timeout format",
            ),
        ] {
            assert_eq!(read(strategy).unwrap_err(), error);
        }
    }

    #[test]
    fn a_concurrency_of_nothing_is_an_error_and_never_means_all() {
        let with = |field: &str, value: Value| {
            let body = json!({field: value});
            read(json!({"type": "Progressive", "progressive": body})).err()
        };
        for nothing in [
            json!(0),
            json!(-1),
            json!("0%"),
            json!("0.0%"),
            json!("-5%"),
        ] {
            let why = "progressive.maxConcurrency: must be more than 0; leave it out for all \
                       clusters at once";
            let error = with("maxConcurrency", nothing.clone());
            assert_eq!(error.as_deref(), Some(why), "{nothing}");
        }
        for negative in [json!(-1), json!("-5%")] {
            let why = "progressive.maxFailures: must not be negative";
            assert_eq!(with("maxFailures", negative).as_deref(), Some(why));
        }
        for fine in [json!(1), json!("0.1%"), json!("100%")] {
            assert_eq!(with("maxConcurrency", fine), None);
        }
        for fine in [json!(0), json!("0%")] {
            assert_eq!(with("maxFailures", fine), None);
        }
    }

    #[test]
    fn a_missing_body_is_an_empty_one() {
        for kind in ["All", "Progressive", "ProgressivePerGroup"] {
            let strategy = read(json!({"type": kind})).unwrap();
            assert_eq!((strategy.soak, strategy.deadline), (Duration::ZERO, None));
        }
        assert!(read(json!({})).is_ok(), "the default is All");
    }
}
