//! The clocks, read without a system call.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the coarse monotonic clock (resolution: one tick, 1-4 ms).
/// Costs a few nanoseconds; good enough for timeouts.
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since boot, those included in which the machine was suspended (clock_gettime(2),
/// `CLOCK_BOOTTIME`): for what is told to other machines, whose time went on. To the virtual machine
/// that its host suspends it may stand still all the same.
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since 1970 of the coarse wall clock; for `Date` and logs.
pub fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
