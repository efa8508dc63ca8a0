//! Structural schemas.

/// A compiled schema.
#[derive(Debug, Default)]
pub(crate) struct Schema;
