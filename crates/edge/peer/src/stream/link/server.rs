//! The coordinator's side: accepts links of nodes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_wire::cache::{Handshake, HelloError, Purpose, Reason, ToCoordinator, ToNode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::carry::carry;
use super::hub::{Hub, Outbox, Shared};
use super::thread::{CommandSender, LinkThread};
use super::{LinkEvent, LinkSettings};
use crate::limits::{BACKOFF_MS, LINK_HANDSHAKES};
use crate::stream::counts::StreamCounts;
use crate::stream::greet::{GreetError, greet_stream, nonce};
use crate::stream::handshake_permits::{HandshakePermit, HandshakePermits};

/// The link server of a coordinator; all links end when this is dropped.
#[derive(Debug)]
pub struct LinkServer<C> {
    thread: LinkThread<C>,
    address: SocketAddr,
}

type ServerHub<C> = Shared<ToCoordinator, ToNode, C>;

impl<C: Send + 'static> LinkServer<C> {
    /// Accepts links from `listener`, and runs `handler` for all events, in a thread of its own. A
    /// node that links a second time ends its first link.
    ///
    /// # Errors
    /// The thread or runtime cannot be created.
    pub fn start(
        settings: &LinkSettings,
        listener: TcpListener,
        handler: impl FnMut(LinkEvent<ToCoordinator, C>, &mut Outbox<ToNode>) + Send + 'static,
    ) -> io::Result<Self> {
        let counts = Arc::default();
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (own, own_counts) = (settings.clone(), Arc::clone(&counts));
        let thread = LinkThread::start("skep-links", settings, &counts, move || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let hub: ServerHub<C> = Hub::new(&own, &own_counts, Box::new(handler));
            tokio::task::spawn_local(accept(Rc::clone(&hub), Rc::new(own), listener));
            Ok(hub)
        })?;
        Ok(Self { thread, address })
    }
}

impl<C> LinkServer<C> {
    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sender of commands to the handler.
    pub fn teller(&self) -> CommandSender<C> {
        self.thread.teller()
    }

    pub fn counts(&self) -> Arc<StreamCounts> {
        self.thread.counts()
    }
}

async fn accept<C: 'static>(
    hub: ServerHub<C>,
    settings: Rc<LinkSettings>,
    listener: tokio::net::TcpListener,
) {
    let places = HandshakePermits::new(&settings.members, LINK_HANDSHAKES);
    loop {
        match listener.accept().await {
            Ok((stream, from)) => match places.take(from.ip()) {
                Some(place) => {
                    let serving = serve(Rc::clone(&hub), Rc::clone(&settings), stream, place);
                    tokio::task::spawn_local(serving);
                }
                None => hub.borrow().counts().count_refused(HelloError::Here(Reason::Full)),
            },
            Err(error) => {
                // Probably out of descriptors: others may be closed meanwhile.
                tracing::warn!(%error, "a link can't be accepted");
                tokio::time::sleep(Duration::from_millis(BACKOFF_MS.0)).await;
            }
        }
    }
}

async fn serve<C>(
    hub: ServerHub<C>,
    settings: Rc<LinkSettings>,
    mut stream: TcpStream,
    place: HandshakePermit,
) {
    let counts = Arc::clone(hub.borrow().counts());
    let Ok(nonce) = nonce() else { return };
    let handshake = Handshake::server(&settings.identity, Purpose::Link, nonce);
    let peer = match greet_stream(&mut stream, handshake, &counts).await {
        Ok(peer) => peer,
        Err(error) => {
            tracing::debug!(%error, "link handshake failed");
            if matches!(error, GreetError::Hello(_)) {
                place.linger(stream).await;
            }
            return;
        }
    };
    let begun = hub.borrow_mut().begin(&peer);
    let (link, line) = match begun {
        Ok(begun) => begun,
        Err(reason) => {
            counts.count_refused(HelloError::Here(reason));
            // If it does not arrive, the peer sees the close.
            let _ = stream.write_all(&Handshake::refusal(reason)).await;
            place.linger(stream).await;
            return;
        }
    };
    line.push(&Handshake::welcome());
    drop(place);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    hub.borrow_mut().tell(LinkEvent::Up { link, peer });
    carry(&hub, &stream, (link, &line), &settings).await;
}
