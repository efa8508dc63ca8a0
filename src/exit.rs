//! Exit codes, for scripts.
//!
//! | Exit code | Meaning |
//! |---|---|
//! | 0 | done; for `demo --once` and `rollout status`: every cluster got there; for `status`: nothing has failed |
//! | 1 | something failed while running |
//! | 2 | the command line or the settings are wrong |
//! | 3 | `demo --once`: not every cluster got there in time; `rollout status`: the same, or the rollout failed; `status`: something has failed |

use std::fmt::Display;
use std::process::ExitCode;

use crate::print;

/// Something failed while running.
pub const FAILED: u8 = 1;
/// The command line or the settings are wrong.
pub const MISUSED: u8 = 2;
/// Not every cluster got there, or not in time, or something on one has failed.
pub const NOT_THERE: u8 = 3;

/// Prints what went wrong and gives the exit code for it.
pub(crate) fn fail(code: u8, error: &dyn Display) -> ExitCode {
    print::note(error);
    ExitCode::from(code)
}
