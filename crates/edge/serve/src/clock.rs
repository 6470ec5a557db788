//! Clocks that are read without a system call.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the coarse monotonic clock (resolution: one tick, 1-4 ms).
/// Costs a few nanoseconds; good enough for timeouts.
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since boot, including time in which the machine was suspended (clock_gettime(2),
/// `CLOCK_BOOTTIME`): for durations reported to other machines, on which time continued. In a virtual machine
/// that its host suspends the clock may nevertheless stand still.
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since 1970 of the coarse wall clock, for `Date` and logs.
pub fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
