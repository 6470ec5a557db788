//! Segments filled from an origin.
//!
//! Every request is pinned to the version in the segment's name, and every response is compared
//! with it: only bytes of that version are published. If the origin has another version, the
//! resource is retired, so that the next request gets the new one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use skep_origin::{Body, Condition, FaultKind, OriginError, OriginReply};
use skep_segments::{Buffer, FetchError, Filler, Filling, Segment};
use skep_telemetry::Counter;
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::{OriginRef, SegmentName};
use skep_wire::limits::ORIGIN_BYTES_MAX;
use tokio::sync::oneshot;

use super::client::{OriginRequest, PassPermit, Remotes, is_origin_failure};
use crate::limits::ORIGIN_ASKS_MAX;
use crate::model::fault::fetch_error;
use crate::model::freshness::is_once;
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{SegmentOrigin, read_all};

/// The reason why a fill stopped.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// Status of a response without bytes of the object.
    #[error("the origin answered {0}")]
    Status(u16),
    #[error("the origin has another version by now")]
    Changed,
    #[error("the origin sends too little at a time")]
    TooLittle,
    #[error("the origin sent more than it had announced")]
    TooMuch,
    #[error("no memory: {0}")]
    Memory(#[from] std::io::Error),
}

impl From<&Stopped> for FetchError {
    fn from(stopped: &Stopped) -> Self {
        match stopped {
            Stopped::Origin(error) => fetch_error(error.fault.kind()),
            Stopped::Status(status) if is_origin_failure(*status) => Self::OriginStatus(*status),
            Stopped::Status(_) | Stopped::Changed => Self::OriginChanged,
            Stopped::TooLittle => fetch_error(FaultKind::Short),
            Stopped::TooMuch => fetch_error(FaultKind::Long),
            Stopped::Memory(_) => Self::NoMemory,
        }
    }
}

/// One segment of an object at its origin.
pub(crate) struct RemoteSegment {
    remotes: Rc<Remotes>,
    resource: Arc<Resource>,
    index: u32,
    /// A response whose body contains the bytes of the segment.
    opened: RefCell<Option<OriginReply>>,
    /// Held while it fills a segment.
    filling: Option<Filling>,
}

impl Remotes {
    /// Begins to fill a segment, from another node's memory if a holder exists. The returned
    /// receiver, if there is a peer client, completes when the coordinator knows of the fill.
    pub(super) fn fill(
        &self,
        filler: Filler,
        origin: RemoteSegment,
    ) -> Option<oneshot::Receiver<()>> {
        let origin = origin.filling();
        if let Some(peer_client) = &self.peer_client {
            return Some(peer_client.fill(filler, origin));
        }
        let counters = Arc::clone(self.context.counters());
        tokio::task::spawn_local(async move {
            let segment = Arc::clone(filler.segment());
            let (before, read) = (segment.filled(), filler.begin_backend_read());
            read_all(&origin, filler).await;
            if segment.is_complete() {
                read.completed();
            }
            counters.add(Counter::ClusterOriginBytes, (segment.filled() - before).into());
        });
        None
    }

    /// Begins to fill segment `index` of `resource`.
    pub(crate) fn fill_segment(
        self: &Rc<Self>,
        filler: Filler,
        resource: &Arc<Resource>,
        index: u32,
    ) {
        drop(self.fill(filler, RemoteSegment::new(self, resource, index)));
    }

    /// Opens bytes `range` of `resource`, in its version, bypassing the cache.
    pub(crate) async fn open(
        self: &Rc<Self>,
        resource: &Arc<Resource>,
        range: std::ops::Range<u64>,
    ) -> Result<(Body, PassPermit), FetchError> {
        let origin = resource.route.origin().ok_or(FetchError::Lost)?;
        let place = self.pass_place(&resource.route, origin).await;
        let place = place.ok_or(fetch_error(FaultKind::Busy))?;
        let opened = RemoteSegment::new(self, resource, 0).open(range).await;
        let body = opened.map_err(|error| {
            tracing::debug!(%error, "cannot fetch bytes past the cache");
            FetchError::from(&error)
        })?;
        Ok((body, place))
    }
}

impl RemoteSegment {
    pub(super) fn new(remotes: &Rc<Remotes>, resource: &Arc<Resource>, index: u32) -> Self {
        let (remotes, resource) = (Rc::clone(remotes), Arc::clone(resource));
        Self { remotes, resource, index, opened: RefCell::default(), filling: None }
    }

    /// The same, counted as a fill of its route.
    fn filling(mut self) -> Self {
        let bytes = self.resource.variants.plain.wanted(self.index).bytes.into();
        let origin = self.resource.route.origin();
        self.filling = origin.map(|origin| origin.fills.begin(bytes));
        self
    }

    /// The segment that another node describes, if this node has the object in that version or can
    /// fetch its head now.
    pub(crate) async fn described_by(
        origin: &OriginRef,
        name: SegmentName,
        route: &Arc<Route>,
        remotes: &Rc<Remotes>,
    ) -> Option<Self> {
        let resource = remotes.kept(route, route.origin()?, &origin.path).await?;
        let object = &resource.variants.plain;
        let is_it =
            object.bytes() == origin.object_bytes && object.wanted(origin.index).name == name;
        is_it.then(|| Self::new(remotes, &resource, origin.index).filling())
    }

    /// The same with a response that was already received.
    pub(super) fn with(self, reply: OriginReply) -> Self {
        *self.opened.borrow_mut() = Some(reply);
        self
    }

    async fn fill(&self, segment: &Segment) -> Result<(), Stopped> {
        let base = u64::from(self.index) * SEGMENT_BYTES;
        let end = base + u64::from(segment.len());
        let mut buffer = Buffer::take();
        let mut chunk = Chunk { buffer: buffer.bytes(), have: 0 };
        for _ in 0..ORIGIN_ASKS_MAX {
            let at = base + u64::from(segment.filled()) + chunk.have as u64;
            let opened = self.opened.borrow_mut().take();
            let mut body = match opened.filter(|reply| reply.body.position() == at) {
                Some(reply) => reply.body,
                None => self.open(at..end).await?,
            };
            body.hurry();
            if chunk.read(&mut body, segment).await? {
                return Ok(());
            }
        }
        Err(Stopped::TooLittle)
    }

    /// Requests bytes `range` in the required version.
    async fn open(&self, range: std::ops::Range<u64>) -> Result<Body, Stopped> {
        let (Some(known), Some(remote)) = (self.resource.remote(), self.resource.route.origin())
        else {
            return Err(Stopped::Changed);
        };
        if is_once(&known.version) {
            self.remotes.origin_heads.retire(&self.resource);
            return Err(Stopped::Changed);
        }
        let at = range.start;
        let condition = Condition::Pinned(known.head.validators());
        let asked = OriginRequest { target: &known.target, range: Some(range), condition };
        let reply = self.remotes.ask(&self.resource.route, remote, asked).await?;
        let head = &reply.head;
        if !matches!(head.meta.status, 200 | 206) {
            // Or the object was removed.
            if !is_origin_failure(head.meta.status) {
                self.remotes.origin_heads.retire(&self.resource);
            }
            return Err(Stopped::Status(head.meta.status));
        }
        let bytes = self.resource.variants.plain.bytes();
        let is_same = head.version().as_deref() == Some(&*known.version)
            && head.total_bytes.is_none_or(|total| total == bytes);
        if !is_same {
            self.remotes.origin_heads.retire(&self.resource);
            return Err(Stopped::Changed);
        }
        let mut body = reply.body;
        body.hurry();
        body.skip_to(at).await?;
        Ok(body)
    }
}

impl SegmentOrigin for RemoteSegment {
    async fn read(&self, segment: Arc<Segment>) -> Result<(), FetchError> {
        self.fill(&segment).await.map_err(|error| {
            tracing::debug!(%error, "a segment could not be fetched from its origin");
            FetchError::from(&error)
        })
    }

    fn described(&self, has_lease: bool) -> Option<OriginRef> {
        // Without a coordinator the other node does not learn who has the object's head. And if
        // this node is already receiving the bytes, it should fill the segment itself.
        if !has_lease || self.opened.borrow().is_some() {
            return None;
        }
        let object = &self.resource.variants.plain;
        let known = self.resource.remote().filter(|known| !is_once(&known.version))?;
        let is_short = known.target.len() + known.version.len() <= ORIGIN_BYTES_MAX;
        is_short.then(|| OriginRef {
            site: self.resource.route.short_key,
            path: known.target.to_vec(),
            version: known.version.to_vec(),
            purged: object.purged(),
            object_bytes: object.bytes(),
            index: self.index,
            has_lease,
        })
    }
}

/// The next chunk of a segment while it is received.
struct Chunk<'a> {
    buffer: &'a mut [u8],
    have: usize,
}

impl Chunk<'_> {
    /// Reads until the segment is complete (true) or the body ends.
    async fn read(&mut self, body: &mut Body, segment: &Segment) -> Result<bool, Stopped> {
        loop {
            let bytes = segment.next_chunk_bytes();
            if bytes == 0 {
                return Ok(true);
            }
            let read = body.next(&mut self.buffer[self.have..bytes]).await?;
            if read == 0 {
                return Ok(false);
            }
            self.have += read;
            if self.have < bytes {
                continue;
            }
            // Only the end of the body confirms the length stated in its head.
            let is_last = segment.filled() + bytes as u32 == segment.len();
            let ends_here = body.left_bytes().is_none_or(|left| left == 0);
            if is_last && ends_here && body.next(&mut [0]).await? > 0 {
                return Err(Stopped::TooMuch);
            }
            segment.publish(&self.buffer[..bytes])?;
            self.have = 0;
        }
    }
}
