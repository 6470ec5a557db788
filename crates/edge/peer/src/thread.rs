//! A thread that the machine's other work does not starve.
//!
//! A dispatcher whose heartbeats wait behind work is taken for dead, and then
//! two are active (keepalived#2066). So heartbeats have a thread of their own,
//! and it asks for the best priority that it may have.

use std::fmt;
use std::io;
use std::thread::{Builder, JoinHandle};

use crate::limits::{NICENESS, ROUND_ROBIN_PRIORITY};

/// The priority that a thread got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Real time (`SCHED_RR`), of this priority.
    RoundRobin(i32),
    /// Of this niceness.
    Nice(i32),
    /// That of all others.
    Normal,
}

/// Runs `body` in a thread of that name, at most 15 bytes, with the best
/// priority that it can get, and tells it which.
pub fn beat_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce(Priority) -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(move || body(raise()))
}

/// Raises the calling thread.
fn raise() -> Priority {
    if go_round_robin().is_ok() {
        return Priority::RoundRobin(ROUND_ROBIN_PRIORITY);
    }
    let own = Some(rustix::thread::gettid());
    match rustix::process::setpriority_process(own, NICENESS) {
        Ok(()) => Priority::Nice(NICENESS),
        Err(_) => Priority::Normal,
    }
}

/// Needs `CAP_SYS_NICE` or a limit on real-time priority (`RLIMIT_RTPRIO`).
/// Threads and processes that this one starts are normal again.
#[expect(unsafe_code, reason = "no safe call for it in rustix")]
fn go_round_robin() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: ROUND_ROBIN_PRIORITY };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `sched_param`, which outlives the call; 0 is
    // the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin(priority) => write!(f, "real time (SCHED_RR {priority})"),
            Self::Nice(niceness) => write!(f, "niceness {niceness}"),
            Self::Normal => f.write_str(
                "normal: under load heartbeats may be late; give the process CAP_SYS_NICE \
                 or LimitRTPRIO=10",
            ),
        }
    }
}
