//! Byte ranges (RFC 9110 14).
use crate::{RequestHead, Validators};
use std::ops::Range;

/// Parts of a reply; one is stored in place.
pub type Parts = smallvec::SmallVec<[Range<u64>; 4]>;

/// Verdict on a Range field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeVerdict {
    /// Send all with 200.
    Whole,
    /// Send these with 206; one or more, none empty, none overlapping.
    Parts(Parts),
    /// Answer 416 with `Content-Range: bytes */len`.
    Unsatisfiable,
}

/// What of `len_bytes` to send. More than `ranges_max` ranges: all of it.
pub fn ranges(
    head: &RequestHead<'_, '_>,
    current: &Validators<'_>,
    len_bytes: u64,
    ranges_max: usize,
) -> RangeVerdict {
    let _ = (head, current, len_bytes, ranges_max);
    unimplemented!("ranges")
}
