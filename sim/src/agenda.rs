//! The event queue of a simulation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events in the order of time; events of the same time in the order of scheduling.
#[derive(Clone, Debug)]
pub struct Agenda<E> {
    /// Due times of events, with the slots in which the events are stored: large events are not moved.
    queue: BinaryHeap<Reverse<(Due, usize)>>,
    slots: Vec<Option<E>>,
    /// Slots without an event.
    free: Vec<usize>,
    scheduled: u64,
}

/// When an event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// The time in milliseconds of the virtual clock.
    pub at_ms: u64,
    /// Its position among the events of that time.
    number: u64,
}

impl<E> Agenda<E> {
    /// Schedules `event` for `at_ms`.
    pub fn schedule(&mut self, at_ms: u64, event: E) {
        self.scheduled += 1;
        self.push(Due { at_ms, number: self.scheduled }, event);
    }

    /// Postpones an event that was due; it precedes all events scheduled after it for the same time.
    pub fn put_off(&mut self, due: Due, until_ms: u64, event: E) {
        self.push(Due { at_ms: until_ms, ..due }, event);
    }

    /// Removes and returns the next event.
    pub fn pop(&mut self) -> Option<(Due, E)> {
        let Reverse((due, slot)) = self.queue.pop()?;
        self.free.push(slot);
        self.slots[slot].take().map(|event| (due, event))
    }

    fn push(&mut self, due: Due, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.queue.push(Reverse((due, slot)));
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { queue: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), scheduled: 0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rest(agenda: &mut Agenda<char>) -> String {
        std::iter::from_fn(|| agenda.pop()).map(|(_, event)| event).collect()
    }

    #[test]
    fn events_come_by_time_and_then_as_they_were_scheduled() {
        let mut agenda = Agenda::default();
        for (at_ms, event) in [(5, 'd'), (1, 'a'), (3, 'b'), (5, 'e'), (3, 'c')] {
            agenda.schedule(at_ms, event);
        }
        assert_eq!(rest(&mut agenda), "abcde");
    }

    #[test]
    fn what_is_put_off_stays_before_what_came_after_it() {
        let mut agenda = Agenda::default();
        for (at_ms, event) in [(1, 'b'), (4, 'c'), (2, 'a')] {
            agenda.schedule(at_ms, event);
        }
        let (due, event) = agenda.pop().unwrap();
        assert_eq!((due.at_ms, event), (1, 'b'));
        agenda.put_off(due, 4, event);
        assert_eq!(rest(&mut agenda), "abc");
    }
}
