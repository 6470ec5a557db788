//! The time of this process.

use skep_serve::monotonic_ms;
use skep_units::Now;

pub(crate) fn now() -> Now {
    Now(monotonic_ms())
}
