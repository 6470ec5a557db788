//! The node's side: links to all coordinators, reconnected whenever they are lost.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_units::Rng;
use skep_wire::cache::{Handshake, Purpose, ToCoordinator, ToNode};
use skep_wire::message::Name;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::carry::carry;
use super::hub::{Hub, Outbox, Shared};
use super::thread::{CommandSender, LinkThread};
use super::{LinkEvent, LinkSettings, LinkTarget, Lost};
use crate::limits::{BACKOFF_MS, LINK_CONNECT_MS, STABLE_MS};
use crate::stream::counts::{StreamCount, StreamCounts};
use crate::stream::greet::{GreetError, greet_stream, nonce};

/// A node's links to its coordinators; they end when this is dropped.
#[derive(Debug)]
pub struct NodeLinks<C> {
    thread: LinkThread<C>,
    targets: watch::Sender<Vec<LinkTarget>>,
}

type NodeHub<C> = Shared<ToNode, ToCoordinator, C>;

impl<C: Send + 'static> NodeLinks<C> {
    /// Keeps a link to each of `targets`, and runs `handler` for all events, in a thread of its
    /// own.
    ///
    /// # Errors
    /// The thread or runtime cannot be created.
    pub fn start(
        settings: &LinkSettings,
        targets: Vec<LinkTarget>,
        handler: impl FnMut(LinkEvent<ToNode, C>, &mut Outbox<ToCoordinator>) + Send + 'static,
    ) -> io::Result<Self> {
        let counts = Arc::default();
        let (targets, wanted) = watch::channel(targets);
        let (own, own_counts) = (settings.clone(), Arc::clone(&counts));
        let thread = LinkThread::start("skep-link", settings, &counts, move || {
            let hub: NodeHub<C> = Hub::new(&own, &own_counts, Box::new(handler));
            tokio::task::spawn_local(follow(Rc::clone(&hub), Rc::new(own), wanted));
            Ok(hub)
        })?;
        Ok(Self { thread, targets })
    }
}

impl<C> NodeLinks<C> {
    /// Replaces the targets.
    pub fn set_targets(&self, targets: Vec<LinkTarget>) {
        self.targets.send_replace(targets);
    }

    /// The sender of commands to the handler.
    pub fn teller(&self) -> CommandSender<C> {
        self.thread.teller()
    }

    pub fn counts(&self) -> Arc<StreamCounts> {
        self.thread.counts()
    }
}

/// Runs one task for each target.
async fn follow<C: 'static>(
    hub: NodeHub<C>,
    settings: Rc<LinkSettings>,
    mut wanted: watch::Receiver<Vec<LinkTarget>>,
) {
    let mut kept: BTreeMap<Name, (LinkTarget, JoinHandle<()>)> = BTreeMap::new();
    loop {
        let targets = wanted.borrow_and_update().clone();
        kept.retain(|name, (target, task)| {
            let stays = targets.contains(target);
            if !stays {
                task.abort();
                hub.borrow_mut().end_of(name, Lost::Dropped);
            }
            stays
        });
        for target in targets {
            let task = || {
                let keeping = keep(Rc::clone(&hub), Rc::clone(&settings), target.clone());
                (target.clone(), tokio::task::spawn_local(keeping))
            };
            kept.entry(target.name.clone()).or_insert_with(task);
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps a link to `target`, forever.
async fn keep<C>(hub: NodeHub<C>, settings: Rc<LinkSettings>, target: LinkTarget) {
    let mut backoff = Backoff::new();
    loop {
        let began = Instant::now();
        match dial(&hub, &settings, &target).await {
            Ok(stream) => run(&hub, &settings, &target, stream).await,
            Err(why) => {
                let peer = target.name.clone();
                hub.borrow_mut().tell(LinkEvent::Missed { peer, why });
            }
        }
        tokio::time::sleep(backoff.next(began.elapsed())).await;
    }
}

async fn run<C>(hub: &NodeHub<C>, settings: &LinkSettings, target: &LinkTarget, stream: TcpStream) {
    let Ok((link, line)) = hub.borrow_mut().begin(&target.name) else {
        tracing::warn!(target = %target.name, "too many coordinators: the excess ones are not linked");
        return;
    };
    hub.borrow_mut().tell(LinkEvent::Up { link, peer: target.name.clone() });
    carry(hub, &stream, (link, &line), settings).await;
}

async fn dial<C>(
    hub: &NodeHub<C>,
    settings: &LinkSettings,
    target: &LinkTarget,
) -> Result<TcpStream, Lost> {
    let counts = Arc::clone(hub.borrow().counts());
    let connected = tokio::time::timeout(
        Duration::from_millis(LINK_CONNECT_MS),
        TcpStream::connect(target.address),
    );
    let connected = connected.await.map_err(|_| Lost::Late).flatten_io();
    let mut stream = connected.inspect_err(|_| counts.count(StreamCount::Ungreeted))?;
    stream.set_nodelay(true).map_err(|error| Lost::Failed(error.kind()))?;
    let nonce = nonce().map_err(|error| Lost::Failed(error.kind()))?;
    let to = Some(target.name.clone());
    let handshake = Handshake::client(&settings.identity, Purpose::Link, to, nonce);
    greet_stream(&mut stream, handshake, &counts).await?;
    Ok(stream)
}

/// Pauses that double, each shortened at random by up to a half so that nodes that lost the same coordinator
/// do not reconnect all at once.
struct Backoff {
    rng: Rng,
    pause_ms: u64,
}

impl Backoff {
    fn new() -> Self {
        // Without randomness they all reconnect at once, which does no harm but queueing.
        let [a, b, c, d, e, f, g, h, ..] = nonce().unwrap_or_default();
        let rng = Rng::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        Self { rng, pause_ms: BACKOFF_MS.0 }
    }

    fn next(&mut self, lasted: Duration) -> Duration {
        if lasted >= Duration::from_millis(STABLE_MS) {
            self.pause_ms = BACKOFF_MS.0;
        }
        let pause_ms = self.pause_ms - self.rng.below(self.pause_ms / 2);
        self.pause_ms = (2 * self.pause_ms).min(BACKOFF_MS.1);
        Duration::from_millis(pause_ms)
    }
}

trait FlattenIo<T> {
    fn flatten_io(self) -> Result<T, Lost>;
}

impl<T> FlattenIo<T> for Result<io::Result<T>, Lost> {
    fn flatten_io(self) -> Result<T, Lost> {
        self?.map_err(|error| Lost::Failed(error.kind()))
    }
}

impl From<GreetError> for Lost {
    fn from(error: GreetError) -> Self {
        match error {
            GreetError::Hello(error) => Self::Refused(error),
            GreetError::Late => Self::Late,
            GreetError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            GreetError::Io(error) => Self::Failed(error.kind()),
        }
    }
}
