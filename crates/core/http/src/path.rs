//! The one normalisation of paths. Routing, file look-up and cache key use its
//! result and nothing else, so that no two of them can see different paths.
//!
//! What it does (RFC 3986 6.2.2): decodes each escape once, collapses runs of
//! slashes, resolves `.` and `..`, keeps a trailing slash. What it refuses:
//! escapes that are none, encoded separators, backslashes, control characters,
//! and `..` above the root.
//!
//! Invariants of a result: begins with `/`; no empty, `.` or `..` segment; no
//! control character; no backslash. Normalising its encoded form gives it back.

use std::borrow::Cow;

use crate::Reject;
use crate::bytes::{self, PATH, PCHAR};

/// Normalises a path as it stands in a request. Borrows it, after one look at
/// each byte, when it is in normal form already.
///
/// # Errors
/// One of the `PATH_…` reasons.
#[inline]
pub fn normalise(path: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    if is_normal(path) { Ok(Cow::Borrowed(path)) } else { rebuild(path).map(Cow::Owned) }
}

/// Appends a normalised path as it may stand in a target or a Location.
pub fn write_encoded(out: &mut Vec<u8>, path: &[u8]) {
    for &byte in path {
        if bytes::is(byte, PCHAR) {
            out.push(byte);
        } else {
            let hex = b"0123456789ABCDEF";
            out.extend([b'%', hex[usize::from(byte >> 4)], hex[usize::from(byte & 0xf)]]);
        }
    }
}

/// Whether nothing is to be done. False where in doubt.
#[inline]
fn is_normal(path: &[u8]) -> bool {
    let Some((b'/', mut rest)) = path.split_first() else { return false };
    // `rest` begins a segment.
    loop {
        let dots =
            matches!(rest, [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]);
        let len = rest.iter().position(|b| !bytes::is(*b, PATH)).unwrap_or(rest.len());
        match &rest[len..] {
            _ if dots => return false,
            [] => return true,
            [b'/', next @ ..] if len > 0 => rest = next,
            // An empty segment, or a byte that wants decoding or refusing.
            _ => return false,
        }
    }
}

fn rebuild(path: &[u8]) -> Result<Vec<u8>, Reject> {
    let Some((b'/', mut rest)) = path.split_first() else { return Err(Reject::PATH_FORM) };
    let mut out = Vec::with_capacity(path.len());
    loop {
        let len = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
        let last = len == rest.len();
        add_segment(&mut out, &rest[..len], last)?;
        if last {
            return Ok(out);
        }
        rest = &rest[len + 1..];
    }
}

/// Appends `/segment`, or does what a dot segment says (RFC 3986 5.2.4). The
/// last segment leaves a slash where it is empty or of dots.
fn add_segment(out: &mut Vec<u8>, segment: &[u8], last: bool) -> Result<(), Reject> {
    let start = out.len();
    out.push(b'/');
    decode(out, segment)?;
    match &out[start + 1..] {
        b"" | b"." => out.truncate(start),
        b".." => {
            let parent = out[..start].iter().rposition(|b| *b == b'/');
            out.truncate(parent.ok_or(Reject::PATH_ABOVE_ROOT)?);
        }
        _ => return Ok(()),
    }
    if last {
        out.push(b'/');
    }
    Ok(())
}

/// Appends the bytes that a segment stands for.
fn decode(out: &mut Vec<u8>, segment: &[u8]) -> Result<(), Reject> {
    let mut rest = segment;
    while let [byte, tail @ ..] = rest {
        let (decoded, tail) = match (byte, tail) {
            (b'%', [high, low, tail @ ..]) => {
                (hex_pair(*high, *low).ok_or(Reject::PATH_ESCAPE)?, tail)
            }
            (b'%', _) => return Err(Reject::PATH_ESCAPE),
            _ => (*byte, tail),
        };
        match decoded {
            b'/' => return Err(Reject::PATH_ENCODED_SLASH),
            b'\\' if *byte == b'%' => return Err(Reject::PATH_ENCODED_SLASH),
            b'\\' => return Err(Reject::PATH_BACKSLASH),
            0..0x20 | 0x7f => return Err(Reject::PATH_CONTROL),
            _ => out.push(decoded),
        }
        rest = tail;
    }
    Ok(())
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_paths_are_borrowed() {
        for path in ["/", "/a", "/a/", "/a/b.c/d", "/.well-known/x", "/a..b/...", "/a/..b", "/~x;y"]
        {
            let borrowed =
                matches!(normalise(path.as_bytes()), Ok(Cow::Borrowed(p)) if p == path.as_bytes());
            assert!(borrowed, "{path}");
        }
    }

    #[test]
    fn encoding_escapes_what_a_path_may_not_hold() {
        let mut out = Vec::new();
        write_encoded(&mut out, "/a b/%/é?#[/;=@:".as_bytes());
        assert_eq!(out, b"/a%20b/%25/%C3%A9%3F%23%5B/;=@:");
    }
}
