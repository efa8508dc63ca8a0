//! Checks the checker: `benches/run --slow` makes every bench slower in a known way, and the
//! figures that have a goal must then miss it.

use std::env;
use std::time::Duration;

use super::machine::thread_cpu;

/// Whether slowness is asked for.
pub fn injected() -> bool {
    env::var_os("MUSTER_BENCH_SLOW").is_some_and(|value| value == "1")
}

/// Keeps the thread busy for `time`, if slowness is asked for.
pub fn spin(time: Duration) {
    if injected() {
        let end = thread_cpu() + time;
        while thread_cpu() < end {
            std::hint::spin_loop();
        }
    }
}
