//! Clocks of CPU time, memory of this process, and the calibration of recorded numbers.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::fixtures;
use super::rounds::median;

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// CPU time that the current thread has used.
pub fn thread_cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// CPU time that the process has used.
pub fn process_cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// A clock that all processes of this machine share.
pub fn monotonic() -> Duration {
    clock(ClockId::Monotonic)
}

/// Microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// CPU time in µs that `work` takes for each of `count` times.
#[allow(clippy::cast_precision_loss, reason = "no bench counts to 2^52")]
pub fn cpu_each(count: usize, mut work: impl FnMut()) -> f64 {
    let begin = thread_cpu();
    for _ in 0..count {
        work();
    }
    micros(thread_cpu().saturating_sub(begin)) / count as f64
}

fn status_kib(name: &str) -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| std::io::Error::other(format!("no {name} in /proc/self/status")))
}

/// Resident memory of this process in KiB, as Linux tells it.
pub fn resident_kib() -> std::io::Result<u64> {
    status_kib("VmRSS:")
}

/// The most resident memory of this process in KiB since it began, or since [`forget_peak`].
pub fn peak_kib() -> std::io::Result<u64> {
    status_kib("VmHWM:")
}

/// Lets the peak begin anew with what is resident now.
pub fn forget_peak() -> std::io::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5")
}

/// CPU time in µs of the calibration when the peers were measured: `serde_json` into a `Value`
/// from the 1,650 bytes of a work's spec.
const CALIBRATION_RECORDED: f64 = 6.5;

/// How much slower than the machine of the recorded numbers this one is now. A recorded CPU time
/// of a peer is to be multiplied by it.
#[derive(Debug, Clone, Copy)]
pub struct Calibration {
    /// The calibration now, in µs.
    pub now: f64,
}

impl Calibration {
    /// Measures it: the median of 15 batches.
    pub fn measure() -> Self {
        let spec = fixtures::spec_1650();
        let batches: Vec<f64> = (0..15)
            .map(|_| {
                cpu_each(400, || {
                    let value: Result<Value, _> = serde_json::from_slice(black_box(&spec));
                    drop(black_box(value));
                })
            })
            .collect();
        Self {
            now: median(&batches),
        }
    }

    /// What a recorded CPU time would be now.
    pub fn scaled(self, recorded: f64) -> f64 {
        recorded * self.now / CALIBRATION_RECORDED
    }

    /// For a figure's parameters.
    pub fn params(self) -> Value {
        serde_json::json!({"calibration_us": self.now, "calibration_recorded_us": CALIBRATION_RECORDED})
    }
}
