//! This node's part in the cluster cache.
//!
//! ```text
//!   ObjectStream::segment --miss--> fill (a task of the worker, never of a client)
//!                              | next step? Fetcher
//!            ask, report       v              bytes
//!   CoordinatorLinks <- Cluster, PeerPool ---------> other nodes, origin
//!    | (thread of links)                                     ^
//!    v                                                       | fetch
//!   coordinators                     PeerServer (per worker) <--- other nodes
//! ```
//!
//! Invariants: names contain version and place, so bytes found by name are the right ones or
//! none; a fill ends with all bytes or its readers get an error; the end of every granted
//! lease is reported.

mod client;
mod coordinator_links;
mod head;
mod offer;
mod owners;
mod part;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use skep_config::Config;
use skep_directory::{FetchEvent, RendezvousHash, ResolvedAnswer};
use skep_peer::stream::{CommandSender, LinkId, LinkSettings, LinkTarget, NodeLinks, StreamCounts};
use skep_segments::SegmentStore;
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{
    ExplainRequest, Explanation, Identity, LeaseId, NodeQuestion, PurgeWhat, SegmentName,
    ServerOrder,
};
use skep_wire::message::Name;
use skep_wire::seal::PeerId;
use tokio::sync::oneshot;

use crate::limits::{ANSWERS_MARGIN_MS, FIRST_LINK_MS, LINK_TICK_MS};
use crate::model::announced::Announced;
use crate::model::orders::{OrderOutcome, Orders};
use crate::model::peer::PeerNode;
use crate::model::pools::Pools;
use crate::model::power::NodePower;
use crate::model::purges::Purges;
pub(crate) use client::{PeerClient, SegmentOrigin, read_all, renewing};
pub use coordinator_links::RelayedAnswers;
use coordinator_links::{Asker, CoordinatorLinks};
pub(crate) use head::{HeadLease, HeadSought};
use owners::Owners;
use part::FileHolders;
pub(crate) use part::PartSought;

/// What a node needs to take part in the cluster cache.
pub struct ClusterParts {
    /// The identity of this machine among those with the cluster's key.
    pub identity: Identity,
    /// The address at which other nodes reach this one.
    pub address: SocketAddr,
}

/// State that the link thread shares with the rest of the node.
pub(crate) struct SharedParts {
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) announced: Arc<Announced>,
    pub(crate) purges: Arc<Purges>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) explain: Box<Explain>,
    pub(crate) power: Arc<NodePower>,
    /// Releases the memory of heads of all kinds.
    pub(crate) release: Arc<dyn Fn() + Send + Sync>,
}

/// Explains whether and why this node caches a response; `None`: the request is invalid.
pub(crate) type Explain = dyn Fn(&ExplainRequest) -> Option<Explanation> + Send;

/// The nodes as last reported; used while no coordinator answers.
#[derive(Default)]
pub(crate) struct PeerView {
    /// All nodes, including this one.
    rendezvous: Option<RendezvousHash<PeerNode>>,
    /// The same nodes, as a list.
    peers: Vec<PeerNode>,
    is_linked: bool,
}

/// Bytes to be sent, summed over all workers.
#[derive(Debug, Default)]
pub(crate) struct Outstanding(AtomicU64);

/// All methods may be called from any thread.
pub struct Cluster {
    links: NodeLinks<Command>,
    teller: CommandSender<Command>,
    identity: Identity,
    me: PeerId,
    view: Arc<ArcSwap<PeerView>>,
    /// The nodes of the config.
    configured: ArcSwap<Vec<PeerNode>>,
    /// The files that this node announces on its disk.
    announced: Arc<Announced>,
    /// The node with most room for sole replicas, as last reported by a coordinator.
    roomiest: Arc<ArcSwapOption<PeerNode>>,
    counts: Arc<StreamCounts>,
    owners: Owners,
    /// Bytes that are being sent to other nodes.
    pub(crate) sending: Arc<Outstanding>,
    pub(crate) outstanding_bytes_max: u64,
    ask_timeout: Duration,
    begun: Instant,
}

/// Commands from workers to the links' thread.
enum Command {
    Ask {
        name: SegmentName,
        bytes: u32,
        answer: Asker<ResolvedAnswer<PeerNode>>,
    },
    FindFile {
        name: SegmentName,
        answer: Asker<FileHolders>,
    },
    NotThere {
        name: SegmentName,
        holder: PeerNode,
    },
    /// A request to this node has changed `what`.
    Invalidate {
        what: Vec<PurgeWhat>,
    },
    Renew {
        lease: LeaseId,
    },
    Ended {
        lease: LeaseId,
        is_held: bool,
    },
    /// Reports what was added and removed, and then acknowledges.
    Changes {
        told: oneshot::Sender<()>,
    },
    /// The answer to a coordinator's question.
    Said {
        link: LinkId,
        question: u64,
        json: Vec<u8>,
    },
    /// An operator of this process asks all nodes.
    AskNodes {
        question: NodeQuestion,
        limit_ms: u64,
        asker: SyncSender<RelayedAnswers>,
    },
    /// An operator of this process gives an order that no coordinator can pass on.
    OrderHere {
        order: ServerOrder,
        asker: SyncSender<OrderOutcome>,
    },
}

impl Cluster {
    /// Links this node with all coordinators of `config`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn start(
        config: &Config,
        parts: ClusterParts,
        shared: SharedParts,
    ) -> std::io::Result<Arc<Self>> {
        let view = Arc::<ArcSwap<PeerView>>::default();
        let identity = parts.identity.clone();
        let roomiest = Arc::<ArcSwapOption<PeerNode>>::default();
        let announced = Arc::clone(&shared.announced);
        let teller = Arc::default();
        let mut coordinators = CoordinatorLinks::new(parts, shared, &view, &roomiest, &teller);
        let settings = LinkSettings::new(identity.clone(), LINK_TICK_MS);
        let handle = move |event, outbox: &mut _| coordinators.handle(event, outbox);
        let links = NodeLinks::start(&settings, targets(config), handle)?;
        let _ = teller.set(links.teller());
        Ok(Arc::new(Self {
            teller: links.teller(),
            me: identity.name().peer(),
            identity,
            view,
            configured: ArcSwap::from_pointee(configured(config)),
            announced,
            roomiest,
            counts: links.counts(),
            owners: Owners::default(),
            links,
            sending: Arc::default(),
            outstanding_bytes_max: config.cache.outstanding_bytes_max,
            ask_timeout: Duration::from_millis(config.cache.coordinator_timeout_ms),
            begun: Instant::now(),
        }))
    }

    /// Links with the coordinators of a changed config.
    pub(crate) fn reload(&self, config: &Config) {
        self.links.set_targets(targets(config));
        self.configured.store(Arc::new(configured(config)));
    }

    /// Whether any coordinator answers this node.
    pub fn is_linked(&self) -> bool {
        self.view.load().is_linked
    }

    /// Bytes that are being sent to other nodes.
    pub fn sending_bytes(&self) -> u64 {
        self.sending.bytes()
    }

    /// Counts of the streams of this node.
    pub fn counts(&self) -> &Arc<StreamCounts> {
        &self.counts
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Asks the coordinator for the holders of a segment; without an answer, returns its owner.
    async fn ask(&self, name: SegmentName, bytes: u32) -> FetchEvent<PeerNode> {
        match self.answer(|answer| Command::Ask { name, bytes, answer }).await {
            Some(reply) => FetchEvent::Answer(reply),
            None => FetchEvent::NoAnswer { owner: self.owner(&name) },
        }
    }

    /// The coordinator's answer to a question, if it arrives in time.
    async fn answer<A>(&self, question: impl FnOnce(Asker<A>) -> Command) -> Option<A> {
        self.await_first_link().await;
        let (asker, mut answered) = oneshot::channel();
        self.teller.tell(question(asker)).ok()?;
        let in_time = tokio::time::timeout(self.ask_timeout, &mut answered).await;
        // Closed first, so that a later answer finds no receiver,
        // and its lease is returned.
        answered.close();
        let reply = in_time.ok().or_else(|| answered.try_recv().ok().map(Ok));
        reply?.ok()?
    }

    /// Makes early requests wait until the node is linked: otherwise they would read from origins what other
    /// nodes have in memory.
    async fn await_first_link(&self) {
        let (limit, pause) = (Duration::from_millis(FIRST_LINK_MS), LINK_TICK_MS / 2);
        while !self.is_linked() && self.begun.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// The owner of a segment, unless that is this node.
    fn owner(&self, name: &SegmentName) -> Option<PeerNode> {
        let view = self.view.load();
        let loads = self.owners.loads(Now(monotonic_ms()));
        let owner = view.rendezvous.as_ref()?.owner(name, |peer| loads(peer.id))?;
        Some(owner).filter(|owner| owner.id != self.me)
    }

    /// The node called `name`, if it is known.
    pub(crate) fn peer(&self, name: &Name) -> Option<PeerNode> {
        self.view.load().peers.iter().find(|peer| peer.id == name.peer()).copied()
    }

    /// The node with this number at the coordinator that answers.
    fn member(&self, id: MemberId) -> Option<PeerNode> {
        self.view.load().peers.iter().find(|peer| peer.member == id).copied()
    }

    /// Reports that `peer` does not have a segment of which it was reported as a holder.
    fn tell_not_there(&self, name: SegmentName, peer: PeerNode) {
        self.tell(Command::NotThere { name, holder: peer });
    }

    /// Purges `what` on all nodes, as an operator's command does; false: no coordinator answers.
    pub(crate) fn invalidate(&self, what: Vec<PurgeWhat>) -> bool {
        self.is_linked() && self.teller.tell(Command::Invalidate { what }).is_ok()
    }

    /// Asks all linked nodes through the coordinator that answers, and waits at most `limit_ms` for them;
    /// `None`: there is no such coordinator, or its build is too old.
    pub fn ask_nodes(&self, question: NodeQuestion, limit_ms: u64) -> Option<RelayedAnswers> {
        let (asker, answers) = sync_channel(1);
        self.teller.tell(Command::AskNodes { question, limit_ms, asker }).ok()?;
        answers.recv_timeout(Duration::from_millis(limit_ms + ANSWERS_MARGIN_MS)).ok()
    }

    /// Carries out an order here and reports it to all coordinators, as soon as each is linked.
    pub(crate) fn order_here(&self, order: ServerOrder) -> Option<OrderOutcome> {
        let (asker, outcome) = sync_channel(1);
        self.teller.tell(Command::OrderHere { order, asker }).ok()?;
        outcome.recv_timeout(Duration::from_millis(ANSWERS_MARGIN_MS)).ok()
    }

    fn tell_renewed(&self, lease: LeaseId) {
        self.tell(Command::Renew { lease });
    }

    fn tell_ended(&self, lease: LeaseId, is_held: bool) {
        self.tell(Command::Ended { lease, is_held });
    }

    /// Reports additions and removals to coordinators at once.
    pub(crate) async fn tell_changes(&self) {
        let (told, is_told) = oneshot::channel();
        self.tell(Command::Changes { told });
        // If this fails, the change is reported with the next tick.
        drop(is_told.await);
    }

    fn tell(&self, command: Command) {
        // If this fails, the coordinator detects the change by itself a little later.
        drop(self.teller.tell(command));
    }
}

/// The coordinators of a config, in order of precedence.
fn targets(config: &Config) -> Vec<LinkTarget> {
    let target = |dispatcher: &skep_config::DispatcherConfig| {
        let name = Name::new(&dispatcher.name).ok()?;
        Some(LinkTarget { name, address: dispatcher.address? })
    };
    config.dispatchers.iter().filter_map(target).collect()
}

/// The nodes of a config, including this one. They have no numbers of a coordinator.
fn configured(config: &Config) -> Vec<PeerNode> {
    let peer = |node: &skep_config::NodeConfig| {
        let (id, address) = (Name::new(&node.name).ok()?.peer(), node.agent_address());
        Some(PeerNode { id, address, link: LinkId(u64::MAX), member: MemberId::MAX })
    };
    config.nodes.iter().filter_map(peer).collect()
}

impl Outstanding {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
