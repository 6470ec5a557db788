//! Clients that stand still while others are measured: in the middle of an upload, or with a response that
//! they do not take. A server before few workers has to keep these free of them.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result};

use crate::content::{LARGE, SMALL};
use crate::interrupt;
use crate::limits::SLOW_CLIENTS;

/// What a stuck upload promises, and how much of it came, in bytes.
const UPLOAD_BYTES: usize = 1024 * 1024;
const UPLOADED_BYTES: usize = 100 * 1024;

/// What they stand still at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlowClients {
    Uploaders,
    /// More than sockets hold waits for each.
    Readers,
}

impl SlowClients {
    /// [`SLOW_CLIENTS`] of them, until they are dropped.
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

    /// The path that they ask for.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Uploaders => SMALL.0,
            Self::Readers => LARGE.0,
        }
    }
}
