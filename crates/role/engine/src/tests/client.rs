//! A client that sends bytes as it likes, and reads replies by their own framing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::rig::PATIENCE;

/// One connection.
pub(super) struct Client {
    stream: TcpStream,
    /// How the server names it.
    pub(super) name: String,
    received: Vec<u8>,
}

/// One reply, interim ones left out.
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
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let name = stream.local_addr().unwrap().to_string();
        Self { stream, name, received: Vec::new() }
    }

    /// Sends all of it; false if the server is gone.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub(super) fn finish_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads once; false at the end of the stream, however it came.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(n) => {
                self.received.extend_from_slice(&buffer[..n]);
                n > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("read: {error}"),
        }
    }

    /// A head, its empty line included; `None`: the stream ended before its end.
    pub(super) fn head(&mut self) -> Option<String> {
        loop {
            let end = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end {
                let head = self.received.drain(..end + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// The next reply that is not an interim one. `None`: the stream ended before it was
    /// whole; what there is of it stays to be read.
    pub(super) fn reply(&mut self) -> Option<Reply> {
        self.reply_to("GET")
    }

    /// The same for a request with this method.
    pub(super) fn reply_to(&mut self, method: &str) -> Option<Reply> {
        let mut head = self.head()?;
        while head.starts_with("HTTP/1.1 100 ") {
            head = self.head()?;
        }
        let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        if method == "HEAD" || matches!(status, 101 | 204 | 304) {
            return Some(reply);
        }
        let Some(bytes) = reply.field("Content-Length") else {
            while self.fill() {}
            reply.body = std::mem::take(&mut self.received);
            return Some(reply);
        };
        let bytes = bytes.parse().unwrap();
        while self.received.len() < bytes {
            if !self.fill() {
                return None;
            }
        }
        reply.body = self.received.drain(..bytes).collect();
        Some(reply)
    }

    /// Sends a request and reads its reply, which must be whole.
    pub(super) fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        assert!(self.send(request));
        self.reply().expect("a whole reply")
    }

    /// All that comes to the end of the stream; whether that was orderly.
    pub(super) fn rest(&mut self) -> (Vec<u8>, bool) {
        loop {
            let mut buffer = [0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return (std::mem::take(&mut self.received), true),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (std::mem::take(&mut self.received), false);
                }
                Err(error) => panic!("read: {error}"),
            }
        }
    }

    /// Nothing came any more, and the server ended the stream in good order.
    pub(super) fn assert_closed(&mut self) {
        assert_eq!(self.rest(), (Vec::new(), true));
    }
}

/// The head of a request for `target`, with further lines.
pub(super) fn head(method: &str, target: &str, lines: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes()
}

pub(super) fn get(target: &str) -> Vec<u8> {
    head("GET", target, "")
}

/// A POST with `body`, by its length.
pub(super) fn post(target: &str, body: &[u8]) -> Vec<u8> {
    let head = head("POST", target, &format!("Content-Length: {}\r\n", body.len()));
    [&head, body].concat()
}

/// A POST with `pieces` for chunks.
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
