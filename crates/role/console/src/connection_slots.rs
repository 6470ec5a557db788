//! Slots for connections. When all are taken, a new connection replaces one that has not yet sent a
//! complete head or is idle between two requests: half-sent requests cannot exhaust the slots. (A
//! request in progress is never aborted for a new connection.)

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

/// The connection slots of one listener.
pub(crate) struct ConnectionSlots {
    places_max: usize,
    /// In the order of acceptance.
    taken: RefCell<BTreeMap<u64, Rc<ConnectionHolder>>>,
    next: Cell<u64>,
}

/// A connection's slot; free when dropped.
pub(crate) struct ConnectionSlot {
    slots: Rc<ConnectionSlots>,
    number: u64,
    holder: Rc<ConnectionHolder>,
}

/// Counts a connection's requests in progress.
pub(crate) struct RequestCount(Rc<ConnectionHolder>);

/// A request in progress.
pub(crate) struct Work(Rc<ConnectionHolder>);

#[derive(Default)]
struct ConnectionHolder {
    requests: Cell<usize>,
    leave: Notify,
}

impl ConnectionSlots {
    pub(crate) fn new(places_max: usize) -> Rc<Self> {
        Rc::new(Self { places_max, taken: RefCell::default(), next: Cell::new(0) })
    }

    /// Takes a slot, if necessary that of the oldest connection without a request in progress.
    /// `None`: all connections have one.
    pub(crate) fn take(self: &Rc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken.borrow_mut();
        if taken.len() >= self.places_max {
            let idle = taken.iter().find(|(_, holder)| holder.requests.get() == 0);
            let number = idle.map(|(number, _)| *number)?;
            taken.remove(&number)?.leave.notify_one();
        }
        let number = self.next.replace(self.next.get() + 1);
        let holder = Rc::<ConnectionHolder>::default();
        taken.insert(number, Rc::clone(&holder));
        Some(ConnectionSlot { slots: Rc::clone(self), number, holder })
    }
}

impl ConnectionSlot {
    pub(crate) fn request_count(&self) -> RequestCount {
        RequestCount(Rc::clone(&self.holder))
    }

    /// Completes when the connection has lost its slot.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + use<> {
        let holder = Rc::clone(&self.holder);
        async move { holder.leave.notified().await }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.taken.borrow_mut().remove(&self.number);
    }
}

impl RequestCount {
    /// Records that the head of a request is complete.
    pub(crate) fn begin(&self) -> Work {
        self.0.requests.set(self.0.requests.get() + 1);
        Work(Rc::clone(&self.0))
    }

    /// The count of a connection without a slot.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Self(Rc::default())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn the_oldest_that_asks_for_nothing_makes_room() {
        let slots = ConnectionSlots::new(2);
        let busy = slots.take().unwrap();
        let work = busy.request_count().begin();
        let idle = slots.take().unwrap();
        let third = slots.take().unwrap();
        idle.left().await;
        drop(idle);
        let _work = third.request_count().begin();
        assert!(slots.take().is_none(), "both have requests in work");
        drop(work);
        let fourth = slots.take().unwrap();
        busy.left().await;
        drop((busy, fourth));
        assert_eq!(slots.taken.borrow().len(), 1);
    }
}
