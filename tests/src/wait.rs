//! Waiting for conditions, and what the machine lets a test do.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The deadline of whatever should happen soon: so long that a loaded machine
/// makes no failure of it.
pub const PATIENCE: Duration = skep_testclient::PATIENCE;

/// How often a condition is looked at. Waiting ends with the condition; this only
/// bounds how late that is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Ends what goes on beside a test: threads of a scope, which waits for them also when
/// the test fails.
#[derive(Debug, Default)]
pub struct End(AtomicBool);

impl End {
    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// It comes when what this gives is dropped, by a panic, too.
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
/// With `what`, when it isn't within `deadline`.
#[track_caller]
pub fn poll_until(deadline: Duration, what: &str, holds: impl FnMut() -> bool) {
    assert!(holds_within(deadline, holds), "waited {deadline:?} in vain: {what}");
}

/// Waits until `holds` is true; false if it isn't within `deadline`.
pub fn holds_within(deadline: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() >= deadline {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}

/// The right to hold thousands of connections: one test at a time, else together
/// they meet the limit of descriptors.
#[derive(Debug)]
pub struct Crowd {
    _claim: File,
}

impl Crowd {
    /// Waits for the right to `count` connections and raises the limit of open
    /// descriptors of this process, and of those that it starts from now on, as
    /// far as allowed. `None`, said loudly: that is not far enough.
    pub fn of(count: u64) -> Option<Self> {
        /// For all else that a test and its servers have open.
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

/// Says loudly that this machine can't show what the test is about. Return from
/// the test after it.
pub fn skip(reason: &str) {
    // Not by `eprintln!`, which the runner keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}
