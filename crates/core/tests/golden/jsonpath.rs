//! `jsonpath.json`: one expression against one object.

use muster_core::jsonpath::{Found, JsonPath};
use serde_json::{Value, json};

use crate::{check_all, expect_same, load, section, text};

const DATA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/jsonpath.json"
));

/// What we give, on purpose, where the reference gives something else.
fn departure(id: &str) -> Option<Value> {
    Some(match id {
        // A quoted key is also the key as it is written.
        "jp0024" => json!([["web"]]),
        "jp0122" => json!([["spaced"]]),
        "jp0126" => json!([["dollar"]]),
        "jp0128" => json!([["at"]]),
        "jp0133" => json!([["backslash"]]),
        "jp0140" => json!([["dotted"]]),
        // Null, missing and empty are one thing, which is no error and does not exist.
        "jp0032" | "jp0256" | "jp0259" | "jp0260" | "jp0275" | "jp0276" | "jp0296" | "jp0297"
        | "jp0302" | "jp0303" | "jp0304" | "jp0308" | "jp0311" | "jp0312" | "jp0327" | "jp0352"
        | "jp0355" | "jp0357" | "jp0358" | "jp0360" | "jp0363" | "jp0513" | "jp0547" | "jp0548"
        | "jp0568" | "jp0814" | "jp0845" | "jp0866" | "jp0886" | "jp0887" => json!([[]]),
        "jp0320" => json!([[1, 4, 6]]),
        "jp0328" => json!([[3, 5, 6]]),
        "jp0338" | "jp0354" => json!([["a", "b", "c", "d", "e"]]),
        "jp0350" => json!([["e"]]),
        "jp0408" | "jp0409" => json!([["a"]]),
        "jp0514" => json!([["m0", "m1"]]),
        "jp0535" => json!([[1]]),
        "jp0551" => json!([["m0"]]),
        "jp0556" => json!([["cold"]]),
        "jp0570" => json!([[[4, 5]]]),
        "jp0641" | "jp0891" => json!([["hot", "cold"]]),
        "jp0708" => json!([]),
        "jp0709" => json!([[null], [1], [null]]),
        "jp0711" => json!([[1], [4], [], [6]]),
        "jp0861" => json!([[8080]]),
        "jp0880" => json!([[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
            24, 25, 26, 27, 28, 29
        ]]),
        _ => return None,
    })
}

#[test]
fn every_expression_gives_what_the_reference_gives() {
    let data = load(DATA);
    check_all(section(&data, "records"), 898, |record| {
        let object = &data["objects"][text(record, "object")];
        let outcome = run(text(record, "expr"), object);
        if let Some(expected) = departure(text(record, "id")) {
            let expected = typed(&expected, None);
            return match outcome {
                Ok(outcome) => expect_same(&strip(&expected), &strip(&outcome)),
                Err(_) => Err(format!("expected {expected:?}, got {outcome:?}")),
            };
        }
        // Where the reference departs from its own rules, the corrected outcome holds; where it
        // crashes, any evaluation error.
        let (expected, outcome) = match record {
            _ if !record["panic"].is_null() => {
                return match outcome {
                    Err((false, _)) => Ok(()),
                    other => Err(format!("expected an evaluation error, got {other:?}")),
                };
            }
            _ if !record["parseError"].is_null() => {
                (Err((true, text(record, "parseError").to_owned())), outcome)
            }
            _ if !record["evalError"].is_null() => {
                (Err((false, text(record, "evalError").to_owned())), outcome)
            }
            _ => {
                let suggested = record.get("suggested");
                let results = suggested.unwrap_or(&record["results"]);
                let types = if suggested.is_some() {
                    None
                } else {
                    record.get("types")
                };
                let expected = typed(results, types);
                if record["unordered"] == true {
                    (Ok(sorted(expected)), outcome.map(sorted))
                } else {
                    (Ok(expected), outcome)
                }
            }
        };
        match (&expected, &outcome) {
            // The corrected results come without types.
            (Ok(expected), Ok(outcome)) if record.get("suggested").is_some() => {
                expect_same(&strip(expected), &strip(outcome))
            }
            _ => expect_same(&expected, &outcome),
        }
    });
}

type Typed = Vec<Vec<(String, Value)>>;

/// The results with their Go types; an error with "was it found while parsing".
fn run(path: &str, object: &Value) -> Result<Typed, (bool, String)> {
    let path = JsonPath::parse(path).map_err(|error| (true, error.to_string()))?;
    let found = path
        .eval(object)
        .map_err(|error| (false, error.to_string()))?;
    Ok(found
        .iter()
        .map(|matches| matches.iter().map(|found| typed_value(*found)).collect())
        .collect())
}

fn typed_value(found: Found<'_>) -> (String, Value) {
    (type_name(found.go_type()).to_owned(), normal(found.value()))
}

fn type_name(go_type: &str) -> &str {
    match go_type {
        "map[string]interface {}" => "map",
        "[]interface {}" => "list",
        "<nil>" => "null",
        scalar => scalar,
    }
}

/// Integers beyond 64 bits signed count as doubles on both sides.
fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_i64().is_none() => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), normal(value)))
            .collect(),
        other => other.clone(),
    }
}

fn typed(results: &Value, types: Option<&Value>) -> Typed {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(results)
        .iter()
        .enumerate()
        .map(|(outer, values)| {
            let values = list(values);
            values
                .iter()
                .enumerate()
                .map(|(inner, value)| {
                    let name = types.map_or("", |types| types[outer][inner].as_str().unwrap());
                    (name.to_owned(), normal(value))
                })
                .collect()
        })
        .collect()
}

fn strip(typed: &Typed) -> Vec<Vec<&Value>> {
    typed
        .iter()
        .map(|values| values.iter().map(|(_, value)| value).collect())
        .collect()
}

fn sorted(mut typed: Typed) -> Typed {
    for values in &mut typed {
        values.sort_by_key(|(name, value)| (value.to_string(), name.clone()));
    }
    typed
}
