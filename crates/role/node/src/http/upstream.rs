//! The source of a reply's bytes that are not in memory.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::origin::Remotes;
use crate::model::resource::Resource;
use crate::peers::PeerClient;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) enum Upstream<'a> {
    /// This node's disk.
    Disk,
    /// A disk that all nodes share, after their memories.
    SharedDisk(&'a PeerClient),
    /// Another node's disk, after the memories of all.
    PeerDisk(&'a PeerClient),
    /// Origins of this resource, after the memories of other nodes.
    Origin(&'a Rc<Remotes>, &'a Arc<Resource>),
    /// Nothing but memories, for this response of a pool: other nodes', if there are any.
    Memories(Option<&'a PeerClient>, &'a Arc<Resource>),
}

impl Upstream<'_> {
    /// Whether only this node has the bytes.
    pub(crate) fn is_disk(&self) -> bool {
        matches!(self, Self::Disk)
    }

    pub(crate) fn is_peer_disk(&self) -> bool {
        matches!(self, Self::PeerDisk(_))
    }

    /// Whether what is in no memory is nowhere.
    pub(crate) fn is_memories(&self) -> bool {
        matches!(self, Self::Memories(..))
    }

    pub(crate) fn is_origin(&self) -> bool {
        matches!(self, Self::Origin(..))
    }
}
