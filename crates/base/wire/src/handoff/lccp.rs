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
//! Family: 0 for no socket id (and nothing after it), 4 with addresses of 4 bytes, 6 with addresses
//! of 16. Numbers are little-endian, addresses in network order. Incarnation and number are those
//! of the handoff ([`HandoffId`]) or, in messages with a dispatcher, those of the node's numbering
//! there. Each message is the body of one datagram, sealed ([`crate::seal`],
//! [`Channel::Handoff`](crate::seal::Channel)).

use super::bytes::{Reader, write_socket};
use super::fragments::Fragment;
use super::{HandoffId, SocketId};
use crate::limits::{HANDOFF_FRAGMENT_BYTES, MOVED_FLOWS_MAX, MOVES_MAX, QUERY_BYTES_MAX};
use crate::seal::BODY_BYTES_MAX;
use crate::steer::{NO_NODE, NodeIndex, is_index};

/// Bytes before the handoff information, with an IPv6 socket id.
const HEAD_BYTES_MAX: usize = 28 + 1 + 2 * 18;

/// The component of a machine that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Receptor {
    /// The receiver of a handoff.
    Receiver = 1,
    /// The donor of a handoff.
    Donor = 2,
    /// The active dispatcher.
    Dispatcher = 3,
    /// The node's component that sends queries and reports to a dispatcher.
    Distributor = 4,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lccp {
    pub id: HandoffId,
    pub command: LccpCommand,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LccpCommand {
    /// Donor to receiver: take this connection. It is frozen and blocked at the donor.
    Offer(SocketId, Fragment),
    /// Receiver to donor: the connection is restored at the receiver, silent and blocked.
    Ready(SocketId),
    /// Receiver to donor: the connection is not restored, and will not be.
    Refuse(SocketId, RefuseCause),
    /// Donor to receiver: the connection is yours.
    Go(SocketId),
    /// Receiver to donor: the connection is served at the receiver.
    Done(SocketId),
    /// Receiver to donor: the connection is not here and will not be: it was closed, or this
    /// process does not know it.
    Gone(SocketId),
    /// Donor to receiver: the connection stays with the donor.
    Abort(SocketId),
    /// Receiver to donor: the abort is acknowledged, whatever arrives later.
    Aborted(SocketId),
    /// Node to dispatcher: flows that now belong to another node. At most [`MOVED_FLOWS_MAX`].
    Moved(Vec<MovedFlow>),
    /// Dispatcher to node: a batch of moved flows was received.
    MovedTaken,
    /// Node to dispatcher: requests the node that should answer this request.
    Query(SocketId, QueryKey),
    /// Dispatcher to node: that node; `None` for the present owner.
    Decision(SocketId, Option<NodeIndex>),
}

/// A flow, and its present node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedFlow {
    pub socket: SocketId,
    pub node: NodeIndex,
    /// Moves of the connection including the move to this node: of two reports, the one with more
    /// moves is later.
    pub moves: u8,
}

/// What policies use of a request besides its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryKey {
    host: Box<[u8]>,
    target: Box<[u8]>,
}

/// Why a receiver refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum RefuseCause {
    /// It has the maximum number of moves in flight.
    Full = 1,
    /// It is about to stop, or does not serve that address.
    NotServing = 2,
    /// The same connection is in another handoff here.
    Busy = 3,
    /// Its netguard did not make the socket.
    Netguard = 4,
    /// The kernel failed to restore the connection.
    Restore = 5,
    /// The offer arrived, or was restored, too late to be accepted.
    Late = 6,
    /// The handoff information is invalid.
    Malformed = 7,
}

/// The bytes are not an LCCP message, or it exceeds its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no LCCP message")]
pub struct NotLccp;

impl RefuseCause {
    /// All causes, in the order of their numbers.
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
    /// The key of a request, from its `Host` and its target (path and query); `None` if it is too
    /// long for a query.
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
    /// The component of a machine that the command is for.
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

    /// The connection that the command concerns.
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

    /// The number of the command on the wire, and its data.
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

    /// Reads the command with that number. `socket` and the information must match the command.
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
    /// Encodes the message, which fits a datagram.
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

    /// Decodes the message that occupies all of `bytes`.
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
