//! Fills a segment: performs the I/O for [`Fetcher`], which decides each next step.
//!
//! A fill is a task of its own. Clients read from the segment while it grows, and neither a
//! client's speed nor its disconnection affects the fill.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_directory::keep::prefers_remote_fill;
use skep_directory::{FetchAction, FetchEvent, FetchOutcome, Fetcher};
use skep_origin::FaultKind;
use skep_peer::stream::{PeerError, PeerPool};
use skep_segments::{Buffer, FetchError, Filler, PeerFillSource, Segment};
use skep_serve::{Worker, monotonic_ms};
use skep_telemetry::{CoreCounters, Counter};
use skep_units::Now;
use skep_wire::cache::{LeaseId, OriginRef, PeerRefusal, PeerRequest, PurgeWhat};
use tokio::sync::oneshot;

use super::Cluster;
use crate::limits::{FILL_ATTEMPTS_MAX, LEASE_RENEW_MS};
use crate::model::fault::fetch_error;
use crate::model::peer::PeerNode;

/// Fills a segment from its source.
pub(crate) trait SegmentOrigin: 'static {
    /// Continues to read after the bytes already there. Whatever fails, the bytes already there
    /// are correct.
    fn read(&self, segment: Arc<Segment>) -> impl Future<Output = Result<(), FetchError>>;

    /// A description that all nodes understand, for a node that fills instead of this one; `None`:
    /// another node cannot fill it. `has_lease`: this node has the lease.
    fn described(&self, has_lease: bool) -> Option<OriginRef>;
}

/// Reads all of a segment: continues where its origin broke off, as long as each attempt brings
/// bytes. An attempt that brings none leaves the rest to a later request.
async fn read_on(origin: &impl SegmentOrigin, segment: &Arc<Segment>) -> Result<(), FetchError> {
    let mut read = Err(FetchError::Abandoned);
    for _ in 0..FILL_ATTEMPTS_MAX {
        let filled = segment.filled();
        read = origin.read(Arc::clone(segment)).await;
        if let Err(error) = &read {
            tracing::debug!(%error, "a segment could not be filled");
        }
        if read.is_ok() || segment.filled() == filled {
            break;
        }
    }
    read
}

/// Reads all of a segment, and ends its fill if that fails.
pub(crate) async fn read_all(origin: &impl SegmentOrigin, filler: Filler) {
    if let Err(error) = read_on(origin, filler.segment()).await {
        filler.fail(error);
    }
}

/// Runs `work` under a lease and renews the lease every [`LEASE_RENEW_MS`] until `work` completes:
/// an origin may be slow. (Nodes that wait for a source that makes no progress eventually revoke
/// the lease.)
pub(crate) async fn renewing<T>(work: impl Future<Output = T>, renew: impl Fn()) -> T {
    let mut work = pin!(work);
    let limit = Duration::from_millis(LEASE_RENEW_MS);
    loop {
        match tokio::time::timeout(limit, &mut work).await {
            Ok(done) => return done,
            Err(_) => renew(),
        }
    }
}

/// The client of other nodes on one worker: asks coordinators for the holder of a segment or
/// head, gets it from there, and fills what no node has.
pub(crate) struct PeerClient {
    pub(super) cluster: Arc<Cluster>,
    pub(super) pool: Rc<PeerPool>,
    pub(super) counters: Arc<CoreCounters>,
}

impl PeerClient {
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        worker: &Rc<Worker>,
        counters: &Arc<CoreCounters>,
    ) -> Self {
        let pool = PeerPool::new(worker, &cluster.identity, &cluster.counts);
        Self { cluster: Arc::clone(cluster), pool, counters: Arc::clone(counters) }
    }

    /// Purges `what` on all nodes; false: no coordinator answers.
    pub(crate) fn invalidate(&self, what: Vec<PurgeWhat>) -> bool {
        self.cluster.invalidate(what)
    }

    /// Begins to fill a segment, from another node's memory if a holder exists. The returned
    /// receiver completes when the coordinator has answered, or is found not to answer.
    pub(crate) fn fill(&self, filler: Filler, origin: impl SegmentOrigin) -> oneshot::Receiver<()> {
        self.spawn(filler, origin, false)
    }

    /// The same, for a node that considers this one the owner.
    pub(crate) fn fill_for_peer(&self, filler: Filler, origin: impl SegmentOrigin) {
        drop(self.spawn(filler, origin, true));
    }

    /// Begins to fill a segment from this node's own disk and from nowhere else, for a node that
    /// has the lease and waits for the result.
    pub(crate) fn fill_from_disk(&self, filler: Filler, file: impl SegmentOrigin) {
        let (segment, read) = (Arc::clone(filler.segment()), filler.begin_backend_read());
        tokio::task::spawn_local(async move {
            read_all(&file, filler).await;
            if segment.is_complete() {
                read.completed();
            }
        });
    }

    /// Begins a remote fill: fills a segment from its origin for a node that has the lease but no
    /// room, and waits for the result.
    pub(crate) fn fill_from_origin(&self, filler: Filler, origin: impl SegmentOrigin) {
        let (cluster, counters) = (Arc::clone(&self.cluster), Arc::clone(&self.counters));
        tokio::task::spawn_local(async move {
            match read_counted(&origin, &filler, &counters).await {
                Ok(()) => drop(filler),
                Err(error) => filler.fail(error),
            }
            // Reported before the other node announces the segment as well: the first holder has
            // the primary replica.
            cluster.tell_changes().await;
        });
    }

    fn spawn(
        &self,
        filler: Filler,
        origin: impl SegmentOrigin,
        is_for_peer: bool,
    ) -> oneshot::Receiver<()> {
        let (known, receiver) = oneshot::channel();
        let running = Running {
            cluster: Arc::clone(&self.cluster),
            pool: Rc::clone(&self.pool),
            counters: Arc::clone(&self.counters),
            filler,
            origin,
            is_for_peer,
            error: Cell::new(FetchError::Peer),
        };
        tokio::task::spawn_local(run(running, known));
        receiver
    }
}

/// Runs a fill to its end: the segment is then complete, or has failed. `known` is completed after
/// the coordinator's first answer.
async fn run<O: SegmentOrigin>(running: Running<O>, known: oneshot::Sender<()>) {
    let mut known = Some(known);
    let bytes = running.segment().len();
    let mut fetcher = match running.is_for_peer {
        true => Fetcher::for_peer(bytes, now()),
        false => Fetcher::new(bytes, now()),
    };
    let mut event = FetchEvent::Begin;
    loop {
        let action = fetcher.next(event, now());
        // The last source determines whether another node has a replica as well.
        if let Some(source) = action.fill_source() {
            running.segment().set_fill_source(source.map(|peer: PeerNode| peer.id));
        }
        event = match action {
            FetchAction::Ask => {
                let event = running.ask().await;
                // The waiter may be gone.
                known.take().map(|known| known.send(()));
                event
            }
            FetchAction::FetchFrom { peer, with_origin, .. } => {
                running.fetch(peer, with_origin).await
            }
            FetchAction::FillFromOrigin { lease, .. } => running.fill_from_origin(lease).await,
            FetchAction::TellNotThere { peer } => {
                running.counters.inc(Counter::ClusterDirectoryError);
                running.cluster.tell_not_there(running.filler.name(), peer);
                FetchEvent::Told
            }
            FetchAction::TellEnded { lease, is_whole } => {
                let is_held = is_whole && running.filler.is_kept();
                running.cluster.tell_ended(lease, is_held);
                FetchEvent::Told
            }
            FetchAction::Wait { ms } => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                FetchEvent::Waited
            }
            FetchAction::Done => return,
            FetchAction::Failed => {
                running.counters.inc(Counter::ClusterFailed);
                return running.filler.fail(running.error.get());
            }
        };
    }
}

fn now() -> Now {
    Now(monotonic_ms())
}

struct Running<O> {
    cluster: Arc<Cluster>,
    pool: Rc<PeerPool>,
    counters: Arc<CoreCounters>,
    filler: Filler,
    origin: O,
    /// The fill is for a node that considers this one the owner.
    is_for_peer: bool,
    /// The error of the last attempt.
    error: Cell<FetchError>,
}

impl<O: SegmentOrigin> Running<O> {
    fn segment(&self) -> &Arc<Segment> {
        self.filler.segment()
    }

    async fn ask(&self) -> FetchEvent<PeerNode> {
        let event = self.cluster.ask(self.filler.name(), self.segment().len()).await;
        if matches!(event, FetchEvent::NoAnswer { .. }) {
            self.counters.inc(Counter::ClusterSilent);
        }
        event
    }

    async fn fetch(&self, peer: PeerNode, with_origin: bool) -> FetchEvent<PeerNode> {
        let from = self.segment().filled();
        let request = PeerRequest::Fetch {
            name: self.filler.name(),
            bytes: self.segment().len(),
            from,
            origin: if with_origin { self.origin.described(false) } else { None },
        };
        let bytes = self.segment().len();
        if with_origin {
            self.cluster.owners.asked(peer.id, bytes);
        }
        let end = match fetch_chunks(&self.pool, peer.address, &request, self.segment()).await {
            Ok(()) => FetchOutcome::Whole,
            Err(error) => {
                tracing::debug!(%error, "a segment was not fetched from another node");
                self.error.set(error_of(&error));
                end_of(&error)
            }
        };
        if with_origin {
            self.cluster.owners.ended(peer.id, bytes, end == FetchOutcome::Lost, now());
        }
        let counter = match end {
            FetchOutcome::Whole if with_origin => Some(Counter::ClusterOwner),
            FetchOutcome::Whole => Some(Counter::ClusterPeerHit),
            end => counter_of(end),
        };
        counter.into_iter().for_each(|counter| self.counters.inc(counter));
        let filled = self.segment().filled();
        self.counters.add(Counter::ClusterPeerBytes, u64::from(filled - from));
        FetchEvent::Fetched { filled, end }
    }

    async fn fill_from_origin(&self, lease: Option<LeaseId>) -> FetchEvent<PeerNode> {
        match lease {
            Some(lease) => renewing(self.lead(), || self.cluster.tell_renewed(lease)).await,
            None => self.read_origin().await,
        }
        FetchEvent::Filled { filled: self.segment().filled() }
    }

    /// Fills under a lease: here, or remotely, where there is more room.
    async fn lead(&self) {
        if let Some((peer, request)) = self.remote_fill() {
            self.segment().set_fill_source(PeerFillSource::RemoteFill { id: peer.id });
            let fetched = fetch_chunks(&self.pool, peer.address, &request, self.segment()).await;
            match fetched {
                Ok(()) => return self.counters.inc(Counter::ClusterRemoteFill),
                Err(error) => {
                    tracing::debug!(%error, "a remote fill failed");
                    counter_of(end_of(&error)).into_iter().for_each(|it| self.counters.inc(it));
                }
            }
            self.segment().set_fill_source(PeerFillSource::Local);
        }
        self.read_origin().await;
    }

    /// The node that is to fill the segment if a remote fill is preferred, and the request to that
    /// node.
    fn remote_fill(&self) -> Option<(PeerNode, PeerRequest)> {
        let (room, bytes) = (self.filler.store().room(), self.segment().len());
        // A remote fill must stay on the node that was chosen for it.
        if self.is_for_peer || !prefers_remote_fill(room, bytes) {
            return None;
        }
        let peer = *self.cluster.roomiest.load_full()?;
        let (name, from) = (self.filler.name(), self.segment().filled());
        let origin = Some(self.origin.described(true)?);
        Some((peer, PeerRequest::Fetch { name, bytes, from, origin }))
    }

    async fn read_origin(&self) {
        if let Err(error) = read_counted(&self.origin, &self.filler, &self.counters).await {
            self.error.set(error);
        }
    }
}

async fn read_counted(
    origin: &impl SegmentOrigin,
    filler: &Filler,
    counters: &CoreCounters,
) -> Result<(), FetchError> {
    let segment = filler.segment();
    let (from, backend_read) = (segment.filled(), filler.begin_backend_read());
    let read = read_on(origin, segment).await;
    if read.is_ok() {
        backend_read.completed();
    }
    counters.inc(Counter::ClusterOrigin);
    counters.add(Counter::ClusterOriginBytes, u64::from(segment.filled() - from));
    read
}

/// The outcome of a failed exchange with another node.
pub(super) fn end_of(error: &PeerError) -> FetchOutcome {
    match error {
        PeerError::Refused(refusal) => FetchOutcome::Refused(*refusal),
        error if !error.blames_node() => FetchOutcome::Crowded,
        _ => FetchOutcome::Lost,
    }
}

/// The error of a reply after a failed exchange with another node.
pub(super) fn error_of(error: &PeerError) -> FetchError {
    match error {
        PeerError::Refused(PeerRefusal::OriginFailed) => fetch_error(FaultKind::Status),
        PeerError::SourceLate => fetch_error(FaultKind::Late),
        PeerError::NotKept(_) => FetchError::NoMemory,
        PeerError::Connect(error) if !error.blames_node() => FetchError::NoConnection,
        _ => FetchError::Peer,
    }
}

/// The counter of a failed fetch; `None`: the other node was not involved.
pub(super) fn counter_of(end: FetchOutcome) -> Option<Counter> {
    match end {
        FetchOutcome::Refused(_) => Some(Counter::ClusterRefused),
        FetchOutcome::Lost => Some(Counter::ClusterLost),
        FetchOutcome::Whole | FetchOutcome::Crowded => None,
    }
}

/// Fetches the missing bytes of `segment` from the node at `peer`; bytes received are published
/// even if the fetch fails.
pub(super) async fn fetch_chunks(
    pool: &Rc<PeerPool>,
    peer: SocketAddr,
    request: &PeerRequest,
    segment: &Segment,
) -> Result<(), PeerError> {
    let mut fetching = pool.fetch(peer, request).await?;
    let mut buffer = Buffer::take();
    loop {
        let bytes = fetching.next_chunk(buffer.bytes()).await?;
        if bytes == 0 {
            return Ok(());
        }
        segment.publish(&buffer.bytes()[..bytes]).map_err(PeerError::NotKept)?;
    }
}
