//! A watchdog over threads on which other machines depend: heartbeats, and what follows them.
//!
//! Such a thread gets a [`Pulse`] and ticks it in every turn of its loop. The watchdog checks once a second,
//! and finds a thread that has panicked, or has not ticked during a number of checks. Checks are counted
//! rather than time: if the whole process was paused, no thread has stalled.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The watched threads of one process.
#[derive(Debug, Default)]
pub struct Watchdog {
    threads: Mutex<Vec<Watched>>,
}

/// Shows that a thread runs. Dropped when the thread ends, normally or by a panic.
#[derive(Debug)]
pub struct Pulse(Arc<AtomicU64>);

/// What is wrong with a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadFault {
    Panicked { thread: &'static str },
    Stalled { thread: &'static str, looks: u32 },
}

#[derive(Debug)]
struct Watched {
    thread: &'static str,
    looks_max: u32,
    /// The number of turns of its loop, or how it has ended.
    turns: Arc<AtomicU64>,
    turns_seen: u64,
    /// Checks since the last turn.
    looks: u32,
}

/// Values in place of a number of turns.
const ENDED: u64 = u64::MAX;
const PANICKED: u64 = u64::MAX - 1;

impl Watchdog {
    /// Watches a thread, of which each turn may take `looks_max` checks.
    pub fn watch(&self, thread: &'static str, looks_max: u32) -> Pulse {
        let turns = Arc::new(AtomicU64::new(0));
        let pulse = Pulse(Arc::clone(&turns));
        let watched = Watched { thread, looks_max, turns, turns_seen: 0, looks: 0 };
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
        pulse
    }

    /// Checks all threads and returns one that has failed: preferably one that has stalled, else one that has
    /// panicked. To be called once a second.
    pub fn look(&self) -> Option<ThreadFault> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|watched| watched.turns.load(Ordering::Relaxed) != ENDED);
        let faults: Vec<_> = threads.iter_mut().filter_map(Watched::look).collect();
        let is_stall = |fault: &&ThreadFault| matches!(fault, ThreadFault::Stalled { .. });
        faults.iter().find(is_stall).or(faults.first()).copied()
    }
}

impl Pulse {
    /// Records another turn of the thread's loop.
    pub fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let end = if std::thread::panicking() { PANICKED } else { ENDED };
        self.0.store(end, Ordering::Relaxed);
    }
}

impl Watched {
    fn look(&mut self) -> Option<ThreadFault> {
        let (thread, turns) = (self.thread, self.turns.load(Ordering::Relaxed));
        if turns == PANICKED {
            return Some(ThreadFault::Panicked { thread });
        }
        if turns != self.turns_seen {
            (self.turns_seen, self.looks) = (turns, 0);
            return None;
        }
        self.looks += 1;
        let looks = self.looks;
        (looks > self.looks_max).then_some(ThreadFault::Stalled { thread, looks })
    }
}

impl fmt::Display for ThreadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { thread } => write!(f, "thread {thread} has panicked"),
            Self::Stalled { thread, looks } => {
                write!(f, "thread {thread} has stalled for {looks} s")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn who_turns_or_ends_in_order_is_well() {
        let watchdog = Watchdog::default();
        let pulse = watchdog.watch("one", 2);
        for _ in 0..10 {
            pulse.tick();
            assert_eq!([watchdog.look(), watchdog.look(), watchdog.look()], [None; 3]);
        }
        drop(pulse);
        assert!((0..10).all(|_| watchdog.look().is_none()));
    }

    #[test]
    fn who_stalls_is_named_until_it_turns() {
        let watchdog = Watchdog::default();
        let (one, two) = (watchdog.watch("one", 2), watchdog.watch("two", 3));
        let look = || {
            one.tick();
            watchdog.look()
        };
        assert_eq!([look(), look(), look()], [None; 3]);
        assert_eq!(look(), Some(ThreadFault::Stalled { thread: "two", looks: 4 }));
        assert_eq!(look().unwrap().to_string(), "thread two has stalled for 5 s");
        two.tick();
        assert_eq!(look(), None);
    }

    #[test]
    fn a_panic_is_seen() {
        let watchdog = Watchdog::default();
        let pulse = watchdog.watch("one", 2);
        let thread = std::thread::spawn(move || {
            pulse.tick();
            panic!("a test's");
        });
        assert!(thread.join().is_err());
        assert_eq!(watchdog.look(), Some(ThreadFault::Panicked { thread: "one" }));
    }
}
