//! `multipart/byteranges`: heads of parts, end, total length (RFC 9110 14.6).

use std::ops::Range;

use skep_units::Rng;

use crate::encode::write_u64;

/// Length of a boundary, in bytes; long enough for all 64 bits of a seed, so that nobody can guess
/// it and plant a part in a file.
const BOUNDARY_BYTES: usize = 32;

/// The separator of the parts of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary([u8; BOUNDARY_BYTES]);

impl Boundary {
    /// The boundary of a reply, from a seed that clients cannot guess.
    pub fn new(seed: u64) -> Boundary {
        let mut rng = Rng::new(seed);
        let mut boundary = [0; BOUNDARY_BYTES];
        for byte in &mut boundary {
            *byte = b"abcdefghijklmnopqrstuvwxyz234567"[(rng.next_u64() % 32) as usize];
        }
        Boundary(boundary)
    }

    /// The characters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the header of one part; the bytes of `range` follow it. `content_type` and `len_bytes`
/// are those of the whole representation.
pub fn write_part_head(
    out: &mut Vec<u8>,
    boundary: &Boundary,
    content_type: &str,
    range: &Range<u64>,
    len_bytes: u64,
) {
    out.extend_from_slice(b"\r\n--");
    out.extend_from_slice(&boundary.0);
    out.extend_from_slice(b"\r\nContent-Type: ");
    out.extend_from_slice(content_type.as_bytes());
    out.extend_from_slice(b"\r\nContent-Range: ");
    write_content_range(out, range, len_bytes);
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends the closing delimiter.
pub fn write_end(out: &mut Vec<u8>, boundary: &Boundary) {
    out.extend_from_slice(b"\r\n--");
    out.extend_from_slice(&boundary.0);
    out.extend_from_slice(b"--\r\n");
}

/// Appends `bytes first-last/len`, the value of Content-Range; `range` is not
/// empty.
pub fn write_content_range(out: &mut Vec<u8>, range: &Range<u64>, len_bytes: u64) {
    debug_assert!(range.start < range.end && range.end <= len_bytes, "a part of the whole");
    out.extend_from_slice(b"bytes ");
    write_u64(out, range.start);
    out.push(b'-');
    write_u64(out, range.end - 1);
    out.push(b'/');
    write_u64(out, len_bytes);
}

/// Length of the whole body, in bytes, for Content-Length.
pub fn body_bytes(
    boundary: &Boundary,
    content_type: &str,
    parts: &[Range<u64>],
    len_bytes: u64,
) -> u64 {
    let mut heads = Vec::new();
    for part in parts {
        write_part_head(&mut heads, boundary, content_type, part, len_bytes);
    }
    write_end(&mut heads, boundary);
    heads.len() as u64 + parts.iter().map(|part| part.end - part.start).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_that_of_the_written_body() {
        let boundary = Boundary::new(7);
        let whole = [b'x'; 2000];
        let parts = [0..1, 500..1000, 1999..2000];
        let mut body = Vec::new();
        for part in &parts {
            write_part_head(&mut body, &boundary, "text/plain", part, 2000);
            body.extend_from_slice(&whole[part.start as usize..part.end as usize]);
        }
        write_end(&mut body, &boundary);
        assert_eq!(body_bytes(&boundary, "text/plain", &parts, 2000), body.len() as u64);
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("Content-Range: bytes 500-999/2000\r\n\r\nx"));
        assert!(boundary.as_bytes().is_ascii() && boundary != Boundary::new(8));
    }
}
