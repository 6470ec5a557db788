//! The test rig: a dispatcher on a worker, fake nodes, raw clients.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use skep_config::Config;
use skep_engine::{Context, Engine, EngineSettings};
use skep_serve::{Admission, AdmissionLimits, Workers, accept_loop, bind};
use skep_telemetry::{AccessLog, Format, LogTarget, Registry, Totals};
use skep_testclient::{ClientError, RawClient};
use tokio::net::TcpSocket;

use skep_proxy::MemberStatus;

use crate::{Dispatcher, DispatcherHandler, register_metrics};

/// Time after which a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listening dispatcher.
pub(super) struct Rig {
    pub(super) address: SocketAddr,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) registry: Arc<Registry>,
    pub(super) workers: Option<Workers>,
}

impl Rig {
    /// A dispatcher of `nodes`, all considered healthy, whose service has the additional settings
    /// `service`.
    pub(super) fn new(nodes: &[&FakeNode], service: &str) -> Self {
        let named: Vec<(String, SocketAddr)> = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| (format!("n{}", number + 1), node.address))
            .collect();
        let rig = Self::unchecked(&config(&named, service));
        rig.all_up();
        rig
    }

    /// A dispatcher of `config`, whose nodes were not checked yet.
    pub(super) fn unchecked(config: &Config) -> Self {
        let dispatcher = Dispatcher::new(config, "web", 7).unwrap();
        let registry = Arc::new(Registry::new());
        register_metrics(&registry, &[Arc::clone(&dispatcher)]);
        let limits = AdmissionLimits {
            connections_max: 1_000,
            per_address_max: 1_000,
            ipv6_prefix_bits: 64,
        };
        let admission = Admission::new(limits);
        let workers = Workers::start(1).unwrap();
        let group = bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = group.address();
        let socket = group.into_sockets().pop().unwrap();
        let log = AccessLog::start(LogTarget::Off, Format::Combined, registry.core()).unwrap();
        let (counters, handle) = (registry.core(), log.handle());
        let served = Arc::clone(&dispatcher);
        workers.handles()[0].run(move |worker| {
            let settings = Arc::new(ArcSwap::from_pointee(EngineSettings::default()));
            let context = Context::new(worker, settings, counters, &handle);
            let engine =
                Engine::new(Rc::clone(&context), DispatcherHandler::new(&served, &context));
            let listener = tokio::net::TcpListener::from_std(socket).unwrap();
            tokio::task::spawn_local(accept_loop(Rc::clone(worker), listener, engine, admission));
        });
        Self { address, dispatcher, registry, workers: Some(workers) }
    }

    /// Starts real checks.
    pub(super) fn start_checks(&self) {
        let workers = self.workers.as_ref().unwrap();
        assert!(self.dispatcher.group().start_checks(&workers.handles()[0]));
    }

    /// Lets every node that is not up pass a check.
    pub(super) fn all_up(&self) {
        self.dispatcher.group().pass_checks();
    }

    pub(super) fn node(&self, name: &str) -> MemberStatus {
        let nodes = self.dispatcher.status().nodes;
        nodes.into_iter().find(|node| node.name == name).expect("a node of this name")
    }

    pub(super) fn totals(&self) -> Totals {
        self.registry.snapshot().totals
    }

    pub(super) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The reply to a GET on a connection of its own.
    pub(super) fn get(&self, path: &str) -> Reply {
        self.client().get(path)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(workers) = self.workers.take() {
            workers.stop();
        }
    }
}

/// A config of a service `web` with these nodes and additional settings.
pub(super) fn config(nodes: &[(String, SocketAddr)], service: &str) -> Config {
    let mut text = "[[dispatcher]]\nname = \"d1\"\n".to_owned();
    for (name, address) in nodes {
        text += &format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\n");
    }
    text += "[[service]]\nname = \"web\"\nlisten = [\"127.0.0.1:1\"]\n";
    text += service;
    text += "\n[[site]]\nroot = \"/srv\"\n";
    Config::parse("skep.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Waits until `is_so`; fails on a timeout.
pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Settings under which a node is late at once, without effect on its health.
pub(super) const BRIEF: &str = "response_timeout_ms = 1\nhealth.passive_failures_max = 1000";

/// All bytes that a client received of a reply that stalls after its head. The node may be too late
/// even for the head; then the request is repeated.
pub(super) fn cut_short(rig: &Rig, request: &str) -> Vec<u8> {
    loop {
        let mut client = rig.client();
        assert!(client.send(request));
        let (all, _) = client.rest();
        if !all.starts_with(b"HTTP/1.1 504 ") {
            assert!(all.starts_with(b"HTTP/1.1 200 "));
            return all;
        }
    }
}

/// Passes a request through the worker of the dispatcher at `address`. When this returns, the
/// worker has read everything that its sockets held before.
pub(super) fn fence(address: SocketAddr) {
    let reply = Client::connect(address).get("/fence");
    assert!(reply.status > 0);
}

/// A node: a listener, and a thread per connection that follows a script.
pub(super) struct FakeNode {
    pub(super) address: SocketAddr,
    /// Connections accepted.
    pub(super) connections: Arc<AtomicUsize>,
    is_closing: Arc<AtomicBool>,
    streams: Arc<Mutex<BTreeMap<usize, TcpStream>>>,
    /// Reserves the address, whether the node listens or not.
    reserved: TcpSocket,
    thread: Option<JoinHandle<()>>,
}

impl FakeNode {
    /// Runs `script` for each connection, with the connection's number, from 0. Requests for
    /// `/fence` are answered automatically.
    pub(super) fn new(script: impl Fn(usize, Wire) + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script)
    }

    pub(super) fn at(
        address: SocketAddr,
        script: impl Fn(usize, Wire) + Send + Sync + 'static,
    ) -> Self {
        let reserved = reserve(address);
        let address = reserved.local_addr().unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let is_closing = Arc::new(AtomicBool::new(false));
        let streams: Arc<Mutex<BTreeMap<usize, TcpStream>>> = Arc::default();
        let (count, closing) = (Arc::clone(&connections), Arc::clone(&is_closing));
        let kept = Arc::clone(&streams);
        let script = Arc::new(script);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if closing.load(SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                let number = count.fetch_add(1, SeqCst);
                kept.lock().unwrap().insert(number, stream.try_clone().unwrap());
                let kept = Arc::clone(&kept);
                let (wire, script) = (Wire::new(stream), Arc::clone(&script));
                std::thread::spawn(move || {
                    script(number, wire);
                    // Its last descriptor: the connection is now closed.
                    kept.lock().unwrap().remove(&number);
                });
            }
        });
        Self { address, connections, is_closing, streams, reserved, thread: Some(thread) }
    }

    /// A node that answers each request with `respond(head, body)`.
    pub(super) fn answering(
        respond: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |_, mut wire| {
            while let Some((head, body)) = wire.request() {
                wire.send(respond(&head, &body));
            }
        })
    }

    /// A node that answers with its own name.
    pub(super) fn named(name: &str) -> Self {
        let reply = ok(name);
        Self::answering(move |_, _| reply.clone())
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Ends like a crash: nothing listens, and connections break during requests.
    pub(super) fn kill(mut self) {
        self.stop();
        for stream in self.streams.lock().unwrap().values() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Stops listening; only another listener of this test may bind the address.
    pub(super) fn close(mut self) -> SocketAddr {
        self.stop();
        let own = Box::leak(Box::new(reserve(self.reserved.local_addr().unwrap())));
        own.local_addr().unwrap()
    }

    fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.is_closing.store(true, SeqCst);
            drop(TcpStream::connect(self.address));
            thread.join().unwrap();
        }
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An address on which nothing listens during the tests: it is reserved by a socket that is bound
/// but does not listen.
pub(super) fn closed_port() -> SocketAddr {
    let reserved = Box::leak(Box::new(reserve("127.0.0.1:0".parse().unwrap())));
    reserved.local_addr().unwrap()
}

/// Reserves an address; the tests may still listen on it.
fn reserve(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// `200 OK` with `body`.
pub(super) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// One end of a connection, with the bytes that were read and not used yet.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    pending: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, pending: Vec::new() }
    }

    /// Sends all of it; false if the other side has closed.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.pending.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("read: {error}"),
        }
    }

    /// Reads up to and including `end`; `None` if the stream ends before.
    pub(super) fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.pending.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return Some(self.pending.drain(..at + end.len()).collect());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    pub(super) fn exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.pending.len() < len {
            if !self.fill() {
                return None;
            }
        }
        Some(self.pending.drain(..len).collect())
    }

    /// Reads a head, as text including line ends.
    pub(super) fn head(&mut self) -> Option<String> {
        self.until(b"\r\n\r\n").map(|head| String::from_utf8(head).unwrap())
    }

    /// Head and decoded body of the next request.
    pub(super) fn request(&mut self) -> Option<(String, Vec<u8>)> {
        let head = self.head()?;
        let body = if has(&head, "transfer-encoding: chunked") {
            self.chunks()?
        } else {
            let len = field(&head, "content-length").map_or(0, |len| len.parse().unwrap());
            self.exactly(len)?
        };
        Some((head, body))
    }

    /// A chunked body, decoded; trailers are dropped.
    pub(super) fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n")?).unwrap();
            let size = line.trim_end().split(';').next().unwrap();
            let len = usize::from_str_radix(size, 16).unwrap();
            if len == 0 {
                while self.until(b"\r\n")? != b"\r\n" {}
                return Some(body);
            }
            body.extend(self.exactly(len)?);
            assert_eq!(self.exactly(2)?, b"\r\n");
        }
    }

    /// Reads all bytes up to the end of the stream; returns whether the end was orderly.
    pub(super) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut all = std::mem::take(&mut self.pending);
        let mut buffer = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return (all, true),
                Ok(n) => all.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (all, false);
                }
                Err(error) => panic!("read: {error}"),
            }
        }
    }

    /// Whether there is anything to read at this moment.
    pub(super) fn has_bytes(&mut self) -> bool {
        if !self.pending.is_empty() {
            return true;
        }
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0; 1]);
        self.stream.set_nonblocking(false).unwrap();
        !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// A client's connection.
pub(super) struct Client {
    raw: RawClient,
}

/// A reply with its decoded body.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self { raw: RawClient::try_connect_within(address, PATIENCE).unwrap() }
    }

    pub(super) fn get(&mut self, path: &str) -> Reply {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: example.org\r\n\r\n"))
    }

    /// Sends `request` and reads its reply, which must be complete.
    pub(super) fn ask(&mut self, request: &str) -> Reply {
        assert!(self.send(request));
        self.reply_to(if request.starts_with("HEAD") { "HEAD" } else { "GET" })
    }

    pub(super) fn reply(&mut self) -> Reply {
        self.reply_to("GET")
    }

    fn reply_to(&mut self, method: &str) -> Reply {
        loop {
            let reply = self.raw.try_response_to(method).expect("a whole reply");
            if reply.status != 103 {
                let head = reply.head_text();
                return Reply { status: reply.status, head, body: reply.body };
            }
        }
    }

    /// Sends all of it; false if the other side has closed.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.raw.try_send(bytes).is_ok()
    }

    /// Reads a head, as text including line ends.
    pub(super) fn head(&mut self) -> Option<String> {
        let head = self.until(b"\r\n\r\n")?;
        Some(String::from_utf8(head).unwrap())
    }

    /// Reads up to and including `end`; `None` if the stream ends before.
    pub(super) fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let found = |bytes: &[u8]| bytes.windows(end.len()).position(|window| window == end);
        unless_ended(self.raw.try_take(|bytes| found(bytes).map(|at| at + end.len())))
    }

    pub(super) fn exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        unless_ended(self.raw.try_take(|bytes| (bytes.len() >= len).then_some(len)))
    }

    /// Reads all bytes up to the end of the stream; returns whether the end was orderly.
    pub(super) fn rest(&mut self) -> (Vec<u8>, bool) {
        let (bytes, ended) = self.raw.read_to_end();
        (bytes, unless_ended(ended).is_some())
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.raw.stream()
    }
}

/// The bytes received before the end of the stream, whether orderly or not.
fn unless_ended<T>(came: Result<T, ClientError>) -> Option<T> {
    match came {
        Ok(it) => Some(it),
        Err(ClientError::Closed(_) | ClientError::Failed(ErrorKind::ConnectionReset)) => None,
        Err(error) => panic!("read: {error}"),
    }
}

impl Reply {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// Value of a field of a head; `name` is in lower case.
pub(super) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Whether a head has this line, compared in lower case.
pub(super) fn has(head: &str, line: &str) -> bool {
    head.lines().any(|found| found.to_ascii_lowercase() == line)
}

/// A channel for the requests that a fake node received.
pub(super) fn seen<T>() -> (mpsc::SyncSender<T>, mpsc::Receiver<T>) {
    mpsc::sync_channel(1_000)
}

/// The next request that a fake node received.
pub(super) fn next<T>(seen: &mpsc::Receiver<T>) -> T {
    seen.recv_timeout(PATIENCE).expect("the node saw something")
}
