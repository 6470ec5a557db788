//! The ids of services: their numbers in tables, in flows and in the hash of packets.
//!
//! An id belongs to an address and protocol, not to a position in a config: in a rolling restart,
//! dispatchers with different configs make tables in turn, and use the flows that another one has
//! recorded.
//!
//! Invariants: no two services have the same id; a service keeps its id as long as it is planned;
//! an id is reassigned only when all ids are in use, and then that of the service which has not
//! been planned for the longest time. A dispatcher that has lost all tables assigns most services
//! the same ids as before, since the preferred id is the hash of the address.

use std::net::SocketAddr;

use skep_wire::steer::{DatapathService, Protocol, SERVICES_MAX, service_hash};

/// Identifies a service across configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceKey {
    address: SocketAddr,
    is_udp: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceIds {
    /// Each id once, at most [`SERVICES_MAX`], the most recently planned last.
    given: Vec<(ServiceKey, u16)>,
}

impl ServiceKey {
    pub(crate) fn new(address: SocketAddr, protocol: Protocol) -> Self {
        Self { address, is_udp: protocol == Protocol::Udp }
    }

    pub(crate) fn of(service: &DatapathService) -> Self {
        Self::new(service.address, service.protocol)
    }
}

impl ServiceIds {
    /// Adopts the ids of another dispatcher's table.
    pub(crate) fn adopt<'a>(&mut self, services: impl Iterator<Item = &'a DatapathService>) {
        for service in services {
            let (key, id) = (ServiceKey::of(service), service.id);
            self.given.retain(|&given| given.0 != key && given.1 != id);
            self.given.push((key, id));
        }
    }

    /// Assigns ids to those of the planned services that have none.
    pub(crate) fn plan(&mut self, planned: impl Iterator<Item = ServiceKey>) {
        let mut planned: Vec<ServiceKey> = planned.collect();
        // Independent of the order in the config.
        planned.sort_unstable();
        planned.dedup();
        assert!(planned.len() <= SERVICES_MAX, "the config has no more addresses than ids");
        let is_planned = |given: &(ServiceKey, u16)| planned.binary_search(&given.0).is_ok();
        // The sort is stable: services that are not planned stay in the order in which they last
        // were.
        self.given.sort_by_key(is_planned);
        for &key in &planned {
            if self.id(key).is_none() {
                let id = self.free_id(key);
                self.given.push((key, id));
            }
        }
    }

    /// The id of a planned service.
    pub(crate) fn id(&self, key: ServiceKey) -> Option<u16> {
        self.given.iter().find(|given| given.0 == key).map(|given| given.1)
    }

    /// The free id nearest to the hash of the address, or else that of the service which has not
    /// been planned for the longest time, which then loses it.
    fn free_id(&mut self, key: ServiceKey) -> u16 {
        let wished = service_hash(key.address) % SERVICES_MAX as u64;
        let from_wished =
            (0..SERVICES_MAX as u64).map(|step| (wished + step) % SERVICES_MAX as u64);
        let is_free = |id: &u16| self.given.iter().all(|given| given.1 != *id);
        let free = from_wished.map(|id| id as u16).find(is_free);
        free.unwrap_or_else(|| self.given.remove(0).1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(number: u16) -> ServiceKey {
        ServiceKey::new(([192, 0, 2, 1], number).into(), Protocol::Tcp)
    }

    fn ids(ids: &ServiceIds, numbers: impl IntoIterator<Item = u16>) -> Vec<Option<u16>> {
        numbers.into_iter().map(|number| ids.id(key(number))).collect()
    }

    #[test]
    fn ids_do_not_depend_on_the_order_in_the_config() {
        let (mut one, mut other) = (ServiceIds::default(), ServiceIds::default());
        one.plan((0..40).map(key));
        other.plan((0..40).rev().map(key));
        let given = ids(&one, 0..40);
        assert_eq!(given, ids(&other, 0..40));
        let mut all: Vec<u16> = given.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40, "each its own");
        assert!(all.iter().all(|&id| usize::from(id) < SERVICES_MAX));
    }

    #[test]
    fn tcp_and_udp_at_one_address_are_two_services() {
        let mut ids = ServiceIds::default();
        let both = [Protocol::Tcp, Protocol::Udp];
        let keys = both.map(|protocol| ServiceKey::new(([192, 0, 2, 1], 53).into(), protocol));
        ids.plan(keys.into_iter());
        assert_ne!(ids.id(keys[0]), ids.id(keys[1]));
    }

    #[test]
    fn an_id_is_given_anew_last_and_that_of_the_service_gone_longest_first() {
        let mut it = ServiceIds::default();
        it.plan((0..40).map(key));
        it.plan((10..40).map(key));
        it.plan((20..40).map(key));
        let gone = ids(&it, 0..20);
        it.plan((20..64).map(key));
        assert_eq!(ids(&it, 0..20), gone, "there are free ones");
        it.plan((20..69).map(key));
        assert_eq!(ids(&it, 10..20), gone[10..], "they went later");
        assert_eq!(ids(&it, 0..10).iter().flatten().count(), 5);
        let given = ids(&it, 20..69);
        let first: Vec<_> = gone[..10].iter().filter(|id| given.contains(id)).collect();
        assert_eq!(first.len(), 5);
    }

    #[test]
    fn a_table_overrides_what_was_given_here() {
        let mut ids = ServiceIds::default();
        ids.plan([key(1), key(2)].into_iter());
        let (one, two) = (ids.id(key(1)).unwrap(), ids.id(key(2)).unwrap());
        let service = DatapathService {
            id: one,
            address: key(3).address,
            protocol: Protocol::Tcp,
            choices: 1,
            measure: skep_wire::steer::Measure::First,
            by_address: false,
        };
        ids.adopt([service].iter());
        assert_eq!((ids.id(key(3)), ids.id(key(2))), (Some(one), Some(two)));
        ids.plan([key(1), key(2), key(3)].into_iter());
        assert_eq!((ids.id(key(3)), ids.id(key(2))), (Some(one), Some(two)));
        assert!(ids.id(key(1)).is_some_and(|id| id != one && id != two));
    }
}
