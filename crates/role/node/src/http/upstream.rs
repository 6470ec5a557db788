//! The source of those bytes of a reply that are not in memory.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::origin::Remotes;
use crate::model::object::{Object, ObjectSource};
use crate::model::resource::Resource;
use crate::peers::PeerClient;

#[derive(Clone, Copy)]
pub(crate) enum Upstream<'a> {
    /// This node's disk.
    Disk,
    /// A disk that all nodes share, after the other nodes' memories.
    SharedDisk(&'a PeerClient),
    /// Another node's disk, after the memories of all nodes.
    PeerDisk(&'a PeerClient),
    /// Origins of this resource, after the memories of other nodes.
    Origin(&'a Rc<Remotes>, &'a Arc<Resource>),
    /// Memories only, for this pool response: those of other nodes, if there are any.
    Memories(Option<&'a PeerClient>, &'a Arc<Resource>),
    /// The same, for a compressed variant.
    Compressed(Option<&'a PeerClient>),
}

impl<'a> Upstream<'a> {
    /// The source of `object`, a variant of `resource`.
    pub(crate) fn of(
        resource: &'a Arc<Resource>,
        object: &Object,
        remotes: &'a Rc<Remotes>,
        peers: Option<&'a PeerClient>,
    ) -> Self {
        match (&object.source, peers) {
            (ObjectSource::Compressed(_), peers) => {
                Self::Compressed(peers.filter(|_| resource.is_of_all_nodes()))
            }
            (ObjectSource::Origin(_), _) if resource.route.origin().is_some() => {
                Self::Origin(remotes, resource)
            }
            (ObjectSource::Origin(_), peers) => Self::Memories(peers, resource),
            (ObjectSource::Elsewhere { .. }, Some(peers)) => Self::PeerDisk(peers),
            (_, Some(peers)) if resource.route.is_shared() => Self::SharedDisk(peers),
            _ => Self::Disk,
        }
    }

    /// Whether only this node has the bytes.
    pub(crate) fn is_disk(&self) -> bool {
        matches!(self, Self::Disk)
    }

    pub(crate) fn is_peer_disk(&self) -> bool {
        matches!(self, Self::PeerDisk(_))
    }

    /// Whether bytes that are in no memory are lost.
    pub(crate) fn is_memories(&self) -> bool {
        matches!(self, Self::Memories(..) | Self::Compressed(_))
    }

    pub(crate) fn is_origin(&self) -> bool {
        matches!(self, Self::Origin(..))
    }
}
