//! The table that all dispatchers and nodes of a cluster use for steering.
//!
//! The active dispatcher builds it; each version is built once. Rows are not sent: each machine
//! computes them from the memberships.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use skep_units::EPOCH_MAX;

use crate::limits::{DISPATCHERS_MAX, HISTORY_MAX, MEMBERSHIPS_MAX, WEIGHT_MAX};
use crate::machine::{Mac, Name};
use crate::steer::{
    CHOICES_MAX, DatapathService, ForwardingState, NODES_MAX, NodeIndex, SERVICES_MAX,
    ServiceMember, is_index,
};

/// The version of a table: later versions are greater, whichever dispatcher built them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TableVersion {
    /// The epoch of its author's term.
    pub epoch: u64,
    /// Its number in that term, from 1.
    pub generation: u64,
}

/// The data for steering on all machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub version: TableVersion,
    /// In the order of their ids.
    pub services: Vec<TableService>,
    /// In the order of their indexes: nodes of the config that have reported, and nodes that are
    /// only named by a history.
    pub nodes: Vec<TableNode>,
    /// The memberships referred to by the services' histories.
    pub memberships: Vec<ServiceMembership>,
    /// MAC addresses of the dispatchers' devices.
    pub dispatchers: Vec<Mac>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableService {
    /// In the form used by the packet programs.
    pub service: DatapathService,
    pub policy: Name,
    /// Indexes into [`Table::memberships`]: the membership that receives its new flows, then
    /// earlier ones, most recent first, without duplicates.
    pub history: Vec<u16>,
}

/// The nodes that received the new flows of a service at some time, in the order of their indexes.
pub type ServiceMembership = Vec<Share>;

/// A node's part in a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Share {
    pub index: NodeIndex,
    /// Its share relative to the others', from 1.
    pub weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableNode {
    /// Its index in the tables; reused for another node only once no history names it.
    pub index: NodeIndex,
    /// Its name in the config.
    pub name: Name,
    /// The address at which it serves.
    pub address: SocketAddr,
    /// Its present weight; 0 if drained.
    pub weight: u32,
    /// Whether it receives flows.
    pub state: ForwardingState,
    /// Whether an operator has drained it.
    pub is_drained: bool,
    /// Destination of frames for it; zero if it has never reported.
    pub mac: Mac,
    /// Largest IP packet that it accepts, in bytes; 0 for no limit.
    pub mtu: u32,
}

impl TableVersion {
    pub(crate) fn is_sound(self) -> bool {
        self.epoch <= EPOCH_MAX
    }
}

impl Table {
    pub fn node(&self, name: &str) -> Option<&TableNode> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }

    /// The memberships of a service, the present one first.
    pub fn history<'a>(
        &'a self,
        service: &'a TableService,
    ) -> impl Iterator<Item = &'a ServiceMembership> {
        service.history.iter().filter_map(|&at| self.memberships.get(usize::from(at)))
    }

    /// Whether rows of a service name this node: packets of the service's flows may arrive at it.
    pub fn is_in_rows(&self, service: &TableService, index: NodeIndex) -> bool {
        self.history(service).flatten().any(|share| share.index == index)
    }

    /// The memberships in the form from which policies compute rows. Nodes that the table does not
    /// list are omitted.
    pub fn members(&self, service: &TableService) -> Vec<Vec<ServiceMember>> {
        let member = |share: &Share| {
            let node = self.nodes.iter().find(|node| node.index == share.index)?;
            let name_hash = node.name.peer().0;
            Some(ServiceMember { index: share.index, name_hash, weight: share.weight })
        };
        self.history(service).map(|shares| shares.iter().filter_map(member).collect()).collect()
    }

    /// Whether it is within the bounds and every index in it is valid.
    pub(crate) fn is_sound(&self) -> bool {
        let is_bounded = self.version.is_sound()
            && self.services.len() <= SERVICES_MAX
            && self.nodes.len() <= NODES_MAX
            && self.memberships.len() <= MEMBERSHIPS_MAX
            && self.dispatchers.len() <= DISPATCHERS_MAX;
        is_bounded
            && self.nodes.is_sorted_by(|a, b| a.index < b.index)
            && self.nodes.iter().all(|node| is_index(node.index) && node.weight <= WEIGHT_MAX)
            && self.memberships.iter().all(|shares| self.knows(shares))
            && self.services.is_sorted_by(|a, b| a.service.id < b.service.id)
            && self.services.iter().all(|service| self.is_sound_service(service))
    }

    fn is_sound_service(&self, service: &TableService) -> bool {
        usize::from(service.service.id) < SERVICES_MAX
            && (1..=CHOICES_MAX).contains(&usize::from(service.service.choices))
            && service.history.len() <= HISTORY_MAX
            && service.history.iter().all(|&at| usize::from(at) < self.memberships.len())
    }

    fn knows(&self, shares: &ServiceMembership) -> bool {
        let find = |index| self.nodes.binary_search_by_key(&index, |node| node.index);
        shares.is_sorted_by(|a, b| a.index < b.index)
            && shares
                .iter()
                .all(|share| (1..=WEIGHT_MAX).contains(&share.weight) && find(share.index).is_ok())
    }
}
