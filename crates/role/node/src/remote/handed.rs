//! Heads between nodes: what one got from an origin, for another.
//!
//! ```text
//!  0 bytes of the version (u16)   2 version   ... bytes of the object (u64)
//!  ... stamp of its latest purge (u64)   head
//! ```
//!
//! The head is that of an HTTP response, which says all about caching. Numbers
//! are little-endian.

use std::sync::Arc;

use skep_origin::Head;
use skep_serve::{monotonic_ms, unix_ms};
use skep_wire::cache::PurgeStamp;
use skep_wire::limits::PEER_HEAD_BYTES_MAX;

use super::RemoteSite;
use super::kept::{self, Freshness, Got};
use crate::catalog::Resource;
use crate::purges::Snapshot;
use crate::site::Site;

/// A head on its way to another node.
#[derive(Debug)]
pub(crate) struct Handed {
    /// How long it may be used there without asking, in milliseconds.
    pub(crate) fresh_ms: u64,
    pub(crate) head: Vec<u8>,
}

/// That of `resource`; `None`: it is too long, or none of an origin.
pub(super) fn of(resource: &Resource) -> Option<Handed> {
    let (remote, freshness) = (resource.remote()?, resource.freshness()?);
    let version_len = u16::try_from(remote.version.len()).ok()?;
    let mut head = version_len.to_le_bytes().to_vec();
    head.extend_from_slice(&remote.version);
    head.extend(resource.variants.plain.bytes().to_le_bytes());
    head.extend(resource.variants.plain.purged().0.to_le_bytes());
    head.extend(remote.head.to_text(unix_ms()));
    let fresh_ms = freshness.fresh_ms(monotonic_ms());
    (head.len() <= PEER_HEAD_BYTES_MAX).then_some(Handed { fresh_ms, head })
}

/// What another node handed on of `target`; `None`: it makes no sense, or was
/// got before one of `purges`, which the other does not know of yet.
pub(super) fn read(
    site: &Arc<Site>,
    remote: &RemoteSite,
    target: &[u8],
    handed: &Handed,
    purges: &Snapshot,
) -> Option<Arc<Resource>> {
    let (version_len, rest) = handed.head.split_first_chunk()?;
    let (version, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*version_len)))?;
    let (bytes, rest) = rest.split_first_chunk()?;
    let (purged, text) = rest.split_first_chunk()?;
    let (bytes, purged) = (u64::from_le_bytes(*bytes), PurgeStamp(u64::from_le_bytes(*purged)));
    let head = Head::from_text(text, unix_ms()).filter(|head| head.total_bytes == Some(bytes))?;
    if purged < kept::purged(site, &purges.known, target, &head) {
        return None;
    }
    let freshness = Freshness::of(&head, remote).for_ms(handed.fresh_ms);
    let (target, version) = (target.to_vec(), version.to_vec());
    let got = Got { target, version, bytes, head, purged };
    Some(kept::resource(site, remote, got, freshness, purges))
}
