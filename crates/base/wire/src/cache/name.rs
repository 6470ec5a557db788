//! Names of cached segments and heads: the same on all nodes, different for each version.
//!
//! A name is a truncated SHA-256, so a client that chooses paths cannot cause a collision. Since
//! the version is part of the name, a request by name never returns another version; since the
//! latest purge is part of it, too, a node that knows of that purge never receives older bytes.
//! The length is part of the version: some origins send the same entity tag for bytes of
//! different lengths, and the length in a head must be that of the segments.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use skep_units::SEGMENT_BYTES;

use super::purge::PurgeStamp;

/// One version of one object of one site, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectName {
    hash: [u8; 32],
    bytes: u64,
}

/// One segment of one version of one object, or the head of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentName(pub [u8; 16]);

impl ObjectName {
    /// Returns the name of the object at `path` of `site` in `version` (a strong entity tag, or
    /// modification time and size) with a length of `bytes` bytes, fetched after the purge with
    /// this stamp.
    pub fn new(site: &[u8], path: &[u8], version: &[u8], bytes: u64, purged: PurgeStamp) -> Self {
        let mut hash = Sha256::new();
        for part in [site, path, version] {
            // With lengths, so that no two triples are concatenated to the same text.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(bytes.to_le_bytes());
        hash.update(purged.0.to_le_bytes());
        Self { hash: hash.finalize().into(), bytes }
    }

    /// Returns the name of a head, for the file or object at `path`, whatever its version. `kind`
    /// distinguishes kinds of heads.
    pub fn head(site: &[u8], path: &[u8], kind: &[u8], purged: PurgeStamp) -> SegmentName {
        Self::new(site, path, kind, 0, purged).segment(u32::MAX)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of segments; 0 if it is empty.
    pub fn segments(&self) -> u32 {
        self.bytes.div_ceil(SEGMENT_BYTES) as u32
    }

    /// Bytes of the segment with this index; 0 if it does not exist.
    pub fn segment_bytes(&self, index: u32) -> u32 {
        let start = u64::from(index) * SEGMENT_BYTES;
        self.bytes.saturating_sub(start).min(SEGMENT_BYTES) as u32
    }

    /// Returns the name of the segment with this index, from 0.
    pub fn segment(&self, index: u32) -> SegmentName {
        let mut hash = Sha256::new();
        hash.update(self.hash);
        hash.update(index.to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut name = [0; 16];
        name.copy_from_slice(&digest[..16]);
        SegmentName(name)
    }
}

impl SegmentName {
    /// Eight of its bytes, as a hash for tables: they are practically random.
    pub fn bits(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", hex(&self.hash[..8]))
    }
}

impl fmt::Debug for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_in_every_part_and_are_pinned() {
        let new = |site: &[u8], path: &[u8], version: &[u8], bytes, purged| {
            ObjectName::new(site, path, version, bytes, PurgeStamp(purged)).segment(0)
        };
        let name = new(b"site", b"/a", b"1", 5, 0);
        assert_ne!(name, new(b"site/", b"a", b"1", 5, 0));
        assert_ne!(name, new(b"site", b"/a1", b"", 5, 0));
        assert_ne!(name, new(b"site", b"/a", b"1", 6, 0));
        assert_ne!(name, new(b"site", b"/a", b"1", 5, 1));
        let object = ObjectName::new(b"site", b"/a", b"1", 5, PurgeStamp(0));
        assert_ne!(object.segment(0), object.segment(1));
        // Nodes of different builds must agree.
        assert_eq!(format!("{name:?}"), "89a7c090ff1b95c1ebb60be3efa21623");
    }

    #[test]
    fn the_length_says_how_many_segments_there_are_and_how_long_each_is() {
        const FULL: u64 = SEGMENT_BYTES;
        let cases: [(u64, &[u32]); 5] = [
            (0, &[0]),
            (1, &[1, 0]),
            (FULL, &[FULL as u32, 0]),
            (FULL + 1, &[FULL as u32, 1, 0]),
            (3 * FULL - 1, &[FULL as u32, FULL as u32, FULL as u32 - 1, 0]),
        ];
        for (bytes, lengths) in cases {
            let name = ObjectName::new(b"", b"", b"", bytes, PurgeStamp::NONE);
            let found: Vec<_> = (0..=name.segments()).map(|it| name.segment_bytes(it)).collect();
            assert_eq!(found, lengths, "{bytes} bytes");
        }
    }
}
