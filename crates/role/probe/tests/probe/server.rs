//! A server that behaves as the path specifies. It ends when it is dropped.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

/// Answers a request; called with the connection and the path.
type Answer = dyn Fn(&mut TcpStream, &str) + Send + Sync;

/// A server on the loopback.
pub(crate) struct Server {
    address: SocketAddr,
    is_ending: Arc<AtomicBool>,
    /// Open connections by number; closed when the server ends.
    open: Arc<Mutex<BTreeMap<usize, TcpStream>>>,
    accepted: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The server of most tests: see [`answer`].
    pub(crate) fn new() -> Self {
        Self::answering(answer)
    }

    pub(crate) fn answering(answer: impl Fn(&mut TcpStream, &str) + Send + Sync + 'static) -> Self {
        let answer: Arc<Answer> = Arc::new(answer);
        Self::accepting(move |mut stream| {
            let path = read_path(&mut stream);
            answer(&mut stream, &path);
        })
    }

    /// Calls `serve` with each connection, on a separate thread; then closes it.
    pub(crate) fn accepting(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_ending = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Mutex::new(BTreeMap::new()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let serve = Arc::new(serve);
        let (ends, opens, accepts) =
            (Arc::clone(&is_ending), Arc::clone(&open), Arc::clone(&accepted));
        let thread = thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                let number = accepts.fetch_add(1, Ordering::SeqCst);
                opens.lock().unwrap().insert(number, stream.try_clone().unwrap());
                let (serve, opens) = (Arc::clone(&serve), Arc::clone(&opens));
                threads.push(thread::spawn(move || {
                    serve(stream);
                    opens.lock().unwrap().remove(&number);
                }));
            }
            for thread in threads {
                let _ = thread.join();
            }
        });
        Self { address, is_ending, open, accepted, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Number of connections accepted.
    pub(crate) fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        for stream in self.open.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a request; returns its path, or an empty text if there is none.
pub(crate) fn read_path(stream: &mut impl Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A complete response with `fields` and a body of this length.
pub(crate) fn response(status: &str, fields: &str, bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\n{fields}\r\n");
    [head.into_bytes(), vec![b'x'; bytes]].concat()
}

/// `/KIND/REST`.
fn answer(stream: &mut TcpStream, path: &str) {
    let (kind, rest) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let whole = match kind {
        "size" => response("200 OK", "X-Skep-Node: node-7\r\n", rest.parse().unwrap()),
        "chunked" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec()
        }
        "unframed" => b"HTTP/1.0 200 OK\r\n\r\nuntil the end".to_vec(),
        "status" => response(&format!("{rest} Anything"), "", 3),
        "to" => response("302 Found", &format!("Location: {rest}\r\n"), 5),
        // This number of redirects.
        "hops" => match rest {
            "0" => response("200 OK", "", 1),
            more => {
                let left = more.parse::<u32>().unwrap() - 1;
                response("307 Temporary Redirect", &format!("Location: {left}\r\n"), 0)
            }
        },
        "short" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_vec(),
        "short-chunk" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n0123".to_vec()
        }
        "garbage" => b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(),
        "endless-head" => [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 200_000]].concat(),
        "closed" => Vec::new(),
        "reset" => return reset(stream),
        "silent" => return hold(stream),
        "half" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
            return hold(stream);
        }
        "slow" => return slowly(stream),
        other => panic!("no such kind: {other}"),
    };
    // The client may have closed.
    let _ = stream.write_all(&whole);
}

/// Waits until the client closes, or the server ends.
fn hold(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0]);
}

/// Makes the close of the connection send an RST.
fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Delays of the first byte of [`slowly`], and of the rest, in milliseconds.
pub(crate) const FIRST_BYTE_MS: u64 = 60;
pub(crate) const DATA_MS: u64 = 120;

/// A response whose phases take at least these times.
fn slowly(stream: &mut TcpStream) {
    thread::sleep(Duration::from_millis(FIRST_BYTE_MS));
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab").unwrap();
    thread::sleep(Duration::from_millis(DATA_MS));
    stream.write_all(b"cd").unwrap();
}
