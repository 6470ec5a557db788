//! A machine's kernel: its sockets, and the map of the packet program, which looks at each packet first.

use std::collections::BTreeMap;

/// A machine.
pub(crate) type Id = usize;
/// A connection of a client.
pub(crate) type Flow = usize;

/// A packet is passed on so often at most.
const HOPS_MAX: u8 = 8;

/// What is left of a machine when its processes are gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) sockets: BTreeMap<Flow, Socket>,
    /// Pinned: netguard's end does not change it.
    pub(crate) moves: BTreeMap<Flow, Entry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) is_in_repair: bool,
    pub(crate) receive_next: u32,
    pub(crate) send_next: u32,
    /// The start of the process that has a descriptor; 0 is none.
    pub(crate) process: u64,
    /// Netguard has one.
    pub(crate) is_held: bool,
    /// It was frozen here last, and not created for a move to here.
    pub(crate) is_donors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// And where it was redirected to before.
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

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped,
    /// The same, by the filter of a socket in repair mode: nothing blocked its flow.
    Filtered,
    /// The same, as it came too often.
    Circled,
    /// To this machine.
    PassedOn(Id, u8),
    /// Everything up to this was received.
    Acknowledged(u32),
    /// Nobody knows the connection.
    Reset,
}

impl Kernel {
    /// A packet comes in.
    ///
    /// # Errors
    /// What must not happen.
    pub(crate) fn packet(
        &mut self,
        flow: Flow,
        packet: Packet,
        hops: u8,
    ) -> Result<Fate, &'static str> {
        match self.moves.get(&flow) {
            Some(Entry::Blocked { .. }) => return Ok(Fate::Dropped),
            // A circle, which can come of crashes only, and ends with the donor's reset.
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

    /// Removes a block, and puts back what stood behind it.
    pub(crate) fn unblock(&mut self, flow: Flow) {
        if let Some(&Entry::Blocked { behind }) = self.moves.get(&flow) {
            match behind {
                Some(to) => self.moves.insert(flow, Entry::Redirect(to)),
                None => self.moves.remove(&flow),
            };
        }
    }

    /// The connection of a flow is closed: a redirect of it leads to nobody.
    pub(crate) fn forget(&mut self, flow: Flow) {
        self.unblock(flow);
        self.moves.remove(&flow);
    }

    /// Closes sockets of which neither `process`, that runs, nor netguard has a descriptor; returns them.
    pub(crate) fn close(&mut self, process: Option<u64>) -> Vec<(Flow, Socket)> {
        let is_open = |socket: &Socket| Some(socket.process) == process || socket.is_held;
        let closed: Vec<Flow> =
            self.sockets.iter().filter(|it| !is_open(it.1)).map(|it| *it.0).collect();
        closed.into_iter().map(|flow| (flow, self.sockets.remove(&flow).unwrap())).collect()
    }
}
