//! One request at a time, to see that a server answers what it should before
//! it is measured. A client of trusted servers: no limits but the obvious.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::limits::{ANSWER_TIMEOUT, HEAD_BYTES_MAX};

/// A response with a Content-Length.
pub(crate) struct CheckedResponse {
    pub(crate) status: u16,
    /// Status line and fields, as sent.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl CheckedResponse {
    /// The value of a field, by its name in any case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.into_iter().find_map(|(n, value)| n.eq_ignore_ascii_case(name).then(|| value.trim()))
    }
}

/// Asks a server of this machine for a path, on a connection of its own.
pub(crate) fn get(port: u16, path: &str) -> Result<CheckedResponse> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    get_on(&mut stream, path).with_context(|| format!("GET {path}"))
}

/// Asks a server somewhere else.
pub(crate) fn get_at(server: SocketAddr, path: &str) -> Result<CheckedResponse> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_TIMEOUT)?;
    get_on(&mut stream, path).with_context(|| format!("GET {path}"))
}

/// The same on a connection that stays open.
pub(crate) fn get_on(stream: &mut TcpStream, path: &str) -> Result<CheckedResponse> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    // In one piece: a second one would wait for the server's acknowledgement.
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let body_at = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(bytes.len() < HEAD_BYTES_MAX, "a head without end");
        read_some(stream, &mut bytes)?;
    };
    let body = bytes.split_off(body_at);
    let head = String::from_utf8(bytes).context("a head that is not UTF-8")?;
    let status = head.get(9..12).and_then(|code| code.parse().ok()).context("no status")?;
    let mut answer = CheckedResponse { status, head, body };
    let length = answer.field("content-length").context("no Content-Length")?;
    let length: usize = length.parse().context("Content-Length")?;
    while answer.body.len() < length {
        read_some(stream, &mut answer.body)?;
    }
    ensure!(answer.body.len() == length, "more bytes than announced");
    Ok(answer)
}

/// An error unless the answer is the file, byte for byte.
pub(crate) fn same_file(port: u16, root: &Path, path: &str) -> Result<CheckedResponse> {
    let answer = get(port, path)?;
    let wanted = std::fs::read(root.join(path.trim_start_matches('/')))?;
    ensure!(answer.status == 200, "GET {path}: status {}", answer.status);
    ensure!(answer.body == wanted, "GET {path}: not the bytes of the file");
    Ok(answer)
}

fn read_some(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<()> {
    let mut buffer = [0; 64 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) => bail!("closed in the middle of an answer"),
        Ok(count) => bytes.extend(buffer.iter().take(count)),
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
