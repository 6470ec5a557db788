//! Places for connections. Who has asked for nothing yet, or waits between two
//! requests, makes room for who comes when all are taken: half-sent requests keep
//! nobody out. (A request that is in work is never broken off for another.)

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

/// The places of one listener.
pub(crate) struct Room {
    places_max: usize,
    /// In the order in which they came.
    taken: RefCell<BTreeMap<u64, Rc<Guest>>>,
    next: Cell<u64>,
}

/// A connection's place; free when dropped.
pub(crate) struct RoomPermit {
    room: Rc<Room>,
    number: u64,
    guest: Rc<Guest>,
}

/// Counts a connection's requests in work.
pub(crate) struct Asked(Rc<Guest>);

/// A request in work.
pub(crate) struct Work(Rc<Guest>);

#[derive(Default)]
struct Guest {
    requests: Cell<usize>,
    leave: Notify,
}

impl Room {
    pub(crate) fn new(places_max: usize) -> Rc<Self> {
        Rc::new(Self { places_max, taken: RefCell::default(), next: Cell::new(0) })
    }

    /// A place, perhaps that of the oldest connection which asks for nothing. `None`:
    /// all have requests in work.
    pub(crate) fn take(self: &Rc<Self>) -> Option<RoomPermit> {
        let mut taken = self.taken.borrow_mut();
        if taken.len() >= self.places_max {
            let idle = taken.iter().find(|(_, guest)| guest.requests.get() == 0);
            let number = idle.map(|(number, _)| *number)?;
            taken.remove(&number)?.leave.notify_one();
        }
        let number = self.next.replace(self.next.get() + 1);
        let guest = Rc::<Guest>::default();
        taken.insert(number, Rc::clone(&guest));
        Some(RoomPermit { room: Rc::clone(self), number, guest })
    }
}

impl RoomPermit {
    pub(crate) fn asked(&self) -> Asked {
        Asked(Rc::clone(&self.guest))
    }

    /// Ready when the connection has lost its place.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + use<> {
        let guest = Rc::clone(&self.guest);
        async move { guest.leave.notified().await }
    }
}

impl Drop for RoomPermit {
    fn drop(&mut self) {
        self.room.taken.borrow_mut().remove(&self.number);
    }
}

impl Asked {
    /// A request's head is here.
    pub(crate) fn begin(&self) -> Work {
        self.0.requests.set(self.0.requests.get() + 1);
        Work(Rc::clone(&self.0))
    }

    /// Of a connection that has no place.
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
        let room = Room::new(2);
        let busy = room.take().unwrap();
        let work = busy.asked().begin();
        let idle = room.take().unwrap();
        let third = room.take().unwrap();
        idle.left().await;
        drop(idle);
        let _work = third.asked().begin();
        assert!(room.take().is_none(), "both have requests in work");
        drop(work);
        let fourth = room.take().unwrap();
        busy.left().await;
        drop((busy, fourth));
        assert_eq!(room.taken.borrow().len(), 1);
    }
}
