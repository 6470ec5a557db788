//! Sites of which each node has a part.
//!
//! ```text
//!  folder --Walker--> Announced --holdings of head names--> coordinators
//!
//!  path --own folder? no--> PartHeadCache: fresh? --yes--> Resource, served like a file
//!                             | unknown or stale: one look-up for all who ask
//!                             v
//!                           who has the head name? --> a node's answer for it
//!
//!  segments: through the cluster's fill; where they come from is that node
//! ```
//!
//! A head name stands for a path at whatever version. Each node announces those
//! of its files and folders as if it held them in memory, so whoever knows the
//! holders of segments knows them, too.
//!
//! Invariants: a node announces only what it would serve; which bytes are sent
//! is decided by the version in the head, and whoever has another one refuses.

mod head_cache;
mod walk;

use skep_wire::cache::part::{FileHead, Versions};

use crate::model::object::{Object, Variants};

pub(crate) use head_cache::{Elsewhere, PartHeadCache};
pub(crate) use walk::Walker;

/// What another node is told of files on this one's disk; `None`: they are elsewhere.
pub(crate) fn head_of(variants: &Variants) -> Option<FileHead> {
    let version = |object: &Object| Some(object.file()?.1.version);
    let sibling = |object: &Option<_>| object.as_deref().and_then(version);
    let encoded = [&variants.br, &variants.zstd, &variants.gzip].map(sibling);
    Some(FileHead::File(Versions { plain: version(&variants.plain)?, encoded }))
}
