//! Application servers controlled by a test: they read requests with their bodies, and send what the test's
//! script writes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::acceptor::Acceptor;

/// The listen backlog: as many connections as tests have clients.
const BACKLOG: i32 = 4_096;

/// A running server. Dropped, it closes its port.
pub struct App {
    acceptor: Acceptor,
    connections: Arc<AtomicUsize>,
}

/// A connection to an [`App`].
pub struct AppConn {
    stream: TcpStream,
    /// Bytes read but not consumed yet.
    pending: Vec<u8>,
    /// Number of connections accepted before this one.
    pub number: usize,
}

/// A received request with its reassembled body.
#[derive(Clone, Debug)]
pub struct AppRequest {
    /// The whole head, including line ends.
    pub head: String,
    pub body: Vec<u8>,
    /// The lines after the last chunk.
    pub trailers: String,
}

impl App {
    /// Starts a server that runs `script` for each connection, on a thread of its own.
    pub fn start(script: impl Fn(&mut AppConn) + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// Like [`Self::start`], at an address of the current network namespace; must be dropped there.
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&mut AppConn) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        // A backlog for a thousand simultaneous connections, so that no SYN must be retried.
        rustix::net::listen(&listener, BACKLOG).expect("it listens already");
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let acceptor = Acceptor::start(listener, move |stream| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            script(&mut AppConn { stream, pending: Vec::new(), number });
        });
        Self { acceptor, connections }
    }

    /// Starts a server that answers each request with the whole response that `answer` returns.
    pub fn answering(answer: impl Fn(&AppRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |conn| {
            while let Some(received) = conn.request() {
                if !conn.send(answer(&received)) {
                    return;
                }
            }
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }

    /// Returns the number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl AppConn {
    /// Reads the next request with its body; `None` at the end of the connection.
    pub fn request(&mut self) -> Option<AppRequest> {
        let head = self.head()?;
        self.body_of(head)
    }

    /// Reads the body of the request with this head, and returns both; `None` if the connection ends early.
    pub fn body_of(&mut self, head: String) -> Option<AppRequest> {
        if has_line(&head, "transfer-encoding: chunked") {
            let (body, trailers) = self.chunks()?;
            return Some(AppRequest { head, body, trailers });
        }
        let length = field(&head, "content-length").map_or(0, |it| it.parse().expect("a length"));
        let body = self.exactly(length)?;
        Some(AppRequest { head, body, trailers: String::new() })
    }

    /// Reads the head of the next request.
    pub fn head(&mut self) -> Option<String> {
        let head = self.until(b"\r\n\r\n")?;
        Some(String::from_utf8(head).expect("heads are ASCII"))
    }

    /// Reads all bytes up to and including `end`.
    pub fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let mut from = 0;
        loop {
            let found = self.pending[from..].windows(end.len()).position(|it| it == end);
            if let Some(at) = found {
                return Some(self.pending.drain(..from + at + end.len()).collect());
            }
            from = self.pending.len().saturating_sub(end.len());
            self.fill()?;
        }
    }

    pub fn exactly(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.pending.len() < bytes {
            self.fill()?;
        }
        Some(self.pending.drain(..bytes).collect())
    }

    /// Reads and discards this number of bytes.
    pub fn skip(&mut self, bytes: usize) -> Option<()> {
        let mut left = bytes;
        loop {
            let taken = left.min(self.pending.len());
            self.pending.drain(..taken);
            left -= taken;
            if left == 0 {
                return Some(());
            }
            self.fill()?;
        }
    }

    /// Writes these bytes; returns whether all could be written.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Waits until the peer closes the connection.
    pub fn wait_for_end(&mut self) {
        while self.fill().is_some() {
            self.pending.clear();
        }
    }

    /// Closes the connection in order.
    pub fn close(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Makes the connection end with a reset when it is dropped.
    pub fn reset(&self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
    }

    fn chunks(&mut self) -> Option<(Vec<u8>, String)> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n")?).expect("ASCII");
            let size = usize::from_str_radix(line.trim_end(), 16).expect("a size");
            if size == 0 {
                let mut trailers = String::new();
                loop {
                    let line = String::from_utf8(self.until(b"\r\n")?).expect("ASCII");
                    if line == "\r\n" {
                        return Some((body, trailers));
                    }
                    trailers += &line;
                }
            }
            body.extend(self.exactly(size)?);
            assert_eq!(self.exactly(2)?, b"\r\n", "a chunk ends");
        }
    }

    fn fill(&mut self) -> Option<()> {
        let mut buffer = [0; 64 * 1024];
        let read: io::Result<usize> = self.stream.read(&mut buffer);
        let read = read.ok().filter(|read| *read > 0)?;
        self.pending.extend_from_slice(&buffer[..read]);
        Some(())
    }
}

impl AppRequest {
    /// The request line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the value of a field; its name is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// Returns a whole response with this body; `fields` are lines.
pub fn response(status: u16, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn has_line(head: &str, line: &str) -> bool {
    head.lines().any(|it| it.eq_ignore_ascii_case(line))
}
