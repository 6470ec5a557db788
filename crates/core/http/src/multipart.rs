//! `multipart/byteranges` (RFC 9110 14.6): heads of parts and total length.
use std::ops::Range;

/// A boundary made from a seed; 32 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary([u8; 32]);

impl Boundary {
    /// Makes the boundary of a reply; the seed should be hard to guess.
    pub fn new(seed: u64) -> Boundary {
        let _ = seed;
        unimplemented!("new")
    }

    /// The characters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the head of one part; the bytes of `range` follow it.
pub fn write_part_head(
    out: &mut Vec<u8>,
    boundary: &Boundary,
    content_type: &str,
    range: &Range<u64>,
    len_bytes: u64,
) {
    let _ = (out, boundary, content_type, range, len_bytes);
    unimplemented!("write_part_head")
}

/// Appends what ends the body.
pub fn write_end(out: &mut Vec<u8>, boundary: &Boundary) {
    let _ = (out, boundary);
    unimplemented!("write_end")
}

/// Length of the whole body, in bytes, for Content-Length.
pub fn body_bytes(
    boundary: &Boundary,
    content_type: &str,
    parts: &[Range<u64>],
    len_bytes: u64,
) -> u64 {
    let _ = (boundary, content_type, parts, len_bytes);
    unimplemented!("body_bytes")
}
