//! A client: sends the pieces of a case, and reads until the other side closes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use crate::case::Case;
use crate::http::{self, Body, Framing, Head};
use crate::limits::HANG;

/// A final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) head: Head,
    pub(crate) status: u16,
    /// The body; `None` if it was truncated or cannot be parsed.
    pub(crate) body: Option<Vec<u8>>,
}

/// What a client received on a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Final responses, in order.
    pub(crate) responses: Vec<Response>,
    /// Bytes that are not part of a response.
    pub(crate) rubbish: Vec<u8>,
    /// Whether the other side neither answered nor closed.
    pub(crate) hung: bool,
}

/// The received bytes, before parsing.
pub(crate) struct Raw {
    bytes: Vec<u8>,
    hung: bool,
    /// Whether it was closed without a reset.
    closed: bool,
}

pub(crate) fn play(address: SocketAddr, case: &Case) -> std::io::Result<Raw> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANG))?;
    stream.set_write_timeout(Some(HANG))?;
    let mut is_reset = false;
    for piece in case.pieces() {
        // A peer that refuses may close before it has read everything. A write that fails with a reset
        // consumes the error: reads then see an orderly end.
        if let Err(error) = stream.write_all(&piece) {
            is_reset = error.kind() == ErrorKind::ConnectionReset;
            break;
        }
        thread::yield_now();
    }
    let (bytes, hung, is_read_reset) = read_to_end(&mut stream);
    Ok(Raw { bytes, hung, closed: !hung && !is_reset && !is_read_reset })
}

fn read_to_end(stream: &mut TcpStream) -> (Vec<u8>, bool, bool) {
    let mut bytes = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return (bytes, false, false),
            Ok(n) => bytes.extend(&piece[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let hung = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                return (bytes, hung, !hung);
            }
        }
    }
}

/// Parses the responses; `is_head` returns whether the response with a given number is to HEAD.
pub(crate) fn take_apart(raw: &Raw, is_head: impl Fn(usize) -> bool) -> Heard {
    let Raw { bytes, hung, closed } = raw;
    let mut heard = Heard { hung: *hung, ..Heard::default() };
    let mut at = 0;
    while at < bytes.len() {
        let Some((head, len)) = Head::read(&bytes[at..]) else { break };
        let Ok(status @ 100..) = head.word(1).parse::<u16>() else { break };
        at += len;
        if status < 200 {
            continue;
        }
        let is_bodiless = is_head(heard.responses.len()) || matches!(status, 204 | 304);
        let framing = match is_bodiless {
            true => Framing::Length(0),
            false => head.framing(Framing::Close),
        };
        let body = match http::body(framing, &bytes[at..], *closed) {
            Body::Whole(body, len) => {
                at += len;
                Some(body)
            }
            Body::Part(_) | Body::Malformed => {
                at = bytes.len();
                None
            }
        };
        heard.responses.push(Response { head, status, body });
    }
    heard.rubbish = bytes[at..].to_vec();
    heard
}
