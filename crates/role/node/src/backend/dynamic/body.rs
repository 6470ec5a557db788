//! The body of a response on its way into its segment: pushed by the proxy and pulled by the fill,
//! both on one worker.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use skep_segments::{FetchError, Filling, Segment, SegmentStore};
use skep_wire::cache::OriginRef;
use tokio::sync::Notify;

use super::response_copy::{CopyCharge, ResponseCopy};
use crate::model::resource::Resource;
use crate::peers::SegmentOrigin;

/// Received bytes of a body that are not in a segment yet.
#[derive(Debug, Default)]
pub(super) struct BodyQueue {
    state: RefCell<QueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    bytes: Vec<u8>,
    /// The number of these bytes that were pulled.
    pulled: usize,
    /// Charged for bytes that were copied earlier.
    charge: Option<CopyCharge>,
    end: Option<BodyEnd>,
}

impl QueueState {
    fn left(&self) -> usize {
        self.bytes.len() - self.pulled
    }

    fn pull(&mut self, bytes: usize) -> Vec<u8> {
        let end = self.pulled + bytes;
        let pulled = self.bytes[self.pulled..end].to_vec();
        self.pulled = end;
        if self.left() == 0 {
            // All bytes were pulled: a copy and its charge are released.
            *self = Self { end: self.end, ..Self::default() };
        }
        pulled
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyEnd {
    /// Ended as the protocol specifies.
    Complete,
    Broken,
}

/// The end of a queue to which a body is pushed. If it is dropped without [`BodyWriter::finish`], the
/// body is broken.
#[derive(Debug)]
pub(super) struct BodyWriter(Rc<BodyQueue>);

impl BodyWriter {
    /// Creates an empty queue, or one that contains the part of the body that was `copied`.
    pub(super) fn new(copied: Option<ResponseCopy>) -> (Self, Rc<BodyQueue>) {
        let mut state = QueueState::default();
        if let Some(copied) = copied {
            let (bytes, charge) = copied.into_parts();
            (state.bytes, state.charge) = (bytes, Some(charge));
        }
        let queue = Rc::new(BodyQueue { state: RefCell::new(state), ..BodyQueue::default() });
        (Self(Rc::clone(&queue)), queue)
    }

    pub(super) fn push(&self, data: &[u8]) {
        let state = &mut *self.0.state.borrow_mut();
        state.bytes.drain(..std::mem::take(&mut state.pulled));
        state.bytes.extend_from_slice(data);
        self.0.changed.notify_one();
    }

    /// Marks the body as complete.
    pub(super) fn finish(self) {
        self.0.end(BodyEnd::Complete);
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        self.0.end(BodyEnd::Broken);
    }
}

impl BodyQueue {
    fn end(&self, end: BodyEnd) {
        self.state.borrow_mut().end.get_or_insert(end);
        self.changed.notify_one();
    }

    /// Returns the next `bytes` bytes; the `last` ones only after the body is complete.
    async fn next(&self, bytes: usize, is_last: bool) -> Option<Vec<u8>> {
        loop {
            {
                let mut state = self.state.borrow_mut();
                let has_all = state.left() >= bytes;
                match state.end {
                    Some(BodyEnd::Broken) => return None,
                    // Only the end of the body confirms the length stated in its head.
                    Some(BodyEnd::Complete) if is_last && state.left() != bytes => {
                        return None;
                    }
                    Some(BodyEnd::Complete) if !has_all => return None,
                    None if is_last || !has_all => {}
                    _ => return Some(state.pull(bytes)),
                }
            }
            self.changed.notified().await;
        }
    }
}

/// The segment of a pool response: filled once, from the body. The body cannot be requested again.
pub(crate) struct PoolSegment {
    store: Arc<SegmentStore>,
    resource: Arc<Resource>,
    body: Option<Rc<BodyQueue>>,
    /// Taken out of use when the body is complete.
    replaces: Option<Arc<Resource>>,
    _filling: Option<Filling>,
}

impl PoolSegment {
    /// The segment of a response received earlier: other nodes may have it.
    pub(crate) fn elsewhere(store: &Arc<SegmentStore>, resource: &Arc<Resource>) -> Self {
        let (store, resource) = (Arc::clone(store), Arc::clone(resource));
        Self { store, resource, body: None, replaces: None, _filling: None }
    }

    /// The same for a response being received; when complete, it replaces the response `replaces`.
    pub(super) fn coming(
        store: &Arc<SegmentStore>,
        resource: &Arc<Resource>,
        body: Rc<BodyQueue>,
        replaces: Option<Arc<Resource>>,
    ) -> Self {
        let bytes = resource.variants.plain.bytes();
        let filling = resource.route.pool_cache().map(|cache| cache.fills.begin(bytes));
        let body = Some(body);
        Self { body, replaces, _filling: filling, ..Self::elsewhere(store, resource) }
    }
}

impl SegmentOrigin for PoolSegment {
    async fn read(&self, segment: Arc<Segment>) -> Result<(), FetchError> {
        loop {
            let bytes = segment.next_chunk_bytes();
            if bytes == 0 {
                if let Some(replaced) = &self.replaces {
                    replaced.retire(&self.store);
                }
                return Ok(());
            }
            let is_last = segment.filled() + bytes as u32 == segment.len();
            let next = match &self.body {
                Some(body) => body.next(bytes, is_last).await,
                None => None,
            };
            let Some(chunk) = next else {
                self.resource.retire(&self.store);
                return Err(FetchError::Lost);
            };
            segment.publish(&chunk).map_err(|_| FetchError::NoMemory)?;
        }
    }

    fn described(&self, _has_lease: bool) -> Option<OriginRef> {
        None
    }
}
