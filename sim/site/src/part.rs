//! The part of an object that is requested.

use std::ops::Range;

use skep_units::SEGMENT_BYTES;

/// A range of bytes of an object; empty if the response has no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectPart {
    pub(crate) from: u64,
    pub(crate) end: u64,
}

impl ObjectPart {
    pub(crate) fn bytes(self) -> u64 {
        self.end - self.from
    }

    /// The segments that contain bytes of the part.
    pub(crate) fn segments(self) -> Range<u32> {
        let first = (self.from / SEGMENT_BYTES) as u32;
        match self.bytes() {
            0 => first..first,
            _ => first..self.end.div_ceil(SEGMENT_BYTES) as u32,
        }
    }

    /// The number of its bytes in these segments.
    pub(crate) fn bytes_of(self, segments: Range<u32>) -> u64 {
        let from = (u64::from(segments.start) * SEGMENT_BYTES).max(self.from);
        let end = (u64::from(segments.end) * SEGMENT_BYTES).min(self.end);
        end.saturating_sub(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_add_up_to_their_part() {
        let sizes = [0, 1, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 1, 10 * SEGMENT_BYTES];
        for from in sizes {
            for bytes in sizes {
                let part = ObjectPart { from, end: from + bytes };
                let all = part.segments();
                let sum: u64 = all.clone().map(|it| part.bytes_of(it..it + 1)).sum();
                assert_eq!((sum, part.bytes_of(all)), (bytes, bytes), "{part:?}");
            }
        }
    }
}
