//! Accepts connections: admits them, or refuses them with a reply, and keeps working when descriptors run
//! out.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use crate::admission::{Admission, ConnectionRefusal};
use crate::conn::Conn;
use crate::descriptors::{DescriptorReserve, without_reserve};
use crate::limits::{ACCEPT_BATCH_MAX, ACCEPT_PAUSE_MS};
use crate::worker::Worker;

/// A role's handler of connections. One value per worker and listener.
pub trait ConnectionHandler: 'static {
    /// Serves one connection to its end.
    fn serve(self: Rc<Self>, conn: Conn) -> impl Future<Output = ()> + 'static;

    /// The bytes that a refused client receives before the close.
    fn refusal(&self, refusal: ConnectionRefusal) -> Vec<u8>;

    /// Called with the result of each accept, for counting.
    fn observe(&self, event: AcceptEvent);
}

/// The result of an accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptEvent {
    /// A connection was accepted.
    Accepted,
    /// A connection was refused.
    Refused(ConnectionRefusal),
    /// `accept` failed for another reason; it is retried.
    Failed,
}

/// Accepts connections from `listener` until the worker drains, then accepts those that were already in the
/// kernel's queue and closes the listener.
pub async fn accept_loop<S: ConnectionHandler>(
    worker: Rc<Worker>,
    listener: TcpListener,
    service: Rc<S>,
    admission: Arc<Admission>,
) {
    let take = |(stream, peer)| take(&worker, &service, &admission, stream, peer);
    let mut reserve = DescriptorReserve::new();
    let mut in_batch = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = accept(&listener) => accepted,
            () = worker.drain_started() => break,
        };
        match accepted {
            Ok(accepted) => take(accepted),
            Err(e) => recover(&listener, &service, &mut reserve, &e).await,
        }
        in_batch += 1;
        if in_batch % ACCEPT_BATCH_MAX == 0 {
            tokio::task::yield_now().await;
        }
    }
    while let Some(Ok(accepted)) = accept_now(&listener).await {
        take(accepted);
    }
}

fn take<S: ConnectionHandler>(
    worker: &Rc<Worker>,
    service: &Rc<S>,
    admission: &Arc<Admission>,
    stream: TcpStream,
    peer: SocketAddr,
) {
    match admission.admit(peer.ip()) {
        Ok(permit) => {
            service.observe(AcceptEvent::Accepted);
            let conn = Conn::accepted(worker, stream, peer, permit);
            tokio::task::spawn_local(Rc::clone(service).serve(conn));
        }
        Err(refusal) => refuse(service, &stream, refusal),
    }
}

/// Sends the refusal in one call, as much of it as fits into an empty socket buffer.
fn refuse<S: ConnectionHandler>(service: &Rc<S>, stream: &TcpStream, refusal: ConnectionRefusal) {
    service.observe(AcceptEvent::Refused(refusal));
    let words = service.refusal(refusal);
    let _ = rustix::net::send(stream, &words, rustix::net::SendFlags::NOSIGNAL);
    // Data that the client has already sent is read first: otherwise the close would send a reset, which
    // could destroy the refusal.
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
    let mut sink = [0u8; 4096];
    let _ = rustix::net::recv(stream, &mut sink[..], rustix::net::RecvFlags::DONTWAIT);
}

/// Handles a failed accept: without descriptors a connection would wait in the queue forever; the reserve
/// descriptor allows refusing it.
async fn recover<S: ConnectionHandler>(
    listener: &TcpListener,
    service: &Rc<S>,
    reserve: &mut DescriptorReserve,
    error: &io::Error,
) {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => {}
        errno => {
            service.observe(AcceptEvent::Failed);
            tracing::debug!(%error, "accept failed");
            if !is_of_connection(errno) {
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
            return;
        }
    }
    let accepted = reserve.lend(|| {
        let accepted = rustix::net::accept(listener);
        if let Ok(fd) = &accepted {
            let words = service.refusal(ConnectionRefusal::Descriptors);
            let _ = rustix::net::send(fd, &words, rustix::net::SendFlags::NOSIGNAL);
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
            let mut sink = [0u8; 4096];
            let _ = rustix::net::recv(fd, &mut sink[..], rustix::net::RecvFlags::DONTWAIT);
        }
        accepted.is_ok()
    });
    if accepted {
        service.observe(AcceptEvent::Refused(ConnectionRefusal::Descriptors));
    } else {
        tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
    }
}

/// Whether only one connection has failed, and the next one can be accepted at once: `accept` also reports
/// errors of the new connection (accept(2), "Error handling"). Other errors last, such as a lack of memory.
fn is_of_connection(errno: Option<Errno>) -> bool {
    const OF_CONNECTION: [Errno; 11] = [
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::INTR,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::NOPROTOOPT,
        Errno::OPNOTSUPP,
        Errno::PERM,
        Errno::PROTO,
    ];
    errno.is_some_and(|it| OF_CONNECTION.contains(&it))
}

async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|cx| without_reserve(|| listener.poll_accept(cx))).await
}

/// One non-blocking accept.
async fn accept_now(listener: &TcpListener) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    std::future::poll_fn(|cx| match without_reserve(|| listener.poll_accept(cx)) {
        std::task::Poll::Ready(accepted) => std::task::Poll::Ready(Some(accepted)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_paused_for() {
        for errno in [Errno::CONNABORTED, Errno::INTR, Errno::PROTO] {
            assert!(is_of_connection(Some(errno)), "{errno}");
        }
        for errno in [Errno::NOBUFS, Errno::NOMEM, Errno::INVAL] {
            assert!(!is_of_connection(Some(errno)), "{errno}");
        }
        assert!(!is_of_connection(None));
    }
}
