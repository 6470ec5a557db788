//! Partitioned folders: each node stores a part.
//!
//! ```text
//!  folder --Walker--> Announced --head names--> coordinators
//!
//!  path --own folder? no--> PartHeadCache: fresh? --yes--> Resource, served like a file
//!                             | unknown or stale: one look-up for all requests
//!                             v
//!                           holders of the head name? --> head from one of them
//!
//!  segments: through the cluster's fill; their source is that node
//! ```
//!
//! A head name stands for a path in any version. Each node announces its files and folders under
//! these names. Coordinators know which nodes have them, and which nodes may have further ones:
//! these are asked directly, by path as well as by name.
//!
//! Invariants: a node announces only what it would serve; the version in the head determines which
//! bytes are sent, and a node with another version refuses the request.

mod head_cache;
mod walk;

use skep_wire::cache::part::{FileHead, Versions};

use crate::model::object::{Object, Variants};

pub(crate) use head_cache::{Elsewhere, PartHeadCache};
pub(crate) use walk::Walker;

/// The head of files on this node's disk, for another node; `None`: the files are not on this disk.
pub(crate) fn head_of(variants: &Variants) -> Option<FileHead> {
    let version = |object: &Object| Some(object.file()?.1.version);
    let sibling = |object: &Option<_>| object.as_deref().and_then(version);
    let encoded = [&variants.br, &variants.zstd, &variants.gzip].map(sibling);
    Some(FileHead::File(Versions { plain: version(&variants.plain)?, encoded }))
}
