//! Applies tables to a packet program, writing only the changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use skep_wire::guard::{Order, ProgramMap, Side, Steerer};
use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Protocol, ServiceMember, WeightedLoad,
};
use skep_wire::table::{Table, TableService, TableVersion};

use crate::client::Guard;
use crate::error::GuardError;

/// Keeps the program of one role at the latest table.
///
/// A failed change is repeated with the next table, since a change counts as applied only after
/// netguard has confirmed it.
#[derive(Debug)]
pub struct Applier {
    guard: Arc<Guard>,
    side: Side,
    own_mac: [u8; 6],
    /// Whether the policy with this name uses weights.
    is_weighted: fn(&str) -> bool,
    version: TableVersion,
    /// The nodes that were applied last.
    nodes: Vec<DatapathNode>,
    /// The map may contain other nodes.
    nodes_changed: bool,
    /// What was applied; `None` if the map may contain something else.
    steerers: Option<Vec<([u8; 6], Steerer)>>,
    services: Option<Vec<DatapathService>>,
    /// The inputs of each service's rows.
    rows: HashMap<ServiceKey, RowInputs>,
}

/// What identifies a service across tables.
type ServiceKey = (SocketAddr, Protocol);

#[derive(Debug, PartialEq, Eq)]
struct RowInputs {
    id: u16,
    choices: u8,
    memberships: Vec<Vec<ServiceMember>>,
}

impl Applier {
    /// Creates an applier that assumes that nothing is applied yet.
    pub fn new(
        guard: Arc<Guard>,
        side: Side,
        own_mac: [u8; 6],
        is_weighted: fn(&str) -> bool,
    ) -> Self {
        Self {
            guard,
            side,
            own_mac,
            is_weighted,
            version: TableVersion::default(),
            nodes: Vec::new(),
            nodes_changed: false,
            steerers: Some(Vec::new()),
            services: Some(Vec::new()),
            rows: HashMap::new(),
        }
    }

    /// The version of the applied table.
    pub fn version(&self) -> TableVersion {
        self.version
    }

    /// Forgets what was written to this map, which others have changed: it is written with the next table, or
    /// when the same is applied again.
    pub fn forget(&mut self, map: ProgramMap) {
        match map {
            // The list of nodes is kept, since rows still refer to them.
            ProgramMap::Nodes => self.nodes_changed = true,
            ProgramMap::Steerers => self.steerers = None,
            ProgramMap::Services | ProgramMap::Vips => self.services = None,
            ProgramMap::Rows(address, protocol) => drop(self.rows.remove(&(address, protocol))),
            // These maps are not part of a table, or were written again already.
            ProgramMap::Settings | ProgramMap::Networks | ProgramMap::Loads => {}
        }
    }

    /// Applies `table`. Nodes are opened before the rows that assign flows to them are written,
    /// and closed after the rows that did: a row whose only node just closed would refuse clients.
    /// Rows are written before the services that use them.
    pub fn apply(&mut self, table: &Table) -> Result<(), GuardError> {
        let nodes: Vec<DatapathNode> = table.nodes.iter().map(|node| self.node(node)).collect();
        self.apply_nodes(openest(&self.nodes, &nodes))?;
        let steerers = self.steerers_of(table);
        if self.steerers.as_ref() != Some(&steerers) {
            self.guard.ask(&Order::Steerers(self.side, steerers.clone()))?;
            self.steerers = Some(steerers);
        }
        for service in &table.services {
            self.apply_rows(table, service)?;
        }
        self.apply_nodes(nodes)?;
        let services: Vec<_> = table.services.iter().map(|it| self.service(it.service)).collect();
        if self.services.as_ref() != Some(&services) {
            // The rows of removed services are forgotten, whether this order is confirmed or not.
            self.rows.retain(|known, _| services.iter().any(|service| key(service) == *known));
            self.guard.ask(&Order::Services(self.side, services.clone()))?;
            self.services = Some(services);
        }
        self.version = table.version;
        Ok(())
    }

    fn apply_nodes(&mut self, nodes: Vec<DatapathNode>) -> Result<(), GuardError> {
        if self.nodes_changed || self.nodes != nodes {
            self.guard.ask(&Order::Nodes(self.side, nodes.clone()))?;
            (self.nodes, self.nodes_changed) = (nodes, false);
        }
        Ok(())
    }

    fn apply_rows(&mut self, table: &Table, service: &TableService) -> Result<(), GuardError> {
        let mut memberships = table.members(service);
        if !(self.is_weighted)(service.policy.as_str()) {
            memberships.iter_mut().flatten().for_each(|member| member.weight = 1);
        }
        let service = service.service;
        let DatapathService { id, choices, .. } = service;
        let inputs = RowInputs { id, choices, memberships };
        if self.rows.get(&key(&service)) == Some(&inputs) {
            return Ok(());
        }
        if self.side == Side::Dispatch {
            let weigh = |member: &ServiceMember| WeightedLoad {
                node: member.index,
                weight: member.weight,
                load: 0,
            };
            let loads = inputs.memberships.first().into_iter().flatten().map(weigh).collect();
            self.guard.ask(&Order::Loads(vec![id], loads))?;
        }
        let memberships = inputs.memberships.clone();
        self.guard.ask(&Order::Rows { side: self.side, service, memberships })?;
        self.rows.insert(key(&service), inputs);
        Ok(())
    }

    /// A service whose rows were written. If it has fewer members than its policy has choices, the remaining
    /// places of a row belong to earlier owners, which may be up for other services: they are not candidates.
    fn service(&self, service: DatapathService) -> DatapathService {
        let rows = self.rows.get(&key(&service));
        let present = rows.and_then(|inputs| inputs.memberships.first());
        let members = u8::try_from(present.map_or(0, Vec::len)).unwrap_or(u8::MAX);
        DatapathService { choices: service.choices.min(members).max(1), ..service }
    }

    fn node(&self, node: &skep_wire::table::TableNode) -> DatapathNode {
        DatapathNode {
            index: node.index,
            mac: node.mac,
            // Netguard fills in its own device.
            device_index: 0,
            mtu: node.mtu,
            state: node.state,
            is_local: node.mac == self.own_mac,
        }
    }

    /// All machines whose frames are already steered, except this machine: a frame from itself is a loop.
    fn steerers_of(&self, table: &Table) -> Vec<([u8; 6], Steerer)> {
        let dispatchers = table.dispatchers.iter().map(|&mac| (mac, Steerer::Dispatcher));
        let nodes = table.nodes.iter().map(|node| (node.mac, Steerer::Node));
        let mut steerers: Vec<_> = dispatchers
            .chain(nodes)
            .filter(|(mac, _)| *mac != self.own_mac && *mac != [0; 6])
            .collect();
        // A machine with both roles counts as a node: frames from it were handed on.
        steerers.sort_by_key(|(mac, steerer)| (*mac, *steerer == Steerer::Dispatcher));
        steerers.dedup_by_key(|(mac, _)| *mac);
        steerers
    }
}

fn key(service: &DatapathService) -> ServiceKey {
    (service.address, service.protocol)
}

/// All nodes of both lists; a node in both has the properties of the later list, but the more permissive
/// state.
fn openest(before: &[DatapathNode], after: &[DatapathNode]) -> Vec<DatapathNode> {
    let takes = |state: ForwardingState| match state {
        ForwardingState::Up => 2,
        ForwardingState::Draining => 1,
        ForwardingState::Down => 0,
    };
    let is_same = |a: &DatapathNode, b: &DatapathNode| (a.index, a.mac) == (b.index, b.mac);
    let open = |node: &DatapathNode| {
        let known = before.iter().find(|known| is_same(known, node)).map(|known| known.state);
        let state = known.filter(|known| takes(*known) > takes(node.state));
        DatapathNode { state: state.unwrap_or(node.state), ..*node }
    };
    let gone = before.iter().filter(|known| after.iter().all(|node| node.index != known.index));
    after.iter().map(open).chain(gone.copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_tables_nodes_may_take_what_either_lets_them() {
        use ForwardingState::{Down, Draining, Up};
        let node = |index: u16, state| DatapathNode {
            index,
            mac: [2, 0, 0, 0, 0, index as u8],
            device_index: 0,
            mtu: 1500,
            state,
            is_local: false,
        };
        let before = [node(0, Up), node(1, Down), node(2, Draining), node(3, Up)];
        let another = DatapathNode { mac: [2, 0, 0, 0, 1, 0], ..node(2, Down) };
        let after = [node(0, Draining), node(1, Up), another, node(4, Up)];
        let between = [node(0, Up), node(1, Up), another, node(4, Up), node(3, Up)];
        assert_eq!(openest(&before, &after), between);
    }
}
