//! Sending the bytes of an object that are not all at hand.
//!
//! Bytes come out of segments: those in memory, those that somebody is filling,
//! and those that this request fills, on a thread of the pool if the disk has to
//! be waited for. A fill runs at the disk's speed, never at a client's. Files
//! larger than the cache pass it by in small pieces.
//!
//! Each piece is published only after the file was found to be still the
//! version that the head of the reply promised.

use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use skep_directory::keep::{Reader, prefetch};
use skep_engine::{ExchangeError, ReplySink};
use skep_serve::SharedBytes;
use skep_telemetry::{CacheResult, CoreCounters, Counter};
use skep_units::SEGMENT_BYTES;
use tokio::task::JoinHandle;

use crate::cluster::Others;
use crate::disk::{DiskError, Stamp, Wait};
use crate::file::{SharedFile, fill, open, read_version};
use crate::limits::{INLINE_READ_BYTES_MAX, SEND_BYTES_MAX, STREAM_BYTES};
use crate::object::Object;
use crate::remote::Remotes;
use crate::resource::Resource;
use crate::segment::Segment;
use crate::site::Site;
use crate::store::{Acquired, Filler, Store};

/// Why bytes could not be sent.
pub(crate) enum SendError {
    /// The file is not the promised version any more.
    Source(DiskError),
    /// The client's side failed.
    Client(ExchangeError),
}

impl From<ExchangeError> for SendError {
    fn from(error: ExchangeError) -> Self {
        Self::Client(error)
    }
}

impl From<DiskError> for SendError {
    fn from(error: DiskError) -> Self {
        Self::Source(error)
    }
}

/// The bytes of one object for one request.
pub(crate) struct Source<'a> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) site: &'a Arc<Site>,
    pub(crate) object: &'a Arc<Object>,
    pub(crate) counters: &'a Arc<CoreCounters>,
    /// The other nodes, if they are asked before the disk is.
    pub(crate) others: Option<&'a Others>,
    /// Where it comes from, if that is no file.
    pub(crate) remote: Option<(&'a Rc<Remotes>, &'a Arc<Resource>)>,
    /// What it took to know the object.
    pub(crate) came: CacheResult,
    /// The open file, once it was needed.
    pub(crate) file: Option<Arc<File>>,
    /// The segment that [`Source::prepare`] got.
    pub(crate) prepared: Option<(u32, Arc<Segment>)>,
}

impl Source<'_> {
    /// Whether segment `index` passes the cache by.
    fn streams(&self, index: u32) -> bool {
        // Together nodes keep what one alone could not. To ask an origin again
        // costs more than to go through the cache.
        let is_alone = self.others.is_none() && self.remote.is_none();
        if is_alone && self.object.bytes() > self.store.capacity_bytes() {
            return true;
        }
        // Of what is in memory already nothing is added to it.
        !self.store.may_pin() && !self.store.has(&self.object.segment_name(index))
    }

    /// Makes the first bytes certain before a head promises them: opens the
    /// file if it will be needed, and gets the segment that begins it. Tells
    /// what the cache did.
    pub(crate) async fn prepare(
        &mut self,
        first_byte: u64,
    ) -> Result<(Option<Arc<Segment>>, CacheResult), DiskError> {
        let index = (first_byte / SEGMENT_BYTES) as u32;
        if self.streams(index) {
            if self.object.elsewhere().is_some() {
                // There is no other way from another node's disk to a client.
                return Err(DiskError::Exhausted);
            }
            if self.remote.is_none() {
                self.open().await?;
            }
            self.counters.inc(Counter::CacheStreamed);
            return Ok((None, CacheResult::Stream));
        }
        let (segment, found) = self.segment(index).await?;
        self.prepared = Some((index, Arc::clone(&segment)));
        if self.object.segments() > 1 && self.others.is_none() && self.remote.is_none() {
            self.open().await?;
        }
        let first = poll_fn(|cx| segment.poll_more(cx, 0)).await;
        first.map_err(|_| DiskError::Changed)?;
        // Whoever got the object's head got the bytes as well, or had them.
        let is_known = self.came == CacheResult::Hit || found == CacheResult::Fill;
        let result = if is_known { found } else { self.came };
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
        Ok((Some(segment), if is_peers { CacheResult::Peer } else { result }))
    }

    /// Sends `range` of the object.
    pub(crate) async fn send(
        &mut self,
        reply: &mut ReplySink<'_>,
        range: Range<u64>,
    ) -> Result<(), SendError> {
        if range.is_empty() || !reply.body_wanted() {
            return Ok(());
        }
        let first = (range.start / SEGMENT_BYTES) as u32;
        let last = ((range.end - 1) / SEGMENT_BYTES) as u32;
        let mut ahead = VecDeque::new();
        for index in first..=last {
            let segment = match ahead.pop_front() {
                Some(segment) => segment,
                None => self.cached(index).await?,
            };
            // The next ones are read while this one is sent.
            let wanted = self.ahead(index, last);
            let begun = index + 1 + ahead.len() as u32;
            for next in wanted.start.max(begun)..wanted.end {
                match self.cached(next).await {
                    Ok(segment) if next <= last => ahead.push_back(segment),
                    // For the next request; this one can do without.
                    _ if next > last => {}
                    found => drop(found?),
                }
            }
            let base = u64::from(index) * SEGMENT_BYTES;
            let part = range.start.max(base)..range.end.min(base + SEGMENT_BYTES);
            match segment {
                Some(segment) => {
                    let (start, end) = ((part.start - base) as u32, (part.end - base) as u32);
                    send_segment(reply, &segment, start, end).await?;
                }
                None => self.stream(reply, part).await?,
            }
        }
        Ok(())
    }

    /// A segment, unless it passes the cache by.
    async fn cached(&mut self, index: u32) -> Result<Option<Arc<Segment>>, DiskError> {
        if let Some((_, segment)) = self.prepared.take_if(|(prepared, _)| *prepared == index) {
            return Ok(Some(segment));
        }
        // A reply that has begun has its place in memory.
        match self.streams(index) && self.object.elsewhere().is_none() {
            true => Ok(None),
            false => self.segment(index).await.map(|(segment, _)| Some(segment)),
        }
    }

    /// Segments to read ahead while `index` is sent, the last of this reply being
    /// `last`. Beyond it only what may come from afar: disks read ahead themselves.
    fn ahead(&self, index: u32, last: u32) -> Range<u32> {
        if !self.store.may_pin() {
            return 0..0;
        }
        let is_far = self.others.is_some() || self.remote.is_some();
        let reader = if is_far { self.object.reads(index) } else { Reader::default() };
        prefetch(index, last, self.object.segments() - 1, reader)
    }

    /// Gets a segment, starting its fill if nobody has.
    async fn segment(&mut self, index: u32) -> Result<(Arc<Segment>, CacheResult), DiskError> {
        match self.store.acquire(self.object.wanted(index)) {
            Acquired::Ready(segment) => Ok((segment, CacheResult::Hit)),
            Acquired::Growing(segment) => Ok((segment, CacheResult::Miss)),
            Acquired::Fill(filler) => {
                let segment = Arc::clone(filler.segment());
                if !filler.is_kept() {
                    self.counters.inc(Counter::CacheTooLarge);
                }
                if let Some((remotes, resource)) = self.remote {
                    remotes.fill_segment(filler, resource, index);
                    return Ok((segment, CacheResult::Fill));
                }
                if let Some(others) = self.others {
                    if let Some(home) = others.home_file(self.site, self.object, index) {
                        drop(others.fill(filler, home));
                        return Ok((segment, CacheResult::Fill));
                    }
                    let origin = SharedFile::of(self.site, self.object, index, self.counters);
                    let origin = origin.ok_or(DiskError::Changed)?;
                    drop(others.fill(filler, origin));
                    return Ok((segment, CacheResult::Fill));
                }
                let file = self.open().await?;
                self.fill(file, filler, index)?;
                Ok((segment, CacheResult::Fill))
            }
        }
    }

    fn fill(&self, file: Arc<File>, filler: Filler, index: u32) -> Result<(), DiskError> {
        let (_, stamp) = self.object.file().ok_or(DiskError::Changed)?;
        let base = u64::from(index) * SEGMENT_BYTES;
        // Few reads fail.
        self.counters.add(Counter::ClusterOriginBytes, filler.segment().len().into());
        if u64::from(filler.segment().len()) <= INLINE_READ_BYTES_MAX {
            match fill(&file, filler.segment(), base, stamp, Wait::No) {
                Ok(()) => {
                    self.counters.inc(Counter::DiskReadNowait);
                    return Ok(());
                }
                Err(DiskError::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        self.counters.inc(Counter::DiskReadPool);
        // Not awaited: the readers wait for the chunks, and a failure reaches
        // them when the filler is dropped.
        drop(on_pool(move || {
            if let Err(error) = fill(&file, filler.segment(), base, stamp, Wait::Yes) {
                tracing::debug!(%error, "a segment could not be filled");
            }
        }));
        Ok(())
    }

    /// The open file, in the promised version.
    async fn open(&mut self) -> Result<Arc<File>, DiskError> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let (relative, stamp) = self.object.file().ok_or(DiskError::Changed)?;
        let file = match open(self.site, relative, stamp, Wait::No) {
            Err(DiskError::WouldBlock) => {
                let (site, relative) = (Arc::clone(self.site), Box::<[u8]>::from(relative));
                pool(move || open(&site, &relative, stamp, Wait::Yes)).await?
            }
            opened => opened?,
        };
        let file = Arc::new(file);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    async fn stream(
        &mut self,
        reply: &mut ReplySink<'_>,
        range: Range<u64>,
    ) -> Result<(), SendError> {
        if let Some((remotes, resource)) = self.remote {
            return stream_remote(remotes, resource, reply, range).await;
        }
        let file = self.open().await?;
        let (_, stamp) = self.object.file().ok_or(DiskError::Changed)?;
        let mut at = range.start;
        while at < range.end {
            let bytes = (range.end - at).min(STREAM_BYTES as u64) as usize;
            let piece = match read_piece(&file, stamp, at, bytes, Wait::No) {
                Err(DiskError::WouldBlock) => {
                    self.counters.inc(Counter::DiskReadPool);
                    let file = Arc::clone(&file);
                    pool(move || read_piece(&file, stamp, at, bytes, Wait::Yes)).await?
                }
                piece => piece?,
            };
            reply.write().body_shared(Arc::new(piece), 0, 0, bytes as u32);
            reply.flush().await?;
            at += bytes as u64;
        }
        Ok(())
    }
}

/// Sends `range` of an origin's object as it comes in, past a memory that is
/// full of what slow clients hold.
async fn stream_remote(
    remotes: &Rc<Remotes>,
    resource: &Arc<Resource>,
    reply: &mut ReplySink<'_>,
    range: Range<u64>,
) -> Result<(), SendError> {
    let mut left = range.end - range.start;
    let opened = remotes.open(resource, range).await;
    let (mut body, _place) = opened.ok_or(DiskError::Changed)?;
    let mut buffer = vec![0; STREAM_BYTES];
    while left > 0 {
        let wanted = left.min(STREAM_BYTES as u64) as usize;
        let read = body.next(&mut buffer[..wanted]).await.map_err(|_| DiskError::Changed)?;
        if read == 0 {
            return Err(DiskError::Changed.into());
        }
        reply.write().body_copy(&buffer[..read]);
        reply.flush().await?;
        left -= read as u64;
    }
    Ok(())
}

/// Sends bytes `start..end` of a segment as they come in.
async fn send_segment(
    reply: &mut ReplySink<'_>,
    segment: &Arc<Segment>,
    start: u32,
    end: u32,
) -> Result<(), SendError> {
    reply.announce(u64::from(end - start));
    let mut at = start;
    while at < end {
        let filled = poll_fn(|cx| segment.poll_more(cx, at)).await;
        let filled = filled.map_err(|_| DiskError::Changed)?;
        while at < filled.min(end) && reply.queued_bytes() < SEND_BYTES_MAX {
            let (chunk, from, to) = segment.run(at, filled.min(end));
            let owner = Arc::clone(segment) as Arc<dyn SharedBytes>;
            reply.write().body_shared(owner, chunk, from, to);
            at += to - from;
        }
        if at < end {
            reply.flush().await?;
        }
    }
    Ok(())
}

/// Bytes on their way past the cache.
struct Piece(Box<[u8]>);

impl SharedBytes for Piece {
    fn chunk(&self, _: u32) -> &[u8] {
        &self.0
    }
}

fn read_piece(
    file: &File,
    stamp: Stamp,
    at: u64,
    bytes: usize,
    wait: Wait,
) -> Result<Piece, DiskError> {
    let mut piece = vec![0; bytes].into_boxed_slice();
    read_version(file, stamp, at, &mut piece, wait)?;
    Ok(Piece(piece))
}

/// Runs `job` on a thread that may wait for a disk.
pub(crate) async fn pool<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    on_pool(job).await.unwrap_or(Err(DiskError::Exhausted))
}

fn on_pool<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "each worker's pool has a few threads; its \
        queue is bounded by the requests in work"
    )]
    tokio::task::spawn_blocking(job)
}
