//! The records of the Go reference in `tests/golden`, each as a case; see its README for the
//! meaning of the fields and flags.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "all of this is test code; the exemption in clippy.toml covers test functions only"
)]

mod condition_rules;
mod conditions;
mod feedback;
mod jsonpath;
mod names;
mod rollout;

use serde_json::Value;

/// The text of one file of the golden data, parsed.
fn load(text: &str) -> Value {
    serde_json::from_str(text).expect("golden data is JSON")
}

/// The entries of one section.
fn section<'a>(data: &'a Value, name: &str) -> &'a [Value] {
    data[name].as_array().expect("a section is a list")
}

/// The text of a field of a record.
fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().expect("the field is a text")
}

/// Runs every record and reports all failures at once, by record.
fn check_all<'a>(
    records: impl IntoIterator<Item = &'a Value>,
    least: usize,
    check: impl Fn(&'a Value) -> Result<(), String>,
) {
    let mut count = 0;
    let mut failures = Vec::new();
    for record in records {
        count += 1;
        if let Err(failure) = check(record) {
            failures.push(format!("{}: {failure}", record.get("id").unwrap_or(record)));
        }
    }
    assert!(count >= least, "only {count} of {least} records found");
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// `Ok` if both are the same; else what was expected and what came.
fn expect_same<T: PartialEq + std::fmt::Debug>(expected: &T, actual: &T) -> Result<(), String> {
    if expected == actual {
        Ok(())
    } else {
        Err(format!("\n  expected {expected:?}\n  got      {actual:?}"))
    }
}
