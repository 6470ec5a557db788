//! Permits for handshakes: which addresses may connect, and how many at a time.
//!
//! Any machine on the network may connect, and be silent for the duration of a handshake. Invariants: an
//! address in the config has permits reserved for it; no other address takes all of the rest; a refused
//! connection holds no permit.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use skep_serve::client_of;
use tokio::net::TcpStream;

use crate::limits::{HandshakeLimits, LINGERING_MAX};
use crate::stream::greet::linger;

/// Prefix length that identifies a stranger's IPv6 address (RFC 6177).
const STRANGER_IPV6_BITS: u8 = 64;

/// The permits of a server.
pub(super) struct HandshakePermits {
    limits: HandshakeLimits,
    members: Box<[IpAddr]>,
    /// Handshakes in progress, by machine.
    taken: RefCell<HashMap<IpAddr, usize>>,
    /// The handshakes of strangers in progress.
    strangers: Cell<usize>,
    lingering: Cell<usize>,
}

/// A permit; released on drop.
pub(super) struct HandshakePermit {
    places: Rc<HandshakePermits>,
    of: IpAddr,
    is_member: bool,
}

impl HandshakePermits {
    /// Creates permits that are all free; `members` have reserved ones.
    pub(super) fn new(members: &[IpAddr], limits: HandshakeLimits) -> Rc<Self> {
        Rc::new(Self {
            limits,
            members: members.iter().map(IpAddr::to_canonical).collect(),
            taken: RefCell::default(),
            strangers: Cell::new(0),
            lingering: Cell::new(0),
        })
    }

    /// Takes a permit for a connection from this address, if one is free.
    pub(super) fn take(self: &Rc<Self>, from: IpAddr) -> Option<HandshakePermit> {
        let from = from.to_canonical();
        let is_member = self.members.contains(&from);
        let (of, taken_max) = match is_member {
            true => (from, self.limits.per_member_max),
            false => (client_of(from, STRANGER_IPV6_BITS), self.limits.per_stranger_max),
        };
        let mut all = self.taken.borrow_mut();
        let taken = all.get(&of).copied().unwrap_or(0);
        if taken >= taken_max || (!is_member && self.strangers.get() >= self.limits.strangers_max) {
            return None;
        }
        all.insert(of, taken + 1);
        self.strangers.set(self.strangers.get() + usize::from(!is_member));
        Some(HandshakePermit { places: Rc::clone(self), of, is_member })
    }
}

impl HandshakePermit {
    /// Releases the permit, and closes `stream` after the refusal has arrived, unless too many are closing.
    pub(super) async fn linger(self, stream: TcpStream) {
        let places = Rc::clone(&self.places);
        drop(self);
        if places.lingering.get() < LINGERING_MAX {
            places.lingering.set(places.lingering.get() + 1);
            linger(stream).await;
            places.lingering.set(places.lingering.get() - 1);
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut all = self.places.taken.borrow_mut();
        if let Some(taken) = all.get_mut(&self.of) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.of);
            }
        }
        let strangers = &self.places.strangers;
        strangers.set(strangers.get() - usize::from(!self.is_member));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LIMITS: HandshakeLimits =
        HandshakeLimits { strangers_max: 64, per_stranger_max: 8, per_member_max: 16 };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn take_all(places: &Rc<HandshakePermits>, from: &str) -> Vec<HandshakePermit> {
        std::iter::from_fn(|| places.take(ip(from))).collect()
    }

    #[test]
    fn members_have_their_own_and_no_stranger_has_all() {
        let places = HandshakePermits::new(&[ip("10.0.0.1"), ip("2001:db8::1")], LIMITS);
        let mut held = Vec::new();
        for number in 0..=255 {
            let some = take_all(&places, &format!("10.9.9.{number}"));
            assert!(some.len() <= LIMITS.per_stranger_max);
            held.extend(some);
        }
        assert_eq!(held.len(), LIMITS.strangers_max);
        for member in ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"] {
            assert_eq!(take_all(&places, member).len(), LIMITS.per_member_max, "{member}");
        }
        drop(held);
        assert!(places.taken.borrow().is_empty() && places.strangers.get() == 0);
    }

    #[test]
    fn a_strangers_ipv6_network_is_one_address() {
        let places = HandshakePermits::new(&[], LIMITS);
        let mut held = take_all(&places, "2001:db8::1");
        held.extend(take_all(&places, "2001:db8::2"));
        assert_eq!(held.len(), LIMITS.per_stranger_max);
        assert!(places.take(ip("2001:db8:0:1::1")).is_some());
    }
}
