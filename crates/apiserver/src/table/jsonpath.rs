//! The part of kubectl's `JSONPath` dialect that printer columns use: fields (with `\.` and
//! `['…']`), indexes, `[*]`, and filters `[?(@.a.b=="x")]`.

use serde_json::Value;

/// The first value at a path; a path that does not parse has none.
pub(super) fn first<'a>(path: &str, object: &'a Value) -> Option<&'a Value> {
    let path = path
        .strip_prefix('{')
        .and_then(|p| p.strip_suffix('}'))
        .unwrap_or(path);
    let mut rest = path.trim_start_matches('$');
    let mut found = vec![object];
    while !rest.is_empty() {
        let (step, after) = step(rest)?;
        rest = after;
        found = found
            .into_iter()
            .flat_map(|value| step.apply(value))
            .collect();
    }
    found.into_iter().next()
}

enum Step {
    Field(String),
    Index(i64),
    All,
    /// Path below the item, operator is `==` or (true) `!=`, text.
    Filter(String, bool, String),
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let at = if *index < 0 {
                    items
                        .len()
                        .checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(0))
                } else {
                    usize::try_from(*index).ok()
                };
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Self::Filter(path, negate, text) => value
                .as_array()
                .into_iter()
                .flatten()
                .filter(|item| {
                    first(path, item).is_some_and(|v| {
                        let equal = match v {
                            Value::String(s) => s == text,
                            Value::Bool(flag) => text.parse() == Ok(*flag),
                            Value::Number(number) => text.parse::<f64>().ok() == number.as_f64(),
                            _ => false,
                        };
                        equal != *negate
                    })
                })
                .collect(),
        }
    }
}

/// Reads one step off the front of a path.
fn step(path: &str) -> Option<(Step, &str)> {
    if let Some(inner) = path.strip_prefix('[') {
        let end = closing(inner)?;
        return Some((bracket(&inner[..end])?, &inner[end + 1..]));
    }
    let path = path.strip_prefix('.')?;
    if path.starts_with('[') {
        return step(path);
    }
    if let Some(rest) = path.strip_prefix('*') {
        return Some((Step::All, rest));
    }
    let mut name = String::new();
    let mut chars = path.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return Some((Step::Field(name), &path[at..])),
            c => name.push(c),
        }
    }
    Some((Step::Field(name), ""))
}

/// The `]` that ends a bracket, past quotes and nested brackets.
fn closing(inner: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in inner.char_indices() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('\'' | '"', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) if depth == 0 => return Some(at),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (left, negate, right) = if let Some((left, right)) = filter.split_once("==") {
            (left, false, right)
        } else {
            let (left, right) = filter.split_once("!=")?;
            (left, true, right)
        };
        let path = left.trim().strip_prefix('@')?;
        let text = right.trim().trim_matches(['"', '\'']);
        return Some(Step::Filter(path.to_owned(), negate, text.to_owned()));
    }
    if let Some(name) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        return Some(Step::Field(name.replace("\\.", ".")));
    }
    text.parse().ok().map(Step::Index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_find_their_first_value() {
        let object = json!({
            "metadata": {"name": "x", "labels": {"app.kubernetes.io/name": "web"}},
            "status": {"conditions": [
                {"type": "Ready", "status": "False"},
                {"type": "Available", "status": "True", "reason": "R]"},
            ]},
        });
        let cases = [
            (".metadata.name", Some(json!("x"))),
            ("{.metadata.name}", Some(json!("x"))),
            ("$.metadata.name", Some(json!("x"))),
            (
                r".metadata.labels.app\.kubernetes\.io/name",
                Some(json!("web")),
            ),
            (
                r".metadata.labels['app\.kubernetes\.io/name']",
                Some(json!("web")),
            ),
            (
                r#".status.conditions[?(@.type=="Available")].status"#,
                Some(json!("True")),
            ),
            (
                r".status.conditions[?(@.type=='Available')].reason",
                Some(json!("R]")),
            ),
            (
                r#".status.conditions[?(@.type!="Ready")].type"#,
                Some(json!("Available")),
            ),
            (".status.conditions[0].type", Some(json!("Ready"))),
            (".status.conditions[-1].type", Some(json!("Available"))),
            (".status.conditions[*].type", Some(json!("Ready"))),
            (".status.conditions[9].type", None),
            (".status.conditions[?(nonsense)].type", None),
            (".missing.field", None),
            ("metadata", None),
        ];
        for (path, want) in cases {
            assert_eq!(first(path, &object).cloned(), want, "{path}");
        }
    }
}
