//! A connection that notes when bytes come in: below HTTP, so that the phases are those of the
//! socket, and not of the time at which a parser is done.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// When the first and the last bytes came in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
}

/// What reads the arrivals of a [`Stamped`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps(Arc<Mutex<Arrivals>>);

impl Stamps {
    pub(crate) fn arrivals(&self) -> Arrivals {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, now: Instant) {
        let mut arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.first.get_or_insert(now);
        arrivals.last = Some(now);
    }
}

/// A connection, and the arrivals of its bytes.
pub(crate) struct Stamped<T> {
    inner: T,
    stamps: Stamps,
}

impl<T> Stamped<T> {
    pub(crate) fn new(inner: T, stamps: Stamps) -> Self {
        Self { inner, stamps }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stamped<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        if buffer.filled().len() > before {
            self.stamps.note(Instant::now());
        }
        Poll::Ready(result)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stamped<T> {
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
