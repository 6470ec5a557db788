//! The socket of a connection: TCP, or Unix.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// Reads and writes use the descriptor directly; only their readiness comes from the runtime.
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// With the number of bytes that the socket has accepted.
    Unix(UnixStream, Cell<u64>),
}

impl Stream {
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream, _) => stream.poll_read_ready(cx),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream, _) => stream.poll_write_ready(cx),
        }
    }

    pub(crate) fn try_io<R>(
        &self,
        interest: Interest,
        job: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, job),
            Self::Unix(stream, _) => stream.try_io(interest, job),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream, _) => stream.as_fd(),
        }
    }
}
