//! Names of what is cached: the same on all nodes, different for each version.
//!
//! A name is a cut SHA-256: nobody who chooses paths can make two of them meet.
//! Since the version is part of it, whoever asks by name never gets another; and
//! since the latest purge is, nobody who knows of that gets what was before it.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::purge::PurgeStamp;

/// One version of one object of one site.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectName([u8; 32]);

/// One segment of one version of one object, or the head of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentName(pub [u8; 16]);

impl ObjectName {
    /// The name of what `path` of `site` was at `version` (a strong entity tag,
    /// or modification time and size), got after the purge of this stamp.
    pub fn new(site: &[u8], path: &[u8], version: &[u8], purged: PurgeStamp) -> Self {
        let mut hash = Sha256::new();
        for part in [site, path, version] {
            // With lengths, so that no two triples run together to one text.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(purged.0.to_le_bytes());
        Self(hash.finalize().into())
    }

    /// The name of segment `index`, from 0.
    pub fn segment(&self, index: u32) -> SegmentName {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(index.to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut name = [0; 16];
        name.copy_from_slice(&digest[..16]);
        SegmentName(name)
    }
}

impl SegmentName {
    /// Eight of its bytes, for tables: they are as good as random.
    pub fn bits(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", hex(&self.0[..8]))
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
        let new = |site: &[u8], path: &[u8], version: &[u8], purged| {
            ObjectName::new(site, path, version, PurgeStamp(purged))
        };
        let name = new(b"site", b"/a", b"1", 0);
        assert_ne!(name, new(b"site/", b"a", b"1", 0));
        assert_ne!(name, new(b"site", b"/a1", b"", 0));
        assert_ne!(name, new(b"site", b"/a", b"1", 1));
        assert_ne!(name.segment(0), name.segment(1));
        // Nodes of different builds must agree.
        assert_eq!(format!("{:?}", name.segment(0)), "c7069eecb3044480b4b9a16c211ecf01");
    }
}
