//! Accepts, counts, serves and times out connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use crate::audit::Caller;
use crate::connection_slots::{ConnectionSlots, RequestCount};
use crate::limits::{ACCEPT_PAUSE_MS, CONNECTION_MS, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_MS};

/// The reply to a connection over the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
                      Content-Length: 0\r\nConnection: close\r\n\r\n";

/// A source of connections.
pub(crate) trait Listener {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// The next connection, and its peer.
    async fn accept(&self) -> io::Result<(Self::Stream, Caller)>;
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Caller)> {
        let (stream, address): (_, SocketAddr) = TcpListener::accept(self).await?;
        let _ = stream.set_nodelay(true);
        Ok((stream, Caller::Tcp(address)))
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<(Self::Stream, Caller)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        Ok((stream, Caller::Local { uid }))
    }
}

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// For the head of a request, and between two requests.
    head: Duration,
    /// For the whole connection.
    connection: Duration,
}

const PATIENCE: Patience = Patience {
    head: Duration::from_millis(HEAD_MS),
    connection: Duration::from_millis(CONNECTION_MS),
};

/// Serves the connections of `listener`, until dropped. Runs within a `LocalSet`.
pub(crate) async fn serve(listener: impl Listener, router: Router) {
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let (mut stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the admin API can't accept a connection");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                continue;
            }
        };
        match slots.take() {
            Some(slot) => {
                let stream = TokioIo::new(stream);
                let (request_count, left) = (slot.request_count(), slot.left());
                let served = connection(stream, peer, router.clone(), PATIENCE, request_count);
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        () = served => {}
                        () = left => tracing::debug!("a connection made room for another"),
                    }
                    drop(slot);
                });
            }
            // The reply fits into the empty buffer of a new connection: this does not wait.
            None => drop(stream.write_all(FULL).await),
        }
    }
}

/// Serves `stream` to its end; `request_count` counts its requests in progress.
async fn connection(
    stream: impl Read + Write + Unpin,
    peer: Caller,
    router: Router,
    patience: Patience,
    request_count: RequestCount,
) {
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let work = request_count.begin();
        let answered = routes.call(request);
        async move {
            let answer = answered.await;
            drop(work);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(stream, service);
    match tokio::time::timeout(patience.connection, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the admin API broke off"),
        Err(_) => tracing::debug!("a connection to the admin API was cut off by age"),
    }
}

#[cfg(test)]
mod tests;
