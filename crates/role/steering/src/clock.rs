//! The clocks of this process.

use skep_serve::{boottime_ms, monotonic_ms};
use skep_units::Now;

/// The clock of this process; it continues while the machine is suspended, so that others' silence is
/// measured.
pub(crate) fn now() -> Now {
    Now(boottime_ms())
}

/// The clock of operators' commands to a service (`skep_dispatcher`), which is another one: only for
/// values that are compared with them.
pub(crate) fn command_time() -> Now {
    Now(monotonic_ms())
}
