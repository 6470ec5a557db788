//! Admission of connections: limits in total and per client address.
//!
//! This is the only per-connection state that workers share. It is used once per accept and once per close,
//! never per request. Groups that must not starve each other (clients, other nodes) have separate counts.
//!
//! A client is an IPv4 address or an IPv6 prefix: the user of one IPv6 address has its whole /64 (RFC 6177).
//! Machines of the cluster that forward connections of many clients do not count as clients: each of those
//! connections was admitted by them.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use crate::limits::ADDRESS_SHARDS;

/// Limits on open connections, each at least 1.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Connections in total.
    pub connections_max: usize,
    /// Connections from one client address.
    pub per_address_max: usize,
    /// Prefix length that identifies an IPv6 client, up to 128.
    pub ipv6_prefix_bits: u8,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
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
    ipv6_prefix_bits: AtomicU8,
    /// Machines of the cluster that forward connections of clients.
    members: Box<[IpAddr]>,
    total: AtomicUsize,
    shards: [Mutex<HashMap<IpAddr, usize>>; ADDRESS_SHARDS],
}

impl Admission {
    /// Creates an admission without connections.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Self::with_members(limits, Vec::new())
    }

    /// The same, but connections from `members` count in the total only, not per address.
    pub fn with_members(limits: AdmissionLimits, members: Vec<IpAddr>) -> Arc<Self> {
        let admission = Self {
            total_max: AtomicUsize::new(0),
            per_address_max: AtomicUsize::new(0),
            ipv6_prefix_bits: AtomicU8::new(0),
            members: members.iter().map(IpAddr::to_canonical).collect(),
            total: AtomicUsize::new(0),
            shards: Default::default(),
        };
        admission.set_limits(limits);
        Arc::new(admission)
    }

    /// Replaces the limits; open connections stay.
    pub fn set_limits(&self, limits: AdmissionLimits) {
        self.total_max.store(limits.connections_max, Relaxed);
        self.per_address_max.store(limits.per_address_max, Relaxed);
        self.ipv6_prefix_bits.store(limits.ipv6_prefix_bits, Relaxed);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Clients and their numbers of connections, in descending order, without machines of the cluster.
    pub fn clients(&self) -> Vec<(IpAddr, usize)> {
        let mut clients = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            clients.extend(shard.iter().map(|(client, count)| (*client, *count)));
        }
        clients.sort_unstable_by_key(|(client, count)| (std::cmp::Reverse(*count), *client));
        clients
    }

    /// Takes a permit for a connection from `address`, or returns why there is none. The permit is released
    /// on drop.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Permit, ConnectionRefusal> {
        if self.total.fetch_add(1, Relaxed) >= self.total_max.load(Relaxed) {
            self.total.fetch_sub(1, Relaxed);
            return Err(ConnectionRefusal::Total);
        }
        let address = address.to_canonical();
        if self.members.contains(&address) {
            return Ok(Permit { admission: Arc::clone(self), client: None });
        }
        let client = client_of(address, self.ipv6_prefix_bits.load(Relaxed));
        let mut shard = self.shard(client).lock().unwrap_or_else(PoisonError::into_inner);
        let count = shard.entry(client).or_insert(0);
        if *count >= self.per_address_max.load(Relaxed) {
            self.total.fetch_sub(1, Relaxed);
            return Err(ConnectionRefusal::PerAddress);
        }
        *count += 1;
        Ok(Permit { admission: Arc::clone(self), client: Some(client) })
    }

    fn release(&self, client: Option<IpAddr>) {
        self.total.fetch_sub(1, Relaxed);
        let Some(client) = client else { return };
        let mut shard = self.shard(client).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = shard.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&client);
            }
        }
    }

    fn shard(&self, client: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        let last = match client {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15] ^ v6.octets()[7],
        };
        &self.shards[usize::from(last) % ADDRESS_SHARDS]
    }
}

/// The key of a client: an IPv4 address, or the first `ipv6_bits` bits of an IPv6 address.
pub fn client_of(address: IpAddr, ipv6_bits: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let rest = 128_u32.saturating_sub(ipv6_bits.into());
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A permit for an open connection.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    /// The client to which it counts, by the settings when it was issued.
    client: Option<IpAddr>,
}

impl Permit {
    /// Whether it is for a machine of the cluster.
    pub fn is_of_member(&self) -> bool {
        self.client.is_none()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.release(self.client);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn limits(connections_max: usize, per_address_max: usize) -> AdmissionLimits {
        AdmissionLimits { connections_max, per_address_max, ipv6_prefix_bits: 64 }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv6_prefix_is_one_client() {
        let admission = Admission::new(limits(100, 2));
        let first = admission.admit(ip("2001:db8:1:2::1")).unwrap();
        let _second = admission.admit(ip("2001:db8:1:2:ffff::")).unwrap();
        assert_eq!(
            admission.admit(ip("2001:db8:1:2::3")).unwrap_err(),
            ConnectionRefusal::PerAddress
        );
        assert!(admission.admit(ip("2001:db8:1:3::1")).is_ok(), "its neighbour is another");
        assert_eq!(admission.clients(), [(ip("2001:db8:1:2::"), 2)]);
        // A permit is returned to the count from which it was taken, even if settings have changed.
        admission.set_limits(AdmissionLimits { ipv6_prefix_bits: 48, ..limits(100, 2) });
        drop(first);
        admission.set_limits(limits(100, 2));
        assert!(admission.admit(ip("2001:db8:1:2::3")).is_ok());
    }

    #[test]
    fn clients_are_told_apart_by_so_many_bits() {
        for (address, bits, client) in [
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::"),
            ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 0, "::"),
            ("10.1.2.3", 64, "10.1.2.3"),
            ("::ffff:10.1.2.3", 64, "10.1.2.3"),
        ] {
            assert_eq!(client_of(ip(address), bits), ip(client), "{address}/{bits}");
        }
    }

    #[test]
    fn members_count_in_all_and_not_per_address() {
        let members = vec![ip("10.0.0.9")];
        let admission = Admission::with_members(limits(3, 1), members);
        let places: Vec<_> = ["10.0.0.9", "::ffff:10.0.0.9", "10.0.0.9"]
            .map(|address| admission.admit(ip(address)).unwrap())
            .into();
        assert_eq!(admission.admit(ip("10.0.0.9")).unwrap_err(), ConnectionRefusal::Total);
        drop(places);
        assert_eq!(admission.open(), 0);
        let _first = admission.admit(ip("10.0.0.1")).unwrap();
        assert_eq!(admission.admit(ip("10.0.0.1")).unwrap_err(), ConnectionRefusal::PerAddress);
    }

    #[test]
    fn both_bounds_hold_and_places_come_back() {
        let admission = Admission::new(limits(3, 2));
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        let b: IpAddr = "10.0.0.2".parse().unwrap();
        let first = admission.admit(a).unwrap();
        let _second = admission.admit(a).unwrap();
        assert_eq!(admission.admit(a).unwrap_err(), ConnectionRefusal::PerAddress);
        let _third = admission.admit(b).unwrap();
        assert_eq!(admission.admit(b).unwrap_err(), ConnectionRefusal::Total);
        drop(first);
        assert_eq!(admission.open(), 2);
        assert!(admission.admit(a).is_ok());
    }
}
