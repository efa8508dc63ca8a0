//! The verbs on objects, one file a family.

pub(crate) mod apply;
pub(crate) mod call;
pub(crate) mod delete;
pub(crate) mod manager;
pub(crate) mod pages;
pub(crate) mod read;
pub(crate) mod scale;
pub(crate) mod watch;
pub(crate) mod write;
