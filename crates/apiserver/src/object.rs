//! Small accessors for Kubernetes objects held as JSON trees.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Deepest nesting of an object that is stored. Whoever reads it back, from the storage or in a
/// list or an event, parses up to 127 levels.
pub(crate) const MAX_DEPTH: usize = 100;

/// How many levels of lists and maps a value has, which the parser or [`MAX_DEPTH`] bounds.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The object's `metadata`, made an object if it is not one.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    let root = as_object_mut(object);
    as_object_mut(root.entry("metadata").or_insert(Value::Null))
}

/// The value as a map; anything else is replaced by an empty one.
pub(crate) fn as_object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object above")
}

/// A string field of `metadata`, empty when absent.
pub(crate) fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Sets a field of `metadata`, or removes it when the value is null.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: Value) {
    let metadata = metadata_mut(object);
    if value.is_null() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), value);
    }
}

/// `metadata.generation`, 0 when absent.
pub(crate) fn generation(object: &Value) -> i64 {
    object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// `metadata.finalizers`, empty when absent.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// True once a deletion was asked for.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|t| !t.is_null())
}

/// Now, as `metav1.Time` spells it: RFC 3339 in whole seconds.
pub(crate) fn now() -> String {
    time_text(Timestamp::now())
}

/// A time as `metav1.Time` spells it.
pub(crate) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A random UUID (version 4), as object uids are.
pub(crate) fn new_uid() -> String {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex(&bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16");
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// Five characters without vowels and look-alikes, as `generateName` appends.
pub(crate) fn name_suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5)
        .map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())]))
        .collect()
}

/// Longest prefix that leaves room for the suffix within a 63-byte name.
const MAX_GENERATED_PREFIX_BYTES: usize = 58;

/// A name from `generateName`.
pub(crate) fn generate_name(prefix: &str) -> String {
    let mut cut = prefix.len().min(MAX_GENERATED_PREFIX_BYTES);
    while !prefix.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{}", &prefix[..cut], name_suffix())
}

/// Removes nulls, which Go's `omitempty` never writes, from objects at any depth.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_names_are_cut_at_58_bytes_and_end_in_5_characters() {
        let name = generate_name(&"a".repeat(80));
        assert_eq!(name.len(), 63);
        assert!(name.starts_with(&"a".repeat(58)));
        assert_eq!(generate_name("web-").len(), 9);
        assert!(generate_name(&"ä".repeat(40)).len() <= 63);
    }

    #[test]
    fn uids_are_version_4_uuids() {
        let uid = new_uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert_ne!(uid, new_uid());
    }

    #[test]
    fn setting_metadata_to_null_removes_the_field() {
        let mut object = json!({"metadata": {"uid": "a"}});
        set_meta(&mut object, "uid", Value::Null);
        assert_eq!(object, json!({"metadata": {}}));
    }
}
