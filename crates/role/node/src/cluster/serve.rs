//! What this node answers other nodes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwap;
use skep_directory::keep::accepts;
use skep_peer::stream::{Chunk, ChunkSource, PeerAnswer, PeerHandler, SourceFailed};
use skep_telemetry::{CoreCounters, Counter};
use skep_wire::cache::{Origin, PeerReply, PeerRequest, Refusal, SegmentName};
use skep_wire::message::Name;

use super::{Cluster, Others, Outstanding};
use crate::catalog::Catalog;
use crate::file::{SharedFile, site_key};
use crate::remote::Handed;
use crate::segment::Segment;
use crate::store::{Acquired, Store, Wanted};
use crate::stream::pool;

/// Answers other nodes, on one worker.
pub struct PeerDesk {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) store: Arc<Store>,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    pub(crate) others: Others,
    pub(crate) counters: Arc<CoreCounters>,
}

impl PeerDesk {
    async fn fetch(
        &self,
        peer: &Name,
        (name, bytes, from): (SegmentName, u32, u32),
        origin: Option<Origin>,
    ) -> Result<Serving, Refusal> {
        if self.cluster.sending.bytes() > self.cluster.sending_bytes_max {
            self.counters.inc(Counter::PeerOverloaded);
            return Err(Refusal::Overloaded);
        }
        let found = match (self.store.find(name), origin) {
            (Some(segment), _) => Some(segment).filter(|segment| segment.may_serve(peer.peer())),
            (None, Some(origin)) => self.fill(name, bytes, origin).await,
            (None, None) => None,
        };
        let Some(segment) = found else {
            self.counters.inc(Counter::PeerNotThere);
            return Err(Refusal::NotThere);
        };
        if segment.len() != bytes || segment.checksum(0).is_none() {
            return Err(Refusal::Mismatch);
        }
        self.counters.inc(Counter::PeerServed);
        Ok(Serving::new(segment, self, u64::from(bytes - from)))
    }

    async fn head(&self, name: SegmentName) -> PeerReply {
        let catalog = self.catalog.load_full();
        match catalog.shelf().head_for_peer(name).await {
            Ok(Handed { fresh_ms, head }) => PeerReply::Head { fresh_ms, head },
            Err(refusal) => PeerReply::Refused(refusal),
        }
    }

    /// Takes a last copy over from `peer`, where it would be lost.
    async fn offered(&self, peer: &Name, name: SegmentName, bytes: u32, chances: u8) -> PeerReply {
        let from = self.cluster.peer(peer).filter(|_| accepts(self.store.room(), bytes));
        let acquired =
            from.map(|from| (from, self.store.acquire(Wanted { name, bytes, has_more: false })));
        if let Some((from, Acquired::Fill(filler))) = acquired
            && filler.is_kept()
        {
            filler.segment().set_chances(chances);
            if self.others.take_over(filler, from).await {
                self.counters.inc(Counter::PeerTakenOver);
                return PeerReply::Taken;
            }
        }
        PeerReply::Refused(Refusal::NotWanted)
    }

    /// Fills a segment for a node that takes this one for its owner.
    async fn fill(&self, name: SegmentName, bytes: u32, origin: Origin) -> Option<Arc<Segment>> {
        let (catalog, counters) = (self.catalog.load_full(), Arc::clone(&self.counters));
        let has_more = origin.index == 0 && origin.object_bytes > u64::from(bytes);
        let wanted = Wanted { name, bytes, has_more };
        let look = move || {
            let site = catalog.sites().iter().find(|site| site_key(site) == origin.site)?;
            SharedFile::described_by(&origin, name, site, &counters)
        };
        let file = pool(move || Ok(look())).await.ok().flatten()?;
        match self.store.acquire(wanted) {
            Acquired::Ready(segment) | Acquired::Growing(segment) => Some(segment),
            Acquired::Fill(filler) => {
                let segment = Arc::clone(filler.segment());
                self.others.fill_for_peer(filler, file);
                Some(segment)
            }
        }
    }
}

impl PeerHandler for PeerDesk {
    type Source = Serving;

    async fn answer(&self, peer: &Name, request: PeerRequest) -> PeerAnswer<Serving> {
        let served = match request {
            PeerRequest::Fetch { name, bytes, from, origin } => {
                self.fetch(peer, (name, bytes, from), origin).await
            }
            PeerRequest::Head { name } => return PeerAnswer::Reply(self.head(name).await),
            PeerRequest::Offer { name, bytes, chances } => {
                return PeerAnswer::Reply(self.offered(peer, name, bytes, chances).await);
            }
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
    counters: Arc<CoreCounters>,
    bytes: u64,
}

impl Serving {
    fn new(segment: Arc<Segment>, desk: &PeerDesk, bytes: u64) -> Self {
        let sending = Arc::clone(&desk.cluster.sending);
        sending.add(bytes);
        Self { segment, sending, counters: Arc::clone(&desk.counters), bytes }
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
        self.counters.add(Counter::PeerSentBytes, u64::from(end - start));
        Poll::Ready(self.segment.shared_chunk(start, end).ok_or(SourceFailed))
    }
}
