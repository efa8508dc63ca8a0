//! What an evaluation may cost.
//!
//! The unit is that of cel-go, and so are the prices of what rules are made of: a variable, a
//! field, an operator costs 1, a list that is written down 10, a map 30, text a tenth a byte.
//! The library's evaluator knows no costs, which is why this crate walks expressions itself.
//!
//! Differs from upstream: copying lists, comparing values and handing them to functions costs as
//! much as there is to visit, and regular expressions what they can take, so that the limit
//! bounds time and memory.

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, OptionalValue};

use crate::failure::Failure;
use crate::value::as_optional;

/// Bytes of text for one unit.
pub(crate) const BYTES_A_UNIT: usize = 10;

/// How much longer the library takes to copy an element than this crate to look at one.
const COPY: u64 = 5;

/// Counts what an evaluation costs, up to a limit.
#[derive(Debug)]
pub(crate) struct Meter {
    limit: u64,
    used: u64,
}

impl Meter {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn charge(&mut self, units: usize) -> Result<(), Failure> {
        self.used = self.used.saturating_add(units as u64);
        if self.used > self.limit {
            return Err(Failure::TooExpensive);
        }
        Ok(())
    }

    /// For something that takes time with each of so many bytes.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) -> Result<(), Failure> {
        self.charge(bytes / BYTES_A_UNIT)
    }

    /// For handing a value to the library, or taking one from it.
    pub(crate) fn charge_copy(&mut self, value: &Value) -> Result<(), Failure> {
        let before = self.used;
        self.charge_visit(value)?;
        if matches!(value, Value::List(_) | Value::Map(_)) {
            self.used = before + COPY * (self.used - before);
        }
        self.charge(0)
    }

    /// For visiting all that `value` consists of. Parts that it holds twice count twice: a small
    /// expression can make a value that nothing can walk through.
    pub(crate) fn charge_visit(&mut self, value: &Value) -> Result<(), Failure> {
        match value {
            Value::String(text) => self.charge_bytes(text.len()),
            Value::Bytes(bytes) => self.charge_bytes(bytes.len()),
            Value::List(items) => {
                self.charge(items.len())?;
                items.iter().try_for_each(|item| self.charge_visit(item))
            }
            Value::Map(map) => {
                self.charge(map.map.len())?;
                map.map.iter().try_for_each(|(key, value)| {
                    if let Key::String(text) = key {
                        self.charge_bytes(text.len())?;
                    }
                    self.charge_visit(value)
                })
            }
            _ => match as_optional(value).and_then(OptionalValue::value) {
                Some(inner) => {
                    self.charge(1)?;
                    self.charge_visit(inner)
                }
                None => Ok(()),
            },
        }
    }
}
