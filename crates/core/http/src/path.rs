//! The single interpretation of paths. Routing, file lookup, cache key and requests to origins all
//! use its result, so that no two of them can interpret a path differently.
//!
//! A path is normalised as RFC 3986 6.2.2 allows: escapes of unreserved characters are decoded,
//! others get capital letters, `.` and `..` are resolved. Further decoding depends on the kind of
//! path ([`Reading`]): a file name is decoded completely, an origin's path is left unchanged, since
//! `%2B` and `+`, or `//` and `/`, may be different resources of an origin.
//!
//! ```text
//!   as sent -> Path ----> target: for origins, for Location
//!                   ----> key: a file's name, or the target
//!                   '---> place: equal for all paths that routes and purges treat as the same
//! ```
//!
//! Invariants: targets and keys begin with `/` and have no `.` or `..` segment, no
//! plain control character and no plain backslash. Reading a target returns it unchanged.

use std::borrow::Cow;

use skep_units::matches_wildcard;

use crate::Reject;
use crate::bytes::{self, PATH, PCHAR};

/// The kind of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Files: an escape is the byte that it encodes, and runs of slashes count as one. Encoded
    /// separators and control characters, which occur in no name, are refused.
    Files,
    /// Web servers: reserved characters stay as they are, and `%2F` is no separator. Spellings that
    /// servers interpret differently are refused: encoded NULs and backslashes, and segments that
    /// are dots without their parameters (`..;v=1`).
    Origins,
}

/// A normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'b> {
    target: Cow<'b, [u8]>,
    /// The file name, if it differs from the target.
    name: Option<Vec<u8>>,
}

impl<'b> Path<'b> {
    /// The path for use in a target or a Location field.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// The lookup key: the name of a file, or an origin's target.
    pub fn key(&self) -> &[u8] {
        self.name.as_deref().unwrap_or(&self.target)
    }

    /// The key as the client sent it, if it is unchanged.
    #[inline]
    pub fn key_as_sent(&self) -> Option<&'b [u8]> {
        match (&self.target, &self.name) {
            (Cow::Borrowed(path), None) => Some(path),
            _ => None,
        }
    }

    /// Its [`place`].
    pub fn place(&self) -> Cow<'_, [u8]> {
        place_of(&self.target)
    }

    /// Its [`place`] for servers that decode `%2F` before they split at slashes, and cut off
    /// everything after a `;` in each segment. `None` if it is the usual place.
    pub fn loosest_place(&self) -> Option<Vec<u8>> {
        let is_plain = !self.target.contains(&b';')
            && !self.target.windows(3).any(|it| matches!(it, b"%2F" | b"%3B"));
        (!is_plain).then(|| loosest_place_of(&self.target))
    }

    /// Its [`place`].
    pub fn into_place(self) -> Cow<'b, [u8]> {
        match self.target {
            Cow::Borrowed(target) => place_of(target),
            Cow::Owned(target) => Cow::Owned(place_of(&target).into_owned()),
        }
    }

    /// The rest of the target after `prefix`, a [`place`].
    pub fn behind(&self, prefix: &[u8]) -> Option<&[u8]> {
        place_of(&self.target).starts_with(prefix).then(|| {
            let mut rest = &*self.target;
            units(prefix).for_each(|_| _ = next_unit(&mut rest));
            rest
        })
    }
}

/// The paths that a route matches: a [`place`] in which each `*` matches any characters, including
/// slashes. The config requires this spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(Box<[u8]>);

impl PathPattern {
    /// The pattern in the config.
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Whether it matches a path with this [`place`].
    pub fn matches(&self, place: &[u8]) -> bool {
        matches_wildcard(&self.0, place)
    }

    /// Whether a place may match both: not if neither part before the first `*` is a prefix of the
    /// other.
    pub fn may_overlap(&self, other: &Self) -> bool {
        let (one, other) = (self.literal(), other.literal());
        let bytes = one.len().min(other.len());
        one[..bytes] == other[..bytes]
    }

    fn literal(&self) -> &[u8] {
        self.0.split(|byte| *byte == b'*').next().unwrap_or_default()
    }
}

/// Normalises the path of a request. A path that is already normal costs one pass over its bytes
/// and no allocation.
///
/// # Errors
/// One of the `PATH_…` reasons.
#[inline]
pub fn read(path: &[u8], reading: Reading) -> Result<Path<'_>, Reject> {
    if is_read(path, reading) {
        return Ok(Path { target: Cow::Borrowed(path), name: None });
    }
    let target = rebuild(path, reading)?;
    let is_name = reading == Reading::Origins || !target.contains(&b'%');
    let name = (!is_name).then(|| units(&target).map(|unit| unit.byte).collect());
    Ok(Path { target: Cow::Owned(target), name })
}

/// A path, with or without a query, in the form that routes and purges compare: unescaped where a
/// character represents itself, escaped otherwise, with runs of slashes reduced to one. An encoded
/// slash stays encoded.
pub fn place(target: &[u8]) -> Cow<'_, [u8]> {
    let (path, query) =
        target.split_at(target.iter().position(|b| *b == b'?').unwrap_or(target.len()));
    match place_of(path) {
        Cow::Borrowed(_) => Cow::Borrowed(target),
        Cow::Owned(place) => Cow::Owned([&*place, query].concat()),
    }
}

fn place_of(path: &[u8]) -> Cow<'_, [u8]> {
    let is_place = bytes::all(path, PCHAR) && !path.windows(2).any(|pair| pair == b"//");
    if is_place {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    for unit in units(path) {
        match unit {
            Unit { byte: b'/', is_encoded: true } => write_escape(&mut out, b'/'),
            Unit { byte, .. } => write_encoded(&mut out, &[byte]),
        }
    }
    Cow::Owned(out)
}

fn loosest_place_of(target: &[u8]) -> Vec<u8> {
    let decoded: Vec<u8> = units(target).map(|unit| unit.byte).collect();
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut is_folder = true;
    for segment in decoded.split(|byte| *byte == b'/') {
        let segment = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        is_folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            // Above the root some servers stay at the root.
            b".." => _ = segments.pop(),
            name => segments.push(name),
        }
    }
    let mut out = Vec::with_capacity(target.len());
    for segment in &segments {
        out.push(b'/');
        write_encoded(&mut out, segment);
    }
    if is_folder || out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Appends a file name in the form for a target or a Location field.
pub fn write_encoded(out: &mut Vec<u8>, name: &[u8]) {
    for &byte in name {
        match bytes::is(byte, PCHAR) {
            true => out.push(byte),
            false => write_escape(out, byte),
        }
    }
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    let hex = b"0123456789ABCDEF";
    out.extend([b'%', hex[usize::from(byte >> 4)], hex[usize::from(byte & 0xf)]]);
}

// === Normalising ===

/// Whether the path is already normal; false if in doubt.
#[inline]
fn is_read(path: &[u8], reading: Reading) -> bool {
    let Some((b'/', mut rest)) = path.split_first() else { return false };
    // `rest` begins a segment.
    loop {
        if may_be_dots(rest, reading) {
            return false;
        }
        let mut len = 0;
        rest = loop {
            len +=
                rest[len..].iter().position(|b| !bytes::is(*b, PATH)).unwrap_or(rest.len() - len);
            match &rest[len..] {
                [] => return true,
                [b'/', next @ ..] if len > 0 || reading == Reading::Origins => break next,
                [b'%', high, low, ..] if reading == Reading::Origins && stays(*high, *low) => {
                    len += 3;
                }
                // An empty segment, or a byte that must be decoded or refused.
                _ => return false,
            }
        };
    }
}

/// Whether a segment of one or two dots begins here, or one that an origin might interpret as such.
#[inline]
fn may_be_dots(rest: &[u8], reading: Reading) -> bool {
    let behind = match rest {
        [b'.', b'.', behind @ ..] | [b'.', behind @ ..] => behind.first(),
        _ => return false,
    };
    match behind {
        None | Some(b'/') => true,
        Some(b';' | b'%') => reading == Reading::Origins,
        Some(_) => false,
    }
}

/// Whether `%` with these digits is normal: an escape of a byte that must be escaped, with capital
/// letters.
fn stays(high: u8, low: u8) -> bool {
    let is_capital = |digit: u8| digit.is_ascii_digit() || digit.is_ascii_uppercase();
    let byte = hex_pair(high, low).filter(|_| is_capital(high) && is_capital(low));
    byte.is_some_and(|byte| !is_unreserved(byte) && !matches!(byte, 0 | b'\\'))
}

fn rebuild(path: &[u8], reading: Reading) -> Result<Vec<u8>, Reject> {
    let Some((b'/', mut rest)) = path.split_first() else { return Err(Reject::PATH_FORM) };
    let mut out = Vec::with_capacity(path.len());
    loop {
        let len = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
        let is_last = len == rest.len();
        add_segment(&mut out, &rest[..len], is_last, reading)?;
        if is_last {
            return Ok(out);
        }
        rest = &rest[len + 1..];
    }
}

/// Appends `/segment`, or resolves a dot segment (RFC 3986 5.2.4). If the last segment is empty or
/// consists of dots, a slash remains.
fn add_segment(
    out: &mut Vec<u8>,
    segment: &[u8],
    is_last: bool,
    reading: Reading,
) -> Result<(), Reject> {
    let start = out.len();
    out.push(b'/');
    write_normal(out, segment, reading)?;
    match &out[start + 1..] {
        b"" if reading == Reading::Files => out.truncate(start),
        b"." => out.truncate(start),
        b".." => {
            let parent = out[..start].iter().rposition(|b| *b == b'/');
            out.truncate(parent.ok_or(Reject::PATH_ABOVE_ROOT)?);
        }
        plain if reading == Reading::Origins && is_dots_with_parameters(plain) => {
            return Err(Reject::PATH_DOT_PARAMETERS);
        }
        _ => return Ok(()),
    }
    if is_last {
        out.push(b'/');
    }
    Ok(())
}

/// Servlet engines cut segments at `;` before they resolve dots (CVE-2018-11759).
fn is_dots_with_parameters(segment: &[u8]) -> bool {
    let behind = segment.strip_prefix(b"..").or_else(|| segment.strip_prefix(b"."));
    behind.is_some_and(|behind| behind.starts_with(b";") || behind.starts_with(b"%3B"))
}

/// Appends a segment with its escapes normalised (RFC 3986 6.2.2).
fn write_normal(out: &mut Vec<u8>, segment: &[u8], reading: Reading) -> Result<(), Reject> {
    let mut rest = segment;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match (byte, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let decoded = hex_pair(*high, *low).ok_or(Reject::PATH_ESCAPE)?;
                check_escaped(decoded, reading)?;
                match is_unreserved(decoded) {
                    true => out.push(decoded),
                    false => write_escape(out, decoded),
                }
                rest = tail;
            }
            (b'%', _) => return Err(Reject::PATH_ESCAPE),
            (b'\\', _) => return Err(Reject::PATH_BACKSLASH),
            (0..0x20 | 0x7f, _) => return Err(Reject::PATH_CONTROL),
            _ => out.push(*byte),
        }
    }
    Ok(())
}

fn check_escaped(byte: u8, reading: Reading) -> Result<(), Reject> {
    match (byte, reading) {
        (b'\\', _) | (b'/', Reading::Files) => Err(Reject::PATH_ENCODED_SLASH),
        (0, _) | (0..0x20 | 0x7f, Reading::Files) => Err(Reject::PATH_CONTROL),
        _ => Ok(()),
    }
}

/// RFC 3986 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    Some(digit(high)? << 4 | digit(low)?)
}

// === Places ===

/// A character of a target, as distinguished by places.
struct Unit {
    byte: u8,
    is_encoded: bool,
}

fn units(target: &[u8]) -> impl Iterator<Item = Unit> {
    let mut rest = target;
    std::iter::from_fn(move || next_unit(&mut rest))
}

/// Removes a character from the front of a target: an escape, a run of slashes, or a byte.
fn next_unit(rest: &mut &[u8]) -> Option<Unit> {
    let (unit, tail) = match *rest {
        [b'%', high, low, tail @ ..] => match hex_pair(*high, *low) {
            Some(byte) => (Unit { byte, is_encoded: true }, tail),
            // Does not occur in a normalised target.
            None => (Unit { byte: b'%', is_encoded: false }, &rest[1..]),
        },
        [b'/', tail @ ..] => {
            let more = tail.iter().take_while(|b| **b == b'/').count();
            (Unit { byte: b'/', is_encoded: false }, &tail[more..])
        }
        [byte, tail @ ..] => (Unit { byte: *byte, is_encoded: false }, tail),
        [] => return None,
    };
    *rest = tail;
    Some(unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn paths_in_normal_form_are_borrowed() {
        let both = ["/", "/a", "/a/", "/a/b.c/d", "/.well-known/x", "/a..b/...", "/a/..b", "/~x;y"];
        for path in both {
            for reading in [Reading::Files, Reading::Origins] {
                let read = read(path.as_bytes(), reading).unwrap();
                assert_eq!(read.key_as_sent(), Some(path.as_bytes()), "{path}");
            }
        }
        for path in ["/a%20b", "/a%2Bb/%C3%A9", "//a//", "/a%2F"] {
            let read = read(path.as_bytes(), Reading::Origins).unwrap();
            assert_eq!(read.key_as_sent(), Some(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn encoding_escapes_what_a_path_may_not_hold() {
        let mut out = Vec::new();
        write_encoded(&mut out, "/a b/%/é?#[/;=@:".as_bytes());
        assert_eq!(out, b"/a%20b/%25/%C3%A9%3F%23%5B/;=@:");
    }

    #[test]
    fn places_are_one_for_all_spellings_and_slashes_stay_encoded() {
        for (target, expected) in [
            ("/a+b", "/a+b"),
            ("/a%2Bb//c", "/a+b/c"),
            ("/a|%7C", "/a%7C%7C"),
            ("/a%2F/%2Fb", "/a%2F/%2Fb"),
            ("/a%252F", "/a%252F"),
            ("//?a//%2b", "/?a//%2b"),
        ] {
            assert_eq!(*place(target.as_bytes()), *expected.as_bytes(), "{target}");
        }
    }

    #[test]
    fn the_loosest_place_is_what_the_loosest_server_reads() {
        for (path, expected) in [
            ("/a/b", None),
            ("/a%20b/", None),
            ("/a%2Fb", Some("/a/b")),
            ("/a;x/b", Some("/a/b")),
            ("/a/..%2fb%3Bv", Some("/b")),
            ("/..%2F..%2Fb/;x", Some("/b/")),
            ("/%2F", Some("/")),
            ("/a%252F;", Some("/a%252F")),
        ] {
            let path = read(path.as_bytes(), Reading::Origins).unwrap();
            let expected = expected.map(|it| it.as_bytes().to_vec());
            assert_eq!(path.loosest_place(), expected, "{path:?}");
        }
    }

    #[test]
    fn what_is_behind_a_prefix_keeps_its_words() {
        for (path, prefix, expected) in [
            ("/old/a%2Bb//c", "/old/", Some("a%2Bb//c")),
            ("//old///a", "/old/", Some("a")),
            ("/a%2Bb/c", "/a+b", Some("/c")),
            ("/a%2Fb/c", "/a/", None),
            ("/a%2Fb/c", "/a%2F", Some("b/c")),
            ("/o", "/old", None),
            ("/old", "/old", Some("")),
        ] {
            let path = read(path.as_bytes(), Reading::Origins).unwrap();
            assert_eq!(path.behind(prefix.as_bytes()), expected.map(str::as_bytes), "{path:?}");
        }
    }
}
