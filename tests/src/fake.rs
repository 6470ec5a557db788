//! Fake nodes controlled by a test: they have the cluster's key, link with its coordinator, claim to hold
//! arbitrary segments, and answer other nodes by a script.
//!
//! Their messages are encoded with `skep_wire`, but their behaviour is not that of a real node.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use skep_wire::cache::frame::{PING, checksum, write_frame};
use skep_wire::cache::hello::NONCE_BYTES;
use skep_wire::cache::peer::chunk_end;
use skep_wire::cache::{
    CoordinatorAnswer, FrameDecoder, FrameHead, Handshake, Held, Identity, PeerRefusal, PeerReply,
    PeerRequest, Purpose, Reason, SegmentName, ToCoordinator, ToNode,
};
use skep_wire::limits::{LINK_MESSAGE_BYTES_MAX, PEER_REPLY_BYTES_MAX, PEER_REQUEST_BYTES_MAX};
use skep_wire::message::Name;
use skep_wire::seal::Key;

use crate::acceptor::Acceptor;
use crate::wait::PATIENCE;

/// The name of the cluster that [`crate::cache::CacheCluster`] makes.
const CLUSTER: &str = "test";

/// Interval of keepalives on a link: well below the timeout after which it is considered dead.
const PING_EVERY: Duration = Duration::from_millis(100);

/// What a fake node sends when other nodes request bytes.
#[derive(Clone, Debug, Default)]
pub struct Said(Vec<Step>);

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    Hang,
    Close,
}

impl Said {
    /// Sends these bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(vec![Step::Send(bytes.into())])
    }

    /// Refuses the request.
    pub fn refusal(refusal: PeerRefusal) -> Self {
        Self::reply(&PeerReply::Refused(refusal))
    }

    /// Sends any reply.
    pub fn reply(reply: &PeerReply) -> Self {
        let mut stream = Vec::new();
        write_frame(&mut stream, &reply.encode());
        Self::bytes(stream)
    }

    /// The reply of a holder to a request for a segment of `bytes` from offset `from` on: its first `chunks`
    /// chunks.
    pub fn chunks(bytes: &[u8], from: u32, chunks: usize) -> Self {
        let mut said = Self::reply(&PeerReply::Coming);
        let mut at = from;
        for _ in 0..chunks {
            if at == bytes.len() as u32 {
                break;
            }
            let end = chunk_end(at, bytes.len() as u32);
            said = said.chunk(&bytes[at as usize..end as usize]);
            at = end;
        }
        said
    }

    /// Like [`Self::chunks`], with all of them.
    pub fn whole(bytes: &[u8], from: u32) -> Self {
        Self::chunks(bytes, from, usize::MAX)
    }

    /// Then sends this chunk.
    #[must_use]
    pub fn chunk(self, chunk: &[u8]) -> Self {
        let mut stream = FrameHead::of(chunk).to_bytes().to_vec();
        stream.extend_from_slice(chunk);
        self.then(Self::bytes(stream))
    }

    /// Then sends a chunk with one bit flipped after its checksum was computed.
    #[must_use]
    pub fn changed_chunk(self, chunk: &[u8]) -> Self {
        let head = FrameHead { bytes: chunk.len() as u32, checksum: checksum(chunk) };
        let mut stream = head.to_bytes().to_vec();
        stream.extend_from_slice(chunk);
        if let Some(last) = stream.last_mut() {
            *last ^= 0x10;
        }
        self.then(Self::bytes(stream))
    }

    /// Then sends this number of keepalives, with a pause after each.
    #[must_use]
    pub fn alive(mut self, times: usize, pause: Duration) -> Self {
        for _ in 0..times {
            self.0.extend([Step::Wait(pause), Step::Send(PING.into())]);
        }
        self
    }

    /// Then sends nothing for this time.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.0.push(Step::Wait(pause));
        self
    }

    /// Then sends nothing more, on a connection that stays open.
    #[must_use]
    pub fn hang(mut self) -> Self {
        self.0.push(Step::Hang);
        self
    }

    /// Then closes the connection.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.0.push(Step::Close);
        self
    }

    /// Total number of bytes sent.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        let sent = |step: &Step| if let Step::Send(bytes) = step { bytes.len() } else { 0 };
        self.0.iter().map(sent).sum()
    }

    /// Then continues with the steps of `more`.
    #[must_use]
    pub fn then(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// Sends only the first `bytes` bytes.
    #[must_use]
    pub fn cut(mut self, mut bytes: usize) -> Self {
        for step in &mut self.0 {
            if let Step::Send(sent) = step {
                sent.truncate(bytes);
                bytes -= sent.len();
            }
        }
        self
    }
}

/// How a fake node greets peers that connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// Proves that it has the key.
    Right,
    /// Uses another key.
    OtherKey,
    /// Sends nothing.
    Silence,
    /// Sends bytes that are no handshake.
    Rubbish,
    /// Reports that it is full.
    Full,
}

type Script = dyn Fn(SegmentName, u32) -> Option<Said> + Send + Sync;

struct Shared {
    identity: Identity,
    greeting: Greeting,
    script: Box<Script>,
    asked: Mutex<Vec<PeerRequest>>,
    heard: Mutex<VecDeque<ToNode>>,
    more: Condvar,
}

/// A fake node. Closes all its connections when dropped.
pub struct FakeNode {
    shared: Arc<Shared>,
    _acceptor: Acceptor,
    link: Arc<Mutex<TcpStream>>,
}

impl FakeNode {
    /// Links as `name` with the coordinator of `dispatcher` at `coordinator`. `script` returns the answer to
    /// a request for a segment from an offset on, or for a head; on `None`, the connection is closed, or the
    /// head is reported as absent.
    pub fn join(
        name: &str,
        (dispatcher, coordinator): (&str, SocketAddr),
        greeting: Greeting,
        script: impl Fn(SegmentName, u32) -> Option<Said> + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            identity: identity(name, 'k'),
            greeting,
            script: Box::new(script),
            asked: Mutex::default(),
            heard: Mutex::default(),
            more: Condvar::new(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let serving = Arc::clone(&shared);
        let acceptor = Acceptor::start(listener, move |stream| drop(serve(&serving, stream)));
        let address = acceptor.address();
        let link = link(&shared, dispatcher, coordinator).expect("the coordinator takes links");
        let fake = Self { shared, _acceptor: acceptor, link };
        let name = Name::new(name).expect("a short name");
        fake.tell(&ToCoordinator::Hello { name, address, capacity_bytes: 1 << 30 });
        let (added, removed) = (Vec::new(), Vec::new());
        fake.tell(&ToCoordinator::Announce { added, removed, is_complete: true });
        fake.tell(&ToCoordinator::Inventory { is_first: true, is_last: true, held: Vec::new() });
        fake
    }

    /// Sends a message to the coordinator.
    pub fn tell(&self, message: &ToCoordinator) {
        let mut frame = Vec::new();
        write_frame(&mut frame, &message.encode());
        lock(&self.link).write_all(&frame).expect("the link lasts");
    }

    /// Claims to hold segments of these names and lengths.
    pub fn claim(&self, segments: impl IntoIterator<Item = (SegmentName, u32)>) {
        let held = segments.into_iter().map(|(name, bytes)| Held { name, bytes });
        self.tell(&ToCoordinator::Delta { added: held.collect(), removed: Vec::new() });
    }

    /// Asks the coordinator for the location of a segment.
    pub fn ask(&self, name: SegmentName, bytes: u32) -> CoordinatorAnswer {
        /// A number that no earlier question used.
        const ASK: u64 = 77;
        self.tell(&ToCoordinator::Ask { ask: ASK, name, bytes });
        self.wait_for(|message| match message {
            ToNode::Answer { ask: ASK, answer } => Some(answer),
            _ => None,
        })
    }

    /// Waits for a message of the coordinator for which `wanted` returns a value.
    pub fn wait_for<T>(&self, wanted: impl Fn(ToNode) -> Option<T>) -> T {
        let mut heard = lock(&self.shared.heard);
        loop {
            while let Some(message) = heard.pop_front() {
                if let Some(found) = wanted(message) {
                    return found;
                }
            }
            let waited = self.shared.more.wait_timeout(heard, PATIENCE);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!timeout.timed_out(), "the coordinator does not say it");
            heard = again;
        }
    }

    /// Offers a sole replica to the node at `to`, and returns its final reply.
    pub fn offer(&self, to: SocketAddr, name: SegmentName, bytes: u32) -> io::Result<PeerReply> {
        let mut stream = TcpStream::connect(to)?;
        let identity = &self.shared.identity;
        greet(&mut stream, Handshake::client(identity, Purpose::Fetch, None, nonce()))?;
        let mut frame = Vec::new();
        write_frame(&mut frame, &PeerRequest::Offer { name, bytes, chances: 2 }.encode());
        stream.write_all(&frame)?;
        let mut frames = FrameDecoder::new(PEER_REPLY_BYTES_MAX);
        let said = next_frame(&mut stream, &mut frames)?.unwrap_or_default();
        PeerReply::decode(&said).map_err(io::Error::other)
    }

    /// Returns the requests received from other nodes.
    pub fn asked(&self) -> Vec<PeerRequest> {
        lock(&self.shared.asked).clone()
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        let _ = lock(&self.link).shutdown(Shutdown::Both);
    }
}

/// Links with the coordinator, sends keepalives, and collects its messages.
fn link(
    shared: &Arc<Shared>,
    dispatcher: &str,
    coordinator: SocketAddr,
) -> io::Result<Arc<Mutex<TcpStream>>> {
    let mut stream = TcpStream::connect(coordinator)?;
    let to = Name::new(dispatcher).ok();
    let handshake = Handshake::client(&shared.identity, Purpose::Link, to, nonce());
    greet(&mut stream, handshake)?;
    let writing = Arc::new(Mutex::new(stream.try_clone()?));
    let pinging = Arc::clone(&writing);
    thread::spawn(move || {
        while lock(&pinging).write_all(&PING).is_ok() {
            thread::sleep(PING_EVERY);
        }
    });
    let hearing = Arc::clone(shared);
    thread::spawn(move || {
        let mut frames = FrameDecoder::new(LINK_MESSAGE_BYTES_MAX);
        // The thread ends with the link.
        while let Ok(Some(payload)) = next_frame(&mut stream, &mut frames) {
            let Ok(message) = ToNode::decode(&payload) else { return };
            lock(&hearing.heard).push_back(message);
            hearing.more.notify_all();
        }
    });
    Ok(writing)
}

fn serve(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    match shared.greeting {
        Greeting::Right => {
            greet_as(&mut stream, &shared.identity)?;
            stream.write_all(&Handshake::welcome())?;
        }
        Greeting::OtherKey => {
            let identity = identity(shared.identity.name().as_str(), 'x');
            return greet_as(&mut stream, &identity);
        }
        Greeting::Silence => return hang(&mut stream),
        Greeting::Rubbish => return stream.write_all(&[0xa5; 4096]),
        Greeting::Full => return stream.write_all(&Handshake::refusal(Reason::Full)),
    }
    let mut frames = FrameDecoder::new(PEER_REQUEST_BYTES_MAX);
    while let Some(payload) = next_frame(&mut stream, &mut frames)? {
        let Ok(request) = PeerRequest::decode(&payload) else { return Ok(()) };
        lock(&shared.asked).push(request.clone());
        let said = match request {
            PeerRequest::Fetch { name, from, .. } => (shared.script)(name, from),
            PeerRequest::Head { name, .. } => {
                let said = (shared.script)(name, 0);
                Some(said.unwrap_or_else(|| Said::refusal(PeerRefusal::NotThere)))
            }
            PeerRequest::Offer { .. } => Some(Said::refusal(PeerRefusal::NotThere)),
        };
        for step in said.unwrap_or_else(|| Said::default().close()).0 {
            match step {
                Step::Send(bytes) => stream.write_all(&bytes)?,
                Step::Wait(pause) => thread::sleep(pause),
                Step::Hang => return hang(&mut stream),
                Step::Close => return Ok(()),
            }
        }
    }
    Ok(())
}

fn greet_as(stream: &mut TcpStream, identity: &Identity) -> io::Result<()> {
    greet(stream, Handshake::server(identity, Purpose::Fetch, nonce()))
}

/// Waits until the peer closes.
fn hang(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_to_end(&mut Vec::new()).map(drop)
}

fn greet(stream: &mut TcpStream, mut handshake: Handshake) -> io::Result<()> {
    loop {
        stream.write_all(&handshake.output())?;
        let mut wanted = vec![0; handshake.wants()];
        if wanted.is_empty() {
            return Ok(());
        }
        stream.read_exact(&mut wanted)?;
        let taken = handshake.take(&wanted);
        if taken.is_err() {
            stream.write_all(&handshake.output())?;
        }
        taken.map_err(io::Error::other)?;
    }
}

/// Returns the next non-empty payload; `None` at the end of the stream.
fn next_frame(stream: &mut TcpStream, frames: &mut FrameDecoder) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = [0; 4096];
    loop {
        while let Some(payload) = frames.next_payload().map_err(io::Error::other)? {
            if !payload.is_empty() {
                return Ok(Some(payload.to_vec()));
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            bytes => frames.push(&buffer[..bytes]),
        }
    }
}

/// The identity of a machine of the cluster, or of one whose key consists of another letter.
fn identity(name: &str, letter: char) -> Identity {
    let key = Key::from_text(&letter.to_string().repeat(32)).expect("32 characters");
    Identity::new(&key, CLUSTER, &Name::new(name).expect("a short name"))
}

fn nonce() -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    let mut random = std::fs::File::open("/dev/urandom").expect("the system has randomness");
    random.read_exact(&mut nonce).expect("it does not end");
    nonce
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
