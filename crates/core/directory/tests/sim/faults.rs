//! Faults of the machines, and the conditions that must hold after all are repaired.

use std::collections::BTreeMap;

use skep_units::Now;

use crate::links::Conn;
use crate::node::Node;
use crate::scenario::Fault;
use crate::world::{Event, LEASES_MAX, World};

/// From the failure of an active coordinator to the next one's term.
const TAKEOVER_MS: u64 = 200;

impl World {
    pub(crate) fn befall(&mut self, fault: Fault) -> Result<(), String> {
        self.tell(|| format!("*** {fault:?}"));
        let at = self.at;
        match fault {
            Fault::Break(node, coordinator) => {
                if let Some(conn) = self.nodes[node].links.get(&coordinator).map(|it| it.conn) {
                    self.break_conn(conn);
                }
            }
            Fault::CrashNode(node) => self.crash_node(node),
            Fault::StartNode(node) => self.start_node(node),
            Fault::PauseNode(node, ms) => {
                let until = &mut self.nodes[node].paused_until;
                *until = (at + ms).max(*until);
            }
            Fault::CrashCoordinator(coordinator) => self.crash_coordinator(coordinator),
            Fault::StartCoordinator(coordinator) => self.start_coordinator(coordinator),
            Fault::PauseCoordinator(coordinator, ms) => {
                let until = &mut self.machines[coordinator].paused_until;
                *until = (at + ms).max(*until);
            }
            Fault::TakeOver(ms) => {
                let (old, new) = (self.active, (self.active + 1) % self.machines.len());
                let life = self.machines[old].life;
                if self.machines[new].is_alive {
                    self.begin_term(new);
                    self.schedule(at + ms, Event::StepDown { coordinator: old, life });
                    return self.deliver(new);
                }
            }
            Fault::Cut(a, b) => self.cuts.extend([(a, b), (b, a)]),
            Fault::Part(node, coordinator) => {
                self.parts.push((node, coordinator));
                return self.befall(Fault::Break(node, coordinator));
            }
            Fault::Heal => (self.cuts, self.parts) = (Vec::new(), Vec::new()),
            Fault::OriginFails(ms) => self.origin.fails_until = at + ms,
            Fault::OriginStalls(ms) => self.origin.stalls_until = at + ms,
            Fault::NewVersion(random) => {
                let object = (random % self.origin.objects.len() as u64) as usize;
                self.origin.objects[object].change(at, true);
            }
            Fault::Mend => self.mend(),
        }
        Ok(())
    }

    fn crash_node(&mut self, node: usize) {
        self.nodes[node].is_alive = false;
        let mine: Vec<u64> =
            self.conns.values().filter(|it| it.node == node).map(|it| it.id).collect();
        mine.into_iter().for_each(|conn| self.break_conn(conn));
        self.clients.retain(|_, client| client.node != node);
        self.purging.forget(node);
        self.break_streams(|stream| stream.server == node);
    }

    fn start_node(&mut self, node: usize) {
        if !self.nodes[node].is_alive {
            let Node { life, .. } = self.nodes[node];
            self.nodes[node] = Node::new(self.scenario.capacities[node], life + 1);
            self.connect_all(node);
        }
    }

    fn crash_coordinator(&mut self, coordinator: usize) {
        self.machines[coordinator].is_alive = false;
        let its: Vec<u64> = self
            .conns
            .values()
            .filter(|it| it.coordinator == coordinator)
            .map(|it| it.id)
            .collect();
        its.into_iter().for_each(|conn| self.break_conn(conn));
        self.schedule(self.at + TAKEOVER_MS, Event::TakeOver);
    }

    fn start_coordinator(&mut self, coordinator: usize) {
        if self.machines[coordinator].is_alive {
            return;
        }
        let life = self.machines[coordinator].life + 1;
        self.machines[coordinator] = self.machine(coordinator, life);
        self.check.restarted(coordinator, self.at);
        self.files.coordinator_started(self.at, coordinator);
        // Messages to the previous process are lost.
        let its = |conn: &&mut Conn| conn.coordinator == coordinator;
        let end = |conn: &mut Conn| (conn.link, conn.is_closed) = (None, true);
        self.conns.values_mut().filter(its).for_each(end);
        self.schedule(self.at, Event::Tick { coordinator, life });
        self.schedule(self.at + TAKEOVER_MS, Event::TakeOver);
    }

    fn mend(&mut self) {
        (self.cuts, self.parts) = (Vec::new(), Vec::new());
        (self.origin.fails_until, self.origin.stalls_until) = (0, 0);
        (0..self.machines.len()).for_each(|it| self.start_coordinator(it));
        (0..self.nodes.len()).for_each(|it| self.start_node(it));
        // Pauses end by themselves, so that links keep the order of messages.
    }

    // --- the end ---

    pub(crate) fn at_the_end(&mut self) -> Result<(), String> {
        if let Some((client, waits)) = self.clients.first_key_value() {
            return Err(format!("client {client} waits for ever: {waits:?}"));
        }
        if let Some(node) = self.nodes.iter().position(|node| !node.growing.is_empty()) {
            return Err(format!("n{node} still fetches"));
        }
        self.true_directories()?;
        self.all_files_known()?;
        self.all_purges_known()?;
        if self.scenario.is_calm() && self.totals.failed > 0 {
            return Err(format!("{} clients went without, and all was well", self.totals.failed));
        }
        let is_exact = self.scenario.is_calm() && self.scenario.is_roomy();
        if is_exact && self.origin.names.len() < LEASES_MAX {
            let (names, fills) = (self.origin.names.len() as u64, self.totals.fills);
            let chunks: usize = self.origin.names.values().map(|truth| truth.chunks()).sum();
            if fills != names || self.totals.origin_chunks != chunks as u64 {
                return Err(format!("{fills} fills of {names} segments, and all was well"));
            }
        }
        Ok(())
    }

    /// All directories must list exactly the current holders, except for entries that they had to
    /// forget.
    fn true_directories(&mut self) -> Result<(), String> {
        for (place, machine) in self.machines.iter_mut().enumerate() {
            // Sweep everything stale.
            (0..100).for_each(|_| machine.core.tick(Now(self.at)));
            let ids: BTreeMap<u16, usize> =
                machine.core.members().map(|it| (it.id, usize::from(it.address.port()))).collect();
            if ids.len() != self.nodes.len() {
                return Err(format!("c{place} knows {} nodes only", ids.len()));
            }
            let counters = machine.core.counters();
            let mut held = 0;
            let may_lack = counters.forgotten > 0 || counters.directory_errors > 0;
            for name in self.origin.names.keys() {
                for (id, node) in &ids {
                    let says = machine.core.holders(name).any(|holder| holder == *id);
                    let has = self.nodes[*node].memory.has(name);
                    held += u64::from(says);
                    if says && !has || has && !says && !may_lack {
                        return Err(format!("c{place}: n{node} holds {name:?}: {says}, not {has}"));
                    }
                }
            }
            if counters.holdings != held {
                return Err(format!("c{place} keeps what nobody holds: {held} of {counters:?}"));
            }
        }
        Ok(())
    }
}
