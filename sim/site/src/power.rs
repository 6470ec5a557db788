//! Nodes that are started and stopped by the live controller.
//!
//! **Invariant:** a node is stopped only if it has no request, no node fetches from it, and everything that
//! no other node has was handed over, as far as others have room.

use skep_cluster::elasticity::{NodeObservation, Observed, PowerOrder};
use skep_units::{NodeId, Now};

use crate::limits::NS_PER_MS;
use crate::power_table::SimulatedPower;
use crate::world::{Event, Transfer, World};

impl World<'_> {
    pub(crate) fn start_elasticity(&mut self) {
        let Some(power) = &mut self.power else { return };
        power.note_count(0);
        for node in 0..power.nodes.len() as u32 {
            let is_on = power.nodes[node as usize].since_ns().is_some();
            let share = is_on.then_some(1_000);
            self.choosers.iter_mut().for_each(|chooser| chooser.set_share(node, share));
        }
        self.events.schedule(0, Event::Elasticity);
    }

    pub(crate) fn tick_elasticity(&mut self, now: u64) {
        let seen = self.observe(now);
        let is_going_on = self.is_going_on(now);
        let Some(power) = &mut self.power else { return };
        if !is_going_on {
            power.end(now);
            self.outcome.elastic = Some(power.outcome.clone());
            return;
        }
        let orders = power.controller.tick(Now(now / NS_PER_MS), &seen).orders;
        let next = now + power.tick_ns();
        for order in orders {
            match order {
                PowerOrder::Start(node) => self.start_node(now, node.0),
                PowerOrder::Drain(node) => self.drain_node(now, node.0),
                PowerOrder::Stop(node) => self.stop_node(now, node.0),
            }
        }
        self.raise_shares(now);
        self.events.schedule(next, Event::Elasticity);
    }

    /// A started node begins to serve.
    pub(crate) fn booted(&mut self, now: u64, node: u32) {
        let Some(power) = &mut self.power else { return };
        let state = &mut power.nodes[node as usize];
        let SimulatedPower::Booting(since_ns) = *state else { return };
        *state = SimulatedPower::On { since_ns, served_ns: now };
        power.note_count(now);
        self.raise_shares(now);
    }

    /// A segment that was handed over has reached another node.
    pub(crate) fn handed_over(&mut self, now: u64, node: u32) {
        let Some(power) = &mut self.power else { return };
        let SimulatedPower::Draining { moving, .. } = &mut power.nodes[node as usize] else {
            return;
        };
        let Some((segment, bytes, to)) = moving.take() else { return };
        self.outcome.totals.peer_bytes += bytes;
        power.outcome.handed_over_bytes += bytes;
        if !self.memories.holders(segment).contains(&to) {
            self.keep(now, to, segment, bytes);
        }
        self.hand_over(now, node);
    }

    fn observe(&self, now: u64) -> Vec<NodeObservation> {
        let Some(power) = &self.power else { return Vec::new() };
        let seen = |(node, state): (u32, &SimulatedPower)| {
            let virtual_bytes = self.rates[node as usize].virtual_bytes(now);
            let works = self.choosers.iter().map(|it| it.own_work(node, virtual_bytes));
            let work = works.reduce(skep_policy::Work::plus).unwrap_or_default();
            let is_handed_over = matches!(state, SimulatedPower::Draining { left, moving, .. }
                if left.is_empty() && moving.is_none());
            let fetches = &self.fetches;
            let is_fetching = fetches.peer_bytes[node as usize] > 0
                || !fetches.of_nodes[node as usize].is_empty();
            NodeObservation {
                id: NodeId(node),
                observed: match state {
                    SimulatedPower::Off => Observed::Off,
                    SimulatedPower::Booting(_) => Observed::Silent,
                    SimulatedPower::On { .. } | SimulatedPower::Draining { .. } => Observed::Ready,
                },
                is_held: false,
                is_idle: is_handed_over && work.requests == 0 && !is_fetching,
                order_failed: false,
                requests: work.requests,
                bytes: work.bytes,
            }
        };
        (0..).zip(&power.nodes).map(seen).collect()
    }

    fn start_node(&mut self, now: u64, node: u32) {
        let Some(power) = &mut self.power else { return };
        let state = &mut power.nodes[node as usize];
        match state.since_ns() {
            None => {
                *state = SimulatedPower::Booting(now);
                power.outcome.starts += 1;
                let at = now + power.elastic.start_ms * NS_PER_MS;
                self.events.schedule(at, Event::Booted(node));
            }
            Some(since_ns) => {
                // Its memory is warm, so it gets its full share at once.
                *state = SimulatedPower::On { since_ns, served_ns: 0 };
                power.note_count(now);
            }
        }
    }

    fn drain_node(&mut self, now: u64, node: u32) {
        let left = self.memories.sole(node).into();
        let Some(power) = &mut self.power else { return };
        let state = &mut power.nodes[node as usize];
        let Some(since_ns) = state.since_ns() else { return };
        *state = SimulatedPower::Draining { since_ns, left, moving: None };
        power.note_count(now);
        self.choosers.iter_mut().for_each(|chooser| chooser.set_share(node, None));
        self.hand_over(now, node);
    }

    fn stop_node(&mut self, now: u64, node: u32) {
        let lost_bytes = self.memories.sole_bytes(node);
        self.memories.clear(node);
        let Some(power) = &mut self.power else { return };
        power.outcome.lost_bytes += lost_bytes;
        let state = std::mem::replace(&mut power.nodes[node as usize], SimulatedPower::Off);
        power.on_ns += state.since_ns().map_or(0, |since_ns| now - since_ns);
        power.outcome.stops += 1;
    }

    /// Sends the next segment that no other node has to the node with most room.
    fn hand_over(&mut self, now: u64, node: u32) {
        let Some(power) = &mut self.power else { return };
        let serving: Vec<u32> = power.serving().collect();
        let SimulatedPower::Draining { left, moving, .. } = &mut power.nodes[node as usize] else {
            return;
        };
        while let Some((segment, bytes)) = left.pop_front() {
            // Others may have fetched it meanwhile, or it may have been evicted.
            if self.memories.holders(segment) != [node] {
                continue;
            }
            let Some(to) = self.memories.roomiest(serving.iter().copied(), bytes) else {
                continue;
            };
            *moving = Some((segment, bytes, to));
            return self.transfer(now, node as usize, bytes, Transfer::HandOver(node));
        }
    }

    /// Raises the shares of nodes in slow start.
    fn raise_shares(&mut self, now: u64) {
        let Some(power) = &self.power else { return };
        let slow_start_ns = power.elastic.slow_start_ms * NS_PER_MS;
        for (node, state) in (0..).zip(&power.nodes) {
            let SimulatedPower::On { served_ns, .. } = *state else { continue };
            let passed_ns = now - served_ns;
            let share = match served_ns {
                0 => 1_000,
                _ if passed_ns >= slow_start_ns => 1_000,
                _ => (passed_ns * 1_000 / slow_start_ns).max(1) as u16,
            };
            self.choosers.iter_mut().for_each(|chooser| chooser.set_share(node, Some(share)));
        }
    }
}
