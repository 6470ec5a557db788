//! Waiting for conditions, and limits that the machine sets for a test.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Deadline for whatever should happen soon: long enough that a loaded machine causes no failure.
pub const PATIENCE: Duration = skep_testclient::PATIENCE;

/// First polling interval. Each is a quarter longer than the last, up to [`POLL_MAX`], so that long waits, often with a
/// request per look, do not load the machine.
const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(25);

/// Ends activities that run beside a test in threads of a scope, which waits for them even if the test fails.
#[derive(Debug, Default)]
pub struct End(AtomicBool);

impl End {
    /// Whether the end was signalled.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Returns a guard that signals the end when dropped, even by a panic.
    #[must_use]
    pub fn with_this(&self) -> impl Drop + '_ {
        struct Comes<'a>(&'a AtomicBool);
        impl Drop for Comes<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        Comes(&self.0)
    }
}

/// Waits until `holds` is true.
///
/// # Panics
/// With `what`, if it does not hold within `deadline`.
#[track_caller]
pub fn poll_until(deadline: Duration, what: &str, holds: impl FnMut() -> bool) {
    assert!(holds_within(deadline, holds), "waited {deadline:?} in vain: {what}");
}

/// Waits until `holds` is true; returns false if it does not hold within `deadline`.
pub fn holds_within(deadline: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let (start, mut pause) = (Instant::now(), POLL_MIN);
    while !holds() {
        if start.elapsed() >= deadline {
            return false;
        }
        thread::sleep(pause);
        pause = (pause + pause / 4).min(POLL_MAX);
    }
    true
}

/// Permission to hold thousands of connections: for one test at a time, as several together would exceed the
/// limit of descriptors.
#[derive(Debug)]
pub struct Crowd {
    _claim: File,
}

impl Crowd {
    /// Waits for permission to have `count` connections, and raises the limit of open descriptors of this
    /// process and its future children as far as allowed. `None`, reported loudly, if that is not enough.
    pub fn of(count: u64) -> Option<Self> {
        /// Descriptors for everything else that a test and its servers have open.
        const OTHERS: u64 = 500;
        let limit = getrlimit(Resource::Nofile).maximum;
        let raised = Rlimit { current: limit, maximum: limit };
        setrlimit(Resource::Nofile, raised).expect("a soft limit may rise to the hard one");
        if limit.is_some_and(|limit| limit < count + OTHERS) {
            skip(&format!("{count} connections need a higher limit of open files (ulimit -Hn)"));
            return None;
        }
        let claim = File::create(std::env::temp_dir().join("skep-test-crowd"));
        let claim = claim.expect("the temporary folder is writable");
        claim.lock().expect("files there can be locked");
        Some(Self { _claim: claim })
    }
}

/// Reports loudly that this machine cannot run the test. The test should return after it.
pub fn skip(reason: &str) {
    // Not `eprintln!`, whose output the runner hides if a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}
