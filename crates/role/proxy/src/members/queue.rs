//! The queue of a group: requests that wait until a member has room, in the order in which they came.
//!
//! Only the first looks for a member, whenever room may have come up; behind it the next one does. So
//! nobody who came later is served earlier, and each place of a member wakes one request. A lock
//! guards the order; only requests that wait, and places that become free meanwhile, take it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// See the module. Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Length of `line`.
    waiting: AtomicUsize,
    refused: AtomicU64,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// Room may have come up since it looked.
    shall_look: bool,
    waker: Option<Waker>,
}

/// A place in the queue, until it is dropped.
pub(crate) struct QueuePlace<'q> {
    queue: &'q Queue,
    ticket: u64,
}

impl Queue {
    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Requests that did not get a member.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(SeqCst)
    }

    /// A request got no member.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, SeqCst);
    }

    /// The last place, unless `places_max` are taken.
    pub(crate) fn enter(&self, places_max: usize) -> Option<QueuePlace<'_>> {
        let mut line = self.lock();
        if line.waiters.len() >= places_max {
            return None;
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        let shall_look = line.waiters.is_empty();
        line.waiters.insert(ticket, Waiter { shall_look, waker: None });
        self.waiting.store(line.waiters.len(), SeqCst);
        // Who frees a place later sees that somebody waits; one that was freed earlier is seen by
        // the look that follows.
        fence(SeqCst);
        Some(QueuePlace { queue: self, ticket })
    }

    /// A member may have room, or members or their states changed: the first looks.
    pub(crate) fn look(&self) {
        fence(SeqCst);
        if self.waiting() > 0 {
            self.lock().wake_from(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The first of those with this ticket or a later one looks.
    fn wake_from(&mut self, ticket: u64) {
        if let Some((_, waiter)) = self.waiters.range_mut(ticket..).next() {
            waiter.shall_look = true;
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl QueuePlace<'_> {
    /// Ready when its request shall look for a member.
    pub(crate) fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        let mut line = self.queue.lock();
        let Some(waiter) = line.waiters.get_mut(&self.ticket) else { return Poll::Ready(()) };
        if std::mem::take(&mut waiter.shall_look) {
            return Poll::Ready(());
        }
        waiter.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What room there is suits others, but not its request: the next one looks.
    pub(crate) fn pass_on(&self) {
        self.queue.lock().wake_from(self.ticket + 1);
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut line = self.queue.lock();
        line.waiters.remove(&self.ticket);
        self.queue.waiting.store(line.waiters.len(), SeqCst);
        line.wake_from(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn looks(place: &QueuePlace<'_>) -> bool {
        place.poll_turn(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_came_first_looks_first_and_places_are_bounded() {
        let queue = Queue::default();
        let (first, second) = (queue.enter(3).unwrap(), queue.enter(3).unwrap());
        let third = queue.enter(3).unwrap();
        assert!(queue.enter(3).is_none() && queue.waiting() == 3);
        assert!(looks(&first) && !looks(&first), "once at its entry");
        assert!(!looks(&second));
        queue.look();
        assert!(looks(&first) && !looks(&second));
        drop(first);
        assert!(looks(&second) && !looks(&third), "room may be left");
        // One that leaves from the middle gives its turn to nobody before it.
        let fourth = queue.enter(3).unwrap();
        drop(third);
        assert!(!looks(&second) && looks(&fourth), "a look too many does no harm");
        second.pass_on();
        assert!(looks(&fourth) && !looks(&second));
        drop((second, fourth));
        assert!(queue.waiting() == 0 && queue.enter(0).is_none());
        queue.look();
    }
}
