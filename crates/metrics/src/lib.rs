//! A metric as its module declares it: name, kind, unit, labels and what it means.
//!
//! A module that records metrics declares each as a constant, and all of them as its `METRICS`. The
//! recorder's descriptions and the page for operators are made of these.
//!
//! ```
//! use muster_metrics::{Label, Metric};
//!
//! const WRITES: Metric = Metric::counter("muster_example_writes_total", "Writes, by result.")
//!     .labels(&[Label::one_of("result", &[("ok", "it was taken"), ("error", "it was not")])]);
//! /// What this module records.
//! pub const METRICS: &[Metric] = &[WRITES];
//!
//! metrics::counter!(WRITES.name, "result" => "ok").increment(1);
//! assert!(WRITES.accepts([("result", "ok")]));
//! assert!(!WRITES.accepts([("result", "good")]));
//! ```

use std::fmt;

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// How a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever rises, and begins at 0 with the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts values by size.
    Histogram,
}

impl fmt::Display for Kind {
    /// As Prometheus has it in a line `# TYPE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// What the value of a metric is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, which the help text names.
    Count,
    /// Seconds.
    Seconds,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
        })
    }
}

impl From<Unit> for metrics::Unit {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Count => Self::Count,
            Unit::Seconds => Self::Seconds,
        }
    }
}

/// A label of a metric. Each series has all labels of its metric, and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What it can hold.
    pub values: Values,
}

/// What a label can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// One of these, each with what it means.
    OneOf(&'static [(&'static str, &'static str)]),
    /// Names from settings or code; the text says of what.
    Names(&'static str),
}

impl Label {
    /// The cluster that a figure is about: one of those in the settings of the process.
    pub const CLUSTER: Self = Self::names("cluster", "name of the managed cluster");

    /// A label that holds one of these values, each with what it means.
    pub const fn one_of(
        name: &'static str,
        values: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            name,
            values: Values::OneOf(values),
        }
    }

    /// A label that holds names; `what` says of what.
    pub const fn names(name: &'static str, what: &'static str) -> Self {
        Self {
            name,
            values: Values::Names(what),
        }
    }

    fn accepts(&self, name: &str, value: &str) -> bool {
        let fits = match self.values {
            Values::OneOf(values) => values.iter().any(|(one, _)| *one == value),
            Values::Names(_) => true,
        };
        self.name == name && fits
    }
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// `muster_<area>_<thing>`, with the unit and `_total` as Prometheus wants them.
    pub name: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// What it is in.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [Label],
    /// What it tells, for operators; one or more sentences.
    pub help: &'static str,
}

impl Metric {
    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self {
            name,
            kind,
            unit: Unit::Count,
            labels: &[],
            help,
        }
    }

    /// A counter without labels.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Counter, help)
    }

    /// A gauge without labels.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Gauge, help)
    }

    /// A histogram of durations in seconds, without labels.
    pub const fn durations(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Histogram, help).in_seconds()
    }

    /// The same in seconds.
    #[must_use]
    pub const fn in_seconds(mut self) -> Self {
        self.unit = Unit::Seconds;
        self
    }

    /// The same with these labels.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [Label]) -> Self {
        self.labels = labels;
        self
    }

    /// Tells the recorder of the process what the metric means.
    pub fn describe(&self) {
        let (name, unit, help) = (self.name, self.unit.into(), self.help);
        match self.kind {
            Kind::Counter => describe_counter!(name, unit, help),
            Kind::Gauge => describe_gauge!(name, unit, help),
            Kind::Histogram => describe_histogram!(name, unit, help),
        }
    }

    /// Whether a series of this metric can have these labels: all that are declared, in any order,
    /// and no other.
    pub fn accepts<'a>(&self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        let mut left: Vec<&Label> = self.labels.iter().collect();
        for (name, value) in labels {
            let Some(at) = left.iter().position(|label| label.accepts(name, value)) else {
                return false;
            };
            left.swap_remove(at);
        }
        left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: Metric = Metric::counter("muster_test_events_total", "Events.").labels(&[
        Label::CLUSTER,
        Label::one_of("result", &[("ok", "taken"), ("error", "not taken")]),
    ]);

    #[test]
    fn series_have_the_declared_labels_and_values_and_no_other() {
        assert!(EVENTS.accepts([("cluster", "any"), ("result", "ok")]));
        assert!(EVENTS.accepts([("result", "error"), ("cluster", "")]));
        for labels in [
            &[("cluster", "any")][..],
            &[("cluster", "any"), ("result", "fine")],
            &[("cluster", "any"), ("cluster", "any")],
            &[("cluster", "any"), ("result", "ok"), ("sink", "log")],
            &[],
        ] {
            assert!(!EVENTS.accepts(labels.iter().copied()), "{labels:?}");
        }
    }

    #[test]
    fn kinds_and_units_are_those_that_prometheus_knows() {
        let time = Metric::durations("muster_test_duration_seconds", "Time.");
        assert_eq!((time.kind, time.unit), (Kind::Histogram, Unit::Seconds));
        let age = Metric::gauge("muster_test_age_seconds", "Age.").in_seconds();
        assert_eq!(format!("{} in {}", age.kind, age.unit), "gauge in seconds");
        assert_eq!(
            format!("{} in {}", EVENTS.kind, EVENTS.unit),
            "counter in count"
        );
    }
}
