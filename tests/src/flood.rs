//! Requests for millions of objects, and the origin that has them: neither
//! remembers anything of them.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::thread;

use skep_testclient::{HOST, RawClient, Response, request_bytes};

/// Requests that one connection has under way.
const PIPELINED: usize = 32;

/// What every object is.
const BODY: &str = "tiny";

/// An origin that has the same few bytes under every path, fresh for ever. It ends
/// with the process.
pub struct TinyOrigin {
    address: SocketAddr,
}

impl TinyOrigin {
    /// A running one.
    #[expect(clippy::new_without_default, reason = "it takes a port")]
    pub fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || drop(answer_all(&stream)));
            }
        });
        Self { address }
    }

    /// The line of a site's config that names it.
    pub fn line(&self) -> String {
        format!("origins = [\"http://{}\"]\n", self.address)
    }
}

fn answer_all(stream: &TcpStream) -> std::io::Result<()> {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"v\"\r\n\
         Cache-Control: max-age=86400\r\n\r\n{BODY}",
        BODY.len()
    );
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 * 1024, stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line == b"\r\n" {
            (&mut &*stream).write_all(answer.as_bytes())?;
        }
    }
}

/// GETs `target(number)` for all `numbers` over so many connections, and checks that
/// each is answered with what the origin has.
///
/// # Panics
/// When one is not.
pub fn get_all(
    address: SocketAddr,
    connections: u64,
    numbers: Range<u64>,
    target: impl Fn(u64) -> String + Sync,
) {
    thread::scope(|scope| {
        for connection in 0..connections {
            let (numbers, target) = (numbers.clone(), &target);
            scope.spawn(move || {
                let mut own = numbers.skip(connection as usize).step_by(connections as usize);
                let mut client = RawClient::connect(address);
                let mut stream = client.stream().try_clone().expect("a descriptor");
                loop {
                    let some = own.by_ref().take(PIPELINED);
                    let requests: Vec<_> =
                        some.map(|number| request_bytes("GET", &target(number), &[HOST])).collect();
                    if requests.is_empty() {
                        return;
                    }
                    // Written by another thread: neither side may wait for the other.
                    thread::scope(|scope| {
                        scope.spawn(|| stream.write_all(&requests.concat()).expect("it reads"));
                        requests.iter().for_each(|_| assert_tiny(&client.response()));
                    });
                }
            });
        }
    });
}

fn assert_tiny(response: &Response) {
    assert!(response.raw.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", response.head_text());
    assert_eq!(response.body, BODY.as_bytes());
}
