//! From HTTP requests to verbs and back.

pub(crate) mod body;
pub(crate) mod heavy;
pub(crate) mod negotiate;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod service;
