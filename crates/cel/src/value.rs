//! Values: from JSON, their types, their fields and elements.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map, Opaque, OptionalValue};
use serde_json::Value as Json;

use crate::failure::Failure;
use crate::functions::Call;
use crate::meter::Meter;

/// What `type(x)` gives: the name of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeName(String);

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// The types that an expression can name.
pub(crate) const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// The value that stands for the type of that name.
pub(crate) fn type_named(name: &str) -> Value {
    Value::Opaque(Arc::new(TypeName(name.into())))
}

pub(crate) fn type_of(value: &Value) -> Value {
    type_named(match value {
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Float(_) => "double",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Int(_) => "int",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Null => "null_type",
        Value::String(_) => "string",
        Value::UInt(_) => "uint",
        Value::Opaque(opaque) => opaque.runtime_type_name(),
        Value::Function(..) => "function",
    })
}

/// Name of the Go type that upstream's messages call a result by. A list or map that the
/// expression has `made` has another one than a list or map of the object.
pub(crate) fn go_type(value: &Value, made: bool) -> String {
    let name = match value {
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "[]uint8",
        Value::Float(_) => "float64",
        Value::Duration(_) => "time.Duration",
        Value::Timestamp(_) => "time.Time",
        Value::Int(_) => "int64",
        Value::List(_) if made => "[]ref.Val",
        Value::List(_) => "[]interface {}",
        Value::Map(_) if made => "map[ref.Val]ref.Val",
        Value::Map(_) => "map[string]interface {}",
        Value::Null => "structpb.NullValue",
        Value::String(_) | Value::Function(..) => "string",
        Value::UInt(_) => "uint64",
        Value::Opaque(opaque) => match as_optional(value).map(OptionalValue::value) {
            Some(Some(inner)) => return go_type(inner, false),
            Some(None) => "<nil>",
            None => match opaque.runtime_type_name() {
                "type" => "string",
                "kubernetes.Quantity" => "*resource.Quantity",
                other => other,
            },
        },
    };
    name.into()
}

/// Numbers as the agent reads them: what fits into 64 bits with sign is an integer.
///
/// The caller bounds the depth; parsing JSON does.
pub fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Int(integer),
            // Without serde_json's arbitrary precision every number has a double.
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => Value::List(Arc::new(items.iter().map(from_json).collect())),
        Json::Object(fields) => {
            let entry =
                |(key, value): (&String, &Json)| (Key::from(key.as_str()), from_json(value));
            map(fields.iter().map(entry).collect())
        }
    }
}

pub(crate) fn map(entries: HashMap<Key, Value>) -> Value {
    Value::Map(Map {
        map: Arc::new(entries),
    })
}

/// A map with texts as keys.
pub fn object(fields: impl IntoIterator<Item = (String, Value)>) -> Value {
    let entry = |(name, value): (String, Value)| (Key::from(name), value);
    map(fields.into_iter().map(entry).collect())
}

/// A field of a map that has texts as keys.
pub fn field<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    match of {
        Value::Map(map) => map.map.get(&Key::from(name)),
        _ => None,
    }
}

/// The items of a list; none of anything else.
pub fn items(of: &Value) -> &[Value] {
    match of {
        Value::List(items) => items,
        _ => &[],
    }
}

/// A list.
pub fn list(items: Vec<Value>) -> Value {
    Value::List(Arc::new(items))
}

/// A text.
pub fn text(text: &str) -> Value {
    text.into()
}

/// Bytes.
pub fn bytes(bytes: Vec<u8>) -> Value {
    bytes.into()
}

/// The point in time that a text in RFC 3339 names.
pub fn as_timestamp(text: &str) -> Option<Value> {
    convert("timestamp", text)
}

/// The duration that a text names, such as `1h30m`.
pub fn as_duration(text: &str) -> Option<Value> {
    convert("duration", text)
}

/// The result of a conversion of the library.
fn convert(function: &str, text: &str) -> Option<Value> {
    let call = Call::of(function, 1);
    let mut meter = Meter::new(u64::MAX);
    call.run(vec![text.into()], &mut meter).ok()
}

/// An optional that has a value.
pub fn some(value: Value) -> Value {
    Value::Opaque(Arc::new(OptionalValue::of(value)))
}

/// An optional without a value.
pub fn none() -> Value {
    Value::Opaque(Arc::new(OptionalValue::none()))
}

/// The optional that a value is, if it is one.
pub(crate) fn as_optional(value: &Value) -> Option<&OptionalValue> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<OptionalValue>(),
        _ => None,
    }
}

/// A bool, also within an optional, as upstream takes it.
pub(crate) fn as_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(bool) => Some(*bool),
        _ => as_bool(as_optional(value)?.value()?),
    }
}

/// A string, also within an optional.
pub(crate) fn as_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => as_text(as_optional(value)?.value()?),
    }
}

/// A key as messages show it.
pub(crate) fn key_text(value: &Value) -> String {
    let key: Result<Key, _> = value.clone().try_into();
    key.map_or_else(|_| go_type(value, false), |key| key.to_string())
}

/// How a field or an element is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The value; an error if it is not there.
    Get,
    /// Whether it is there.
    Has,
    /// An optional.
    Optional,
}

impl Access {
    fn answer(
        self,
        found: Option<Value>,
        missing: impl FnOnce() -> Failure,
    ) -> Result<Value, Failure> {
        match self {
            Self::Get => found.ok_or_else(missing),
            Self::Has => Ok(Value::Bool(found.is_some())),
            Self::Optional => Ok(found.map_or_else(none, some)),
        }
    }
}

/// `of.field`. What follows an optional is optional.
pub(crate) fn select(of: &Value, field: &Key, access: Access) -> Result<Value, Failure> {
    let missing = || Failure::no_such_key(field);
    match (of, as_optional(of)) {
        (_, Some(optional)) => match (optional.value(), access) {
            (Some(inner), Access::Has) => select(inner, field, Access::Has),
            (Some(inner), _) => select(inner, field, Access::Optional),
            (None, Access::Has) => Ok(Value::Bool(false)),
            (None, _) => Ok(none()),
        },
        (Value::Map(map), _) => access.answer(map.map.get(field).cloned(), missing),
        _ => access.answer(None, missing),
    }
}

/// `of[at]`. What follows an optional is optional.
pub(crate) fn index(of: &Value, at: &Value, access: Access) -> Result<Value, Failure> {
    match (of, as_optional(of)) {
        (_, Some(optional)) => match optional.value() {
            Some(inner) => index(inner, at, Access::Optional),
            None => Ok(none()),
        },
        (Value::List(items), _) => {
            let Some(number) = whole(at) else {
                return Err(Failure::Error(format!(
                    "unsupported index type '{}' in list",
                    go_type(at, false)
                )));
            };
            let item = usize::try_from(number).ok().and_then(|at| items.get(at));
            access.answer(item.cloned(), || {
                Failure::Error(format!("index out of bounds: {number}"))
            })
        }
        (Value::Map(map), _) => {
            let at = match at {
                Value::Float(_) => &whole(at).map_or(Value::Null, Value::Int),
                _ => at,
            };
            let key: Result<Key, _> = at.clone().try_into();
            let key = key.map_err(|_| Failure::no_such_overload())?;
            access.answer(map.get(&key).cloned(), || Failure::no_such_key(&key))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

/// The integer that a number is, if it is one.
fn whole(value: &Value) -> Option<i64> {
    /// Up to here every whole double is one integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Int(int) => Some(*int),
        Value::UInt(uint) => i64::try_from(*uint).ok(),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "whole and within the range"
        )]
        Value::Float(float) if float.fract() == 0.0 && float.abs() <= EXACT => Some(*float as i64),
        _ => None,
    }
}

/// Whether `value` is a map with a list under `conditions` that is not empty.
pub(crate) fn has_conditions(value: &Value) -> bool {
    let Value::Map(map) = value else {
        return false;
    };
    matches!(map.map.get(&Key::from("conditions")), Some(Value::List(items)) if !items.is_empty())
}
