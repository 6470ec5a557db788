//! The recording origin: one port for each lane and peer, which identifies what is received.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::case::{Answer, Case};
use crate::http::{self, Body, Framing, Head};
use crate::limits::{ANSWERS_MAX, HANG};

/// The path of nodes' health checks.
const HEALTH: &str = "/.well-known/skep/health";

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) head: Head,
    /// The body; `None` if it is incomplete or cannot be parsed.
    pub(crate) body: Option<Vec<u8>>,
}

#[derive(Default)]
struct State {
    case: Arc<Case>,
    received: Vec<Received>,
    /// Number of connections with a request in progress.
    busy: usize,
}

/// The origin of one peer in one lane.
pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Origin {
    /// Listens on a port of the loopback, for the life of the process.
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                // It is no error if the peer closes the connection.
                thread::spawn(move || drop(serve(&serving, stream)));
            }
        });
        Ok(Self { address, shared })
    }

    /// The address of the origin.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn begin(&self, case: &Arc<Case>) {
        let mut state = lock(&self.shared.0);
        state.case = Arc::clone(case);
        state.received.clear();
    }

    /// Waits until nothing is in progress, and returns all received requests.
    pub(crate) fn end(&self) -> Vec<Received> {
        let state = lock(&self.shared.0);
        let idle = self.shared.1.wait_timeout_while(state, HANG, |state| state.busy > 0);
        let (state, _) = idle.unwrap_or_else(PoisonError::into_inner);
        state.received.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a request in progress until it is dropped.
struct Busy<'s>(&'s (Mutex<State>, Condvar));

impl<'s> Busy<'s> {
    fn new(shared: &'s (Mutex<State>, Condvar)) -> Self {
        lock(&shared.0).busy += 1;
        Self(shared)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        lock(&self.0.0).busy -= 1;
        self.0.1.notify_all();
    }
}

fn serve(shared: &(Mutex<State>, Condvar), mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    loop {
        // A persistent connection may be idle as long as the peer wants.
        stream.set_read_timeout(None)?;
        if bytes.is_empty() && fill(&mut stream, &mut bytes)? == 0 {
            return Ok(());
        }
        let busy = Busy::new(shared);
        stream.set_read_timeout(Some(HANG))?;
        let Some((head, body, len)) = read(&mut stream, &mut bytes)? else { return Ok(()) };
        if head.word(1) == HEALTH {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
            bytes.drain(..len);
            continue;
        }
        let is_whole = body.is_some();
        let answer = note(shared, Received { head: head.clone(), body });
        if !is_whole {
            return Ok(());
        }
        bytes.drain(..len);
        stream.write_all(part_for(head.word(0), &answer.bytes))?;
        if answer.closes {
            stream.shutdown(std::net::Shutdown::Write)?;
            drop(busy);
            // A close with unread bytes could destroy the answer.
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            while fill(&mut stream, &mut bytes)? > 0 {}
            return Ok(());
        }
    }
}

/// Records a request; returns the answer to it.
fn note(shared: &(Mutex<State>, Condvar), received: Received) -> Answer {
    let mut state = lock(&shared.0);
    let number = state.received.len();
    if number < ANSWERS_MAX {
        state.received.push(received);
    }
    state.case.answer(number)
}

/// A response to HEAD has no body (RFC 9110 9.3.2).
fn part_for<'b>(method: &str, bytes: &'b [u8]) -> &'b [u8] {
    if method != "HEAD" {
        return bytes;
    }
    let mut at = 0;
    // After the last of all heads.
    while let Some((head, len)) = Head::read(&bytes[at..]) {
        at += len;
        if !head.word(1).starts_with('1') {
            return &bytes[..at];
        }
    }
    bytes
}

/// A request: its head, its body if it is complete, and its length.
type Request = (Head, Option<Vec<u8>>, usize);

/// Reads the next request, if there is one.
fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let (head, len) = loop {
        if let Some(read) = Head::read(bytes) {
            break read;
        }
        if fill(stream, bytes)? == 0 {
            return Ok(None);
        }
    };
    let framing = head.framing(Framing::Length(0));
    loop {
        match http::body(framing, &bytes[len..], false) {
            Body::Whole(body, body_len) => return Ok(Some((head, Some(body), len + body_len))),
            Body::Malformed => return Ok(Some((head, None, bytes.len()))),
            Body::Part(_) => {
                if fill(stream, bytes).unwrap_or(0) == 0 {
                    return Ok(Some((head, None, bytes.len())));
                }
            }
        }
    }
}

fn fill(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 16_384];
    loop {
        match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => {
                let n = read?;
                bytes.extend(&piece[..n]);
                return Ok(n);
            }
        }
    }
}
