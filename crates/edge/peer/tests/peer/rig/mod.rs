//! A worker with a node that requests and one that answers. The answer depends on the first byte of a
//! segment's name.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use std::cell::Cell;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use skep_peer::stream::{
    Chunk, ChunkSource, PEER_ADMISSION, PeerAnswer, PeerHandler, PeerPool, PeerService,
    SourceFailed, StreamCounts,
};
use skep_serve::{Admission, FilePart, SharedBytes, SharedSlice, Worker, Workers, accept_loop};
use skep_units::Rng;
use skep_wire::cache::frame::checksum;
use skep_wire::cache::{PeerRefusal, PeerReply, PeerRequest};
use skep_wire::limits::PEER_CHUNK_BYTES;
use skep_wire::message::Name;
use tokio::sync::Notify;

use crate::support::{identity, listener};

pub const CHUNK: u32 = PEER_CHUNK_BYTES;

/// Not a whole number of chunks.
pub const BYTES: u32 = 5 * CHUNK + 1_000;

/// What the answering node does, by the first byte of the name.
pub mod kind {
    pub const HEAP: u8 = 0;
    pub const FILE: u8 = 1;
    /// Becomes available chunk by chunk, each after a wait.
    pub const GROWING: u8 = 2;
    /// Waits longer than the keepalive interval before the second chunk.
    pub const SLOW: u8 = 3;
    /// Fails after two chunks.
    pub const FAILING: u8 = 4;
    /// A bit of the second chunk differs from the stored one.
    pub const CORRUPT: u8 = 5;
    pub const ABSENT: u8 = 6;
    /// Never answers.
    pub const STUCK: u8 = 7;
}

/// The bytes of all segments.
pub fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| {
        let mut rng = Rng::new(1);
        (0..BYTES).map(|_| rng.next_u64() as u8).collect()
    })
}

/// The stored checksum of the chunk that begins at `start`.
pub fn stored_checksum(start: u32, end: u32) -> u32 {
    static CHECKSUMS: OnceLock<Vec<u32>> = OnceLock::new();
    let stored = || content().chunks(CHUNK as usize).map(checksum).collect();
    let is_whole = start.is_multiple_of(CHUNK);
    match is_whole {
        true => CHECKSUMS.get_or_init(stored)[(start / CHUNK) as usize],
        false => checksum(&content()[start as usize..end as usize]),
    }
}

pub enum Kept {
    Heap(Vec<u8>),
    File(File),
}

impl SharedBytes for Kept {
    fn chunk(&self, chunk: u32) -> &[u8] {
        let Self::Heap(bytes) = self else { panic!("asked of a file") };
        let start = (chunk * CHUNK) as usize;
        &bytes[start..bytes.len().min(start + CHUNK as usize)]
    }

    fn file(&self) -> Option<FilePart<'_>> {
        match self {
            Self::Heap(_) => None,
            Self::File(file) => Some(FilePart { file: file.as_fd(), offset: 100, bytes: BYTES }),
        }
    }
}

pub struct MemoryHandler {
    heap: Arc<Kept>,
    file: Arc<Kept>,
    pub sources: Rc<Sources>,
}

/// Sources that exist.
#[derive(Default)]
pub struct Sources {
    pub count: Cell<usize>,
    pub fewer: Notify,
}

impl MemoryHandler {
    fn new() -> Self {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content(), 100).unwrap();
        let (heap, file) = (Arc::new(Kept::Heap(content().to_vec())), Arc::new(Kept::File(file)));
        Self { heap, file, sources: Rc::default() }
    }
}

pub struct Source {
    kept: Arc<Kept>,
    kind: u8,
    /// Number of chunks returned.
    given: u32,
    was_pending: u32,
    alive: Rc<Sources>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.alive.count.set(self.alive.count.get() - 1);
        self.alive.fewer.notify_one();
    }
}

impl ChunkSource for Source {
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        start: u32,
        end: u32,
    ) -> Poll<Result<Chunk, SourceFailed>> {
        let waits = match (self.kind, self.given) {
            (kind::GROWING, _) => 1,
            // Not woken: the keepalives poll it again.
            (kind::SLOW, 1) => 4,
            (kind::FAILING, 2) => return Poll::Ready(Err(SourceFailed)),
            _ => 0,
        };
        if self.was_pending < waits {
            self.was_pending += 1;
            if self.kind == kind::GROWING {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        let is_file = matches!(*self.kept, Kept::File(_));
        let number = if is_file { 0 } else { start / CHUNK };
        let base = number * CHUNK;
        let mut checksum = stored_checksum(start, end);
        if self.kind == kind::CORRUPT && self.given == 1 {
            checksum ^= 1;
        }
        (self.was_pending, self.given) = (0, self.given + 1);
        let owner: Arc<dyn SharedBytes> = Arc::clone(&self.kept) as _;
        let bytes = SharedSlice::of(owner, number, start - base..end - base);
        Poll::Ready(Ok(Chunk { bytes: bytes.unwrap(), checksum }))
    }
}

impl PeerHandler for MemoryHandler {
    type Source = Source;

    async fn answer(&self, peer: &Name, request: PeerRequest) -> PeerAnswer<Source> {
        assert!(!peer.as_str().is_empty());
        let kind = match &request {
            PeerRequest::Fetch { name, .. } => name.0[0],
            PeerRequest::Head { name, .. } => {
                let (fresh_ms, head) = (7, name.0.to_vec());
                return PeerAnswer::Reply(PeerReply::Head { fresh_ms, head });
            }
            PeerRequest::Offer { .. } => return PeerAnswer::Reply(PeerReply::Taken),
        };
        match kind {
            kind::ABSENT => return PeerAnswer::Reply(PeerReply::Refused(PeerRefusal::NotThere)),
            kind::STUCK => std::future::pending().await,
            _ => {}
        }
        let kept = if kind == kind::FILE { &self.file } else { &self.heap };
        self.sources.count.set(self.sources.count.get() + 1);
        let (kept, alive) = (Arc::clone(kept), Rc::clone(&self.sources));
        PeerAnswer::Coming(Source { kept, kind, given: 0, was_pending: 0, alive })
    }
}

/// A requesting node on a worker, and one that answers.
pub struct Rig {
    pub worker: Rc<Worker>,
    pub pool: Rc<PeerPool>,
    pub address: SocketAddr,
    pub asking: Arc<StreamCounts>,
    pub answering: Arc<StreamCounts>,
    pub sources: Rc<Sources>,
}

/// Runs `test` on a worker and waits for its end.
pub fn on_worker<F: Future<Output = ()>>(test: impl FnOnce(Rig) -> F + Send + 'static) {
    let workers = Workers::start(1).unwrap();
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    workers.handles()[0].run(move |worker| {
        let rig = Rig::new(worker);
        tokio::task::spawn_local(async move {
            test(rig).await;
            done.send(()).unwrap();
        });
    });
    // A panic of the test drops the sender.
    ended.recv().expect("the test ran to its end");
    workers.stop();
}

impl Rig {
    fn new(worker: &Rc<Worker>) -> Self {
        let (asking, answering) = (Arc::default(), Arc::default());
        let handler = MemoryHandler::new();
        let sources = Rc::clone(&handler.sources);
        let service = PeerService::new(handler, &identity("b"), &answering);
        let (listener, address) = listener();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let admission = Admission::with_members(PEER_ADMISSION, vec![address.ip()]);
        tokio::task::spawn_local(accept_loop(Rc::clone(worker), listener, service, admission));
        let pool = PeerPool::new(worker, &identity("a"), &asking);
        Self { worker: Rc::clone(worker), pool, address, asking, answering, sources }
    }
}
