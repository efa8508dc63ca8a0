//! CEL expressions, evaluated within a budget.
//!
//! Rules come from outside: with works (condition rules) and with custom resource definitions
//! (`x-kubernetes-validations`). An evaluation counts what it costs and gives up at a limit, which
//! bounds time and memory of a hostile rule. [`Program::estimate`] gives the highest cost that a
//! rule can have with objects of a declared type, as kube-apiserver does at admission.
//!
//! The library (`kube_cel`) parses CEL and brings its functions. It does not evaluate here: it has
//! no limit on costs, gives an optional field that is missing as an error, a field of a string as
//! `false`, and an error in one element of `exists` as the result of all.

mod estimate;
mod eval;
mod failure;
mod functions;
mod meter;
mod program;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use estimate::{Declared, Kind, MAX_REQUEST_BYTES};
pub use eval::Evaluation;
pub use failure::Failure;
pub use kube_cel::cel::Value;
pub use program::{Environment, Program};
pub use value::{
    as_duration, as_timestamp, bytes, field, from_json, items, list, none, object, some, text,
};
