//! A client that sends what it is told, byte for byte.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::response::{Framing, Response, find, malformed, parse_chunk_size, parse_head};
use crate::wait::PATIENCE;

/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// A head longer than this is an error, in bytes.
const HEAD_BYTES_MAX: usize = 256 * 1024;

/// Why there was no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The connection could not be made.
    Connect(ErrorKind),
    /// Nothing came in time.
    Timeout,
    /// The connection was closed after so many bytes of the response.
    Closed(usize),
    /// The connection was reset or failed otherwise.
    Failed(ErrorKind),
    /// The server sent what is no HTTP.
    Malformed(String),
}

impl ClientError {
    /// A word for counting.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(kind) => format!("connect: {kind}"),
            Self::Timeout => "timeout".into(),
            Self::Closed(0) => "closed before the response".into(),
            Self::Closed(_) => "closed within the response".into(),
            Self::Failed(kind) => format!("failed: {kind}"),
            Self::Malformed(_) => "malformed".into(),
        }
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(bytes) => write!(f, "closed after {bytes} bytes"),
            Self::Malformed(what) => write!(f, "malformed: {what}"),
            other => f.write_str(&other.kind()),
        }
    }
}

/// One connection to a server. Reads end with [`ClientError::Timeout`] after
/// [`PATIENCE`] unless told otherwise.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    /// Received, not yet part of a response.
    buffer: Vec<u8>,
}

impl RawClient {
    /// Connects.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        match Self::try_connect(address) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to {address}: {error}"),
        }
    }

    /// Connects, or tells why not.
    pub fn try_connect(address: SocketAddr) -> Result<Self, ClientError> {
        let failed = |error: io::Error| ClientError::Connect(error.kind());
        Self::over(TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?)
    }

    pub(crate) fn over(stream: TcpStream) -> Result<Self, ClientError> {
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
        let set = set.and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        set.map_err(|error| ClientError::Connect(error.kind()))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sets how long a read waits.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).expect("a timeout above zero");
    }

    /// Sends `bytes`. A server may refuse before it took all; so a failure to
    /// send is left for the read to find.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.try_send(bytes);
        self
    }

    /// Sends `bytes`, or tells why not.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends `pieces` one by one, each in a write of its own.
    pub fn send_pieces<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> &mut Self {
        for piece in pieces {
            if self.try_send(piece).is_err() {
                break;
            }
        }
        self
    }

    /// Sends a request without a body and reads its response. `fields` come
    /// after `Host: test`.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        self.send(request_bytes(method, target, fields));
        match self.try_response_to(method) {
            Ok(response) => response,
            Err(error) => panic!("{method} {target}: {error}"),
        }
    }

    /// [`Self::request`] with GET and no fields.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[])
    }

    /// Reads one response to a GET.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        match self.try_response() {
            Ok(response) => response,
            Err(error) => panic!("no response: {error}"),
        }
    }

    /// Reads one response to a GET, or tells why there is none.
    pub fn try_response(&mut self) -> Result<Response, ClientError> {
        self.try_response_to("GET")
    }

    /// Reads one response to `method`, interim ones (1xx) included.
    pub fn try_response_to(&mut self, method: &str) -> Result<Response, ClientError> {
        let head = self.take_head()?;
        let (mut response, framing) = parse_head(&head, method)?;
        match framing {
            Framing::Length(len) => {
                let body = self.take(len, head.len())?;
                response.raw.extend_from_slice(&body);
                response.body = body;
            }
            Framing::Chunked => self.take_chunks(&mut response)?,
            Framing::Close => {
                while self.fill()? > 0 {}
                response.body = std::mem::take(&mut self.buffer);
                response.raw.extend_from_slice(&response.body);
            }
        }
        Ok(response)
    }

    /// Reads the head of a response to a GET and leaves its body for
    /// [`Self::try_read_some`]: for clients that stop or dawdle half-way.
    pub fn try_head(&mut self) -> Result<Response, ClientError> {
        let head = self.take_head()?;
        parse_head(&head, "GET").map(|(response, _)| response)
    }

    /// Reads what is there, waiting for at least a byte; nothing at the end.
    pub fn try_read_some(&mut self) -> Result<Vec<u8>, ClientError> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Of what was received and belongs to no response yet the first bytes, at
    /// most `bytes`.
    pub(crate) fn take_buffered(&mut self, bytes: usize) -> Vec<u8> {
        self.take_first(bytes.min(self.buffer.len()))
    }

    /// Reads until the server closes: the bytes until then, and how it ended; an
    /// orderly close is no error.
    pub fn read_to_end(&mut self) -> (Vec<u8>, Result<(), ClientError>) {
        let ended = loop {
            match self.fill() {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        (std::mem::take(&mut self.buffer), ended)
    }

    /// Reads until the server closes or resets: the bytes until then.
    ///
    /// # Panics
    /// When it does neither in time.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(0) | Err(ClientError::Failed(_)) => return std::mem::take(&mut self.buffer),
                Ok(_) => {}
                Err(error) => panic!("waiting for the close: {error}"),
            }
        }
    }

    /// Asserts that the server sends nothing more and closes.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let rest = self.read_to_close();
        assert!(rest.is_empty(), "before the close: {:?}", String::from_utf8_lossy(&rest));
    }

    /// Whether the server has closed or reset the connection; doesn't wait.
    pub fn is_closed(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let filled = self.fill();
        self.stream.set_nonblocking(false).expect("a socket");
        matches!(filled, Ok(0) | Err(ClientError::Failed(_)))
    }

    /// Tells the server that no more bytes will come.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The connection, for what this client can't do.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn take_head(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                return Ok(self.take_first(at + 4));
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(malformed("endless head", &self.buffer));
            }
            if self.fill()? == 0 {
                return Err(ClientError::Closed(self.buffer.len()));
            }
        }
    }

    /// The next `len` bytes; `before` bytes of the response came earlier.
    fn take(&mut self, len: usize, before: usize) -> Result<Vec<u8>, ClientError> {
        while self.buffer.len() < len {
            if self.fill()? == 0 {
                return Err(ClientError::Closed(before + self.buffer.len()));
            }
        }
        Ok(self.take_first(len))
    }

    /// The first `len` bytes of the buffer, copied as a whole: byte by byte takes long in a
    /// build that is not optimised.
    fn take_first(&mut self, len: usize) -> Vec<u8> {
        let behind = self.buffer.split_off(len);
        std::mem::replace(&mut self.buffer, behind)
    }

    fn take_line(&mut self, response: &mut Response) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line = self.take(at + 2, response.raw.len())?;
                response.raw.extend_from_slice(&line);
                return Ok(line[..at].to_vec());
            }
            if self.fill()? == 0 {
                return Err(ClientError::Closed(response.raw.len() + self.buffer.len()));
            }
        }
    }

    fn take_chunks(&mut self, response: &mut Response) -> Result<(), ClientError> {
        loop {
            let line = self.take_line(response)?;
            let size = parse_chunk_size(&line).ok_or_else(|| malformed("chunk size", &line))?;
            if size == 0 {
                while !self.take_line(response)?.is_empty() {}
                return Ok(());
            }
            let data = self.take(size, response.raw.len())?;
            response.raw.extend_from_slice(&data);
            response.body.extend_from_slice(&data);
            let end = self.take_line(response)?;
            if !end.is_empty() {
                return Err(malformed("chunk end", &end));
            }
        }
    }

    /// Reads once into the buffer: the number of bytes, 0 at the end.
    fn fill(&mut self) -> Result<usize, ClientError> {
        let mut bytes = [0; READ_BYTES];
        let read = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.extend_from_slice(&bytes[..*read.as_ref().unwrap_or(&0)]);
        read.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Timeout,
            kind => ClientError::Failed(kind),
        })
    }
}

/// The bytes of a request without a body.
pub(crate) fn request_bytes(method: &str, target: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in fields {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str("\r\n");
    bytes.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A client of a server that reads a head, says `answer` and closes.
    fn client_of(answer: &'static [u8]) -> RawClient {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while find(&head, b"\r\n\r\n").is_none() {
                let mut piece = [0; 100];
                let n = stream.read(&mut piece).unwrap();
                head.extend_from_slice(&piece[..n]);
            }
            stream.write_all(answer).unwrap();
        });
        let mut client = RawClient::connect(address);
        client.send(request_bytes("GET", "/", &[]));
        client
    }

    #[test]
    fn bodies_by_length_by_chunks_and_by_close() {
        let mut client = client_of(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
              HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n\
              HTTP/1.1 200 OK\r\n\r\nghi",
        );
        let bodies = [client.response().body, client.response().body, client.response().body];
        assert_eq!(bodies, [b"abc", b"def", b"ghi"]);
        client.assert_closed();
    }

    #[test]
    fn a_response_cut_short_is_an_error_everywhere() {
        let whole: &[u8] =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(client_of(&whole[..end]).try_response(), Err(ClientError::Closed(end)));
        }
        assert!(client_of(whole).try_response().is_ok());
    }

    #[test]
    fn rubbish_is_malformed() {
        let error = client_of(b"hello\r\n\r\n").try_response().unwrap_err();
        assert_eq!(error.kind(), "malformed");
    }

    #[test]
    fn silence_is_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = RawClient::connect(listener.local_addr().unwrap());
        client.set_timeout(Duration::from_millis(1));
        assert_eq!(client.try_response(), Err(ClientError::Timeout));
        assert!(!client.is_closed());
    }
}
