//! What the tests share.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod certificates;
pub(crate) mod client;

use std::time::Duration;

/// Longest wait for something that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);
