//! What this node answers other nodes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use skep_peer::stream::{Chunk, ChunkSource, PeerAnswer, PeerHandler, SourceFailed};
use skep_telemetry::{CoreCounters, Counter};
use skep_wire::cache::{PeerReply, PeerRequest, Refusal, SegmentName};
use skep_wire::message::Name;

use super::{Cluster, Outstanding};
use crate::segment::Segment;
use crate::store::Store;

/// Answers other nodes, on one worker.
pub struct PeerDesk {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) store: Arc<Store>,
    pub(crate) counters: Arc<CoreCounters>,
}

impl PeerDesk {
    fn fetch(
        &self,
        peer: &Name,
        name: SegmentName,
        bytes: u32,
        from: u32,
    ) -> Result<Serving, Refusal> {
        if self.cluster.sending.bytes() > self.cluster.sending_bytes_max {
            self.counters.inc(Counter::PeerOverloaded);
            return Err(Refusal::Overloaded);
        }
        let found = self.store.find(name).filter(|segment| segment.may_serve(peer.peer()));
        let Some(segment) = found else {
            self.counters.inc(Counter::PeerNotThere);
            return Err(Refusal::NotThere);
        };
        if segment.len() != bytes || segment.checksum(0).is_none() {
            return Err(Refusal::Mismatch);
        }
        self.counters.inc(Counter::PeerServed);
        Ok(Serving::new(segment, &self.cluster.sending, u64::from(bytes - from)))
    }
}

impl PeerHandler for PeerDesk {
    type Source = Serving;

    async fn answer(&self, peer: &Name, request: PeerRequest) -> PeerAnswer<Serving> {
        let served = match request {
            PeerRequest::Fetch { name, bytes, from, .. } => self.fetch(peer, name, bytes, from),
            PeerRequest::Head { .. } | PeerRequest::Offer { .. } => Err(Refusal::NotThere),
        };
        match served {
            Ok(serving) => PeerAnswer::Coming(serving),
            Err(refusal) => PeerAnswer::Reply(PeerReply::Refused(refusal)),
        }
    }
}

/// A segment on its way to another node.
pub struct Serving {
    segment: Arc<Segment>,
    sending: Arc<Outstanding>,
    bytes: u64,
}

impl Serving {
    fn new(segment: Arc<Segment>, sending: &Arc<Outstanding>, bytes: u64) -> Self {
        sending.add(bytes);
        Self { segment, sending: Arc::clone(sending), bytes }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.sending.sub(self.bytes);
    }
}

impl ChunkSource for Serving {
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        start: u32,
        end: u32,
    ) -> Poll<Result<Chunk, SourceFailed>> {
        let filled = ready!(self.segment.poll_more(cx, end - 1)).map_err(|_| SourceFailed)?;
        debug_assert!(filled >= end, "chunks come whole");
        Poll::Ready(self.segment.shared_chunk(start, end).ok_or(SourceFailed))
    }
}
