//! Another node.

use std::net::SocketAddr;

use skep_peer::stream::LinkId;
use skep_wire::cache::PurgeStamp;
use skep_wire::cache::link::MemberId;
use skep_wire::seal::PeerId;

/// Another node, as a coordinator named it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerNode {
    pub(crate) id: PeerId,
    pub(crate) address: SocketAddr,
    /// The link whose coordinator numbered it, and its number there.
    pub(crate) link: LinkId,
    pub(crate) member: MemberId,
}

/// A node is the same whichever coordinator names it.
impl PartialEq for PeerNode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// The head of an origin's object, as sent from node to node.
#[derive(Debug)]
pub(crate) struct PeerHead {
    /// How long it may be used there without revalidation, in milliseconds.
    pub(crate) fresh_ms: u64,
    /// The latest soft purge of it that was known before it was fetched.
    pub(crate) softly_purged: PurgeStamp,
    pub(crate) head: Vec<u8>,
}
