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
//! Messages of a link come whole and in the order in which they were sent, or
//! the link is lost and a new one, with a number of its own, begins with nothing
//! said. The handler never waits: what it sends is appended to a buffer, and a
//! link whose buffer is full is lost.

mod carry;
mod handshake_permits;
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

/// The number of a link; never used again in this process's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How links are kept.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// This machine.
    pub identity: Identity,
    /// How often the handler gets [`LinkEvent::Tick`], in milliseconds; at least 1.
    pub tick_ms: u64,
    /// Milliseconds of silence after which this side says that it is alive.
    pub ping_ms: u64,
    /// Milliseconds of silence after which the other side counts as gone.
    pub silence_ms: u64,
    /// Bytes that may wait to be sent on one link.
    pub queue_bytes_max: usize,
    /// Links at a time.
    pub links_max: usize,
    /// Addresses of machines that are to link here: strangers do not take their
    /// places.
    pub members: Vec<IpAddr>,
}

/// What happened. `In` is what the other side says, `C` what other threads of
/// this process say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent<In, C> {
    /// A link begins. Nothing was said on it.
    Up {
        link: LinkId,
        /// Who is at its other end.
        peer: Name,
    },
    /// Something was said on a link.
    Received { link: LinkId, message: In },
    /// A link has ended. What was queued may or may not have arrived.
    Down {
        link: LinkId,
        /// Who was at its other end.
        peer: Name,
        why: Lost,
    },
    /// A link did not come about; it is tried again. Nodes only.
    Missed {
        /// With whom.
        peer: Name,
        why: Lost,
    },
    /// Another thread told something.
    Told(C),
    /// Time passes.
    Tick,
}

/// Why a link ended or did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// One side won't have the other.
    #[error(transparent)]
    Refused(#[from] HelloError),
    /// No connection, or no handshake, in time.
    #[error("no answer in time")]
    Late,
    /// What the system says.
    #[error("the connection failed: {0}")]
    Failed(io::ErrorKind),
    /// The other side closed it.
    #[error("closed by the other side")]
    Closed,
    /// Nothing came for too long.
    #[error("no data from the other side")]
    Silent,
    /// The other side took nothing for too long.
    #[error("the other side does not read")]
    Stalled,
    /// Too much waited to be sent.
    #[error("the send queue is full")]
    Overflow,
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// What came is no message.
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    /// The same machine has linked anew.
    #[error("replaced by a new connection of the same machine")]
    Replaced,
    /// The handler closed it, or its target is none any more.
    #[error("closed here")]
    Dropped,
}

/// A coordinator, for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget {
    /// Its name in the config; another machine at its address is refused.
    pub name: Name,
    /// Where it listens.
    pub address: SocketAddr,
}

/// What is said on links.
pub trait LinkMessage: Sized + 'static {
    /// Its bytes.
    fn to_payload(&self) -> Vec<u8>;

    /// The message that is `payload`.
    ///
    /// # Errors
    /// Bytes that are no such message.
    fn of_payload(payload: &[u8]) -> Result<Self, NotAMessage>;
}

impl LinkSettings {
    /// The usual settings for this machine.
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
