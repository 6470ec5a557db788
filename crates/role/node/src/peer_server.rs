//! Answers other nodes' requests: for segments, for heads, and to take over segments.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use skep_directory::keep::accepts;
use skep_peer::stream::{Chunk, ChunkSource, PeerAnswer, PeerHandler, SourceFailed};
use skep_segments::{Acquired, Segment, SegmentStore, Wanted};
use skep_serve::monotonic_ms;
use skep_telemetry::{CoreCounters, CoreGauge, Counter, Registry};
use skep_wire::cache::part::FileHead;
use skep_wire::cache::{
    FilePlace, OriginRef, PeerRefusal, PeerReply, PeerRequest, PurgeStamp, SegmentName,
};
use skep_wire::message::Name;

use crate::backend::compressed::CompressedHeads;
use crate::backend::files::catalog::{Catalog, Located};
use crate::backend::files::file::SharedFile;
use crate::backend::origin::RemoteSegment;
use crate::backend::partition::head_of;
use crate::disk::DiskError;
use crate::disk::pool::pool;
use crate::http::handler::NodeHandler;
use crate::limits::{CLIENT_BYTES_PART, OFFER_WAIT_MS};
use crate::model::announced::{Announced, AnnouncedPath};
use crate::model::peer::PeerHead;
use crate::peers::{Cluster, Outstanding, PeerClient, SegmentOrigin};

/// Answers requests of other nodes on one worker.
pub struct PeerServer {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    pub(crate) compressed_heads: Arc<CompressedHeads>,
    pub(crate) announced: Arc<Announced>,
    pub(crate) peer_client: PeerClient,
    /// The handler of this worker, through which origins are reached.
    pub(crate) handler: Rc<NodeHandler>,
    pub(crate) counters: Arc<CoreCounters>,
    /// Registry of all workers: counts the bytes that clients have yet to receive.
    pub(crate) registry: Arc<Registry>,
}

impl PeerServer {
    async fn fetch(
        &self,
        peer: &Name,
        (name, bytes, from): (SegmentName, u32, u32),
        origin: Option<OriginRef>,
    ) -> Result<OutgoingSegment, PeerRefusal> {
        let is_here = origin.as_ref().is_some_and(|origin| self.is_of_part(origin));
        if self.is_overloaded(is_here) {
            self.counters.inc(Counter::PeerOverloaded);
            return Err(PeerRefusal::Overloaded);
        }
        let found = match (self.store.find(name), origin) {
            // Requests for files on this disk must not wait for fetches from other nodes, which may
            // wait for the requester.
            (Some(segment), Some(_)) if is_here && !segment.grows_from_here() => None,
            (Some(segment), _) => Some(segment).filter(|segment| segment.may_serve(peer.peer())),
            (None, Some(origin)) if origin.has_lease && !self.accepts(bytes) => {
                return Err(PeerRefusal::NotWanted);
            }
            (None, Some(origin)) => self.fill(name, bytes, origin).await,
            (None, None) => None,
        };
        let Some(segment) = found else {
            self.counters.inc(Counter::PeerNotThere);
            return Err(PeerRefusal::NotThere);
        };
        if segment.len() != bytes || segment.checksum(0).is_none() {
            return Err(PeerRefusal::Mismatch);
        }
        self.counters.inc(Counter::PeerServed);
        Ok(OutgoingSegment::new(segment, self, u64::from(bytes - from)))
    }

    /// Whether there is room for a remote fill of `bytes` for a node that has none.
    fn accepts(&self, bytes: u32) -> bool {
        self.store.may_fill() && accepts(self.store.room(), bytes)
    }

    /// Whether this node has so much to send that other nodes should ask elsewhere. Bytes on this
    /// disk (`is_here`) may exist nowhere else: for them the load by clients is ignored.
    fn is_overloaded(&self, is_here: bool) -> bool {
        let clients = match is_here {
            true => 0,
            false => self.registry.gauge(CoreGauge::BytesOutstanding) / CLIENT_BYTES_PART,
        };
        self.cluster.sending.bytes() + clients > self.cluster.outstanding_bytes_max
    }

    async fn head(&self, name: SegmentName, place: Option<FilePlace>) -> PeerReply {
        let catalog = self.catalog.load_full();
        let announced = self.announced.find(name);
        if let Some(place) = announced.or_else(|| unannounced(&catalog, name, place?)) {
            return self.head_of_part(&catalog, name, &place).await;
        }
        let of_pool = catalog.pool_heads().head_for_peer(name).await;
        let head = match of_pool {
            Err(PeerRefusal::NotThere) => catalog.origin_heads().head_for_peer(name).await,
            of_pool => of_pool,
        };
        let head = match head {
            Err(PeerRefusal::NotThere) => self.compressed_heads.head_for_peer(name).await,
            head => head,
        };
        match head {
            // Builds without soft purges need not understand a message about a head that no soft
            // purge concerns.
            Ok(PeerHead { fresh_ms, softly_purged: PurgeStamp::NONE, head }) => {
                PeerReply::Head { fresh_ms, head }
            }
            Ok(PeerHead { fresh_ms, softly_purged, head }) => {
                PeerReply::HeadAfter { fresh_ms, softly_purged, head }
            }
            Err(refusal) => PeerReply::Refused(refusal),
        }
    }

    /// The head of this node's file at a place that it has announced.
    async fn head_of_part(
        &self,
        catalog: &Arc<Catalog>,
        name: SegmentName,
        place: &AnnouncedPath,
    ) -> PeerReply {
        let not_there = PeerReply::Refused(PeerRefusal::NotThere);
        let Some(route) = catalog.sites().by_key(place.route) else { return not_there };
        let path = [b"/", &*place.relative].concat();
        let head = match catalog.locate_or_wait(route, &path).await {
            // Other nodes would cache an unsettled file.
            Ok(Located::Resource(resource, _)) if !resource.is_settled() => None,
            Ok(Located::Resource(resource, _)) => {
                resource.mark_used();
                let fresh_ms = resource.fresh_ms(monotonic_ms(), catalog.interval_ms());
                head_of(&resource.variants).map(|head| (head, fresh_ms))
            }
            Ok(Located::NeedsSlash | Located::Directory) => Some((FileHead::Folder, 0)),
            Err(DiskError::Forbidden) => Some((FileHead::Forbidden, 0)),
            Err(DiskError::NotFound) => {
                self.announced.doubt(name);
                return not_there;
            }
            Err(_) => None,
        };
        match head {
            Some((head, fresh_ms)) => PeerReply::Head { fresh_ms, head: head.to_bytes() },
            None => PeerReply::Refused(PeerRefusal::OriginFailed),
        }
    }

    /// Whether `origin` is in a partitioned folder.
    fn is_of_part(&self, origin: &OriginRef) -> bool {
        let catalog = self.catalog.load();
        catalog.sites().by_key(origin.site).is_some_and(|route| route.is_partition())
    }

    /// Takes a sole replica over from `peer`, which would otherwise lose it.
    async fn offered(&self, peer: &Name, name: SegmentName, bytes: u32, chances: u8) -> PeerReply {
        let limit = Duration::from_millis(OFFER_WAIT_MS);
        let taken = tokio::time::timeout(limit, self.takes(peer, name, bytes, chances)).await;
        if taken != Ok(true) {
            return PeerReply::Refused(PeerRefusal::NotWanted);
        }
        // Sent before the offering node reports that it dropped the replica.
        self.cluster.tell_changes().await;
        PeerReply::Taken
    }

    async fn takes(&self, peer: &Name, name: SegmentName, bytes: u32, chances: u8) -> bool {
        if self.promote_replica(&name).await {
            return true;
        }
        let from = self.cluster.peer(peer).filter(|_| accepts(self.store.room(), bytes));
        let wanted = Wanted { name, bytes, has_more: false };
        let segment = from.and_then(|_| self.store.room_for(wanted));
        let Some((from, segment)) = from.zip(segment) else { return false };
        segment.set_chances(chances);
        let is_whole = self.peer_client.take_over(name, &segment, from).await;
        let is_taken =
            is_whole && (self.store.take_in(name, &segment) || self.promote_replica(&name).await);
        if is_taken {
            self.counters.inc(Counter::PeerTakenOver);
        }
        is_taken
    }

    /// Promotes this node's replica of a segment to the primary one, if it has a replica, so that
    /// it is kept from now on. A transfer in progress must end first: it may come from the offering
    /// node, which must not evict the segment before that.
    async fn promote_replica(&self, name: &SegmentName) -> bool {
        if let Some(segment) = self.store.growing(name) {
            let whole = poll_fn(|cx| segment.poll_more(cx, segment.len() - 1)).await;
            while whole.is_ok() && self.store.growing(name).is_some() {
                tokio::task::yield_now().await;
            }
        }
        self.store.promote_replica(name)
    }

    /// Fills a segment for another node.
    async fn fill(&self, name: SegmentName, bytes: u32, origin: OriginRef) -> Option<Arc<Segment>> {
        let has_more = origin.index == 0 && origin.object_bytes > u64::from(bytes);
        let (wanted, why) = (Wanted { name, bytes, has_more }, self.why(&origin));
        // Both of one config: another config numbers its routes differently.
        let (catalog, remotes) = self.handler.in_force();
        let route = catalog.sites().by_key(origin.site)?;
        if route.origin().is_some() {
            let segment = RemoteSegment::described_by(&origin, name, route, &remotes).await?;
            return Some(self.begin(wanted, segment, why));
        }
        let (route, counters) = (Arc::clone(route), Arc::clone(&self.counters));
        let look = move || SharedFile::described_by(&origin, name, &route, &counters);
        let file = pool(move || Ok::<_, DiskError>(look())).await.ok().flatten()?;
        Some(self.begin(wanted, file, why))
    }

    fn why(&self, origin: &OriginRef) -> FillReason {
        match origin.has_lease {
            true => FillReason::HasRoom,
            false if self.is_of_part(origin) => FillReason::HasFile,
            false => FillReason::IsOwner,
        }
    }

    fn begin(&self, wanted: Wanted, origin: impl SegmentOrigin, why: FillReason) -> Arc<Segment> {
        let filler = match self.store.acquire(wanted) {
            Acquired::Ready(segment) | Acquired::Growing(segment) => return segment,
            Acquired::Fill(filler) => filler,
        };
        let segment = Arc::clone(filler.segment());
        match why {
            FillReason::HasRoom => self.peer_client.fill_from_origin(filler, origin),
            FillReason::HasFile => self.peer_client.fill_from_disk(filler, origin),
            FillReason::IsOwner => self.peer_client.fill_for_peer(filler, origin),
        }
        segment
    }
}

/// The place of a file that another node seeks here; this node would announce the place if the file
/// existed.
fn unannounced(catalog: &Catalog, name: SegmentName, place: FilePlace) -> Option<AnnouncedPath> {
    let route = catalog.sites().by_key(place.route).filter(|route| route.is_partition())?;
    let is_shown = route.folder()?.shows(&[b"/", &*place.path].concat());
    let is_meant = is_shown && route.part_head_name(&place.path) == name;
    is_meant.then(|| AnnouncedPath { route: place.route, relative: place.path.into() })
}

/// Why another node asks this one to fill a segment.
#[derive(Clone, Copy)]
enum FillReason {
    /// The other node has the lease but no room: a remote fill.
    HasRoom,
    /// The file is on this node's disk.
    HasFile,
    /// The other node considers this one the owner.
    IsOwner,
}

impl PeerHandler for PeerServer {
    type Source = OutgoingSegment;

    async fn answer(&self, peer: &Name, request: PeerRequest) -> PeerAnswer<OutgoingSegment> {
        let served = match request {
            PeerRequest::Fetch { name, bytes, from, origin } => {
                self.fetch(peer, (name, bytes, from), origin).await
            }
            PeerRequest::Head { name, place } => {
                return PeerAnswer::Reply(self.head(name, place).await);
            }
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
pub struct OutgoingSegment {
    segment: Arc<Segment>,
    sending: Arc<Outstanding>,
    counters: Arc<CoreCounters>,
    bytes: u64,
}

impl OutgoingSegment {
    fn new(segment: Arc<Segment>, server: &PeerServer, bytes: u64) -> Self {
        let sending = Arc::clone(&server.cluster.sending);
        sending.add(bytes);
        Self { segment, sending, counters: Arc::clone(&server.counters), bytes }
    }
}

impl Drop for OutgoingSegment {
    fn drop(&mut self) {
        self.sending.sub(self.bytes);
    }
}

impl ChunkSource for OutgoingSegment {
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
