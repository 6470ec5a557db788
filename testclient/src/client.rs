//! A blocking client that sends the given bytes unchanged.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::body::BodyReader;
use crate::head::{Framing, Malformed, parse_head};
use crate::limits::{PATIENCE, READ_BYTES};
use crate::request::{HOST, request_bytes};
use crate::response::Response;

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
    /// The server sent bytes that are not HTTP.
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

impl std::error::Error for ClientError {}

impl From<Malformed> for ClientError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed.to_string())
    }
}

/// One connection to a server. Reads end with [`ClientError::Timeout`] after
/// [`PATIENCE`] unless set otherwise.
#[derive(Debug)]
pub struct RawClient<S = TcpStream> {
    stream: S,
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

    /// Connects, or returns the error.
    pub fn try_connect(address: SocketAddr) -> Result<Self, ClientError> {
        Self::try_connect_within(address, PATIENCE)
    }

    /// The same with another limit for the connection, and for each read and write on it.
    pub fn try_connect_within(address: SocketAddr, limit: Duration) -> Result<Self, ClientError> {
        let stream = TcpStream::connect_timeout(&address, limit).map_err(not_connected)?;
        let client = Self::over(stream)?;
        client.limit(limit).map_err(not_connected)?;
        Ok(client)
    }

    /// A client on an existing connection.
    pub fn over(stream: TcpStream) -> Result<Self, ClientError> {
        let client = Self { stream, buffer: Vec::new() };
        let set = client.stream.set_nodelay(true).and_then(|()| client.limit(PATIENCE));
        set.map_err(not_connected)?;
        Ok(client)
    }

    /// Sets how long a read waits.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).expect("a timeout above zero");
    }

    /// Whether the server has closed or reset the connection; doesn't wait.
    pub fn is_closed(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let filled = self.fill();
        self.stream.set_nonblocking(false).expect("a socket");
        matches!(filled, Ok(0) | Err(ClientError::Failed(_)))
    }

    /// Closes the sending direction.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn limit(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.set_write_timeout(Some(limit))
    }
}

impl RawClient<UnixStream> {
    /// Connects to a local socket, or returns the error.
    pub fn try_connect_local(socket: &Path) -> Result<Self, ClientError> {
        let connect = || -> io::Result<_> {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        Ok(Self { stream: connect().map_err(not_connected)?, buffer: Vec::new() })
    }
}

impl<S: Read + Write> RawClient<S> {
    /// Sends `bytes`. A server may refuse before it took all; so a failure to
    /// send is left for the read to find.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.try_send(bytes);
        self
    }

    /// Sends `bytes`, or returns the error.
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

    /// Sends a request without a body, and reads nothing yet. `fields` come
    /// after `Host: test`.
    pub fn send_request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> &mut Self {
        self.send(request_bytes(method, target, &[&[HOST], fields].concat()))
    }

    /// [`Self::send_request`] with GET and no fields.
    pub fn ask(&mut self, target: &str) -> &mut Self {
        self.send_request("GET", target, &[])
    }

    /// [`Self::send_request`], and its response.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        self.send_request(method, target, fields);
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

    /// Reads one response to a GET, or returns the error.
    pub fn try_response(&mut self) -> Result<Response, ClientError> {
        self.try_response_to("GET")
    }

    /// Reads one response to `method`, interim ones (1xx) included.
    pub fn try_response_to(&mut self, method: &str) -> Result<Response, ClientError> {
        let (mut response, framing) = self.take_head(method)?;
        let mut reader = BodyReader::new(framing);
        loop {
            let taken = reader.read(&self.buffer, &mut response.body)?;
            response.raw.append(&mut self.take_first(taken));
            if reader.is_done() {
                return Ok(response);
            }
            if self.fill()? == 0 {
                let closed = Err(ClientError::Closed(response.raw.len()));
                return if reader.may_end_here() { Ok(response) } else { closed };
            }
        }
    }

    /// Reads the head of a response to a GET and leaves its body for
    /// [`Self::try_read_some`]: for clients that stop or dawdle half-way.
    pub fn try_head(&mut self) -> Result<Response, ClientError> {
        self.take_head("GET").map(|(head, _)| head)
    }

    /// Reads what is there, waiting for at least a byte; nothing at the end.
    pub fn try_read_some(&mut self) -> Result<Vec<u8>, ClientError> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Reads until `enough` says how many of the bytes that came are wanted, and returns these.
    pub fn try_take(
        &mut self,
        enough: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(len) = enough(&self.buffer) {
                return Ok(self.take_first(len));
            }
            if self.fill()? == 0 {
                return Err(ClientError::Closed(self.buffer.len()));
            }
        }
    }

    /// Of what was received and belongs to no response yet the first bytes, at
    /// most `bytes`.
    pub fn take_buffered(&mut self, bytes: usize) -> Vec<u8> {
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

    /// The connection, for what this client can't do.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Returns the connection. Bytes received but not taken are lost.
    pub fn into_stream(self) -> S {
        self.stream
    }

    fn take_head(&mut self, method: &str) -> Result<(Response, Framing), ClientError> {
        loop {
            if let Some((head, framing)) = parse_head(&self.buffer, method)? {
                self.take_first(head.raw.len());
                return Ok((head, framing));
            }
            if self.fill()? == 0 {
                return Err(ClientError::Closed(self.buffer.len()));
            }
        }
    }

    /// The first `len` bytes of the buffer, copied as a whole: byte by byte takes long in a
    /// build that is not optimised.
    fn take_first(&mut self, len: usize) -> Vec<u8> {
        let behind = self.buffer.split_off(len);
        std::mem::replace(&mut self.buffer, behind)
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

fn not_connected(error: io::Error) -> ClientError {
    ClientError::Connect(error.kind())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::response::find;

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
        client.ask("/");
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
