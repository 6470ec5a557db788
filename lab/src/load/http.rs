//! A client that requests one path, and reads bodies at the caller's pace: requests, heads and bodies with a
//! length. Chunked bodies are not supported, since files do not have them.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use skep_testclient::{Framing, parse_head, request_bytes};
use skep_workload::Pattern;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Target;
use super::report::Failure;
use crate::limits::HEAD_BYTES_MAX;

/// A connection to a server.
pub(super) struct Connection {
    stream: TcpStream,
    /// Bytes received after a head.
    ahead: Vec<u8>,
}

/// The relevant part of a response's head.
pub(super) struct Head {
    pub(super) body_bytes: u64,
    /// The node that the response names.
    pub(super) node: Option<String>,
    /// Whether the server will close after it.
    pub(super) closes: bool,
    /// The source of the body, as stated by the server.
    pub(super) source: BodySource,
    /// The entity tag.
    pub(super) etag: Option<String>,
}

/// The source of a response's body, as stated by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySource {
    /// The memory of the node that answered.
    Local,
    /// Another node's memory.
    Peer,
    Origin,
    /// It is not stated.
    Unknown,
}

/// A body being received, checked as it arrives.
pub(super) struct Body {
    pub(super) received: u64,
    expected: u64,
    /// The offset in the object at which it begins.
    start: u64,
    pattern: Option<Pattern>,
}

impl Connection {
    /// Connects, from `source` if given, with a receive buffer of this size in the kernel (0: its default).
    pub(super) async fn open(
        to: SocketAddr,
        source: Option<IpAddr>,
        receive_bytes: u32,
    ) -> Result<Self, Failure> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if receive_bytes > 0 {
            socket.set_recv_buffer_size(receive_bytes)?;
        }
        if let Some(source) = source {
            socket.bind((source, 0).into())?;
        }
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, ahead: Vec::new() })
    }

    /// The client's port; 0 if the kernel does not report it.
    pub(super) fn port(&self) -> u16 {
        self.stream.local_addr().map_or(0, |address| address.port())
    }

    /// Sends a request and reads the head of its response; a status other than 200 is a failure.
    pub(super) async fn ask(&mut self, target: &Target, is_last: bool) -> Result<Head, Failure> {
        self.ask_part(target, None, is_last).await
    }

    /// The same for a part that is not empty: a status other than 206, or another part, is a failure.
    pub(super) async fn ask_part(
        &mut self,
        target: &Target,
        part: Option<&Range<u64>>,
        is_last: bool,
    ) -> Result<Head, Failure> {
        let range = part.map(|part| format!("bytes={}-{}", part.start, part.end - 1));
        let range = range.as_ref().map(|range| ("Range", range.as_str()));
        let close = is_last.then_some(("Connection", "close"));
        let host = Some(("Host", target.host.as_str()));
        let fields: Vec<_> = [host, range, close].into_iter().flatten().collect();
        self.stream.write_all(&request_bytes("GET", &target.path, &fields)).await?;
        let mut buffer = std::mem::take(&mut self.ahead);
        loop {
            if let Some((head, len)) = parse(&buffer, part)? {
                self.ahead = buffer.split_off(len);
                return Ok(head);
            }
            if buffer.len() >= HEAD_BYTES_MAX {
                return Err(Failure::Malformed("the head of the response does not end"));
            }
            if self.stream.read_buf(&mut buffer).await? == 0 {
                return Err(match buffer.len() {
                    0 => Failure::NoResponse,
                    _ => Failure::Malformed("ended within the head of the response"),
                });
            }
        }
    }

    /// Reads bytes of a body: at least one, and at most as many as fit into `buffer`.
    pub(super) async fn read(
        &mut self,
        body: &mut Body,
        buffer: &mut [u8],
    ) -> Result<u64, Failure> {
        let room = (body.left() as usize).min(buffer.len());
        let count = if self.ahead.is_empty() {
            self.stream.read(&mut buffer[..room]).await?
        } else {
            let count = self.ahead.len().min(room);
            buffer[..count].copy_from_slice(&self.ahead[..count]);
            self.ahead.drain(..count);
            count
        };
        body.take(&buffer[..count])?;
        Ok(count as u64)
    }

    /// Waits for the server to close; anything else is a failure.
    pub(super) async fn end(mut self) -> Result<(), Failure> {
        if !self.ahead.is_empty() || self.stream.read(&mut [0]).await? != 0 {
            return Err(Failure::Malformed("bytes after the end of the response"));
        }
        Ok(())
    }

    /// Whether there are unsolicited bytes.
    pub(super) fn has_surplus(&self) -> bool {
        !self.ahead.is_empty()
    }
}

impl Body {
    pub(super) fn new(head: &Head, pattern: Option<Pattern>) -> Self {
        Self::part(head, pattern, 0)
    }

    /// The body of a part that begins at `start`.
    pub(super) fn part(head: &Head, pattern: Option<Pattern>, start: u64) -> Self {
        Self { received: 0, expected: head.body_bytes, start, pattern }
    }

    /// The number of bytes not yet received.
    pub(super) fn left(&self) -> u64 {
        self.expected - self.received
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.is_empty() {
            return Err(Failure::Truncated { found: self.received, expected: self.expected });
        }
        let wrong = self.pattern.and_then(|it| it.first_wrong(self.start + self.received, bytes));
        self.received += bytes.len() as u64;
        wrong.map_or(Ok(()), |at| Err(Failure::WrongByte(at)))
    }
}

/// The head at the beginning of `bytes`, for an answer with `part`, and its length; `None` if it is
/// incomplete.
fn parse(bytes: &[u8], part: Option<&Range<u64>>) -> Result<Option<(Head, usize)>, Failure> {
    let parsed = parse_head(bytes, "GET").map_err(|_| Failure::Malformed("this is no HTTP"))?;
    let Some((response, framing)) = parsed else { return Ok(None) };
    match (response.status, part) {
        (200, None) | (206, Some(_)) => {}
        (status, _) => return Err(Failure::Status(status)),
    }
    let Framing::Length(body_bytes) = framing else {
        return Err(Failure::Malformed("a response without Content-Length"));
    };
    let body_bytes = body_bytes as u64;
    let field = |name: &str| response.header_all(name).next();
    if let Some(part) = part {
        let said = format!("bytes {}-{}/", part.start, part.end - 1);
        let is_it = field("content-range").is_some_and(|it| it.starts_with(&said));
        if !is_it || body_bytes != part.end - part.start {
            return Err(Failure::Malformed("another part than was asked for"));
        }
    }
    let closes = field("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
    let source = BodySource::said_by(field("cache-status").or(field("x-cache")));
    let node = field("x-skep-node").map(str::to_owned);
    let etag = field("etag").map(str::to_owned);
    Ok(Some((Head { body_bytes, node, closes, source, etag }, response.raw.len())))
}

impl BodySource {
    /// Parses `Cache-Status` (RFC 9211) or, from servers without it, `X-Cache`.
    fn said_by(field: Option<&str>) -> Self {
        let Some(text) = field else { return Self::Unknown };
        let has = |word: &str| text.split([';', ' ']).any(|it| it.eq_ignore_ascii_case(word));
        match () {
            () if has("detail=peer") || has("peer") => Self::Peer,
            () if has("hit") => Self::Local,
            () => Self::Origin,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_source_is_what_the_server_says() {
        let of = |text| BodySource::said_by(Some(text));
        assert_eq!(of("skep; hit"), BodySource::Local);
        assert_eq!(of("skep; hit; detail=peer"), BodySource::Peer);
        assert_eq!(of("skep; fwd=uri-miss; stored"), BodySource::Origin);
        assert_eq!(
            [of("HIT"), of("PEER"), of("MISS")],
            [BodySource::Local, BodySource::Peer, BodySource::Origin]
        );
        assert_eq!(BodySource::said_by(None), BodySource::Unknown);
    }

    #[test]
    fn heads_are_read_whole_or_refused() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Skep-Node: b\r\n\r\nhello";
        for end in 0..text.len() - 5 {
            assert!(parse(&text[..end], None).unwrap().is_none());
        }
        let (head, len) = parse(text, None).unwrap().unwrap();
        assert_eq!((head.body_bytes, len, head.closes), (5, text.len() - 5, false));
        assert_eq!(head.node.as_deref(), Some("b"));
        let part =
            b"HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Range: bytes 7-11/99\r\n\r\n";
        assert!(parse(part, Some(&(7..12))).unwrap().is_some());
        assert!(parse(part, Some(&(7..13))).is_err() && parse(part, None).is_err());
        assert!(parse(text, Some(&(0..5))).is_err());
        let failure = |text: &str| parse(text.as_bytes(), None).err().unwrap();
        assert!(matches!(failure("HTTP/1.1 503 No\r\n\r\n"), Failure::Status(503)));
        assert!(matches!(failure("HTTP/1.1 200 OK\r\n\r\n"), Failure::Malformed(_)));
        assert!(matches!(failure("SSH-2.0\r\n\r\n"), Failure::Malformed(_)));
    }
}
