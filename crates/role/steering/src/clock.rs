//! The times of this process.

use skep_serve::{boottime_ms, monotonic_ms};
use skep_units::Now;

/// Silence of others lasts while this machine is suspended.
pub(crate) fn now() -> Now {
    Now(boottime_ms())
}

/// The time that operators' commands to a service have (`skep_dispatcher`), which is another: for what
/// is compared with them, and for nothing else.
pub(crate) fn command_time() -> Now {
    Now(monotonic_ms())
}
