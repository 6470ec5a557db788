//! Clients that stall while others are measured: in the middle of an upload, or with a response that they do
//! not read. A server in front of few workers must keep these free of such clients.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result};

use crate::content::{LARGE, SMALL};
use crate::interrupt;
use crate::limits::SLOW_CLIENTS;

/// The announced length of a stalled upload, and the number of bytes sent, in bytes.
const UPLOAD_BYTES: usize = 1024 * 1024;
const UPLOADED_BYTES: usize = 100 * 1024;

/// Where the clients stall.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlowClients {
    Uploaders,
    /// The response is larger than what sockets buffer.
    Readers,
}

impl SlowClients {
    /// Connects [`SLOW_CLIENTS`] of them, until they are dropped.
    pub(crate) fn connect(self, port: u16) -> Result<Vec<TcpStream>> {
        let request = match self {
            Self::Uploaders => {
                let (path, bytes) = (SMALL.0, UPLOAD_BYTES);
                let head =
                    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
                [head.as_bytes(), &[b'x'; UPLOADED_BYTES]].concat()
            }
            Self::Readers => format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", LARGE.0).into_bytes(),
        };
        let connect = |_| {
            interrupt::check()?;
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.write_all(&request).context("a slow client's request")?;
            Ok(stream)
        };
        (0..SLOW_CLIENTS).map(connect).collect()
    }

    /// The path that they request.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Uploaders => SMALL.0,
            Self::Readers => LARGE.0,
        }
    }
}
