//! A bounded queue between the event loop, which never waits, and a thread that may.
//!
//! The event loop has real-time priority, the other threads have not. If one of these holds a lock
//! while it is not scheduled, waiting for the lock would delay heartbeats until it runs again
//! (priority inversion): on a busy machine longer than the time until a takeover. The event loop
//! therefore only tries to lock.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// A FIFO queue. At most one thread may wait at a time. (The channels of the standard library lock a
/// mutex to wake a waiting receiver.)
#[derive(Debug)]
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
    items_max: usize,
}

#[derive(Debug)]
struct Inner<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

/// The result for a thread that waits for an item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Popped<T> {
    Item(T),
    /// There was no item in that time.
    Nothing,
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new(items_max: usize) -> Self {
        let inner = Inner { items: VecDeque::new(), is_closed: false };
        Self { inner: Mutex::new(inner), changed: Condvar::new(), items_max }
    }

    /// Queues an item without waiting; returns it if there is no room, or if the other thread
    /// accesses the queue at this moment.
    pub(crate) fn try_push(&self, item: T) -> Result<(), T> {
        let Some(mut inner) = self.try_lock() else { return Err(item) };
        if inner.is_closed || inner.items.len() >= self.items_max {
            return Err(item);
        }
        inner.items.push_back(item);
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes all items without waiting; none if the other thread accesses the queue at this moment.
    pub(crate) fn try_take(&self) -> VecDeque<T> {
        let Some(mut inner) = self.try_lock() else { return VecDeque::new() };
        let items = std::mem::take(&mut inner.items);
        drop(inner);
        self.changed.notify_one();
        items
    }

    /// Queues an item once there is room; drops it if the queue is closed.
    pub(crate) fn push(&self, item: T) {
        let is_full =
            |inner: &mut Inner<T>| inner.items.len() >= self.items_max && !inner.is_closed;
        let inner = self.changed.wait_while(self.lock(), is_full);
        let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
        if !inner.is_closed {
            inner.items.push_back(item);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// The next item, once there is one.
    pub(crate) fn pop(&self, patience: Duration) -> Popped<T> {
        let is_idle = |inner: &mut Inner<T>| inner.items.is_empty() && !inner.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, is_idle);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let popped = match inner.items.pop_front() {
            Some(item) => Popped::Item(item),
            None if inner.is_closed => Popped::Closed,
            None => Popped::Nothing,
        };
        drop(inner);
        self.changed.notify_one();
        popped
    }

    /// The next item, if there is one.
    pub(crate) fn next(&self) -> Option<T> {
        match self.pop(Duration::ZERO) {
            Popped::Item(item) => Some(item),
            Popped::Nothing | Popped::Closed => None,
        }
    }

    /// Drops queued items and later ones; waiting threads are woken. (With a netguard that does not
    /// answer, each job would take its whole time limit.)
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.items.clear();
        drop(inner);
        self.changed.notify_all();
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Inner<T>>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(inner)) => Some(inner.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;
    /// Longer than any wait in a test.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn items_come_in_their_order_and_none_after_the_end() {
        let queue = Queue::new(2);
        assert_eq!(queue.pop(AT_ONCE), Popped::Nothing);
        assert_eq!(
            (queue.try_push(1), queue.try_push(2), queue.try_push(3)),
            (Ok(()), Ok(()), Err(3))
        );
        assert_eq!(queue.pop(AT_ONCE), Popped::Item(1));
        queue.close();
        assert_eq!((queue.pop(LONG), queue.try_push(4)), (Popped::Closed, Err(4)));
    }

    #[test]
    fn the_event_loop_does_not_wait_for_who_has_the_lock() {
        let queue = Queue::new(2);
        queue.push(1);
        let other = queue.lock();
        assert_eq!((queue.try_push(2), queue.try_take()), (Err(2), VecDeque::new()));
        drop(other);
        assert_eq!((queue.try_push(2), queue.try_take()), (Ok(()), VecDeque::from([1, 2])));
    }

    #[test]
    fn who_may_wait_waits_for_room_for_items_and_for_the_end() {
        let queue = Arc::new(Queue::new(1));
        let own = Arc::clone(&queue);
        let thread = std::thread::spawn(move || (0..102).for_each(|item| own.push(item)));
        let popped: Vec<_> = (0..100).map(|_| queue.pop(LONG)).collect();
        assert_eq!(popped, (0..100).map(Popped::Item).collect::<Vec<_>>());
        // The next item is queued, or will be; the last one waits for room.
        queue.close();
        assert!(thread.join().is_ok());
        assert_eq!(queue.pop(AT_ONCE), Popped::Closed, "what comes after the end is dropped");
    }
}
