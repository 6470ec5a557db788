//! Who may connect: connections in all and per client address.
//!
//! The only state that workers share per connection. Asked once per accept and
//! once per close, never per request. Whoever must not starve somebody else
//! (clients, other nodes) has a count of its own.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use crate::limits::ADDRESS_SHARDS;

/// Bounds on open connections; each at least 1.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Connections in all.
    pub connections_max: usize,
    /// Connections from one address.
    pub per_address_max: usize,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `connections_max` reached.
    Total,
    /// `per_address_max` reached.
    PerAddress,
    /// The process has no descriptor left.
    Descriptors,
    /// The server drains.
    Draining,
}

/// Counts of open connections, shared by all workers.
#[derive(Debug)]
pub struct Admission {
    total_max: AtomicUsize,
    per_address_max: AtomicUsize,
    total: AtomicUsize,
    shards: [Mutex<HashMap<IpAddr, usize>>; ADDRESS_SHARDS],
}

impl Admission {
    /// Nobody connected yet.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        let admission = Self {
            total_max: AtomicUsize::new(0),
            per_address_max: AtomicUsize::new(0),
            total: AtomicUsize::new(0),
            shards: Default::default(),
        };
        admission.set_limits(limits);
        Arc::new(admission)
    }

    /// New bounds; connections already open stay.
    pub fn set_limits(&self, limits: AdmissionLimits) {
        self.total_max.store(limits.connections_max, Relaxed);
        self.per_address_max.store(limits.per_address_max, Relaxed);
    }

    /// Connections open.
    pub fn open(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Takes a place for a connection from `address`, or says why not. The
    /// place is given back when the permit is dropped.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Permit, Refusal> {
        if self.total.fetch_add(1, Relaxed) >= self.total_max.load(Relaxed) {
            self.total.fetch_sub(1, Relaxed);
            return Err(Refusal::Total);
        }
        let mut shard = self.shard(address).lock().unwrap_or_else(PoisonError::into_inner);
        let count = shard.entry(address).or_insert(0);
        if *count >= self.per_address_max.load(Relaxed) {
            self.total.fetch_sub(1, Relaxed);
            return Err(Refusal::PerAddress);
        }
        *count += 1;
        Ok(Permit { admission: Arc::clone(self), address })
    }

    fn release(&self, address: IpAddr) {
        self.total.fetch_sub(1, Relaxed);
        let mut shard = self.shard(address).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = shard.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&address);
            }
        }
    }

    fn shard(&self, address: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        let last = match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15] ^ v6.octets()[7],
        };
        &self.shards[usize::from(last) % ADDRESS_SHARDS]
    }
}

/// A place among the open connections.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    address: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.release(self.address);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_bounds_hold_and_places_come_back() {
        let admission = Admission::new(AdmissionLimits { connections_max: 3, per_address_max: 2 });
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        let b: IpAddr = "10.0.0.2".parse().unwrap();
        let first = admission.admit(a).unwrap();
        let _second = admission.admit(a).unwrap();
        assert_eq!(admission.admit(a).unwrap_err(), Refusal::PerAddress);
        let _third = admission.admit(b).unwrap();
        assert_eq!(admission.admit(b).unwrap_err(), Refusal::Total);
        drop(first);
        assert_eq!(admission.open(), 2);
        assert!(admission.admit(a).is_ok());
    }
}
