//! The layers, each as values that know where they were set.

use std::fs;
use std::path::Path;

use config::{ConfigError, Environment, Map, Source, Value, ValueKind};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::{Problem, Sources};

/// The lowest layer, with every key that has a default.
const DEFAULTS: &str = include_str!("../../config/default.toml");

const VARIABLE_PREFIX: &str = "MUSTER";
const SEPARATOR: &str = "__";

/// Whether an environment variable is a setting.
pub(super) fn is_variable(name: &str) -> bool {
    let prefix = format!("{VARIABLE_PREFIX}{SEPARATOR}");
    name.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(&prefix))
}

/// One layer. The origin of each value in it says where it was set.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) values: Map<String, Value>,
    /// Whether every value is text, so that numbers and booleans are spelled out.
    pub(super) textual: bool,
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.values.clone())
    }
}

/// Reads the layers, lowest first. A layer that cannot be read is a problem and left out.
pub(super) fn read(sources: &Sources) -> (Vec<Layer>, Vec<Problem>) {
    let mut layers = Vec::new();
    let mut problems = Vec::new();
    let mut add = |layer: Result<Layer, Problem>| match layer {
        Ok(layer) => layers.push(layer),
        Err(problem) => problems.push(problem),
    };
    add(toml_layer(DEFAULTS, &|_| "default".to_owned()));
    if let Some(file) = &sources.file {
        add(file_layer(file));
    }
    add(environment_layer(sources));
    add(Ok(flags_layer(sources)));
    (layers, problems)
}

fn file_layer(file: &Path) -> Result<Layer, Problem> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|source| Problem::Unreadable {
        file: name.clone(),
        source,
    })?;
    toml_layer(&text, &|line| format!("{name}:{line}"))
}

/// Unlike `config`'s own TOML source, gives every value the line of its key.
fn toml_layer(text: &str, place: &dyn Fn(usize) -> String) -> Result<Layer, Problem> {
    let at = |offset: usize| {
        let newlines = text
            .bytes()
            .take(offset)
            .filter(|byte| *byte == b'\n')
            .count();
        place(newlines + 1)
    };
    let table = DeTable::parse(text).map_err(|error| Problem::Syntax {
        place: at(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(Layer {
        values: from_table(table.into_inner(), &at),
        textual: false,
    })
}

fn from_table(table: DeTable<'_>, at: &dyn Fn(usize) -> String) -> Map<String, Value> {
    table
        .into_iter()
        .map(|(key, value)| {
            let origin = at(key.span().start);
            let kind = from_value(value.into_inner(), at);
            (
                key.into_inner().into_owned(),
                Value::new(Some(&origin), kind),
            )
        })
        .collect()
}

fn from_array(array: DeArray<'_>, at: &dyn Fn(usize) -> String) -> Vec<Value> {
    array
        .into_iter()
        .map(|item: Spanned<DeValue<'_>>| {
            let origin = at(item.span().start);
            Value::new(Some(&origin), from_value(item.into_inner(), at))
        })
        .collect()
}

fn from_value(value: DeValue<'_>, at: &dyn Fn(usize) -> String) -> ValueKind {
    match value {
        DeValue::String(text) => text.into_owned().into(),
        // A number too large for its type stays text, and is then refused as no number.
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.as_str().to_owned().into(), ValueKind::I64),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| number.as_str().to_owned().into(), ValueKind::Float),
        DeValue::Boolean(truth) => truth.into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => ValueKind::Array(from_array(items, at)),
        DeValue::Table(table) => ValueKind::Table(from_table(table, at)),
    }
}

fn environment_layer(sources: &Sources) -> Result<Layer, Problem> {
    let variables = sources.environment.clone().into_iter().collect();
    let values = Environment::with_prefix(VARIABLE_PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(variables))
        .collect()
        .map_err(|source| Problem::Merged { source })?;
    let values = values
        .into_iter()
        .map(|(key, value)| {
            let variable = format!(
                "{VARIABLE_PREFIX}{SEPARATOR}{}",
                key.replace('.', SEPARATOR).to_uppercase()
            );
            let value = Value::new(Some(&variable), value.kind);
            (key, value)
        })
        .collect();
    Ok(Layer {
        values,
        textual: true,
    })
}

fn flags_layer(sources: &Sources) -> Layer {
    let values = sources
        .flags
        .iter()
        .map(|flag| {
            let value = Value::new(Some(&flag.origin), flag.value.clone());
            (flag.key.clone(), value)
        })
        .collect();
    Layer {
        values,
        textual: true,
    }
}
