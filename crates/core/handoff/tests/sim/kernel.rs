//! A machine's kernel: its sockets, and the map of the packet program, which processes each packet
//! first.

use std::collections::BTreeMap;

/// A machine.
pub(crate) type Id = usize;
/// A connection of a client.
pub(crate) type Flow = usize;

/// Most times that a packet is redirected.
const HOPS_MAX: u8 = 8;

/// State of a machine that outlives its processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) sockets: BTreeMap<Flow, Socket>,
    /// Pinned: it outlives netguard.
    pub(crate) moves: BTreeMap<Flow, Entry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) is_in_repair: bool,
    pub(crate) receive_next: u32,
    pub(crate) send_next: u32,
    /// The start of the process that has a descriptor; 0 for none.
    pub(crate) process: u64,
    /// Whether netguard has a descriptor.
    pub(crate) is_held: bool,
    /// Whether it was last frozen here, and not created for a move to here.
    pub(crate) is_donors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Blocked; `behind` is where it was redirected to before.
    Blocked {
        behind: Option<Id>,
    },
    Redirect(Id),
}

/// A packet of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// One byte.
    Data {
        sequence: u32,
    },
    KeepAlive,
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped,
    /// Dropped by the filter of a socket in repair mode: its flow was not blocked.
    Filtered,
    /// Dropped because it was redirected too often.
    Circled,
    /// Redirected to this machine.
    PassedOn(Id, u8),
    /// Everything up to this was received.
    Acknowledged(u32),
    /// The connection is unknown.
    Reset,
}

impl Kernel {
    /// A packet arrives.
    ///
    /// # Errors
    /// A violation of an invariant.
    pub(crate) fn packet(
        &mut self,
        flow: Flow,
        packet: Packet,
        hops: u8,
    ) -> Result<Fate, &'static str> {
        match self.moves.get(&flow) {
            Some(Entry::Blocked { .. }) => return Ok(Fate::Dropped),
            // A cycle, which only crashes can cause, and which ends with the donor's reset.
            Some(_) if hops >= HOPS_MAX => return Ok(Fate::Circled),
            Some(&Entry::Redirect(to)) => return Ok(Fate::PassedOn(to, hops + 1)),
            None => {}
        }
        let Some(socket) = self.sockets.get_mut(&flow) else { return Ok(Fate::Reset) };
        if socket.is_in_repair {
            return Ok(Fate::Filtered);
        }
        if let Packet::Data { sequence } = packet {
            if sequence > socket.receive_next {
                return Err("a byte was acknowledged that this socket has not got");
            }
            socket.receive_next += u32::from(sequence == socket.receive_next);
        }
        Ok(Fate::Acknowledged(socket.receive_next))
    }

    /// Removes a block, and restores the entry behind it.
    pub(crate) fn unblock(&mut self, flow: Flow) {
        if let Some(&Entry::Blocked { behind }) = self.moves.get(&flow) {
            match behind {
                Some(to) => self.moves.insert(flow, Entry::Redirect(to)),
                None => self.moves.remove(&flow),
            };
        }
    }

    /// The connection of a flow is closed: a redirect of it is obsolete.
    pub(crate) fn forget(&mut self, flow: Flow) {
        self.unblock(flow);
        self.moves.remove(&flow);
    }

    /// Closes sockets of which neither the running `process` nor netguard has a descriptor; returns
    /// them.
    pub(crate) fn close(&mut self, process: Option<u64>) -> Vec<(Flow, Socket)> {
        let is_open = |socket: &Socket| Some(socket.process) == process || socket.is_held;
        let closed: Vec<Flow> =
            self.sockets.iter().filter(|it| !is_open(it.1)).map(|it| *it.0).collect();
        closed.into_iter().map(|flow| (flow, self.sockets.remove(&flow).unwrap())).collect()
    }
}
