//! Events in the order of time, in nanoseconds; events of the same time in the order of scheduling.
//!
//! `skep_sim::Agenda` counts milliseconds, and stores large events; here a request is small, takes
//! microseconds, and has few events.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The queue.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// Schedules `event` for `at_ns`.
    pub(crate) fn schedule(&mut self, at_ns: u64, event: E) {
        self.scheduled += 1;
        self.heap.push(Reverse(Entry { at_ns, number: self.scheduled, event }));
    }

    /// Removes and returns the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0 }
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_scheduled() {
        let mut events = EventQueue::default();
        for (at_ns, event) in [(5, 'd'), (1, 'a'), (3, 'b'), (5, 'e'), (3, 'c')] {
            events.schedule(at_ns, event);
        }
        let order: String = std::iter::from_fn(|| events.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcde");
    }
}
