//! The pool: connections by address, most recently used first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use hashbrown::HashMap;
use skep_serve::{Conn, Worker};
use skep_units::ServerAddress;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::error::UpstreamError;

/// Limits of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Maximum number of connections to one address, in use and idle; at least 1.
    pub connections_max: usize,
    /// Milliseconds after which an unused connection is closed.
    pub idle_ms: u64,
    /// Connect timeout in milliseconds.
    pub connect_timeout_ms: u64,
}

/// One worker's connections to nodes.
pub struct ConnectionPool {
    worker: Rc<Worker>,
    limits: Cell<PoolLimits>,
    slots: RefCell<HashMap<ServerAddress, Rc<Slot>, foldhash::fast::RandomState>>,
}

/// The connections to one address.
struct Slot {
    address: ServerAddress,
    in_use: Cell<usize>,
    /// In the order in which they were returned.
    idle: RefCell<Vec<Idle>>,
    /// Incremented when the address is closed: connections taken before are not accepted back.
    epoch: Cell<u64>,
    /// Notified when a connection is released.
    freed: Notify,
}

struct Idle {
    conn: Box<Conn>,
    since_ms: u64,
}

impl ConnectionPool {
    /// Creates an empty pool; ten times a second it closes connections that were idle for too long.
    pub fn new(worker: &Rc<Worker>, limits: PoolLimits) -> Rc<Self> {
        let pool = Rc::new(Self {
            worker: Rc::clone(worker),
            limits: Cell::new(limits),
            slots: RefCell::default(),
        });
        let ticking = Rc::downgrade(&pool);
        worker.on_tick(move || ticking.upgrade().map(|pool| pool.tick()).is_some());
        pool
    }

    /// Replaces the limits. Connections beyond a lower limit are not interrupted; they are closed instead of
    /// returned.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.limits.set(limits);
    }

    /// Returns a connection to `address`: an idle one if there is a live one, else a new one.
    ///
    /// # Errors
    /// Why there is no connection; see [`UpstreamError`].
    #[cfg(test)]
    pub(crate) async fn checkout(
        &self,
        address: impl Into<ServerAddress>,
    ) -> Result<PooledConn, UpstreamError> {
        let address = address.into();
        match self.reuse(address) {
            Some(lease) => Ok(lease),
            None => self.dial(address).await,
        }
    }

    /// Returns an idle connection to `address` that is alive, as far as this machine can tell.
    pub fn reuse(&self, address: impl Into<ServerAddress>) -> Option<PooledConn> {
        let slots = self.slots.borrow();
        let slot = slots.get(&address.into())?;
        loop {
            // A separate statement: the borrow must end before a stale connection is closed.
            let idle = slot.idle.borrow_mut().pop()?;
            if !idle.conn.is_stale() {
                let idle_ms = self.worker.now_ms().saturating_sub(idle.since_ms);
                let place = PoolPermit::take(slot);
                return Some(PooledConn { conn: idle.conn, reused: true, idle_ms, place });
            }
        }
    }

    /// Waits while all connections to all of `addresses` are in use, for at most `wait_ms`.
    pub async fn room(&self, addresses: &[impl Copy + Into<ServerAddress>], wait_ms: u64) {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        while let Some(address) = addresses.first()
            && addresses.iter().all(|address| self.is_full((*address).into()))
        {
            let slot = self.slot((*address).into());
            if timeout_at(until, slot.freed.notified()).await.is_err() {
                return;
            }
        }
    }

    fn is_full(&self, address: ServerAddress) -> bool {
        self.counts(address).0 >= self.limits.get().connections_max
    }

    /// Opens a new connection to `address`.
    ///
    /// # Errors
    /// Why there is no connection; see [`UpstreamError`].
    pub async fn dial(
        &self,
        address: impl Into<ServerAddress>,
    ) -> Result<PooledConn, UpstreamError> {
        let address = address.into();
        let slot = self.slot(address);
        let limits = self.limits.get();
        if slot.open() >= limits.connections_max {
            // An idle connection makes room; it was not wanted or is stale.
            let oldest = {
                let mut idle = slot.idle.borrow_mut();
                (!idle.is_empty()).then(|| idle.remove(0))
            };
            if oldest.is_none() {
                return Err(UpstreamError::PoolFull);
            }
        }
        // Taken before the wait, so that others count it.
        let place = PoolPermit::take(&slot);
        let conn = Conn::connect(&self.worker, address, limits.connect_timeout_ms).await?;
        Ok(PooledConn { conn: Box::new(conn), reused: false, idle_ms: 0, place })
    }

    /// Closes the idle connections to `address` now and those in use when their requests end. For
    /// nodes that left or went down.
    pub fn close_address(&self, address: impl Into<ServerAddress>) {
        if let Some(slot) = self.slots.borrow().get(&address.into()) {
            slot.epoch.set(slot.epoch.get() + 1);
            let closing = std::mem::take(&mut *slot.idle.borrow_mut());
            drop(closing);
        }
    }

    /// The numbers of connections to `address`: in use, and idle.
    pub fn counts(&self, address: impl Into<ServerAddress>) -> (usize, usize) {
        self.slots
            .borrow()
            .get(&address.into())
            .map_or((0, 0), |slot| (slot.in_use.get(), slot.idle.borrow().len()))
    }

    /// Closes connections that were idle for too long or were closed by their node, and removes addresses
    /// without connections.
    fn tick(&self) {
        let now_ms = self.worker.now_ms();
        let limits = self.limits.get();
        self.slots.borrow_mut().retain(|_, slot| {
            slot.idle.borrow_mut().retain(|idle| {
                now_ms.saturating_sub(idle.since_ms) < limits.idle_ms && !idle.conn.is_stale()
            });
            // A waiter holds a reference to its slot.
            slot.open() > 0 || Rc::strong_count(slot) > 1
        });
    }

    fn slot(&self, address: ServerAddress) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(address).or_insert_with(|| {
            Rc::new(Slot {
                address,
                in_use: Cell::new(0),
                idle: RefCell::default(),
                epoch: Cell::new(0),
                freed: Notify::new(),
            })
        });
        Rc::clone(slot)
    }
}

impl Slot {
    fn open(&self) -> usize {
        self.in_use.get() + self.idle.borrow().len()
    }
}

/// A connection that carries one request.
pub struct PooledConn {
    /// Boxed, since each future that awaits it moves it.
    pub conn: Box<Conn>,
    /// Whether it was used before, and may therefore turn out to be dead.
    pub reused: bool,
    /// Milliseconds for which it was idle; 0 for a new one.
    pub idle_ms: u64,
    place: PoolPermit,
}

impl PooledConn {
    /// The address of the connection.
    pub fn address(&self) -> ServerAddress {
        self.place.slot.address
    }

    /// Returns the connection to `pool`, for the next request. Permitted only after the reply was read to its
    /// end, if no bytes followed it and the node keeps the connection open.
    pub fn give_back(self, pool: &ConnectionPool) {
        let Self { conn, place, .. } = self;
        let slot = &place.slot;
        let is_current = place.epoch == slot.epoch.get();
        if is_current && slot.open() <= pool.limits.get().connections_max {
            // From now on the pool closes it, not a deadline.
            conn.timer().clear();
            slot.idle.borrow_mut().push(Idle { conn, since_ms: pool.worker.now_ms() });
        }
    }
}

/// A permit for a connection in use.
struct PoolPermit {
    slot: Rc<Slot>,
    epoch: u64,
}

impl PoolPermit {
    fn take(slot: &Rc<Slot>) -> Self {
        slot.in_use.set(slot.in_use.get() + 1);
        Self { slot: Rc::clone(slot), epoch: slot.epoch.get() }
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        self.slot.in_use.set(self.slot.in_use.get() - 1);
        self.slot.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
