//! YAML that every reader understands in the same way.
//!
//! What is written here is read by kubectl and by controllers, most of them with parsers of YAML 1.1,
//! and by people in diffs. So a text is written plain only where no version of YAML takes it for
//! anything else: `no`, `0o7`, `1_0`, `=` and everything that begins like a number are quoted. Texts of
//! several lines are blocks, so that a diff shows the line that has changed, unless a block would not
//! give back every character: a tab or a space at the begin, a blank at the end of a line, a character
//! that YAML takes for an end of line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// Levels that are written as lines of their own. What lies deeper is written as JSON, which is YAML,
/// too: the indentation would take more room than the content.
const MAX_BLOCK_DEPTH: usize = 32;

/// Longest key, in bytes of its YAML, that is written before its colon. Parsers look for the colon in
/// the next 1,024 characters only.
const MAX_SIMPLE_KEY_BYTES: usize = 512;

/// Writes a JSON document as YAML; entries keep their order.
///
/// # Errors
///
/// It is not JSON, or nests more than 127 levels deep.
pub fn from_json(json: &str) -> serde_json::Result<String> {
    let node: Node = serde_json::from_str(json)?;
    let mut out = String::with_capacity(json.len());
    match &node {
        Node::List(items) if !items.is_empty() => write_list(&mut out, items, 0),
        Node::Map(entries) if !entries.is_empty() => write_map(&mut out, entries, 0),
        scalar => {
            write_flow(&mut out, scalar);
            out.push('\n');
        }
    }
    Ok(out)
}

/// JSON with its entries in order.
enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        // JSON has no other.
        Ok(Number::from_f64(number).map_or(Node::Null, Node::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Node, E> {
        Ok(Node::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("  ", level));
}

fn write_map(out: &mut String, entries: &[(String, Node)], level: usize) {
    for (position, (key, value)) in entries.iter().enumerate() {
        if position > 0 {
            indent(out, level);
        }
        let begin = out.len();
        write_key(out, key);
        if out.len() - begin > MAX_SIMPLE_KEY_BYTES {
            out.insert_str(begin, "? ");
            out.push('\n');
            indent(out, level);
        }
        out.push(':');
        match value {
            // As kubectl: a list is as far to the left as its key.
            Node::List(items) if !items.is_empty() && level < MAX_BLOCK_DEPTH => {
                out.push('\n');
                indent(out, level);
                write_list(out, items, level);
            }
            Node::Map(inner) if !inner.is_empty() && level < MAX_BLOCK_DEPTH => {
                out.push('\n');
                indent(out, level + 1);
                write_map(out, inner, level + 1);
            }
            scalar => {
                out.push(' ');
                write_scalar(out, scalar, level + 1);
            }
        }
    }
}

fn write_list(out: &mut String, items: &[Node], level: usize) {
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            indent(out, level);
        }
        out.push_str("- ");
        match item {
            Node::List(inner) if !inner.is_empty() && level < MAX_BLOCK_DEPTH => {
                write_list(out, inner, level + 1);
            }
            Node::Map(inner) if !inner.is_empty() && level < MAX_BLOCK_DEPTH => {
                write_map(out, inner, level + 1);
            }
            scalar => write_scalar(out, scalar, level + 1),
        }
    }
}

/// Writes what takes the rest of a line, or a block whose lines are at `level`.
fn write_scalar(out: &mut String, node: &Node, level: usize) {
    match node {
        Node::Text(text) if is_block(text) => {
            out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
            for line in text.lines() {
                if !line.is_empty() {
                    indent(out, level);
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        Node::Text(text) if is_plain(text) => {
            out.push_str(text);
            out.push('\n');
        }
        other => {
            write_flow(out, other);
            out.push('\n');
        }
    }
}

fn write_key(out: &mut String, key: &str) {
    if is_plain(key) {
        out.push_str(key);
    } else {
        write_quoted(out, key);
    }
}

/// Writes a node as JSON, with the escapes of YAML.
fn write_flow(out: &mut String, node: &Node) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Node::Number(number) => out.push_str(&number.to_string()),
        Node::Text(text) => write_quoted(out, text),
        Node::List(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push_str(", ");
                }
                write_flow(out, item);
            }
            out.push(']');
        }
        Node::Map(entries) => {
            out.push('{');
            for (position, (key, value)) in entries.iter().enumerate() {
                if position > 0 {
                    out.push_str(", ");
                }
                let begin = out.len();
                write_quoted(out, key);
                if out.len() - begin > MAX_SIMPLE_KEY_BYTES {
                    out.insert_str(begin, "? ");
                    out.push(' ');
                }
                out.push_str(": ");
                write_flow(out, value);
            }
            out.push('}');
        }
    }
}

fn write_quoted(out: &mut String, text: &str) {
    use fmt::Write as _; // Writing to a String cannot fail.

    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if is_printable(character) => out.push(character),
            _ if u32::from(character) <= 0xffff => {
                let _ = write!(out, "\\u{:04X}", u32::from(character));
            }
            _ => {
                let _ = write!(out, "\\U{:08X}", u32::from(character));
            }
        }
    }
    out.push('"');
}

/// Whether a character may stand in YAML as it is, and is no end of line.
fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Whether a text is the same in every version of YAML when it is written without quotes.
fn is_plain(text: &str) -> bool {
    // Of these, YAML 1.1 takes `y`, `n`, `yes`, `no`, `on`, `off`, `true`, `false` and `null` for
    // something else, in some spellings.
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let inside =
        |character: char| character.is_ascii_alphanumeric() || " _./:@%+=~,()-".contains(character);
    begins
        && text.chars().all(inside)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether a block gives back every character of a text.
fn is_block(text: &str) -> bool {
    let first = text.trim_start_matches('\n');
    text.trim_end_matches('\n').contains('\n')
        && !text.ends_with("\n\n")
        && !first.starts_with([' ', '\t'])
        && text
            .chars()
            .all(|character| matches!(character, '\n' | '\t') || is_printable(character))
        && !text.lines().any(|line| line.ends_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn yaml(value: &Value) -> String {
        from_json(&value.to_string()).unwrap()
    }

    #[test]
    fn objects_look_as_people_write_them() {
        let text = r#"{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "labels": {}},
            "items": [], "n": [1, 2.5, null, true, "nginx:1.25", "a b"],
            "data": {"conf": "a: 1\n\n  b: 2\n", "last": "x\ny", "port": "8080", "no": "Yes",
                "list": [{"a": "x", "b": ["y"]}, [1, [2]]]}}"#;
        let expected = "\
kind: ConfigMap
apiVersion: v1
metadata:
  name: a
  labels: {}
items: []
\"n\":
- 1
- 2.5
- null
- true
- nginx:1.25
- a b
data:
  conf: |
    a: 1

      b: 2
  last: |-
    x
    y
  port: \"8080\"
  \"no\": \"Yes\"
  list:
  - a: x
    b:
    - \"y\"
  - - 1
    - - 2
";
        assert_eq!(from_json(text).unwrap(), expected);
    }

    #[test]
    fn what_a_block_or_a_plain_text_would_change_is_quoted() {
        for (text, expected) in [
            ("\tgo build\n\tgo test\n", r#""\tgo build\n\tgo test\n""#),
            ("\n\tx\ny\n", r#""\n\tx\ny\n""#),
            ("  x\ny\n", r#""  x\ny\n""#),
            ("x \ny\n", r#""x \ny\n""#),
            ("x\ny\n\n", r#""x\ny\n\n""#),
            ("x\r\ny\r\n", r#""x\r\ny\r\n""#),
            ("x\u{85}y\nz", r#""x\u0085y\nz""#),
            ("\u{feff}x", r#""\uFEFFx""#),
            ("\u{2028}", r#""\u2028""#),
            ("\u{10fffe}\0", "\"\u{10fffe}\\u0000\""),
            ("=", r#""=""#),
            ("<<", r#""<<""#),
            ("~", r#""~""#),
            ("0o7", r#""0o7""#),
            ("1:20", r#""1:20""#),
            (".inf", r#"".inf""#),
            ("OFF", r#""OFF""#),
            ("a: b", r#""a: b""#),
            ("a #b", r#""a #b""#),
            ("a:", r#""a:""#),
            ("a ", r#""a ""#),
            ("", r#""""#),
            ("---", r#""---""#),
            ("é", "\"é\""),
        ] {
            assert_eq!(yaml(&json!({ "k": text })), format!("k: {expected}\n"));
        }
    }

    #[test]
    fn long_keys_are_explicit() {
        let key = "k".repeat(MAX_SIMPLE_KEY_BYTES + 1);
        let object = json!({ "a": { &key: {"b": 1} } });
        let text = yaml(&object);
        assert_eq!(text, format!("a:\n  ? {key}\n  :\n    b: 1\n"));
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), object);
        let at_limit = json!({ &key[1..]: 1 });
        assert_eq!(yaml(&at_limit), format!("{}: 1\n", &key[1..]));
    }

    #[test]
    fn what_nests_deeper_than_people_read_takes_no_more_room() {
        let mut object = json!(vec!["x\ny"; 1_000]);
        for _ in 0..60 {
            object = json!({ "k": object });
        }
        let text = yaml(&object);
        assert!(text.len() < 20_000, "{}", text.len());
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), object);
        let beyond = format!("{}{}", "[".repeat(128), "]".repeat(128));
        assert!(from_json(&beyond).is_err());
    }

    /// Characters and words that mean something to some version of YAML.
    fn any_text() -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec![
            "a",
            "b",
            " ",
            "  ",
            "\t",
            "\n",
            "\n\n",
            "\r",
            ":",
            ": ",
            " #",
            "-",
            "- ",
            "? ",
            "'",
            "\"",
            "\\",
            "|",
            ">",
            "&a",
            "*a",
            "!t",
            "%",
            "@",
            "`",
            "{",
            "}",
            "[",
            "]",
            ",",
            "=",
            "<<",
            "~",
            "---",
            "...",
            "0",
            "0x1",
            "1e3",
            "1_0",
            "0b1",
            ".5",
            "+1",
            "y",
            "No",
            "ON",
            "null",
            "true",
            "2026-01-01",
            "1:20",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "\0",
            "\u{7f}",
            "é",
            "\u{1F389}",
            "\u{fffe}",
            "/",
        ]);
        prop_oneof![
            3 => proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat()),
            1 => any::<String>(),
        ]
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any_text().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(any_text(), inner, 0..4)
                    .prop_map(|entries| entries.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(value in any_json()) {
            let text = yaml(&value);
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
