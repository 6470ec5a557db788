//! Requests for millions of objects, and an origin that has them; neither keeps state per object.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::thread;

use skep_testclient::{HOST, RawClient, Response, request_bytes};

/// Number of pipelined requests per connection.
const PIPELINED: usize = 32;

/// The body of every object.
const BODY: &str = "tiny";

/// An origin that serves the same few bytes under every path, fresh for ever. It runs until the process ends.
pub struct TinyOrigin {
    address: SocketAddr,
}

impl TinyOrigin {
    /// Starts an origin.
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

    /// Returns the config line of a site that uses this origin.
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

/// Sends GET `target(number)` for all `numbers` over this number of connections, and checks that each answer
/// is that of the origin.
///
/// # Panics
/// If an answer differs.
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
                    // A separate thread writes, so that writing and reading never wait for each other.
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
