//! Sends the bytes of an object, not all of which are in memory.
//!
//! Bytes come from segments: those in memory, those that another request is filling, and those that
//! this request fills, on a thread of the disk pool if it must wait for the disk. A fill runs at the
//! disk's speed, never at a client's. Files larger than the cache bypass it in small pieces.
//!
//! Each piece is published only after a check that the file still has the version that the head of
//! the reply promised.

use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use skep_directory::keep::{Reader, prefetch};
use skep_engine::{ExchangeError, ReplySink};
use skep_origin::FaultKind;
use skep_segments::{Acquired, FetchError, Filler, Fills, Pin, Pins, Segment, SegmentStore};
use skep_serve::monotonic_ms;
use skep_telemetry::{CacheResult, CoreCounters, Counter};
use skep_units::SEGMENT_BYTES;

use crate::backend::compressed::CompressedSegment;
use crate::backend::dynamic::PoolSegment;
use crate::backend::files::file::{SharedFile, fill, open};
use crate::disk::pool::{on_pool, pool};
use crate::disk::{DiskError, Wait};
use crate::http::client_pace::ClientPace;
use crate::http::pieces::{copy, pass_some, read_piece};
use crate::http::upstream::Upstream;
use crate::limits::{
    INLINE_READ_BYTES_MAX, ORIGIN_PIECE_BYTES_MIN, PIECE_ASKS_MAX, PIECE_BYTES_MAX,
    PIECE_PATIENCE_MS, PIECE_PAUSE_MS, ROOM_WAITS_MAX, SEND_BYTES_MAX,
};
use crate::model::fault::fetch_error;
use crate::model::freshness::Remote;
use crate::model::object::Object;
use crate::model::route::Route;

/// Why bytes could not be sent.
pub(crate) enum ReplyError {
    /// The bytes are unavailable.
    Source(FetchError),
    /// The client's side failed.
    Client(ExchangeError),
}

impl From<ExchangeError> for ReplyError {
    fn from(error: ExchangeError) -> Self {
        Self::Client(error)
    }
}

impl From<FetchError> for ReplyError {
    fn from(error: FetchError) -> Self {
        Self::Source(error)
    }
}

impl From<DiskError> for ReplyError {
    fn from(error: DiskError) -> Self {
        Self::Source(error.into())
    }
}

/// The bytes of one object for one request.
pub(crate) struct ObjectStream<'a> {
    pub(crate) store: &'a Arc<SegmentStore>,
    pub(crate) route: &'a Arc<Route>,
    pub(crate) object: &'a Arc<Object>,
    pub(crate) counters: &'a Arc<CoreCounters>,
    pub(crate) upstream: Upstream<'a>,
    /// The cache result of the object's look-up.
    pub(crate) cache_result: CacheResult,
    /// The open file, if it was needed.
    pub(crate) file: Option<Arc<File>>,
    /// The segment fetched by [`ObjectStream::prepare`].
    pub(crate) prepared: Option<(u32, Arc<Segment>)>,
    pub(crate) client: Client<'a>,
    /// The pace of the client.
    pub(crate) pace: ClientPace,
    /// The pinned segments after the one that is being sent.
    pub(crate) ahead: VecDeque<(u32, Pin)>,
    /// The last segment that this reply has reached, which was filled if there was room.
    pub(crate) entered: Option<u32>,
}

/// The client that receives the bytes.
pub(crate) struct Client<'a> {
    /// The address to which its memory is charged.
    pub(crate) address: IpAddr,
    pub(crate) pins: &'a Arc<Pins>,
}

impl ObjectStream<'_> {
    /// Whether the object bypasses the cache because of its size. Nodes together can cache what one
    /// node cannot; and another request to an origin costs more than caching.
    fn is_too_large(&self) -> bool {
        self.upstream.is_disk() && self.object.bytes() > self.store.capacity_bytes()
    }

    /// Fetches the first bytes before a head promises them: opens the file if it will be needed, and
    /// gets the first segment. Returns the cache result.
    pub(crate) async fn prepare(
        &mut self,
        first_byte: u64,
    ) -> Result<(Option<Weak<Segment>>, CacheResult), FetchError> {
        let index = (first_byte / SEGMENT_BYTES) as u32;
        if self.finds_no_room(index) || self.bypasses_cache(index).await {
            let is_only_way = self.upstream.is_peer_disk() || self.upstream.is_memories();
            if is_only_way || !self.does_without_pin() {
                // Bytes of another node's disk, or of memories only, cannot be sent in any other way.
                return Err(FetchError::NoMemory);
            }
            if !self.upstream.is_origin() {
                self.open().await?;
            }
            self.counters.inc(Counter::CacheStreamed);
            return Ok((None, CacheResult::Stream));
        }
        let (segment, found) = self.segment(index).await?;
        self.prepared = Some((index, Arc::clone(&segment)));
        if self.object.segments() > 1 && self.upstream.is_disk() {
            self.open().await?;
        }
        if !self.does_without_pin() {
            let pin = self.pin(index).await?.ok_or(FetchError::NoMemory)?;
            self.ahead.push_back((index, pin));
        }
        let first = poll_fn(|cx| segment.poll_more(cx, 0)).await;
        first?;
        // The request that fetched the object's head fetched the bytes as well, or found them.
        let is_known = self.cache_result == CacheResult::Hit || found == CacheResult::Fill;
        let result = if is_known { found } else { self.cache_result };
        let is_from_peer = segment.is_from_peer();
        self.counters.inc(match result {
            CacheResult::Hit => Counter::CacheHit,
            CacheResult::Revalidated => Counter::CacheRevalidated,
            CacheResult::Fill if is_from_peer => Counter::CachePeerHit,
            CacheResult::Fill => Counter::CacheFill,
            _ if is_from_peer => Counter::CachePeerJoined,
            _ => Counter::CacheFillJoined,
        });
        let is_new = !matches!(result, CacheResult::Hit | CacheResult::Revalidated);
        let is_peers = is_from_peer && is_new;
        Ok((Some(Arc::downgrade(&segment)), if is_peers { CacheResult::Peer } else { result }))
    }

    /// The whole segment `index`, for a compressor.
    pub(crate) async fn whole_segment(&mut self, index: u32) -> Result<Arc<Segment>, FetchError> {
        if self.bypasses_cache(index).await {
            return Err(FetchError::NoMemory);
        }
        let (segment, _) = self.segment(index).await?;
        poll_fn(|cx| segment.poll_more(cx, segment.len() - 1)).await?;
        Ok(segment)
    }

    /// Sends `range` of the object.
    pub(crate) async fn send(
        &mut self,
        reply: &mut ReplySink<'_>,
        range: Range<u64>,
    ) -> Result<(), ReplyError> {
        if range.is_empty() || !reply.body_wanted() {
            return Ok(());
        }
        let last = ((range.end - 1) / SEGMENT_BYTES) as u32;
        if range.end - range.start <= PIECE_BYTES_MAX {
            // Too small to hold a segment for.
            self.pace.takes_at_once();
        }
        for index in (range.start / SEGMENT_BYTES) as u32..=last {
            let base = u64::from(index) * SEGMENT_BYTES;
            let mut part = range.start.max(base)..range.end.min(base + SEGMENT_BYTES);
            reply.announce(part.end - part.start);
            if let Some(pin) = self.pinned(index, last).await? {
                part.start += self.send_pinned(reply, &pin, part.clone(), base).await?;
            }
            // The rest of a segment that was released, or all of it, is sent in pieces. The segments
            // ahead are released, too: it may take the client minutes to reach them.
            if part.start < part.end {
                self.ahead.clear();
            }
            while part.start < part.end {
                part.start += self.send_piece(reply, part.clone()).await?;
            }
        }
        Ok(())
    }

    /// Pins segment `index` to be sent without a copy, and fetches the next ones up to `last`;
    /// `None`: send it in pieces.
    async fn pinned(&mut self, index: u32, last: u32) -> Result<Option<Pin>, FetchError> {
        self.ahead.retain(|(ahead, _)| *ahead >= index);
        if self.pace.is_sent_copies() && self.does_without_pin() {
            self.ahead.clear();
            if !self.pace.is_slow() {
                self.read_ahead(index, last).await;
            }
            return Ok(None);
        }
        let is_there = self.ahead.front().is_some_and(|(ahead, _)| *ahead == index);
        let pin = match self.ahead.pop_front().filter(|_| is_there) {
            Some((_, pin)) => pin,
            None => match self.pin(index).await? {
                Some(pin) => pin,
                None if self.does_without_pin() => return Ok(None),
                None => return Err(FetchError::NoMemory),
            },
        };
        let wanted = self.ahead(index, last);
        let begun = self.ahead.back().map_or(index + 1, |(ahead, _)| ahead + 1);
        for next in wanted.start.max(begun)..wanted.end {
            match self.pin(next).await {
                Ok(Some(pin)) if next <= last => self.ahead.push_back((next, pin)),
                // Read ahead for the next request; this one does not need it.
                Ok(_) => {}
                Err(_) if next > last => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(pin))
    }

    /// Starts to fetch the segments that the next requests will need, for a reply that is too small
    /// to pin any.
    async fn read_ahead(&mut self, index: u32, last: u32) {
        for next in self.ahead(index, last).filter(|next| *next > last) {
            if !self.bypasses_cache(next).await {
                // This reply does not need it.
                let _ = self.segment(next).await;
            }
        }
    }

    /// Pins a segment, unless it bypasses the cache or no more may be pinned.
    async fn pin(&mut self, index: u32) -> Result<Option<Pin>, FetchError> {
        let prepared = self.prepared.take_if(|(prepared, _)| *prepared == index);
        let segment = match prepared {
            Some((_, segment)) => segment,
            None if self.bypasses_cache(index).await => return Ok(None),
            None => self.segment(index).await?.0,
        };
        self.entered = Some(index);
        if self.does_without_pin() && !self.store.may_pin() {
            return Ok(None);
        }
        let pin = self.client.pins.pin(self.client.address, segment);
        if pin.is_none() {
            self.counters.inc(Counter::PinsRefused);
        }
        Ok(pin)
    }

    /// Sends bytes `part` of a segment that begins at `base`, as they arrive; returns the number sent
    /// before the client turned out to be slow.
    async fn send_pinned(
        &mut self,
        reply: &mut ReplySink<'_>,
        pin: &Pin,
        part: Range<u64>,
        base: u64,
    ) -> Result<u64, ReplyError> {
        let segment = pin.segment();
        let (start, end) = ((part.start - base) as u32, (part.end - base) as u32);
        let mut at = start;
        loop {
            if at < end && reply.queued_bytes() == 0 {
                let more = poll_fn(|cx| segment.poll_more(cx, at)).await;
                more?;
            }
            while reply.queued_bytes() < SEND_BYTES_MAX
                && let Some(slice) = segment.slice(at, end)
            {
                at += slice.len();
                reply.write().body_shared(slice);
            }
            let queued = reply.queued_bytes();
            if let Ok(flushed) = tokio::time::timeout(ClientPace::PATIENCE, reply.flush()).await {
                flushed?;
                if at == end {
                    break;
                }
                continue;
            }
            self.pace.was_slow(queued - reply.queued_bytes());
            if self.does_without_pin() {
                self.counters.inc(Counter::SlowReplies);
                at -= reply.take_back_unsent() as u32;
                break;
            }
            // The reply holds bytes that cannot be fetched again, as long as nobody else needs the
            // memory.
            if !self.store.may_fill() {
                return Err(FetchError::NoMemory.into());
            }
        }
        Ok(u64::from(at - start))
    }

    /// Sends a copy of the first bytes of `part`, which is within one segment; returns their number.
    /// No segment is held while the client receives them.
    async fn send_piece(
        &mut self,
        reply: &mut ReplySink<'_>,
        part: Range<u64>,
    ) -> Result<u64, ReplyError> {
        let index = (part.start / SEGMENT_BYTES) as u32;
        let piece_bytes = match self.upstream.is_peer_disk() {
            true => PIECE_BYTES_MAX,
            false => self.pace.piece_bytes(),
        };
        let wanted = part.start..part.end.min(part.start + piece_bytes);
        let bytes = match self.in_memory(index).await? {
            Some(segment) => copy(reply, &segment, wanted).await?,
            None if self.upstream.is_origin() => self.piece_of_origin(reply, part).await?,
            None if self.upstream.is_memories() => return Err(FetchError::Lost.into()),
            None => self.piece_of_file(reply, wanted).await?,
        };
        let began_ms = monotonic_ms();
        reply.flush().await?;
        self.pace.took(bytes, monotonic_ms() - began_ms);
        Ok(bytes)
    }

    /// The segment, held briefly. The first reply that reaches it fills it, for others as well, if
    /// there is room.
    async fn in_memory(&mut self, index: u32) -> Result<Option<Arc<Segment>>, FetchError> {
        if let Some((_, segment)) = self.prepared.take_if(|(prepared, _)| *prepared == index) {
            self.entered = Some(index);
            return Ok(Some(segment));
        }
        let is_elsewhere = self.upstream.is_peer_disk();
        if !self.object.is_settled && !is_elsewhere {
            return Ok(None);
        }
        if let Some(segment) = self.store.peek(&self.object.segment_name(index)) {
            return Ok(Some(segment));
        }
        let is_first_look = self.entered.replace(index) != Some(index);
        if is_elsewhere {
            self.wait_for_room(index).await?;
        } else if !is_first_look || self.bypasses_cache(index).await {
            return Ok(None);
        }
        Ok(Some(self.segment(index).await?.0))
    }

    /// Waits for memory for a segment of another node's file: it cannot be sent in any other way, and
    /// a waiting reply holds no memory.
    async fn wait_for_room(&self, index: u32) -> Result<(), FetchError> {
        for _ in 0..ROOM_WAITS_MAX {
            if !self.bypasses_cache(index).await {
                return Ok(());
            }
        }
        Err(FetchError::NoMemory)
    }

    async fn piece_of_file(
        &mut self,
        reply: &mut ReplySink<'_>,
        range: Range<u64>,
    ) -> Result<u64, ReplyError> {
        let file = self.open().await?;
        let (_, stamp) = must_have(self.object.file())?;
        let (at, bytes) = (range.start, (range.end - range.start) as usize);
        let piece = match read_piece(&file, stamp, at, bytes, Wait::No) {
            Err(DiskError::WouldBlock) => {
                self.counters.inc(Counter::DiskReadPool);
                pool(move || read_piece(&file, stamp, at, bytes, Wait::Yes)).await?
            }
            piece => piece?,
        };
        reply.write().body_copy(&piece);
        Ok(bytes as u64)
    }

    async fn piece_of_origin(
        &mut self,
        reply: &mut ReplySink<'_>,
        part: Range<u64>,
    ) -> Result<u64, ReplyError> {
        let Upstream::Origin(remotes, resource) = self.upstream else {
            return Err(FetchError::Abandoned.into());
        };
        let wanted = self.pace.piece_bytes().max(ORIGIN_PIECE_BYTES_MIN);
        let end = part.end.min(part.start + wanted);
        let (mut at, began_ms) = (part.start, monotonic_ms());
        let mut failed = fetch_error(FaultKind::Short);
        for _ in 0..PIECE_ASKS_MAX {
            let before = at;
            match remotes.open(resource, at..end).await {
                Ok((mut body, _place)) => at += pass_some(reply, &mut body, end - at).await,
                Err(error) => failed = error,
            }
            if at == end {
                return Ok(end - part.start);
            }
            if resource.is_retired() || monotonic_ms() - began_ms > PIECE_PATIENCE_MS {
                break;
            }
            if at == before {
                tokio::time::sleep(Duration::from_millis(PIECE_PAUSE_MS)).await;
            }
        }
        Err(failed.into())
    }

    /// Whether the bytes of a segment can be fetched again, in pieces, after it is released: not if
    /// no version identifies them, or if they are sent only as a whole.
    fn does_without_pin(&self) -> bool {
        let has_parts = |remote: &Remote| remote.has_parts(self.object.bytes());
        self.object.bytes() <= PIECE_BYTES_MAX
            || match self.upstream {
                Upstream::Origin(_, resource) => resource.remote().is_some_and(has_parts),
                Upstream::Memories(..) | Upstream::Compressed(_) => false,
                Upstream::Disk | Upstream::SharedDisk(_) | Upstream::PeerDisk(_) => true,
            }
    }

    /// Whether segment `index` bypasses the cache. Waits up to [`ROOM_WAIT_MS`] for room.
    ///
    /// [`ROOM_WAIT_MS`]: skep_segments::limits::ROOM_WAIT_MS
    async fn bypasses_cache(&self, index: u32) -> bool {
        !self.object.is_settled
            || self.is_too_large()
            || (!self.store.has(&self.object.segment_name(index))
                && !self.store.room_to_fill(self.fills()).await)
    }

    /// Whether there is still no room after waiting for it when the object was received.
    fn finds_no_room(&self, index: u32) -> bool {
        self.upstream.is_origin()
            && self.cache_result == CacheResult::Fill
            && !self.store.may_fill_beside(self.fills())
            && !self.store.has(&self.object.segment_name(index))
    }

    /// The fills of the route's origins or pool.
    fn fills(&self) -> Option<&Fills> {
        let of_pool = || self.route.pool_cache().map(|cache| &*cache.fills);
        self.route.origin().map(|origin| &*origin.fills).or_else(of_pool)
    }

    /// Segments to read ahead while `index` is sent; `last` is the last one of this reply. Segments
    /// beyond it are included only if they may be remote: disks read ahead themselves.
    fn ahead(&self, index: u32, last: u32) -> Range<u32> {
        if !self.store.may_pin() {
            return 0..0;
        }
        let reader =
            if self.upstream.is_disk() { Reader::default() } else { self.object.reads(index) };
        prefetch(index, last, self.object.segments() - 1, reader)
    }

    /// Gets a segment, and starts its fill if necessary.
    async fn segment(&mut self, index: u32) -> Result<(Arc<Segment>, CacheResult), FetchError> {
        match self.store.acquire(self.object.wanted(index)) {
            Acquired::Ready(segment) => Ok((segment, CacheResult::Hit)),
            Acquired::Growing(segment) => Ok((segment, CacheResult::Miss)),
            Acquired::Fill(filler) => {
                let segment = Arc::clone(filler.segment());
                if !filler.is_kept() {
                    self.counters.inc(Counter::CacheTooLarge);
                }
                self.fill(filler, index).await?;
                Ok((segment, CacheResult::Fill))
            }
        }
    }

    async fn fill(&mut self, filler: Filler, index: u32) -> Result<(), FetchError> {
        match self.upstream {
            Upstream::Origin(remotes, resource) => remotes.fill_segment(filler, resource, index),
            Upstream::Memories(peer_client, resource) => {
                let segment = PoolSegment::elsewhere(self.store, resource);
                match peer_client {
                    Some(peer_client) => drop(peer_client.fill(filler, segment)),
                    None => {
                        resource.retire(self.store);
                        filler.fail(FetchError::Lost);
                    }
                }
            }
            Upstream::Compressed(None) => filler.fail(FetchError::Lost),
            Upstream::Compressed(Some(peer_client)) => {
                drop(peer_client.fill(filler, CompressedSegment::elsewhere()));
            }
            Upstream::PeerDisk(peer_client) => {
                let file = peer_client.home_file(self.route, self.object, index);
                drop(peer_client.fill(filler, must_have(file)?));
            }
            Upstream::SharedDisk(peer_client) => {
                let file = SharedFile::of(self.route, self.object, index, self.counters);
                drop(peer_client.fill(filler, must_have(file)?));
            }
            Upstream::Disk => {
                let file = self.open().await?;
                self.fill_from_disk(file, filler, index)?;
            }
        }
        Ok(())
    }

    fn fill_from_disk(
        &self,
        file: Arc<File>,
        filler: Filler,
        index: u32,
    ) -> Result<(), FetchError> {
        let (_, stamp) = must_have(self.object.file())?;
        let base = u64::from(index) * SEGMENT_BYTES;
        // Counted before the read: few reads fail.
        self.counters.add(Counter::ClusterOriginBytes, filler.segment().len().into());
        let read = filler.begin_backend_read();
        if u64::from(filler.segment().len()) <= INLINE_READ_BYTES_MAX {
            match fill(&file, filler.segment(), base, stamp, Wait::No) {
                Ok(()) => {
                    read.completed();
                    self.counters.inc(Counter::DiskReadNowait);
                    return Ok(());
                }
                Err(FetchError::File(DiskError::WouldBlock)) => {}
                Err(error) => {
                    filler.fail(error);
                    return Err(error);
                }
            }
        }
        self.counters.inc(Counter::DiskReadPool);
        // Not awaited: the readers wait for the chunks, and a failure reaches
        // them when the filler is dropped.
        drop(on_pool(move || match fill(&file, filler.segment(), base, stamp, Wait::Yes) {
            Ok(()) => read.completed(),
            Err(error) => {
                tracing::debug!(%error, "a segment could not be filled");
                filler.fail(error);
            }
        }));
        Ok(())
    }

    /// The open file, in the promised version.
    async fn open(&mut self) -> Result<Arc<File>, FetchError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let (relative, stamp) = must_have(self.object.file())?;
        let file = match open(self.route, relative, stamp, Wait::No) {
            Err(DiskError::WouldBlock) => {
                let (route, relative) = (Arc::clone(self.route), Box::<[u8]>::from(relative));
                pool(move || open(&route, &relative, stamp, Wait::Yes)).await?
            }
            opened => opened?,
        };
        let file = Arc::new(file);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }
}

/// The file of an object that is one, as its source and [`Upstream`] agree.
fn must_have<T>(file: Option<T>) -> Result<T, FetchError> {
    debug_assert!(file.is_some(), "an object that a disk has is a file");
    file.ok_or(FetchError::Abandoned)
}
