//! The segment of a compressed variant.

use std::cell::RefCell;
use std::sync::Arc;

use skep_segments::{FetchError, Segment};
use skep_wire::cache::OriginRef;

use crate::peers::SegmentOrigin;

/// A compressed variant as the source of its segment. Compressing the object again may give other
/// bytes: a variant in no memory is lost.
pub(crate) struct CompressedSegment(RefCell<Option<Vec<u8>>>);

impl CompressedSegment {
    /// A variant that was just made.
    pub(crate) fn made(bytes: Vec<u8>) -> Self {
        Self(RefCell::new(Some(bytes)))
    }

    /// A variant that other nodes may have.
    pub(crate) fn elsewhere() -> Self {
        Self(RefCell::new(None))
    }
}

impl SegmentOrigin for CompressedSegment {
    async fn read(&self, segment: Arc<Segment>) -> Result<(), FetchError> {
        let bytes = self.0.borrow();
        let Some(bytes) = &*bytes else { return Err(FetchError::Lost) };
        loop {
            let (at, more) = (segment.filled() as usize, segment.next_chunk_bytes());
            if more == 0 {
                return Ok(());
            }
            let chunk = bytes.get(at..at + more).ok_or(FetchError::Lost)?;
            segment.publish(chunk).map_err(|_| FetchError::NoMemory)?;
        }
    }

    fn described(&self, _has_lease: bool) -> Option<OriginRef> {
        None
    }
}
