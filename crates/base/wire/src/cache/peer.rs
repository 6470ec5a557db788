//! Messages between two nodes: a request, a reply, and the bytes.
//!
//! A connection carries one request at a time. [`PeerReply::Coming`] is followed by
//! chunks of bytes up to the requested length, each in a frame of its own, as they
//! arrive. Chunks end at multiples of [`PEER_CHUNK_BYTES`] of the
//! segment ([`chunk_end`]): they are the chunks that holders store, with the checksums
//! stored with them. An empty frame in between shows that the source is slow
//! and the sender is still alive; if the source fails, the connection
//! is closed.

use serde::{Deserialize, Serialize};

use super::link::payload;
use super::name::SegmentName;
use super::purge::PurgeStamp;
use crate::limits::{ORIGIN_BYTES_MAX, PEER_CHUNK_BYTES, PEER_HEAD_BYTES_MAX};
use crate::message::NotAMessage;

/// Requests between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// The bytes of a segment from an offset to its end.
    Fetch {
        name: SegmentName,
        /// The segment's length.
        bytes: u32,
        /// Bytes that the asker has.
        from: u32,
        /// Where the segment comes from, if the other is to fill it when it
        /// does not have it.
        origin: Option<OriginRef>,
    },
    /// The head of an object, by the name that stands for it.
    Head {
        name: SegmentName,
        /// Of a file of a partitioned folder: where it is, in case that the other node has not
        /// announced it yet.
        place: Option<FilePlace>,
    },
    /// A sole replica that would be evicted, or a primary one: the other may fetch it.
    Offer {
        name: SegmentName,
        bytes: u32,
        /// How often it may still be passed on (Dahlin et al., OSDI '94).
        chances: u8,
    },
}

/// Where a segment comes from, in words that all nodes of a config share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginRef {
    /// The site's key.
    pub site: u64,
    /// The object's path at its origin.
    pub path: Vec<u8>,
    pub version: Vec<u8>,
    /// The latest purge of it that the asker knows.
    pub purged: PurgeStamp,
    /// Its length in bytes, all segments.
    pub object_bytes: u64,
    /// The segment's number.
    pub index: u32,
    /// Why the other node is to fill it: the asker has the lease, and no room (a remote fill).
    /// Otherwise the asker takes the other for the owner while no coordinator answers, or for the
    /// node that has the file.
    pub has_lease: bool,
}

/// Where a file of a partitioned folder is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlace {
    /// The route's key.
    pub route: u64,
    /// Path below its root.
    pub path: Vec<u8>,
}

/// Answers to requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerReply {
    /// The bytes follow.
    Coming,
    /// The head; at most [`PEER_HEAD_BYTES_MAX`] bytes.
    Head {
        /// How long it may still be used, in milliseconds.
        fresh_ms: u64,
        /// In the words of `role/node`.
        head: Vec<u8>,
    },
    /// The offer is taken: the other has fetched it.
    Taken,
    /// No.
    Refused(PeerRefusal),
    /// As [`Self::Head`], of a response that was fetched after a soft purge.
    HeadAfter {
        /// How long it may still be used, in milliseconds.
        fresh_ms: u64,
        /// The latest soft purge of it that was known before it was fetched.
        softly_purged: PurgeStamp,
        /// In the words of `role/node`.
        head: Vec<u8>,
    },
}

/// Why a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRefusal {
    /// It does not have that.
    NotThere,
    /// It has too much to send already.
    Overloaded,
    /// It has something else under this name, or can't make sense of it.
    Mismatch,
    OriginFailed,
    /// The node has no room for the offered segment or the fill, or has the segment already.
    NotWanted,
    /// The response may not be stored: each client's request goes to the server.
    NotStored,
}

/// Where the chunk ends that begins at `at` of a segment of `bytes` bytes.
pub fn chunk_end(at: u32, bytes: u32) -> u32 {
    (at - at % PEER_CHUNK_BYTES).saturating_add(PEER_CHUNK_BYTES).min(bytes)
}

payload!(PeerRequest);
payload!(PeerReply);

impl PeerRequest {
    fn is_sound(&self) -> bool {
        let is_segment = |bytes: u32| bytes > 0 && u64::from(bytes) <= skep_units::SEGMENT_BYTES;
        match self {
            Self::Fetch { bytes, from, origin, .. } => {
                let fits = |origin: &OriginRef| {
                    let start = u64::from(origin.index) * skep_units::SEGMENT_BYTES;
                    origin.path.len() + origin.version.len() <= ORIGIN_BYTES_MAX
                        && origin.object_bytes.checked_sub(start).is_some_and(|left| {
                            left.min(skep_units::SEGMENT_BYTES) == u64::from(*bytes)
                        })
                };
                is_segment(*bytes) && from < bytes && origin.as_ref().is_none_or(fits)
            }
            Self::Head { place, .. } => {
                place.as_ref().is_none_or(|place| place.path.len() <= ORIGIN_BYTES_MAX)
            }
            Self::Offer { bytes, .. } => is_segment(*bytes),
        }
    }
}

impl PeerReply {
    fn is_sound(&self) -> bool {
        match self {
            Self::Head { head, .. } | Self::HeadAfter { head, .. } => {
                head.len() <= PEER_HEAD_BYTES_MAX
            }
            Self::Coming | Self::Taken | Self::Refused(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_fetch_must_make_sense() {
        let name = SegmentName([1; 16]);
        let fetch = |bytes, from, origin| PeerRequest::Fetch { name, bytes, from, origin }.encode();
        assert!(PeerRequest::decode(&fetch(10, 0, None)).is_ok());
        assert!(PeerRequest::decode(&fetch(10, 10, None)).is_err());
        assert!(PeerRequest::decode(&fetch(0, 0, None)).is_err());
        assert!(PeerRequest::decode(&fetch(u32::MAX, 0, None)).is_err());
        let origin = |object_bytes, index| {
            let (path, version) = (b"/a".to_vec(), b"1".to_vec());
            let purged = PurgeStamp::NONE;
            Some(OriginRef { site: 1, path, version, purged, object_bytes, index, has_lease: true })
        };
        assert!(PeerRequest::decode(&fetch(10, 0, origin(10, 0))).is_ok());
        assert!(PeerRequest::decode(&fetch(10, 0, origin(11, 0))).is_err());
        assert!(PeerRequest::decode(&fetch(10, 0, origin(10, u32::MAX))).is_err());
    }
}
