//! Waiting for conditions, and what the machine lets a test do.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The deadline of whatever should happen soon: so long that a loaded machine
/// makes no failure of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition is looked at. Waiting ends with the condition; this only
/// bounds how late that is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `holds` is true.
///
/// # Panics
/// With `what`, when it isn't within `deadline`.
pub fn poll_until(deadline: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain: {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// Raises the limit of open descriptors of this process, and of the processes it
/// starts from now on, as far as allowed. Returns the limit in force.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a soft limit may rise to the hard one");
    limit.maximum.unwrap_or(u64::MAX)
}

/// Says loudly that this machine can't show what the test is about. Return from
/// the test after it.
pub fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}
