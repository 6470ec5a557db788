//! Links between nodes and coordinators: one thread for all links of a process,
//! in which the role's state machine runs.
//!
//! ```text
//!   other threads --- commands (bounded) ---+
//!                                           v
//!   socket --> frames --> LinkEvent --> handler(event, &mut Outbox)
//!   socket <-- one buffer of bytes per link <-- Outbox::send
//! ```
//!
//! Messages of a link arrive complete and in the order in which they were sent, or the link is lost
//! and a new one, with a new number, starts without state. The handler never waits: its messages
//! are appended to a buffer, and a link whose buffer is full is lost.

mod carry;
mod hub;
mod node;
mod server;
mod thread;

use std::io;
use std::net::{IpAddr, SocketAddr};

use skep_wire::cache::{FrameError, HelloError, Identity, ToCoordinator, ToNode};
use skep_wire::message::{Name, NotAMessage};

use crate::limits::{LINK_QUEUE_BYTES_MAX, PING_MS, SILENCE_MS};
pub use hub::Outbox;
pub use node::NodeLinks;
pub use server::LinkServer;
pub use thread::{CommandSender, NotSent};

/// The number of a link; never reused by this process's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Settings of links.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// This machine.
    pub identity: Identity,
    /// How often the handler gets [`LinkEvent::Tick`], in milliseconds; at least 1.
    pub tick_ms: u64,
    /// Milliseconds of silence after which this side sends a keepalive.
    pub ping_ms: u64,
    /// Milliseconds of silence after which the other side is considered dead.
    pub silence_ms: u64,
    /// Maximum number of bytes that may be queued on one link.
    pub queue_bytes_max: usize,
    /// Maximum number of links.
    pub links_max: usize,
    /// Addresses of machines that may link here: their handshakes have reserved permits.
    pub members: Vec<IpAddr>,
}

/// An event. `In` is a message of the other side, `C` a command of another thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent<In, C> {
    /// A link starts. No message has been sent on it.
    Up {
        link: LinkId,
        /// The machine at its other end.
        peer: Name,
    },
    /// A message arrived on a link.
    Received { link: LinkId, message: In },
    /// A link has ended. Queued messages may or may not have arrived.
    Down {
        link: LinkId,
        /// The machine at its other end.
        peer: Name,
        why: Lost,
    },
    /// A link could not be established, and will be retried. Nodes only.
    Missed {
        /// The intended peer.
        peer: Name,
        why: Lost,
    },
    /// A command from another thread.
    Told(C),
    /// A periodic tick.
    Tick,
}

/// Why a link ended or could not be established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// One side refuses the other.
    #[error(transparent)]
    Refused(#[from] HelloError),
    /// The connection or the handshake timed out.
    #[error("no answer in time")]
    Late,
    /// The system's error.
    #[error("the connection failed: {0}")]
    Failed(io::ErrorKind),
    /// The other side closed the link.
    #[error("closed by the other side")]
    Closed,
    /// The other side was silent for too long.
    #[error("no data from the other side")]
    Silent,
    /// The other side accepted no bytes for too long.
    #[error("the other side does not read")]
    Stalled,
    /// Too many bytes were queued.
    #[error("the send queue is full")]
    Overflow,
    /// The bytes are not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The bytes are not a valid message.
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    /// The same machine has linked again.
    #[error("replaced by a new connection of the same machine")]
    Replaced,
    /// The handler closed the link, or its target was removed.
    #[error("closed here")]
    Dropped,
}

/// A coordinator to which a node keeps a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget {
    /// Its name in the config; another machine at its address is refused.
    pub name: Name,
    /// Its listening address.
    pub address: SocketAddr,
}

/// A message on links.
pub trait LinkMessage: Sized + 'static {
    /// Its bytes.
    fn to_payload(&self) -> Vec<u8>;

    /// Decodes a message.
    ///
    /// # Errors
    /// Bytes that are not a valid message.
    fn of_payload(payload: &[u8]) -> Result<Self, NotAMessage>;
}

impl LinkSettings {
    /// The default settings for this machine.
    pub fn new(identity: Identity, tick_ms: u64) -> Self {
        Self {
            identity,
            tick_ms,
            ping_ms: PING_MS,
            silence_ms: SILENCE_MS,
            queue_bytes_max: LINK_QUEUE_BYTES_MAX,
            links_max: skep_wire::limits::MEMBERS_MAX,
            members: Vec::new(),
        }
    }
}

impl LinkMessage for ToCoordinator {
    fn to_payload(&self) -> Vec<u8> {
        self.encode()
    }

    fn of_payload(payload: &[u8]) -> Result<Self, NotAMessage> {
        Self::decode(payload)
    }
}

impl LinkMessage for ToNode {
    fn to_payload(&self) -> Vec<u8> {
        self.encode()
    }

    fn of_payload(payload: &[u8]) -> Result<Self, NotAMessage> {
        Self::decode(payload)
    }
}
