//! A test client that sends arbitrary bytes and reads replies by their framing.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};

use skep_testclient::{ClientError, RawClient};

use super::rig::PATIENCE;

/// One connection.
pub(super) struct Client {
    wire: RawClient,
    /// Its name at the server.
    pub(super) name: String,
}

/// One reply, without interim responses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// The value of the field `name`.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    pub(super) fn says_close(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let wire = RawClient::try_connect_within(address, PATIENCE).unwrap();
        let name = wire.stream().local_addr().unwrap().to_string();
        Self { wire, name }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.wire.stream().local_addr().unwrap()
    }

    /// Sends all of it; false if the server has closed.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.try_send(bytes).is_ok()
    }

    pub(super) fn finish_sending(&self) {
        self.wire.stream().shutdown(Shutdown::Write).unwrap();
    }

    /// A head, including its empty line; `None`: the stream ended before.
    pub(super) fn head(&mut self) -> Option<String> {
        let head = unless_ended(self.wire.try_head())?;
        Some(String::from_utf8(head.raw).unwrap())
    }

    /// The next reply that is not an interim one. `None`: the stream ended before it was complete.
    pub(super) fn reply(&mut self) -> Option<Reply> {
        self.reply_to("GET")
    }

    /// The same for a request with this method.
    pub(super) fn reply_to(&mut self, method: &str) -> Option<Reply> {
        loop {
            let reply = unless_ended(self.wire.try_response_to(method))?;
            if reply.status != 100 {
                let head = reply.head_text();
                return Some(Reply { status: reply.status, head, body: reply.body });
            }
        }
    }

    /// Sends a request and reads its reply, which must be complete.
    pub(super) fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        assert!(self.send(request));
        self.reply().expect("a whole reply")
    }

    /// All bytes up to the end of the stream; and whether the end was orderly.
    pub(super) fn rest(&mut self) -> (Vec<u8>, bool) {
        let (bytes, ended) = self.wire.read_to_end();
        (bytes, unless_ended(ended).is_some())
    }

    /// Asserts that nothing more is received, and that the server ended the stream orderly.
    pub(super) fn assert_closed(&mut self) {
        assert_eq!(self.rest(), (Vec::new(), true));
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

/// The head of a request for `target`, with additional lines.
pub(super) fn head(method: &str, target: &str, lines: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes()
}

pub(super) fn get(target: &str) -> Vec<u8> {
    head("GET", target, "")
}

/// A POST with `body`, delimited by its length.
pub(super) fn post(target: &str, body: &[u8]) -> Vec<u8> {
    let head = head("POST", target, &format!("Content-Length: {}\r\n", body.len()));
    [&head, body].concat()
}

/// A POST with `pieces` as chunks.
pub(super) fn post_chunked(target: &str, pieces: &[&[u8]]) -> Vec<u8> {
    let mut request = head("POST", target, "Transfer-Encoding: chunked\r\n");
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        request.extend(format!("{:x}\r\n", piece.len()).bytes());
        request.extend_from_slice(piece);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}
