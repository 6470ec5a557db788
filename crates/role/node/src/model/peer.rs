//! Another node.

use std::net::SocketAddr;

use skep_peer::stream::LinkId;
use skep_wire::cache::link::MemberId;
use skep_wire::seal::PeerId;

/// Another node, as a coordinator named it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerNode {
    pub(crate) id: PeerId,
    pub(crate) address: SocketAddr,
    /// By whose numbering, and its number there.
    pub(crate) link: LinkId,
    pub(crate) member: MemberId,
}

/// A node is the same whoever names it.
impl PartialEq for PeerNode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
