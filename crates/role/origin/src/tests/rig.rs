//! The test rig: scripted origins, and a worker that asks them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest, Sha256};
use skep_serve::Workers;
use tokio::net::TcpSocket;

use crate::names::{Lookup, system};
use crate::{Ask, Body, Fault, OriginError, OriginLimits, OriginReply, OriginUrl, Origins};

/// Time after which a test fails instead of hanging.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Limits that are never reached by themselves; tests lower one of them.
pub(super) fn patient() -> OriginLimits {
    OriginLimits {
        connections_max: 8,
        busy_wait_ms: 30_000,
        idle_ms: 60_000,
        connect_timeout_ms: 30_000,
        first_byte_timeout_ms: 30_000,
        progress_timeout_ms: 30_000,
        attempts_max: 3,
        avoid_ms: 60_000,
        avoid_ms_max: 60_000,
        names_fresh_ms: 60_000,
    }
}

/// Runs `job` on a worker, with a client of `urls`.
pub(super) fn with_origins<T: Send + 'static>(
    urls: &[String],
    limits: OriginLimits,
    job: impl AsyncFnOnce(Rc<Origins>) -> T + Send + 'static,
) -> T {
    with_lookup(urls, limits, system(), job)
}

/// The same with another resolver.
pub(super) fn with_lookup<T: Send + 'static>(
    urls: &[String],
    limits: OriginLimits,
    lookup: Lookup,
    job: impl AsyncFnOnce(Rc<Origins>) -> T + Send + 'static,
) -> T {
    let urls: Vec<_> = urls.iter().map(|url| OriginUrl::parse(url).unwrap()).collect();
    let workers = Workers::start(1).unwrap();
    let (sender, result) = mpsc::sync_channel(1);
    workers.handles()[0].run(move |worker| {
        let origins = Origins::with_lookup(worker, urls, limits, &lookup);
        tokio::task::spawn_local(async move {
            sender.send(job(origins).await).unwrap();
        });
    });
    let result = result.recv_timeout(2 * PATIENCE).expect("the job ends, and without a panic");
    workers.stop();
    result
}

/// A request for the whole of `path`.
pub(super) fn whole(path: &'static str) -> Ask<'static> {
    Ask { path_and_query: path.as_bytes(), ..Ask::default() }
}

/// A request for a part of `/`.
pub(super) fn part(range: std::ops::Range<u64>) -> Ask<'static> {
    Ask { range: Some(range), ..whole("/") }
}

/// Status and body of the response to `ask`.
pub(super) async fn get(
    origins: &Rc<Origins>,
    ask: &Ask<'_>,
) -> Result<(u16, Vec<u8>), OriginError> {
    let OriginReply { head, mut body, .. } = origins.open(ask).await?;
    Ok((head.meta.status, read(&mut body).await?))
}

/// The reason why there is no complete response to `ask`.
pub(super) async fn fault(origins: &Rc<Origins>, ask: &Ask<'_>) -> Fault {
    get(origins, ask).await.expect_err("a fault").fault
}

/// Expires every deadline that is set at this moment.
pub(super) fn expire_all(origins: &Origins) {
    origins.worker().deadlines().sweep(u64::MAX - 1);
}

/// Reads the whole body.
pub(super) async fn read(body: &mut Body) -> Result<Vec<u8>, OriginError> {
    let mut all = Vec::new();
    // Small and odd, so that pieces end anywhere.
    let mut buffer = [0; 4099];
    loop {
        match body.next(&mut buffer).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

/// This number of pseudorandom bytes.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(super) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// An origin: a listener, and a thread per connection that follows a script.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: mpsc::Receiver<String>,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Runs `script` for each connection, with the connection's number, from 0.
    pub(super) fn new(script: impl Fn(usize, Wire) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, is_closing) = (Arc::<AtomicUsize>::default(), Arc::default());
        let (seen, requests) = mpsc::sync_channel(1_000);
        let (count, closing) = (Arc::clone(&connections), Arc::<AtomicBool>::clone(&is_closing));
        let script = Arc::new(script);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if closing.load(SeqCst) {
                    return;
                }
                let number = count.fetch_add(1, SeqCst);
                let (wire, script) =
                    (Wire::new(stream.unwrap(), seen.clone()), Arc::clone(&script));
                std::thread::spawn(move || script(number, wire));
            }
        });
        Self { address, connections, requests, is_closing, thread: Some(thread) }
    }

    /// Answers every request with `respond(head)`.
    pub(super) fn answering(respond: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::new(move |_, mut wire| {
            while let Some(head) = wire.request() {
                wire.send(respond(&head));
            }
        })
    }

    /// Answers one request on each connection with `reply`, and closes.
    pub(super) fn closing(reply: impl Into<Vec<u8>>) -> Self {
        let reply = reply.into();
        Self::new(move |_, mut wire| {
            wire.request();
            wire.send(&reply);
        })
    }

    /// Answers every request with `reply`, and keeps the connection.
    pub(super) fn keeping(reply: impl Into<Vec<u8>>) -> Self {
        let reply = reply.into();
        Self::answering(move |_| reply.clone())
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }

    /// Connections accepted so far.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// The next request that it received, as text.
    pub(super) fn seen(&self) -> String {
        self.requests.recv_timeout(PATIENCE).expect("the origin was asked")
    }

    /// Number of requests received that were not returned by [`Self::seen`].
    pub(super) fn unseen(&self) -> usize {
        self.requests.try_iter().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_closing.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The origin's end of a connection.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    seen: mpsc::SyncSender<String>,
}

impl Wire {
    fn new(stream: TcpStream, seen: mpsc::SyncSender<String>) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, seen }
    }

    /// The head of the next request; `None`: the client closed.
    pub(super) fn request(&mut self) -> Option<String> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(self.stream.read(&mut byte), Ok(1)) {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        self.seen.send(head.clone()).ok();
        Some(head)
    }

    /// Sends all of it; false if the client has closed.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends nothing until the client closes.
    pub(super) fn hold(&mut self) {
        while self.request().is_some() {}
    }
}

/// An address on which no program listens during the tests: it is reserved by a socket that is
/// bound but does not listen.
pub(super) fn closed_port() -> SocketAddr {
    let reserved = Box::leak(Box::new(reserve("127.0.0.1:0".parse().unwrap())));
    reserved.local_addr().unwrap()
}

/// Reserves an address; this process may still listen on it.
fn reserve(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// `200 OK` with these additional lines and `body`.
pub(super) fn ok(fields: &str, body: &[u8]) -> Vec<u8> {
    answer("200 OK", fields, body)
}

/// A response with a length.
pub(super) fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// `206` with bytes `range` of `object`.
pub(super) fn partial(fields: &str, object: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
    let (first, last, total) = (range.start, range.end - 1, object.len());
    let fields = format!("{fields}Content-Range: bytes {first}-{last}/{total}\r\n");
    answer("206 Partial Content", &fields, &object[range])
}

/// Value of a field of a head.
pub(super) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
