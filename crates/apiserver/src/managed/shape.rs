//! How the value at a place merges: as a whole, field by field, or item by item.
//!
//! The schema says so where there is one. Where a schema leaves fields open, the shape is
//! deduced as the real server does it: maps field by field, lists as a whole.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::element::{Element, Ordered};
use crate::builtin_schema;
use crate::schema::{Additional, ListType, MapType, Schema, Type};

/// What is known about the values at a place of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Typed {
        schema: &'a Schema,
        /// The schema, or one around it, keeps unknown fields.
        open: bool,
        /// A whole object, which has `apiVersion`, `kind` and `metadata` whatever its schema.
        object: bool,
    },
    /// Nothing: maps merge field by field, lists are replaced.
    Deduced,
    /// Replaced as a whole.
    Whole,
}

/// How one value merges.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    /// As a whole: scalars, and lists and maps that are atomic.
    Leaf,
    Map(MapForm<'a>),
    List(ListForm<'a>),
}

/// A map that merges field by field.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapForm<'a>(Place<'a>);

/// A list that merges item by item.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListForm<'a> {
    schema: &'a Schema,
    pub(super) item: Place<'a>,
}

impl Form<'_> {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What a value of a type may be.
#[derive(Clone, Copy)]
struct Atoms {
    map: bool,
    scalar: bool,
    list: bool,
}

/// The type, where the name does not say more: the Rust types call arbitrary JSON an object.
fn kind(schema: &Schema) -> Type {
    match schema.name.as_deref() {
        Some("JSON") => Type::Any,
        _ => schema.kind,
    }
}

fn atoms(schema: &Schema) -> Atoms {
    let (map, scalar, list) = match kind(schema) {
        Type::Object => (true, false, false),
        Type::Array => (false, false, true),
        // Quantities are written as strings and as numbers.
        Type::String | Type::Integer | Type::Number | Type::Boolean => (false, true, false),
        Type::Any | Type::IntOrString => (true, true, true),
    };
    Atoms { map, scalar, list }
}

impl<'a> Place<'a> {
    /// The place of a whole object.
    pub(super) fn object(schema: Option<&'a Schema>) -> Self {
        match schema {
            Some(schema) => Self::Typed {
                schema,
                open: schema.preserve_unknown,
                object: true,
            },
            None => Self::Deduced,
        }
    }

    fn below(schema: &'a Schema, open: bool) -> Self {
        Self::Typed {
            schema,
            open: open || schema.preserve_unknown,
            object: schema.embedded,
        }
    }

    /// How `value` merges here. Null and absent values (`None`) fit any form, so they take the
    /// first that the place allows.
    pub(super) fn form(self, value: Option<&Value>) -> Form<'a> {
        let Self::Typed { schema, .. } = self else {
            return match (self, value) {
                (Self::Deduced, None | Some(Value::Null | Value::Object(_))) => {
                    Form::Map(MapForm(self))
                }
                _ => Form::Leaf,
            };
        };
        let atoms = atoms(schema);
        match value {
            Some(Value::Array(_)) if atoms.list => self.list_form(),
            Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) if atoms.scalar => {
                Form::Leaf
            }
            _ if atoms.map => self.map_form(),
            _ if atoms.scalar => Form::Leaf,
            _ => self.list_form(),
        }
    }

    fn map_form(self) -> Form<'a> {
        match self {
            Self::Typed { schema, .. } if schema.map_type == MapType::Atomic => Form::Leaf,
            // Raw objects are opaque to the server.
            Self::Typed { schema, .. } if is_raw(schema) => Form::Leaf,
            Self::Whole => Form::Leaf,
            Self::Typed { .. } | Self::Deduced => Form::Map(MapForm(self)),
        }
    }

    fn list_form(self) -> Form<'a> {
        match self {
            Self::Typed { schema, open, .. } if schema.list_type != ListType::Atomic => {
                let item = match &schema.items {
                    Some(items) => Self::below(items, open),
                    None => Self::Whole,
                };
                Form::List(ListForm { schema, item })
            }
            _ => Form::Leaf,
        }
    }

    /// The place of a field, also of a map that merges as a whole. `None` when the schema does
    /// not have it.
    pub(super) fn any_field(self, name: &str) -> Option<Self> {
        match self {
            Self::Whole => Some(self),
            Self::Typed { schema, .. } if is_raw(schema) => Some(Self::Whole),
            Self::Typed { .. } | Self::Deduced => MapForm(self).field(name).map(|(place, _)| place),
        }
    }

    /// The place of an item of a list that merges as a whole.
    pub(super) fn any_item(self) -> Self {
        match self {
            Self::Typed { schema, open, .. } => match &schema.items {
                Some(items) => Self::below(items, open),
                None => Self::Whole,
            },
            Self::Deduced | Self::Whole => Self::Whole,
        }
    }

    /// The place of a field here, with `true` when the schema names it.
    pub(super) fn field(self, name: &str) -> Option<(Self, bool)> {
        match self.map_form() {
            Form::Map(map) => map.field(name),
            Form::Leaf | Form::List(_) => None,
        }
    }

    /// The place of what a step leads to.
    pub(super) fn step(self, step: &Element) -> Option<Self> {
        match step {
            Element::Field(name) => self.field(name).map(|(place, _)| place),
            Element::Key(_) | Element::Value(_) => match self.list_form() {
                Form::List(list) => Some(list.item),
                Form::Leaf | Form::Map(_) => None,
            },
            Element::Index(_) => None,
        }
    }

    /// True when nothing here can be owned in parts.
    pub(super) fn is_whole(self) -> bool {
        match self {
            Self::Typed { schema, .. } => {
                let atoms = atoms(schema);
                let form = if atoms.map {
                    self.map_form()
                } else {
                    self.list_form()
                };
                (atoms.map || !atoms.scalar) && matches!(form, Form::Leaf)
            }
            Self::Deduced | Self::Whole => false,
        }
    }

    /// What is wrong with a scalar, a list or a map here, as the real server words it.
    pub(super) fn problem(self, value: &Value) -> Option<String> {
        let Self::Typed { schema, .. } = self else {
            return None;
        };
        if kind(schema) == Type::Any || is_raw(schema) || value.is_null() {
            return None;
        }
        let expected = match kind(schema) {
            Type::Object if !value.is_object() => "expected map",
            Type::Array if !value.is_array() => "expected list",
            Type::String if schema.name.as_deref() == Some("Quantity") && is_scalar(value) => {
                return None;
            }
            Type::String if !value.is_string() => {
                return Some(format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    go_text(value, true)
                ));
            }
            Type::Integer | Type::Number if !value.is_number() => {
                let kind = match value {
                    Value::Bool(_) => "bool",
                    Value::Array(_) => "[]interface {}",
                    Value::Object(_) => "map[string]interface {}",
                    _ => "string",
                };
                return Some(format!("expected numeric (int or float), got {kind}"));
            }
            Type::Boolean if !value.is_boolean() => "expected boolean",
            _ => return None,
        };
        Some(format!("{expected}, got &{{{}}}", go_text(value, false)))
    }
}

fn is_raw(schema: &Schema) -> bool {
    schema.name.as_deref() == Some("RawExtension")
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

/// A value as Go prints it with `%v`, or with `%#v` when `quoted`.
fn go_text(value: &Value, quoted: bool) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) if quoted => format!("{text:?}"),
        Value::String(text) => text.clone(),
        Value::Array(items) if quoted => {
            let items: Vec<String> = items.iter().map(|i| go_text(i, true)).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|i| go_text(i, false)).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) if quoted => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(k, v)| format!("{k:?}:{}", go_text(v, true)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(k, v)| format!("{k}:{}", go_text(v, false)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

impl<'a> MapForm<'a> {
    /// The place of a field, with `true` when the schema names it. `None` when the schema does
    /// not have it.
    pub(super) fn field(self, name: &str) -> Option<(Place<'a>, bool)> {
        static TEXT: LazyLock<Schema> = LazyLock::new(|| Schema {
            kind: Type::String,
            ..Schema::default()
        });
        let Place::Typed {
            schema,
            open,
            object,
        } = self.0
        else {
            return Some((Place::Deduced, false));
        };
        if object {
            match name {
                "apiVersion" | "kind" => return Some((Place::below(&TEXT, false), true)),
                "metadata" => {
                    return Some((Place::below(builtin_schema::object_meta(), false), true));
                }
                _ => {}
            }
        }
        if let Some(property) = schema.property(name) {
            return Some((Place::below(property, open), true));
        }
        match &schema.additional {
            Additional::Schema(child) => Some((Place::below(child, open), false)),
            Additional::Anything => Some((Place::Deduced, false)),
            Additional::Nothing if open || (schema.properties.is_empty() && !object) => {
                Some((Place::Deduced, false))
            }
            Additional::Nothing => None,
        }
    }
}

impl ListForm<'_> {
    /// The step that leads to an item.
    ///
    /// # Errors
    ///
    /// Fails on items that cannot be told apart, in the real server's words.
    pub(super) fn step(&self, item: &Value) -> Result<Element, String> {
        let ListType::Map(names) = &self.schema.list_type else {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".to_owned())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null"
                        .to_owned(),
                ),
                plain => Ok(Element::Value(Ordered(plain.clone()))),
            };
        };
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => {
                return Err("associative list with keys may not have a null element".to_owned());
            }
            _ => {
                return Err("associative list with keys may not have non-map elements".to_owned());
            }
        };
        let mut key = Map::new();
        for name in names {
            let given = fields.get(name).or_else(|| self.default_of(name));
            if let Some(value) = given {
                key.insert(name.clone(), value.clone());
            }
        }
        if key.is_empty() {
            let names: Vec<String> = names.iter().map(|n| format!("{n:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(Element::key(key))
    }

    fn default_of(&self, field: &str) -> Option<&Value> {
        let items = self.schema.items.as_ref()?;
        items.property(field)?.default.as_ref()
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;
    use crate::schema::compile;
    use serde_json::json;

    /// A custom type with a list of each kind, a free map, an atomic one, and open parts.
    pub(in super::super) fn schema() -> Schema {
        compile(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string"}},
            "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "args": {"type": "array", "items": {"type": "string"}},
            "parts": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "kind"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "kind": {"type": "string", "default": "plain"},
                    "count": {"type": "integer"},
                }}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "manifests": {"type": "array", "items": {"type": "object",
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}},
            "limit": {"x-kubernetes-int-or-string": true},
        }}}}))
        .expect("the schema is valid")
    }
}
