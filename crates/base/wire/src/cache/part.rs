//! Heads of files between nodes: one node's description of the file at a path, for another node.
//!
//! ```text
//!  0 kind (u8: 0 file, 1 folder, 2 forbidden)
//! for a file, plain and each encoded sibling (br, zstd, gzip):
//!   whether it exists (u8)   modification time in ns (i128)   bytes (u64)
//! ```
//!
//! Numbers are little-endian. The path is that of the requested name.

use crate::limits::OBJECT_BYTES_MAX;

const FILE: u8 = 0;
const FOLDER: u8 = 1;
const FORBIDDEN: u8 = 2;

/// Bytes of one encoded version.
const VERSION_BYTES: usize = 1 + 16 + 8;

/// A version of a file: its modification time and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Last modification, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Size, in bytes; if reported by another node, at most [`OBJECT_BYTES_MAX`].
    pub bytes: u64,
}

/// Versions of a file and its siblings, in the order of their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The file itself.
    pub plain: FileVersion,
    /// br, zstd, gzip.
    pub encoded: [Option<FileVersion>; 3],
}

/// What a node stores at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHead {
    File(Versions),
    /// A folder, requested without its trailing slash.
    Folder,
    /// A file or folder that must not be served.
    Forbidden,
}

impl FileHead {
    /// Encodes the head for another node.
    pub fn to_bytes(self) -> Vec<u8> {
        let Self::File(Versions { plain, encoded }) = self else {
            return vec![if self == Self::Folder { FOLDER } else { FORBIDDEN }];
        };
        let mut bytes = vec![FILE];
        for version in std::iter::once(Some(plain)).chain(encoded) {
            let FileVersion { mtime_ns, bytes: len } =
                version.unwrap_or(FileVersion { mtime_ns: 0, bytes: 0 });
            bytes.push(u8::from(version.is_some()));
            bytes.extend(mtime_ns.to_le_bytes());
            bytes.extend(len.to_le_bytes());
        }
        bytes
    }

    /// Decodes a head from another node; `None` if it is invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [FOLDER] => Some(Self::Folder),
            [FORBIDDEN] => Some(Self::Forbidden),
            [FILE, ref rest @ ..] if rest.len() == 4 * VERSION_BYTES => {
                let mut versions = rest.chunks_exact(VERSION_BYTES).map(read_version);
                let mut next = || versions.next().flatten();
                let plain = next()??;
                Some(Self::File(Versions { plain, encoded: [next()?, next()?, next()?] }))
            }
            _ => None,
        }
    }
}

fn read_version(bytes: &[u8]) -> Option<Option<FileVersion>> {
    let (is_there, rest) = bytes.split_first()?;
    let (mtime_ns, rest) = rest.split_first_chunk()?;
    let mtime_ns = i128::from_le_bytes(*mtime_ns);
    let version = FileVersion { mtime_ns, bytes: u64::from_le_bytes(rest.try_into().ok()?) };
    match is_there {
        0 => Some(None),
        1 => (version.bytes <= OBJECT_BYTES_MAX).then_some(Some(version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_and_garbage_does_not() {
        let version = |number: u64| FileVersion { mtime_ns: -i128::from(number), bytes: number };
        let encoded = [None, Some(version(2)), None];
        let file = FileHead::File(Versions { plain: version(1), encoded });
        for head in [file, FileHead::Folder, FileHead::Forbidden] {
            let bytes = head.to_bytes();
            assert_eq!(FileHead::read(&bytes), Some(head));
            assert_eq!(FileHead::read(&[&bytes[..], &[0]].concat()), None);
            (0..bytes.len())
                .for_each(|cut| assert_eq!(FileHead::read(&bytes[..cut]), None, "{cut}"));
        }
        assert_eq!(FileHead::read(&[9]), None);
        let mut without_plain = file.to_bytes();
        without_plain[1] = 0;
        assert_eq!(FileHead::read(&without_plain), None);
    }
}
