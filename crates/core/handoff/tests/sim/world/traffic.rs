//! Clients and their packets, and the processes that serve them.

use skep_handoff::MoveTarget;
use skep_wire::handoff::lccp::{Lccp, LccpCommand};
use skep_wire::seal::PeerId;

use super::actions::{flow_of, socket};
use super::{Event, World};
use crate::client::{Client, End};
use crate::kernel::{Fate, Flow, Id, Packet, Socket};
use crate::scenario::FAULTS_END_MS;

/// Most moves of one connection.
const MOVES_MAX: u8 = 8;

impl World {
    /// One of the machines accepts a client's connection.
    pub(crate) fn connect_client(&mut self, flow: Flow) {
        let at = self.rng.below(self.machines.len() as u64) as Id;
        let mut client = Client::new(at, &mut self.rng);
        client.request(&mut self.rng);
        self.clients.push(client);
        let socket = Socket {
            is_in_repair: false,
            receive_next: 0,
            send_next: 0,
            process: 1,
            is_held: false,
            is_donors: false,
        };
        self.machines[at].kernel.sockets.insert(flow, socket);
        self.serve(at, flow);
        let wait = self.rng.below(1_500);
        self.after(wait, Event::Client(flow));
    }

    /// The next step of a client.
    pub(crate) fn client(&mut self, flow: Flow) {
        let client = &mut self.clients[flow];
        if client.end != End::Open {
            return;
        }
        if client.received == client.wanted && client.acknowledged == client.sent {
            if client.requests_left == 0 {
                client.end = End::Served;
                return;
            }
            client.request(&mut self.rng);
        }
        let client = &self.clients[flow];
        if client.acknowledged < client.sent {
            let packet = Packet::Data { sequence: client.acknowledged };
            self.send_packet(flow, packet, true);
        }
        let wait = 3 + self.rng.below(10);
        self.after(wait, Event::Client(flow));
    }

    /// Ends connections that have lost both process and netguard: only a packet can.
    pub(crate) fn probe(&mut self) {
        for flow in 0..self.clients.len() {
            if self.clients[flow].is_bereft && self.clients[flow].end == End::Open {
                self.send_packet(flow, Packet::KeepAlive, false);
            }
        }
    }

    fn send_packet(&mut self, flow: Flow, packet: Packet, may_be_lost: bool) {
        let wait = self.rng.below(3);
        if !(may_be_lost && self.rng.below(20) == 0) {
            let at = self.clients[flow].steered_to;
            self.after(wait, Event::Packet { at, flow, packet, hops: 0 });
        }
    }

    /// A client's packet arrives at a machine.
    pub(crate) fn packet(&mut self, at: Id, flow: Flow, packet: Packet, hops: u8) {
        let fate = match self.machines[at].kernel.packet(flow, packet, hops) {
            Ok(fate) => fate,
            Err(_) if self.clients[flow].end != End::Open => return,
            Err(what) => return self.violate(format!("connection {flow} at {at}: {what}")),
        };
        match fate {
            Fate::Dropped => self.totals.blocked += 1,
            Fate::Filtered if self.scenario.may_be_unblocked() => self.totals.filtered += 1,
            Fate::Filtered => self.violate("a packet reaches a socket in repair mode"),
            Fate::Circled => self.violate("a packet goes round in circles"),
            Fate::PassedOn(to, hops) => {
                self.totals.passed_on += 1;
                let wait = self.rng.below(2);
                self.after(wait, Event::Packet { at: to, flow, packet, hops });
            }
            Fate::Acknowledged(sequence) => {
                let wait = self.delay_to_client(flow);
                self.after(wait, Event::Acknowledged { flow, sequence });
            }
            Fate::Reset => self.send_rst(flow, None),
        }
    }

    pub(crate) fn send_rst(&mut self, flow: Flow, sequence: Option<u32>) {
        let wait = self.delay_to_client(flow);
        self.after(wait, Event::Rst { flow, sequence });
    }

    /// Delay of a packet to a client, which arrives after all earlier ones.
    fn delay_to_client(&mut self, flow: Flow) -> u64 {
        let due = self.now + self.rng.below(3);
        let at = &mut self.clients[flow].to_client_at;
        *at = due.max(*at);
        *at - self.now
    }

    pub(crate) fn rst(&mut self, flow: Flow, sequence: Option<u32>) {
        let client = &mut self.clients[flow];
        let received = client.received;
        if !client.rst(sequence.unwrap_or(received)) {
            return;
        }
        let is_touched = client.is_touched;
        if self.scenario.is_calm() || self.scenario.has_only_crashes() && !is_touched {
            self.violate(format!("connection {flow} is closed for no reason"));
        }
    }

    /// The dispatcher receives a report of moved flows.
    pub(crate) fn dispatcher_hears(&mut self, from: Id, message: &Lccp) {
        if let LccpCommand::Moved(flows) = &message.command {
            let now = self.now();
            for flow in self.learned.take(now, flows) {
                self.clients[flow_of(flow.socket)].steered_to = usize::from(flow.node);
            }
            let taken = Lccp { id: message.id, command: LccpCommand::MovedTaken };
            self.post(self.machines.len(), from, &taken);
        }
    }

    /// The process works on a connection that it serves.
    pub(crate) fn app(&mut self, at: Id, process: u64, flow: Flow) {
        if !self.is_current(at, process) || !self.machines[at].process.serving.contains(&flow) {
            return;
        }
        let Some(socket) = self.machines[at].kernel.sockets.get_mut(&flow) else { return };
        let client = &mut self.clients[flow];
        if client.end != End::Open {
            return;
        }
        let has_head = socket.receive_next > client.request_begins;
        let may_move =
            has_head && client.decided != client.sent && socket.send_next == client.received;
        if may_move {
            client.decided = client.sent;
            if self.begin_move(at, flow) {
                return;
            }
        } else if socket.receive_next == client.sent && socket.send_next < client.wanted {
            let sequence = socket.send_next;
            socket.send_next += 1;
            let wait = self.delay_to_client(flow);
            self.after(wait, Event::Reply { flow, sequence });
        }
        let wait = 1 + self.rng.below(3);
        self.after(wait, Event::App { at, process, flow });
    }

    /// Decides which node answers; returns whether a move there begins.
    fn begin_move(&mut self, at: Id, flow: Flow) -> bool {
        let to = self.rng.below(self.machines.len() as u64) as Id;
        let is_calm = self.now >= FAULTS_END_MS || self.clients[flow].moves >= MOVES_MAX;
        if to == at || is_calm {
            return false;
        }
        let target = MoveTarget { peer: PeerId(to as u64), node: to as u16 };
        let process = &mut self.machines[at].process;
        let Ok(id) = process.donor.begin(socket(flow), target) else { return false };
        process.serving.remove(&flow);
        process.moving.insert(id, (flow, to, self.now));
        self.clients[flow].moves += 1;
        let has_been_there = self.machines[to].kernel.moves.contains_key(&flow);
        self.totals.came_home += u64::from(has_been_there);
        self.drive(at);
        true
    }
}
