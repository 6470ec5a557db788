//! A connection that records the arrival of bytes below HTTP, so that phases are those of the
//! socket and not of the parser.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::limits::INFORMATIONAL_MAX;

/// Arrival times of the bytes of a [`TimedStream`]; clones refer to the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrivalTimes(Arc<Mutex<Arrivals>>);

impl ArrivalTimes {
    /// Arrival of the first byte of the response, after all informational ones.
    pub(crate) fn first(&self) -> Option<Instant> {
        let arrivals = self.lock();
        arrivals.heads.get(arrivals.informational).copied().or(arrivals.last)
    }

    /// Arrival of the last byte so far.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.lock().last
    }

    /// Records that a head was that of an informational response (1xx).
    pub(crate) fn count_informational(&self) {
        self.lock().informational += 1;
    }

    /// Whether there are too many of them, so that reading stops.
    pub(crate) fn is_flooded(&self) -> bool {
        self.lock().informational > INFORMATIONAL_MAX
    }

    /// Records that later bytes belong to the body.
    pub(crate) fn end_heads(&self) {
        self.lock().is_body = true;
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Arrivals on one connection.
#[derive(Debug, Default)]
struct Arrivals {
    /// Arrival of the first byte of each head, up to the bound.
    heads: Vec<Instant>,
    last: Option<Instant>,
    /// Number of heads of informational responses.
    informational: usize,
    is_body: bool,
    is_in_head: bool,
    is_line_empty: bool,
}

impl Arrivals {
    /// Records `bytes`: heads end with an empty line, and may be preceded by empty lines.
    fn note(&mut self, bytes: &[u8], now: Instant) {
        self.last = Some(now);
        for byte in bytes {
            if self.is_body || self.heads.len() > INFORMATIONAL_MAX {
                return;
            }
            match byte {
                b'\r' => {}
                b'\n' if self.is_line_empty => self.is_in_head = false,
                b'\n' => self.is_line_empty = true,
                _ => {
                    if !self.is_in_head {
                        self.heads.push(now);
                    }
                    (self.is_in_head, self.is_line_empty) = (true, false);
                }
            }
        }
    }
}

/// A connection, and the arrival times of its bytes.
pub(crate) struct TimedStream<T> {
    inner: T,
    times: ArrivalTimes,
}

impl<T> TimedStream<T> {
    pub(crate) fn new(inner: T, times: ArrivalTimes) -> Self {
        Self { inner, times }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.times.is_flooded() {
            return Poll::Ready(Err(io::Error::other("too many informational responses")));
        }
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        if let Some(bytes) = buffer.filled().get(before..).filter(|it| !it.is_empty()) {
            self.times.lock().note(bytes, Instant::now());
        }
        Poll::Ready(result)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
