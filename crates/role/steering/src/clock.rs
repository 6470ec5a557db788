//! The time of this process.

use skep_serve::boottime_ms;
use skep_units::Now;

/// Silence of others lasts while this machine is suspended.
pub(crate) fn now() -> Now {
    Now(boottime_ms())
}
