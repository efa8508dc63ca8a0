//! JSON as Go's encoder writes it from a map: compact, keys in the order of their bytes, HTML
//! escaped. Hashes of status are made of this text, so it has to be the same to the letter.

use std::fmt::Write;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The text of a value.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// The lower-case hex SHA-256 of the text of a value.
pub fn canonical_hash(value: &Value) -> String {
    let digest = Sha256::digest(canonical_json(value));
    digest.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string never fails.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Value::Object(fields) => write_object(text, fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Statuses have whole numbers only, which both write alike.
            let _ = write!(text, "{value}");
        }
    }
}

fn write_object(text: &mut String, fields: &Map<String, Value>) {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(name, _)| name.as_bytes());
    text.push('{');
    for (index, (name, value)) in fields.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_string(text, name);
        text.push(':');
        write_value(text, value);
    }
    text.push('}');
}

fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_bytes_and_html_is_escaped() {
        let value = json!({"b": [1, null, true], "a": "<&>\u{2029}é\u{1}", "B": {}});
        assert_eq!(
            canonical_json(&value),
            r#"{"B":{},"a":"\u003c\u0026\u003e\u2029é\u0001","b":[1,null,true]}"#
        );
    }

    #[test]
    fn the_hash_is_of_the_text() {
        assert_eq!(
            canonical_hash(&json!({"resourceStatus": {}})),
            "3a4ba43801251ccdf889a3154674d23a35ab996aacfc00de92e61dbb2f5cf189"
        );
    }
}
