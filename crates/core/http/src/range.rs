//! Byte ranges: Range and If-Range (RFC 9110 13.1.5 and 14).
//!
//! Invariant: the parts of a verdict lie inside the representation, none is empty, no two overlap;
//! so a reply is never larger than the whole representation plus the part headers (CVE-2011-3192:
//! Apache multiplied the body).

use std::ops::Range;

use smallvec::SmallVec;

use crate::conditional::strong_match;
use crate::{HttpDate, Known, Method, RequestHead, Validators, bytes};

/// Parts of a reply; up to four are stored in place.
pub type Parts = SmallVec<[Range<u64>; 4]>;

/// Parts closer than this are joined, in bytes: the header of a part takes about as much (RFC 9110
/// 15.3.7.2 allows it).
const GAP_BYTES_MIN: u64 = 80;

/// Verdict on a Range field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeVerdict {
    /// Send the whole representation with 200.
    Whole,
    /// Send these with 206: one or more, none empty, none overlapping; in the requested order, or
    /// ascending if some had to be joined.
    Parts(Parts),
    /// Answer 416 with `Content-Range: bytes */len`.
    Unsatisfiable,
}

/// Which parts of a representation of `len_bytes` to send: all of it if the field is malformed or
/// has another unit, If-Range fails, or there are more than `ranges_max` ranges. `made_unix` is the
/// reply's `Date`.
#[inline]
pub fn ranges(
    head: &RequestHead<'_, '_>,
    current: &Validators<'_>,
    made_unix: u64,
    len_bytes: u64,
    ranges_max: usize,
) -> RangeVerdict {
    match head.fields.known(Known::Range) {
        Some(value) if head.method == Method::Get && !head.fields.is_repeated(Known::Range) => {
            if if_range_holds(head, current, made_unix) {
                parse(value, len_bytes, ranges_max).unwrap_or(RangeVerdict::Whole)
            } else {
                RangeVerdict::Whole
            }
        }
        _ => RangeVerdict::Whole,
    }
}

/// RFC 9110 13.1.5: a strong tag, or exactly the modification date if that is
/// strong (8.8.2.2): content that was modified in the second of the response may
/// change again under the same date.
fn if_range_holds(head: &RequestHead<'_, '_>, current: &Validators<'_>, made_unix: u64) -> bool {
    let Some(value) = head.fields.known(Known::IfRange) else { return true };
    if head.fields.is_repeated(Known::IfRange) {
        return false;
    }
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return strong_match(value, current.etag);
    }
    // A two-digit year is resolved to the century that can match.
    current.last_modified.filter(|modified| *modified < made_unix).is_some_and(|modified| {
        HttpDate::parse(value, modified).is_some_and(|date| date.0 == modified)
    })
}

/// Parses `bytes=0-499, 1000-, -500`; `None` if it is not a set of byte ranges that is supported.
fn parse(value: &[u8], len_bytes: u64, ranges_max: usize) -> Option<RangeVerdict> {
    let equals = value.iter().position(|b| *b == b'=')?;
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut parts = Parts::new();
    let mut count = 0;
    for spec in bytes::list(set) {
        count += 1;
        if count > ranges_max {
            return None;
        }
        match parse_spec(spec, len_bytes)? {
            // A suffix of an empty representation is all of it, which no 206 can express.
            part if part.is_empty() && len_bytes == 0 && spec[0] == b'-' && spec != b"-0" => {
                return None;
            }
            part if part.is_empty() => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return (count > 0).then_some(RangeVerdict::Unsatisfiable);
    }
    Some(RangeVerdict::Parts(joined(parts)))
}

/// `first-last`, `first-` or `-suffix`; empty if it lies outside.
fn parse_spec(spec: &[u8], len_bytes: u64) -> Option<Range<u64>> {
    let dash = spec.iter().position(|b| *b == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = position(last)?;
        return Some(len_bytes.saturating_sub(suffix)..len_bytes);
    }
    let first = position(first)?;
    let end = if last.is_empty() {
        len_bytes
    } else {
        let last = position(last)?;
        if last < first {
            return None;
        }
        last.saturating_add(1).min(len_bytes)
    };
    Some(first.min(end)..end)
}

/// Digits; a number beyond 64 bits is beyond any representation.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |n: u64, d: &u8| n.saturating_mul(10).saturating_add(u64::from(d - b'0'));
    Some(digits.iter().fold(0, add))
}

/// Joins parts that overlap or nearly touch; otherwise keeps their order.
fn joined(parts: Parts) -> Parts {
    if parts.len() == 1 {
        return parts;
    }
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|part| part.start);
    let apart = |a: &Range<u64>, b: &Range<u64>| b.start >= a.end.saturating_add(GAP_BYTES_MIN);
    if sorted.windows(2).all(|pair| apart(&pair[0], &pair[1])) {
        return parts;
    }
    let mut out = Parts::new();
    for part in sorted {
        match out.last_mut() {
            Some(last) if !apart(last, &part) => last.end = last.end.max(part.end),
            _ => out.push(part),
        }
    }
    out
}
