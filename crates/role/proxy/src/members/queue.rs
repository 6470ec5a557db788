//! The queue of a group: requests that wait until a member has room, in order of arrival.
//!
//! Only the first one looks for a member, whenever there may be room; if it finds one, the next one
//! looks. Nobody is served before an earlier request, and each slot that becomes free wakes one
//! request. A lock protects the order; only waiting requests, and slots that become free while
//! requests wait, take it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Length of `line`.
    waiting: AtomicUsize,
    refused: AtomicU64,
    /// The part of `refused` that has been read.
    refused_seen: AtomicU64,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// There may be more room since it last looked.
    shall_look: bool,
    /// The room at its last look did not suit it: others may overtake it.
    has_passed: bool,
    /// Not every member suits it.
    is_bound: bool,
    waker: Option<Waker>,
}

/// A position in the queue, held until it is dropped.
pub(crate) struct QueuePlace<'q> {
    queue: &'q Queue,
    ticket: u64,
}

impl Queue {
    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Number of requests that did not get a member.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(SeqCst)
    }

    /// Requests that got no member since the last call. For one caller only.
    pub(crate) fn take_refused(&self) -> u64 {
        let refused = self.refused();
        refused - self.refused_seen.swap(refused, SeqCst)
    }

    /// Records that a request got no member.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, SeqCst);
    }

    /// Whether a new request may look for a member at once: no request waits, or only requests that
    /// the available room does not suit.
    pub(crate) fn may_overtake(&self) -> bool {
        self.waiting() == 0 || self.lock().have_all_passed()
    }

    /// Whether all waiting requests can use some members only.
    pub(crate) fn are_all_bound(&self) -> bool {
        self.lock().waiters.values().all(|waiter| waiter.is_bound)
    }

    /// Takes the last position, unless `places_max` are taken. `is_bound`: only some members suit the
    /// request.
    pub(crate) fn enter(&self, places_max: usize, is_bound: bool) -> Option<QueuePlace<'_>> {
        let mut line = self.lock();
        if line.waiters.len() >= places_max {
            return None;
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        let shall_look = line.have_all_passed();
        line.waiters
            .insert(ticket, Waiter { shall_look, has_passed: false, is_bound, waker: None });
        self.waiting.store(line.waiters.len(), SeqCst);
        // A thread that frees a slot later sees that a request waits; a slot freed earlier is seen by
        // the look that follows.
        fence(SeqCst);
        Some(QueuePlace { queue: self, ticket })
    }

    /// Wakes the first request, since a member may have room, or members or their states have
    /// changed.
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
    fn have_all_passed(&self) -> bool {
        self.waiters.values().all(|waiter| waiter.has_passed)
    }

    /// Wakes the first request with this ticket or a later one.
    fn wake_from(&mut self, ticket: u64) {
        if let Some((_, waiter)) = self.waiters.range_mut(ticket..).next() {
            (waiter.shall_look, waiter.has_passed) = (true, false);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl QueuePlace<'_> {
    /// Ready when its request should look for a member.
    pub(crate) fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        let mut line = self.queue.lock();
        let Some(waiter) = line.waiters.get_mut(&self.ticket) else { return Poll::Ready(()) };
        if std::mem::take(&mut waiter.shall_look) {
            return Poll::Ready(());
        }
        waiter.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Lets the next request look, since the available room does not suit this one.
    pub(crate) fn pass_on(&self) {
        let mut line = self.queue.lock();
        if let Some(waiter) = line.waiters.get_mut(&self.ticket) {
            // Unless there was more room meanwhile.
            waiter.has_passed = !waiter.shall_look;
        }
        line.wake_from(self.ticket + 1);
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
        let (first, second) = (queue.enter(3, false).unwrap(), queue.enter(3, false).unwrap());
        let third = queue.enter(3, false).unwrap();
        assert!(queue.enter(3, false).is_none() && queue.waiting() == 3);
        assert!(looks(&first) && !looks(&first), "once at its entry");
        assert!(!looks(&second));
        queue.look();
        assert!(looks(&first) && !looks(&second));
        drop(first);
        assert!(looks(&second) && !looks(&third), "room may be left");
        // A request that leaves from the middle wakes only those behind it.
        let fourth = queue.enter(3, false).unwrap();
        drop(third);
        assert!(!looks(&second) && looks(&fourth), "a look too many does no harm");
        second.pass_on();
        assert!(looks(&fourth) && !looks(&second));
        assert!(!queue.may_overtake(), "the fourth has not passed");
        fourth.pass_on();
        assert!(queue.may_overtake());
        let fifth = queue.enter(3, false).unwrap();
        assert!(looks(&fifth) && !queue.may_overtake());
        queue.look();
        assert!(looks(&second) && !looks(&fourth) && !looks(&fifth));
        second.pass_on();
        assert!(looks(&fourth) && !looks(&fifth));
        drop((second, fourth, fifth));
        assert!(queue.waiting() == 0 && queue.enter(0, false).is_none());
        queue.look();
    }

    #[test]
    fn a_queue_of_those_with_a_member_of_their_own_is_known() {
        let queue = Queue::default();
        let bound = queue.enter(2, true).unwrap();
        assert!(queue.are_all_bound() && !queue.may_overtake());
        assert!(looks(&bound));
        bound.pass_on();
        assert!(queue.may_overtake());
        let free = queue.enter(2, false).unwrap();
        assert!(!queue.are_all_bound() && looks(&free));
    }
}
