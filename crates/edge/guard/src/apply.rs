//! Brings tables to a packet program, and of each only what changed.

use std::collections::HashMap;
use std::sync::Arc;

use skep_wire::guard::{Order, Side, Steerer};
use skep_wire::steer::{Load, Member, Node};
use skep_wire::table::{Table, TableService, TableVersion};

use crate::client::Guard;
use crate::error::GuardError;

/// Keeps one side's program at the table that it was told last.
///
/// Whatever fails is done again with the next table, since nothing counts as
/// told before the guard has said so.
#[derive(Debug)]
pub struct Applier {
    guard: Arc<Guard>,
    side: Side,
    own_mac: [u8; 6],
    /// Whether a policy of this name looks at weights.
    is_weighted: fn(&str) -> bool,
    version: TableVersion,
    nodes: Vec<Node>,
    steerers: Vec<([u8; 6], Steerer)>,
    services: Vec<skep_wire::steer::Service>,
    /// What the rows of each service were made of.
    rows: HashMap<u16, (u8, Vec<Vec<Member>>)>,
}

impl Applier {
    /// Nothing is told yet.
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
            steerers: Vec::new(),
            services: Vec::new(),
            rows: HashMap::new(),
        }
    }

    /// The table that the program goes by.
    pub fn version(&self) -> TableVersion {
        self.version
    }

    /// Makes the program go by `table`. Nodes come before the rows that name
    /// them, rows before the services that lead to them.
    pub fn apply(&mut self, table: &Table) -> Result<(), GuardError> {
        let nodes: Vec<Node> = table.nodes.iter().map(|node| self.node(node)).collect();
        if nodes != self.nodes {
            self.guard.ask(&Order::Nodes(self.side, nodes.clone()))?;
            self.nodes = nodes;
        }
        let steerers = self.steerers_of(table);
        if steerers != self.steerers {
            self.guard.ask(&Order::Steerers(self.side, steerers.clone()))?;
            self.steerers = steerers;
        }
        for service in &table.services {
            self.apply_rows(table, service)?;
        }
        let services: Vec<_> = table.services.iter().map(|service| service.service).collect();
        if services != self.services {
            self.guard.ask(&Order::Services(self.side, services.clone()))?;
            self.services = services;
        }
        self.version = table.version;
        Ok(())
    }

    fn apply_rows(&mut self, table: &Table, service: &TableService) -> Result<(), GuardError> {
        let (id, choices) = (service.service.id, service.service.choices);
        let mut memberships = table.members(service);
        if !(self.is_weighted)(service.policy.as_str()) {
            memberships.iter_mut().flatten().for_each(|member| member.weight = 1);
        }
        let told = self.rows.get(&id);
        if told.is_some_and(|(before, members)| (*before, members) == (choices, &memberships)) {
            return Ok(());
        }
        if self.side == Side::Dispatch {
            let weigh =
                |member: &Member| Load { node: member.index, weight: member.weight, load: 0 };
            let loads = memberships.first().into_iter().flatten().map(weigh).collect();
            self.guard.ask(&Order::Loads(id, loads))?;
        }
        self.guard.ask(&Order::Rows {
            side: self.side,
            service: id,
            choices,
            memberships: memberships.clone(),
        })?;
        self.rows.insert(id, (choices, memberships));
        Ok(())
    }

    fn node(&self, node: &skep_wire::table::TableNode) -> Node {
        Node {
            index: node.index,
            mac: node.mac,
            // The guard's own device.
            device_index: 0,
            mtu: node.mtu,
            state: node.state,
            is_local: node.mac == self.own_mac,
        }
    }

    /// Everybody whose frames have been steered already, but not this machine:
    /// what comes from it is a loop.
    fn steerers_of(&self, table: &Table) -> Vec<([u8; 6], Steerer)> {
        let dispatchers = table.dispatchers.iter().map(|&mac| (mac, Steerer::Dispatcher));
        let nodes = table.nodes.iter().map(|node| (node.mac, Steerer::Node));
        let mut steerers: Vec<_> = dispatchers
            .chain(nodes)
            .filter(|(mac, _)| *mac != self.own_mac && *mac != [0; 6])
            .collect();
        // A machine that is both is a node: what it hands on was handed on.
        steerers.sort_by_key(|(mac, steerer)| (*mac, *steerer == Steerer::Dispatcher));
        steerers.dedup_by_key(|(mac, _)| *mac);
        steerers
    }
}
