//! LCCP, the control protocol of handoffs: the light-weight cluster control protocol of Doh and Noh ("Design
//! and Implementation of a Scalable Web Cluster System"), whose figure 3 has these fields: receptor, command,
//! data, socket id, handoff information.
//!
//! ```text
//!  0 receptor 4   4 command 4   8 data 4   12 incarnation 8   20 number 8
//! 28 socket id: family 1, then client address, client port 2, server address, server port 2
//!    handoff information ...
//! ```
//!
//! Family: 0 no socket id (and nothing after it), 4 with addresses of 4 bytes, 6 of 16. Numbers are
//! little-endian, addresses in the order of their bytes. Incarnation and number are those of the handoff
//! ([`HandoffId`]) or, of messages with a dispatcher, of what the node numbers there. Each message is the body
//! of one datagram, sealed ([`crate::seal`], [`Channel::Handoff`](crate::seal::Channel)).

use super::bytes::{Reader, write_socket};
use super::fragments::Fragment;
use super::{HandoffId, SocketId};
use crate::limits::{HANDOFF_FRAGMENT_BYTES, MOVED_FLOWS_MAX, MOVES_MAX, QUERY_BYTES_MAX};
use crate::seal::BODY_BYTES_MAX;
use crate::steer::{NO_NODE, NodeIndex, is_index};

/// Bytes before the handoff information, with an IPv6 socket id.
const HEAD_BYTES_MAX: usize = 28 + 1 + 2 * 18;

/// Which part of a machine a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Receptor {
    /// The receiver of a handoff.
    Receiver = 1,
    /// The donor of a handoff.
    Donor = 2,
    /// The active dispatcher.
    Dispatcher = 3,
    /// What a node asks and tells a dispatcher by.
    Distributor = 4,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lccp {
    pub id: HandoffId,
    pub command: LccpCommand,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LccpCommand {
    /// Donor to receiver: take this connection. It is frozen and blocked here.
    Offer(SocketId, Fragment),
    /// Receiver to donor: the connection is restored here, silent and blocked.
    Ready(SocketId),
    /// Receiver to donor: it is not, and will not be.
    Refuse(SocketId, RefuseCause),
    /// Donor to receiver: the connection is yours.
    Go(SocketId),
    /// Receiver to donor: it is served here.
    Done(SocketId),
    /// Receiver to donor: it is not here, and will not be: it was closed, or this process does not know it.
    Gone(SocketId),
    /// Donor to receiver: the connection stays with the donor.
    Abort(SocketId),
    /// Receiver to donor: understood, whatever comes later.
    Aborted(SocketId),
    /// Node to dispatcher: flows that are with another node now. At most [`MOVED_FLOWS_MAX`].
    Moved(Vec<MovedFlow>),
    /// Dispatcher to node: a batch of those was taken.
    MovedTaken,
    /// Node to dispatcher: who should answer this request?
    Query(SocketId, QueryKey),
    /// Dispatcher to node: that one; `None`: the present owner.
    Decision(SocketId, Option<NodeIndex>),
}

/// A flow, and the node that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedFlow {
    pub socket: SocketId,
    pub node: NodeIndex,
    /// Moves of the connection with that to this node: of two reports the one of more moves is the later one.
    pub moves: u8,
}

/// What policies know of a request, beside its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryKey {
    host: Box<[u8]>,
    target: Box<[u8]>,
}

/// Why a receiver does not take a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum RefuseCause {
    /// It has as many moves in flight as it takes.
    Full = 1,
    /// It is about to stop, or does not serve that address.
    NotServing = 2,
    /// The same connection is in another handoff here.
    Busy = 3,
    /// Its netguard did not make the socket.
    Netguard = 4,
    /// The kernel did not restore the connection.
    Restore = 5,
    /// The offer came, or was restored, too late to be taken.
    Late = 6,
    /// The handoff information is none.
    Malformed = 7,
}

/// Bytes are no message, or one that is beyond its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no LCCP message")]
pub struct NotLccp;

impl RefuseCause {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Full,
        Self::NotServing,
        Self::Busy,
        Self::Netguard,
        Self::Restore,
        Self::Late,
        Self::Malformed,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NotServing => "not_serving",
            Self::Busy => "busy",
            Self::Netguard => "netguard",
            Self::Restore => "restore",
            Self::Late => "late",
            Self::Malformed => "malformed",
        }
    }
}

impl QueryKey {
    /// The key of a request, by its `Host` and its target (path and query). `None`: it is too long to be
    /// asked about.
    pub fn new(host: &[u8], target: &[u8]) -> Option<Self> {
        let fits = host.len() + target.len() <= QUERY_BYTES_MAX;
        fits.then(|| Self { host: host.into(), target: target.into() })
    }

    pub fn host(&self) -> &[u8] {
        &self.host
    }

    pub fn target(&self) -> &[u8] {
        &self.target
    }
}

impl LccpCommand {
    /// The part of a machine that it is for.
    pub fn receptor(&self) -> Receptor {
        match self {
            Self::Offer(..) | Self::Go(_) | Self::Abort(_) => Receptor::Receiver,
            Self::Ready(_)
            | Self::Refuse(..)
            | Self::Done(_)
            | Self::Gone(_)
            | Self::Aborted(_) => Receptor::Donor,
            Self::Moved(_) | Self::Query(..) => Receptor::Dispatcher,
            Self::MovedTaken | Self::Decision(..) => Receptor::Distributor,
        }
    }

    /// The connection that it is about.
    pub fn socket(&self) -> Option<&SocketId> {
        match self {
            Self::Offer(socket, _)
            | Self::Ready(socket)
            | Self::Refuse(socket, _)
            | Self::Go(socket)
            | Self::Done(socket)
            | Self::Gone(socket)
            | Self::Abort(socket)
            | Self::Aborted(socket)
            | Self::Query(socket, _)
            | Self::Decision(socket, _) => Some(socket),
            Self::Moved(_) | Self::MovedTaken => None,
        }
    }

    /// Its number on the wire, and its data.
    fn number_and_data(&self) -> (u32, u32) {
        match self {
            Self::Offer(_, Fragment { index, count, .. }) => {
                (1, u32::from(*index) | u32::from(*count) << 16)
            }
            Self::Ready(_) => (2, 0),
            Self::Refuse(_, cause) => (3, *cause as u32),
            Self::Go(_) => (4, 0),
            Self::Done(_) => (5, 0),
            Self::Gone(_) => (6, 0),
            Self::Abort(_) => (7, 0),
            Self::Aborted(_) => (8, 0),
            Self::Moved(flows) => (9, flows.len() as u32),
            Self::MovedTaken => (10, 0),
            Self::Query(_, key) => (11, key.host.len() as u32),
            Self::Decision(_, node) => (12, u32::from(node.unwrap_or(NO_NODE))),
        }
    }

    fn write_information(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Offer(_, fragment) => bytes.extend_from_slice(&fragment.bytes),
            Self::Moved(flows) => flows.iter().for_each(|flow| flow.write(bytes)),
            Self::Query(_, key) => {
                bytes.extend_from_slice(&key.host);
                bytes.extend_from_slice(&key.target);
            }
            _ => {}
        }
    }

    /// The command of that number. `socket` and the information must be those that it has.
    fn read(
        number: u32,
        data: u32,
        socket: Option<SocketId>,
        from: &mut Reader<'_>,
    ) -> Option<Self> {
        let without_data = |command: Self| (data == 0).then_some(command);
        match (number, socket) {
            (1, Some(socket)) => {
                let (index, count) = (data as u16, (data >> 16) as u16);
                let fragment = Fragment::new(index, count, from.take(from.0.len())?)?;
                Some(Self::Offer(socket, fragment))
            }
            (2, Some(socket)) => without_data(Self::Ready(socket)),
            (3, Some(socket)) => {
                let cause = RefuseCause::ALL.into_iter().find(|cause| *cause as u32 == data)?;
                Some(Self::Refuse(socket, cause))
            }
            (4, Some(socket)) => without_data(Self::Go(socket)),
            (5, Some(socket)) => without_data(Self::Done(socket)),
            (6, Some(socket)) => without_data(Self::Gone(socket)),
            (7, Some(socket)) => without_data(Self::Abort(socket)),
            (8, Some(socket)) => without_data(Self::Aborted(socket)),
            (9, None) => {
                let count = usize::try_from(data).ok().filter(|it| *it <= MOVED_FLOWS_MAX)?;
                let flows = (0..count).map(|_| MovedFlow::read(from)).collect::<Option<_>>()?;
                Some(Self::Moved(flows))
            }
            (10, None) => without_data(Self::MovedTaken),
            (11, Some(socket)) => {
                let host = from.take(usize::try_from(data).ok()?)?;
                let key = QueryKey::new(host, from.take(from.0.len())?)?;
                Some(Self::Query(socket, key))
            }
            (12, Some(socket)) => {
                let node = NodeIndex::try_from(data).ok()?;
                let is_known = node == NO_NODE || is_index(node);
                is_known.then_some(Self::Decision(socket, (node != NO_NODE).then_some(node)))
            }
            _ => None,
        }
    }
}

impl MovedFlow {
    fn write(&self, bytes: &mut Vec<u8>) {
        write_socket(Some(&self.socket), bytes);
        bytes.extend_from_slice(&self.node.to_le_bytes());
        bytes.push(self.moves);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let flow = Self { socket: from.socket()??, node: from.u16()?, moves: from.u8()? };
        (is_index(flow.node) && (1..=MOVES_MAX).contains(&flow.moves)).then_some(flow)
    }
}

impl Lccp {
    /// Its bytes, which fit a datagram.
    pub fn encode(&self) -> Vec<u8> {
        let (command, data) = self.command.number_and_data();
        let mut bytes = Vec::with_capacity(128);
        for number in [self.command.receptor() as u32, command, data] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.id.incarnation.to_le_bytes());
        bytes.extend_from_slice(&self.id.number.to_le_bytes());
        write_socket(self.command.socket(), &mut bytes);
        self.command.write_information(&mut bytes);
        debug_assert!(bytes.len() <= BODY_BYTES_MAX, "{} bytes of {self:?}", bytes.len());
        bytes
    }

    /// The message that is `bytes`, all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotLccp> {
        let mut reader = Reader(bytes);
        let message = Self::read(&mut reader).ok_or(NotLccp)?;
        if reader.0.is_empty() { Ok(message) } else { Err(NotLccp) }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (receptor, command, data) = (from.u32()?, from.u32()?, from.u32()?);
        let id = HandoffId { incarnation: from.u64()?, number: from.u64()? };
        let socket = from.socket()?;
        let command = LccpCommand::read(command, data, socket, from)?;
        let is_known = id.number > 0 && command.receptor() as u32 == receptor;
        is_known.then_some(Self { id, command })
    }
}

const _: () = assert!(HEAD_BYTES_MAX + HANDOFF_FRAGMENT_BYTES <= BODY_BYTES_MAX);
const _: () = assert!(29 + MOVED_FLOWS_MAX * (37 + 3) <= BODY_BYTES_MAX);
const _: () = assert!(HEAD_BYTES_MAX + QUERY_BYTES_MAX <= BODY_BYTES_MAX);
