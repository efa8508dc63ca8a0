//! Label and field selectors, parsed once per request and matched against stored metadata.

use std::collections::{BTreeMap, BTreeSet};

/// One requirement on a label or field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Missing(String),
    /// True: greater than; false: less than. Labels only.
    Compare(String, bool, i64),
}

/// A parsed `labelSelector`; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

/// A parsed `fieldSelector`; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<(String, bool, String)>);

impl LabelSelector {
    /// Parses the query form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err(
                    "unable to parse requirement: found ',', expected: identifier after ','"
                        .to_owned(),
                );
            }
            requirements.push(parse_requirement(part)?);
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|v| values.contains(v)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|v| !values.contains(v)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Missing(key) => !labels.contains_key(key),
            Requirement::Compare(key, greater, bound) => labels
                .get(key)
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| if *greater { v > *bound } else { v < *bound }),
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_requirement(text: &str) -> Result<Requirement, String> {
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement::Missing(label_key(key)?));
    }
    if let Some(open) = text.find('(') {
        let values = text[open + 1..]
            .strip_suffix(')')
            .ok_or_else(|| format!("unable to parse requirement: {text:?}: missing ')'"))?;
        let values = values
            .split(',')
            .map(label_value)
            .collect::<Result<BTreeSet<_>, _>>()?;
        let words: Vec<&str> = text[..open].split_whitespace().collect();
        return match words.as_slice() {
            [key, "in"] => Ok(Requirement::In(label_key(key)?, values)),
            [key, "notin"] => Ok(Requirement::NotIn(label_key(key)?, values)),
            _ => Err(format!(
                "unable to parse requirement: found {text:?}, expected: in, notin, =, ==, !=, gt, lt"
            )),
        };
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [_, "in" | "notin", rest, ..] = words.as_slice() {
        return Err(format!(
            "unable to parse requirement: found '{rest}' expected: '('"
        ));
    }
    for (operator, negate) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = text.split_once(operator) {
            let (key, values) = (label_key(key)?, [label_value(value)?].into());
            return Ok(if negate {
                Requirement::NotIn(key, values)
            } else {
                Requirement::In(key, values)
            });
        }
    }
    for (operator, greater) in [('>', true), ('<', false)] {
        if let Some((key, value)) = text.split_once(operator) {
            let bound = value.trim().parse().map_err(|_| {
                format!("values[0][{}]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer", key.trim(), value.trim())
            })?;
            return Ok(Requirement::Compare(label_key(key)?, greater, bound));
        }
    }
    Ok(Requirement::Exists(label_key(text)?))
}

fn label_key(text: &str) -> Result<String, String> {
    let key = text.trim();
    let name = key.rsplit('/').next().unwrap_or_default();
    if crate::validation::is_qualified_name(key) {
        Ok(key.to_owned())
    } else {
        Err(format!(
            "unable to parse requirement: <nil>: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character: {name:?}"
        ))
    }
}

fn label_value(text: &str) -> Result<String, String> {
    let value = text.trim();
    if value.starts_with('=') {
        return Err("unable to parse requirement: found '=', expected: identifier".to_owned());
    }
    if crate::validation::is_label_value(value) {
        Ok(value.to_owned())
    } else {
        Err(format!(
            "unable to parse requirement: values[0]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        ))
    }
}

impl FieldSelector {
    /// Parses the query form: `metadata.name=a,status.phase!=Failed`; `\,` `\=` `\\` are escapes.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            let (field, equal, value) = if let Some((f, v)) = part.split_once("!=") {
                (f, false, v)
            } else if let Some((f, v)) = part.split_once("==") {
                (f, true, v)
            } else if let Some((f, v)) = part.split_once('=') {
                (f, true, v)
            } else {
                return Err(format!(
                    "invalid selector: {text:?}; can't understand {part:?}"
                ));
            };
            terms.push((field.trim().to_owned(), equal, unescape(value)));
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that the selector asks about.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(field, _, _)| field.as_str())
    }

    /// The value that a field must have, if the selector pins one.
    pub(crate) fn exact(&self, wanted: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(field, equal, _)| *equal && field == wanted)
            .map(|(_, _, value)| value.as_str())
    }

    pub(crate) fn matches<'a>(&self, value_of: impl Fn(&str) -> &'a str) -> bool {
        self.0
            .iter()
            .all(|(field, equal, value)| (value_of(field) == value) == *equal)
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '\\' => escaped = !escaped,
            ',' if !escaped => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => escaped = false,
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' {
            chars.next().unwrap_or('\\')
        } else {
            c
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn every_label_operator_selects_as_documented() {
        let object = labels(&[("app", "web"), ("tier", "5"), ("x.io/y", "")]);
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , tier=5", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("other notin (db)", true),
            ("app", true),
            ("other", false),
            ("!other", true),
            ("! app", false),
            ("tier>4", true),
            ("tier<5", false),
            ("app>4", false),
            ("x.io/y", true),
            ("x.io/y=", true),
        ];
        for (text, want) in cases {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&object), want, "{text}");
        }
    }

    #[test]
    fn malformed_label_selectors_are_refused() {
        for text in [
            "a in (b", "a of (b)", "a>x", "-a=b", "a=b c", "a,,b", "a/b/c",
        ] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn field_selectors_take_escapes_and_negation() {
        let value_of = |field: &str| match field {
            "metadata.name" => "a,b",
            "status.phase" => "Running",
            _ => "",
        };
        let cases = [
            (r"metadata.name=a\,b", true),
            ("status.phase!=Failed", true),
            ("status.phase==Running,metadata.name!=x", true),
            ("status.phase=Failed", false),
            ("spec.nodeName=", true),
        ];
        for (text, want) in cases {
            assert_eq!(
                FieldSelector::parse(text).unwrap().matches(value_of),
                want,
                "{text}"
            );
        }
        assert!(FieldSelector::parse("nonsense").is_err());
        assert_eq!(
            FieldSelector::parse("metadata.name=x")
                .unwrap()
                .exact("metadata.name"),
            Some("x")
        );
    }
}
