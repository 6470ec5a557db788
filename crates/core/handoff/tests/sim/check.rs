//! The invariants after every event, a second after the last fault, and at the end.

use crate::client::End;
use crate::kernel::{Entry, Flow, Id};
use crate::world::World;

impl World {
    /// After every event.
    pub(crate) fn check(&mut self) {
        for flow in 0..self.clients.len() {
            if self.clients[flow].end == End::Open
                && let Err(what) = self.check_flow(flow)
            {
                self.violate(format!("connection {flow}: {what}"));
            }
        }
    }

    fn check_flow(&self, flow: Flow) -> Result<(), String> {
        let client = &self.clients[flow];
        let mut owners = self.running(flow);
        let Some(owner) = owners.next() else { return Ok(()) };
        if let Some(other) = owners.next() {
            return Err(format!("two owners, {owner} and {other}"));
        }
        let kernel = &self.machines[owner].kernel;
        let socket = &kernel.sockets[&flow];
        if socket.receive_next < client.acknowledged || socket.send_next < client.received {
            return Err(format!("{owner} does not know all that the client does"));
        }
        match kernel.moves.get(&flow) {
            Some(entry) => Err(format!("its owner {owner} is not reached: {entry:?}")),
            None => Ok(()),
        }
    }

    /// Machines with a socket of the connection that may send.
    fn running(&self, flow: Flow) -> impl Iterator<Item = Id> + '_ {
        (0..self.machines.len()).filter(move |id| {
            self.machines[*id].kernel.sockets.get(&flow).is_some_and(|it| !it.is_in_repair)
        })
    }

    /// A second after the last fault.
    pub(crate) fn judge(&mut self) {
        for flow in 0..self.clients.len() {
            if self.clients[flow].end != End::Open {
                continue;
            }
            let owner = self.running(flow).next();
            let is_served =
                owner.is_some_and(|id| self.machines[id].process.serving.contains(&flow));
            if !is_served {
                self.violate(format!("connection {flow} is silent: nobody serves it"));
            }
        }
    }

    pub(crate) fn check_end(&mut self) {
        for flow in 0..self.clients.len() {
            if self.clients[flow].end == End::Open {
                self.violate(format!("connection {flow} has not ended: {:?}", self.clients[flow]));
            }
        }
        for id in 0..self.machines.len() {
            if self.machines[id].process.is_up {
                self.check_left(id);
            }
        }
    }

    /// No state of moves is left.
    fn check_left(&mut self, id: Id) {
        let machine = &self.machines[id];
        let (donor, receiver) = (&machine.process.donor, &machine.process.receiver);
        let (moving, coming) = (donor.in_flight(), receiver.in_flight());
        let is_left = moving + coming > 0 || !donor.is_idle();
        let in_repair = machine.kernel.sockets.iter().find(|it| it.1.is_in_repair || it.1.is_held);
        let in_repair = in_repair.map(|it| *it.0);
        let is_blocked = |it: &&Entry| matches!(it, Entry::Blocked { .. });
        let blocked = machine.kernel.moves.values().filter(is_blocked).count();
        if is_left || blocked > 0 || in_repair.is_some() {
            self.violate(format!(
                "{id} has {moving} moves away and {coming} to it, {blocked} blocked flows, and in repair \
                 mode {in_repair:?}"
            ));
        }
    }
}
