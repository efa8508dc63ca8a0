//! How large benches are: in full, which takes an optimized build, or in a rehearsal, which an
//! unoptimized one is. A rehearsal shows that a bench runs and finds its figures, and no more.

use std::time::Duration;

/// Whether this is one.
pub const REHEARSAL: bool = cfg!(debug_assertions);

/// A number of objects or rounds.
pub const fn sized(full: usize, rehearsed: usize) -> usize {
    if REHEARSAL { rehearsed } else { full }
}

/// A time in milliseconds.
pub const fn lasting(full: u64, rehearsed: u64) -> Duration {
    Duration::from_millis(if REHEARSAL { rehearsed } else { full })
}
