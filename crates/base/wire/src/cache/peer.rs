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
        /// Bytes that the requester already has.
        from: u32,
        /// The origin of the segment, if the other node is to fill it when it does not have it.
        origin: Option<OriginRef>,
    },
    /// The head of an object, by its head name.
    Head {
        name: SegmentName,
        /// For a file of a partitioned folder: its path, in case the other node has not announced
        /// the file yet.
        place: Option<FilePlace>,
    },
    /// A replica, sole or primary, that is about to be evicted: the other node may fetch it.
    Offer {
        name: SegmentName,
        bytes: u32,
        /// How often it may still be passed on (N-chance forwarding; Dahlin et al., OSDI '94).
        chances: u8,
    },
}

/// The origin of a segment, in terms shared by all nodes of a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginRef {
    /// The site's key.
    pub site: u64,
    /// The object's path at its origin.
    pub path: Vec<u8>,
    pub version: Vec<u8>,
    /// The latest purge of the object known to the requester.
    pub purged: PurgeStamp,
    /// Length of the whole object in bytes.
    pub object_bytes: u64,
    /// Index of the segment.
    pub index: u32,
    /// Why the other node is to fill it: if set, the requester has the lease but no room (a remote
    /// fill). Otherwise it considers the other node the owner while no coordinator answers, or the
    /// node that has the file.
    /// node that has the file.
    pub has_lease: bool,
}

/// The path of a file in a partitioned folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlace {
    /// The route's key.
    pub route: u64,
    /// The path below the route's root.
    pub path: Vec<u8>,
}

/// Replies to requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerReply {
    /// The bytes follow.
    Coming,
    /// The head; at most [`PEER_HEAD_BYTES_MAX`] bytes.
    Head {
        /// How long it may still be used, in milliseconds.
        fresh_ms: u64,
        /// In the encoding of `role/node`.
        head: Vec<u8>,
    },
    /// The offer is accepted: the other node has fetched the replica.
    Taken,
    /// The request is refused.
    Refused(PeerRefusal),
    /// As [`Self::Head`], for a response that was fetched after a soft purge.
    HeadAfter {
        /// How long it may still be used, in milliseconds.
        fresh_ms: u64,
        /// The latest soft purge of it known before it was fetched.
        softly_purged: PurgeStamp,
        /// In the encoding of `role/node`.
        head: Vec<u8>,
    },
}

/// Why a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRefusal {
    /// It does not have the requested object.
    NotThere,
    /// It already has too much to send.
    Overloaded,
    /// It has different content under this name, or cannot interpret the request.
    Mismatch,
    OriginFailed,
    /// The node has no room for the offered segment or the fill, or has the segment already.
    NotWanted,
    /// The response must not be stored: each client's request goes to the server.
    NotStored,
}

/// Returns the end of the chunk that begins at `at` in a segment of `bytes` bytes.
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
