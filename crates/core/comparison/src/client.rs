//! The identity of a client in a host table.

use std::net::IpAddr;

use skep_units::stable_hash;

/// The hash of a client's address in one test, equal on all dispatchers. For IPv6 it is that of the
/// /64, since a client may use all addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The client at `address` in the test with this [`id`](crate::Arms::id), which makes the
    /// division of clients independent of other tests.
    pub fn new(address: IpAddr, test: u64) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => stable_hash(&address.octets(), test),
            IpAddr::V6(address) => stable_hash(&address.octets()[..8], test),
        })
    }

    /// Maps the client to one of `count`, independently of other values of `use_of`.
    pub(crate) fn one_of(self, count: u64, use_of: u64) -> u64 {
        stable_hash(&self.0.to_le_bytes(), use_of) % count
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_64() {
        let id = |text: &str| ClientId::new(text.parse().unwrap(), 7);
        assert_eq!(id("2001:db8::1"), id("2001:db8::ffff:1"));
        assert_ne!(id("2001:db8::1"), id("2001:db8:0:1::1"));
        assert_eq!(id("192.0.2.1"), id("::ffff:192.0.2.1"));
        assert_ne!(id("192.0.2.1"), id("192.0.2.2"));
        assert_ne!(id("192.0.2.1"), ClientId::new("192.0.2.1".parse().unwrap(), 8));
    }
}
