//! Another node.

use std::net::SocketAddr;

use skep_peer::stream::LinkId;
use skep_wire::cache::PurgeStamp;
use skep_wire::cache::link::MemberId;
use skep_wire::seal::PeerId;

/// Another node, as identified by a coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerNode {
    pub(crate) id: PeerId,
    pub(crate) address: SocketAddr,
    /// The link to the coordinator that numbered it; `member` is that number.
    pub(crate) link: LinkId,
    pub(crate) member: MemberId,
}

/// Nodes are equal regardless of the coordinator that named them.
impl PartialEq for PeerNode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// The head of an origin's object, as sent from node to node.
#[derive(Debug)]
pub(crate) struct PeerHead {
    /// Time for which the receiver may use it without revalidation, in milliseconds.
    pub(crate) fresh_ms: u64,
    /// Its latest soft purge known before it was fetched.
    pub(crate) softly_purged: PurgeStamp,
    pub(crate) head: Vec<u8>,
}
