//! A thread with priority over the machine's other work.
//!
//! A dispatcher whose heartbeats are delayed by other work is declared dead, and then two are active
//! (keepalived#2066). A connection that is being moved is frozen until the threads at both ends have done their steps. Both
//! kinds of work are short; their threads request the best priority available.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::limits::{HEARTBEAT_PRIORITY, MOVES_PRIORITY, NICENESS};

/// The priority that a thread was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Real-time scheduling (`SCHED_RR`) with this priority.
    RoundRobin(i32),
    /// Normal scheduling with this niceness.
    Nice(i32),
    /// Normal scheduling with the default niceness.
    Normal,
}

/// The work of such a thread, which determines its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealtimeWork {
    Heartbeats,
    /// Moves of connections.
    Moves,
}

/// The body of such a thread.
type Body = Box<dyn FnOnce() + Send>;

/// Idle threads with real-time priority.
static KEPT: Mutex<Vec<(SyncSender<Body>, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Reserves threads before the process drops the right to real-time priority. Threads inherit the priority:
/// those created in between are kept.
#[derive(Debug)]
pub struct RealtimePriority(());

impl RealtimePriority {
    /// Raises the priority of this thread, the only one of the process; `None` if that is not permitted.
    pub fn try_new() -> Option<Self> {
        go_round_robin(HEARTBEAT_PRIORITY, 0).ok().map(Self)
    }

    /// Reserves `threads` threads for [`spawn_realtime_thread`]; this thread returns to normal priority.
    pub fn keep(self, threads: usize) -> io::Result<()> {
        for _ in 0..threads {
            let (give, take) = sync_channel::<Body>(1);
            let run = move || {
                // Threads that it starts itself have normal priority.
                raise(RealtimeWork::Heartbeats);
                if let Ok(body) = take.recv() {
                    body();
                }
            };
            let thread = Builder::new().name("skep-rt-kept".into()).spawn(run)?;
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push((give, thread));
        }
        set_scheduler(libc::SCHED_OTHER, 0)
    }
}

/// Runs `body` in a thread named `name`, of at most 15 bytes, with the best priority available for `work`, and passes it
/// the priority.
pub fn spawn_realtime_thread(
    name: &str,
    work: RealtimeWork,
    body: impl FnOnce(Priority) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some((give, thread)) = kept else {
        return Builder::new().name(name.to_owned()).spawn(move || body(raise(work)));
    };
    let name = CString::new(name)?;
    let named = move || {
        // The name is informational.
        let _ = rustix::thread::set_name(&name);
        body(raise(work));
    };
    let gone = |_| io::Error::other("a thread that was kept has ended");
    give.send(Box::new(named)).map_err(gone)?;
    Ok(thread)
}

/// Raises the priority of the calling thread, or lowers it from that of other work.
fn raise(work: RealtimeWork) -> Priority {
    let wanted = match work {
        RealtimeWork::Heartbeats => HEARTBEAT_PRIORITY,
        RealtimeWork::Moves => MOVES_PRIORITY,
    };
    if go_round_robin(wanted, libc::SCHED_RESET_ON_FORK).is_ok() {
        return Priority::RoundRobin(wanted);
    }
    let own = Some(rustix::thread::gettid());
    match rustix::process::setpriority_process(own, NICENESS) {
        Ok(()) => Priority::Nice(NICENESS),
        Err(_) => Priority::Normal,
    }
}

/// Needs `CAP_SYS_NICE`, a limit on real-time priority (`RLIMIT_RTPRIO`), or this priority or a higher one itself
/// (sched(7)). With `SCHED_RESET_ON_FORK`, threads and processes started by this thread have normal priority.
fn go_round_robin(priority: i32, flags: libc::c_int) -> io::Result<()> {
    set_scheduler(libc::SCHED_RR | flags, priority)
}

#[expect(unsafe_code, reason = "no safe call for it in rustix")]
fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
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
