//! Timeouts for very many connections at the cost of one store per request.
//!
//! A timer per connection in a runtime's wheel costs an insertion and a removal per request. Here each
//! connection has one [`Timer`]: setting it writes two cells. A sweep ten times a second checks all of them
//! and wakes the tasks whose deadline has passed; the task then finds [`Timer::expired`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use slab::Slab;

/// What the connection was waiting for when its deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutCause {
    /// Waiting for the rest of a request head.
    Head,
    /// Waiting for a request body, or a body slower than the minimum rate.
    Body,
    /// The peer accepted no byte for too long.
    WriteStall,
    /// The peer accepted bytes, but on average below the minimum rate.
    SendRate,
    /// Between requests.
    Idle,
    /// The connection has reached its maximum age.
    Lifetime,
    /// The server drains; the connection was between requests.
    Drain,
    /// Another node is to take over the connection, which was between requests.
    Evacuate,
    /// A connection to a node was not established in time.
    Connect,
    /// A node did not answer in time.
    Response,
}

/// One connection's deadline; shared by the connection and the sweep.
#[derive(Debug)]
pub struct Timer {
    deadline_ms: Cell<u64>,
    cause: Cell<TimeoutCause>,
    expired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Timer {
    /// Replaces the deadline: at `deadline_ms` of the worker's clock the task is woken, with `cause` as the
    /// reason.
    pub fn set(&self, deadline_ms: u64, cause: TimeoutCause) {
        self.deadline_ms.set(deadline_ms);
        self.cause.set(cause);
        self.expired.set(false);
    }

    /// Removes the deadline until the next [`Timer::set`].
    pub fn clear(&self) {
        self.set(u64::MAX, TimeoutCause::Idle);
    }

    /// The deadline, by the worker's clock.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms.get()
    }

    /// The cause of the timeout, if the deadline has passed.
    pub fn expired(&self) -> Option<TimeoutCause> {
        self.expired.get().then(|| self.cause.get())
    }

    /// What the connection is waiting for.
    pub fn cause(&self) -> TimeoutCause {
        self.cause.get()
    }

    /// Stores the task to wake. Cheap if it is the same as before.
    pub fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    fn expire(&self) {
        self.expired.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// All timers of one worker.
#[derive(Debug, Default)]
pub struct Deadlines {
    timers: RefCell<Slab<Rc<Timer>>>,
}

impl Deadlines {
    /// Creates a timer without a deadline; returns its key, for removal, and the timer.
    pub fn add(&self) -> (usize, Rc<Timer>) {
        let timer = Rc::new(Timer {
            deadline_ms: Cell::new(u64::MAX),
            cause: Cell::new(TimeoutCause::Idle),
            expired: Cell::new(false),
            waker: RefCell::new(None),
        });
        let key = self.timers.borrow_mut().insert(Rc::clone(&timer));
        (key, timer)
    }

    /// Removes the timer of `key`.
    pub fn remove(&self, key: usize) {
        self.timers.borrow_mut().remove(key);
    }

    /// The number of timers.
    pub fn len(&self) -> usize {
        self.timers.borrow().len()
    }

    /// Whether there are no timers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes every task whose deadline is not after `now_ms`.
    pub fn sweep(&self, now_ms: u64) {
        for (_, timer) in self.timers.borrow().iter() {
            if timer.deadline_ms.get() <= now_ms && !timer.expired.get() {
                timer.expire();
            }
        }
    }

    /// Wakes every connection that waits between requests, with this cause, except those whose deadline has
    /// passed, which end anyway. Deadlines are not changed.
    pub fn expire_idle(&self, cause: TimeoutCause) {
        for (_, timer) in self.timers.borrow().iter() {
            let is_idle =
                timer.cause.get() == TimeoutCause::Idle && timer.deadline_ms.get() != u64::MAX;
            if is_idle && !timer.expired.get() {
                timer.cause.set(cause);
                timer.expire();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_overdue_expire_and_setting_again_revives() {
        let deadlines = Deadlines::default();
        let (key, early) = deadlines.add();
        let (_, late) = deadlines.add();
        early.set(10, TimeoutCause::Head);
        late.set(20, TimeoutCause::Idle);
        deadlines.sweep(9);
        assert_eq!(early.expired(), None);
        deadlines.sweep(10);
        assert_eq!(early.expired(), Some(TimeoutCause::Head));
        assert_eq!(late.expired(), None);
        early.set(30, TimeoutCause::Idle);
        assert_eq!(early.expired(), None);
        deadlines.remove(key);
        assert_eq!(deadlines.len(), 1);
    }

    #[test]
    fn drain_ends_the_idle_and_spares_the_busy() {
        let deadlines = Deadlines::default();
        let (_, idle) = deadlines.add();
        let (_, busy) = deadlines.add();
        idle.set(100, TimeoutCause::Idle);
        busy.set(100, TimeoutCause::WriteStall);
        deadlines.expire_idle(TimeoutCause::Drain);
        assert_eq!(idle.expired(), Some(TimeoutCause::Drain));
        assert_eq!(busy.expired(), None);
    }
}
