//! Figures and how they are told: a JSON line each on standard output, a table on standard error.

use std::env;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::rounds::Ratio;
use super::size::REHEARSAL;
use super::slow;

/// One measured number beside its baseline.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    goal: &'static str,
    #[serde(rename = "figure")]
    name: String,
    value: f64,
    unit: &'static str,
    baseline: Option<f64>,
    baseline_is: Option<String>,
    /// How many times better than the baseline.
    ratio: Option<f64>,
    /// `None` where the goal has no number for this figure.
    met: Option<bool>,
    params: Value,
}

impl Figure {
    /// A number without a baseline or a verdict.
    pub fn new(
        goal: &'static str,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            goal,
            name: name.into(),
            value: rounded(value),
            unit,
            baseline: None,
            baseline_is: None,
            ratio: None,
            met: None,
            params: json!({}),
        }
    }

    /// Sets the baseline, where less is better.
    #[must_use]
    pub fn below(self, baseline: f64, is: impl Into<String>) -> Self {
        let ratio = baseline / self.value;
        self.beside(baseline, is, ratio)
    }

    /// Sets the baseline and the ratio that was measured round by round.
    #[must_use]
    pub fn in_rounds(self, baseline: f64, is: impl Into<String>, ratio: Ratio) -> Self {
        let spread = json!([rounded(ratio.least), rounded(ratio.most)]);
        self.beside(baseline, is, ratio.median)
            .params(json!({"rounds": ratio.rounds, "ratio_spread": spread}))
    }

    /// Sets a baseline that shows what the measurement can tell; to be how many times less would say
    /// nothing, as with exponents near 0.
    #[must_use]
    pub fn control(self, control: f64, is: impl Into<String>) -> Self {
        self.beside(control, is, f64::NAN)
    }

    fn beside(mut self, baseline: f64, is: impl Into<String>, ratio: f64) -> Self {
        self.baseline = Some(rounded(baseline));
        self.baseline_is = Some(is.into());
        self.ratio = ratio.is_finite().then(|| rounded(ratio));
        self
    }

    /// Says whether the goal's own number is reached.
    #[must_use]
    pub fn met(mut self, met: bool) -> Self {
        self.met = Some(met);
        self
    }

    /// The same for a goal that a rehearsal says nothing of: its sizes are too small for memory and
    /// growth, its windows too short to count requests in, and it runs beside others, which a ratio of
    /// two times on the clock does not bear.
    #[must_use]
    pub fn met_in_full(self, met: bool) -> Self {
        if REHEARSAL { self } else { self.met(met) }
    }

    /// Adds what it was measured with.
    #[must_use]
    pub fn params(mut self, more: Value) -> Self {
        if let (Value::Object(params), Value::Object(more)) = (&mut self.params, more) {
            params.extend(more);
        }
        self
    }

    fn row(&self) -> [String; 6] {
        let baseline = match (self.baseline, &self.baseline_is) {
            (Some(baseline), Some(is)) => format!("{baseline} ({is})"),
            _ => "-".to_owned(),
        };
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "NOT met",
            None => "-",
        };
        [
            self.goal.to_owned(),
            self.name.clone(),
            format!("{} {}", self.value, self.unit),
            self.ratio
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio}x")),
            met.to_owned(),
            baseline,
        ]
    }
}

/// Four significant digits: more would be noise.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0; // of two zeros the one without a sign
    }
    if !value.is_finite() {
        return value;
    }
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The figures of one bench.
#[derive(Debug)]
pub struct Report {
    /// Goals asked for; empty for all.
    goals: Vec<String>,
    common: Map<String, Value>,
    figures: Vec<Figure>,
}

impl Report {
    /// Takes the goals from the command line, where they follow the name of the bench.
    pub fn start() -> Self {
        // cargo adds `--bench`.
        let arguments = env::args().skip(1).filter(|arg| !arg.starts_with('-'));
        let goals = arguments.skip(1).collect();
        let profile = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        let mut common = Map::new();
        common.insert("profile".to_owned(), json!(profile));
        if slow::injected() {
            common.insert("slow".to_owned(), json!(true));
        }
        Self {
            goals,
            common,
            figures: Vec::new(),
        }
    }

    /// Takes a figure and prints its line, unless its goal was not asked for.
    pub fn add(&mut self, figure: Figure) {
        if !self.goals.is_empty() && !self.goals.iter().any(|goal| goal == figure.goal) {
            return;
        }
        let figure = figure.params(Value::Object(self.common.clone()));
        match serde_json::to_string(&figure) {
            Ok(line) => println!("{line}"),
            Err(error) => eprintln!("{figure:?}: {error}"),
        }
        self.figures.push(figure);
    }
}

/// Prints the table.
impl Drop for Report {
    fn drop(&mut self) {
        let rows: Vec<[String; 6]> = self.figures.iter().map(Figure::row).collect();
        let width = |column: usize| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2), width(3), width(4)];
        for [goal, name, value, ratio, met, baseline] in &rows {
            let [of_goal, of_name, of_value, of_ratio, of_met] = widths;
            eprintln!(
                "{goal:of_goal$}  {name:of_name$}  {value:>of_value$}  {ratio:>of_ratio$}  \
                 {met:of_met$}  {baseline}"
            );
        }
    }
}
