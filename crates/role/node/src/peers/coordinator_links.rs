//! This node's end of its links to all coordinators, on the thread of the links: reports the
//! segments held, sends the workers' questions, and stores what coordinators report about the other
//! nodes.

mod files;
mod operators;
mod pause;
mod power;
mod purge;
mod questions;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use skep_directory::{Inventory, RendezvousHash, ResolvedAnswer};
use skep_peer::stream::{CommandSender, LinkEvent, LinkId, Outbox};
use skep_segments::SegmentStore;
use skep_units::dispatcher_number;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{
    CacheMember, CoordinatorAnswer, FileAnswer, NodeFeatures, NodeQuestion, PossibleHolder,
    PurgeKind, ToCoordinator, ToNode,
};
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

use super::{ClusterParts, Command, Explain, FileHolders, PeerView, SharedParts};
use crate::limits::INVENTORY_QUEUE_BYTES_MAX;
use crate::model::announced::Announced;
use crate::model::orders::Orders;
use crate::model::peer::PeerNode;
use crate::model::power::NodePower;
use crate::model::purges::Purges;
use files::Announcement;
use operators::Relays;
use pause::StallDetector;
use power::Stopping;
use questions::Questions;
use slots::{ReportedSlots, Slots};

pub use operators::RelayedAnswers;
pub(super) use questions::Asker;

/// The state machine of this node's links to all coordinators.
pub(super) struct CoordinatorLinks {
    parts: ClusterParts,
    store: Arc<SegmentStore>,
    announced: Arc<Announced>,
    pub(super) purges: Arc<Purges>,
    explain: Box<Explain>,
    slots: Slots,
    orders: Arc<Orders>,
    relays: Relays,
    /// Each thread that queries workers for an operator holds a reference, which limits their
    /// number.
    asking_workers: Arc<()>,
    /// Sends commands to this thread from the threads that produce its answers.
    teller: Arc<OnceLock<CommandSender<Command>>>,
    pause: StallDetector,
    pub(super) node_power: Arc<NodePower>,
    /// Frees the memory of heads.
    release: Arc<dyn Fn() + Send + Sync>,
    stopping: Stopping,
    view: Arc<ArcSwap<PeerView>>,
    roomiest: Arc<ArcSwapOption<PeerNode>>,
    pub(super) links: HashMap<LinkId, CoordinatorLink>,
    asks: Questions<ResolvedAnswer<PeerNode>>,
    file_asks: Questions<FileHolders>,
}

/// The state of the coordinator at the other end of a link.
pub(super) struct CoordinatorLink {
    /// Its epoch, if it is active.
    active_in: Option<u64>,
    members: HashMap<MemberId, PeerNode>,
    announcement: Announcement,
    /// The part of the inventory that has not been sent yet.
    inventory: Option<Inventory>,
    slots: ReportedSlots,
    /// Whether it accepts questions and orders of operators.
    operates: bool,
    /// Whether it wants this node off; `None`: it has not specified this, and so does not.
    wants_off: Option<bool>,
}

impl CoordinatorLinks {
    pub(super) fn new(
        parts: ClusterParts,
        shared: SharedParts,
        view: &Arc<ArcSwap<PeerView>>,
        roomiest: &Arc<ArcSwapOption<PeerNode>>,
        teller: &Arc<OnceLock<CommandSender<Command>>>,
    ) -> Self {
        let SharedParts { store, announced, purges, pools, orders, explain, power, release } =
            shared;
        Self {
            parts,
            store,
            announced,
            purges,
            explain,
            slots: Slots::new(pools),
            orders,
            relays: Relays::default(),
            asking_workers: Arc::default(),
            teller: Arc::clone(teller),
            pause: StallDetector::default(),
            node_power: power,
            release,
            stopping: Stopping::default(),
            view: Arc::clone(view),
            roomiest: Arc::clone(roomiest),
            links: HashMap::new(),
            asks: Questions::default(),
            file_asks: Questions::default(),
        }
    }

    pub(super) fn handle(
        &mut self,
        event: LinkEvent<ToNode, Command>,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        match event {
            LinkEvent::Up { link, .. } => self.introduce(link, outbox),
            LinkEvent::Received { link, message } => self.received(link, message, outbox),
            LinkEvent::Down { link, peer, why } => {
                tracing::info!("cache: link to {peer} lost: {why}");
                self.links.remove(&link);
                self.asks.link_lost(link);
                self.file_asks.link_lost(link);
                self.relays.link_lost(link);
                self.follow_power(outbox);
                self.publish_linked();
            }
            LinkEvent::Missed { peer, why } => tracing::debug!("cache: no link with {peer}: {why}"),
            LinkEvent::Told(command) => self.told(command, outbox),
            LinkEvent::Tick => self.tick(outbox),
        }
    }

    fn introduce(&mut self, link: LinkId, outbox: &mut Outbox<ToCoordinator>) {
        // Earlier changes are contained in the inventory; later ones must be reported after its
        // first part.
        self.tell_changes(outbox);
        let coordinator = CoordinatorLink {
            active_in: None,
            members: HashMap::new(),
            announcement: Announcement::new(&self.announced),
            inventory: Some(Inventory::new(self.store.names())),
            slots: ReportedSlots::default(),
            operates: false,
            wants_off: None,
        };
        self.links.insert(link, coordinator);
        self.follow_power(outbox);
        let hello = ToCoordinator::Hello {
            name: self.parts.identity.name().clone(),
            address: self.parts.address,
            // Full capacity: with a new link the node is on.
            capacity_bytes: self.store.index_bytes_max(),
        };
        // A link with a full queue ends, and starts over. Nothing may be sent on it before these
        // messages, not even broadcasts.
        let _ = outbox.send(link, &ToCoordinator::Features(NodeFeatures::OWN));
        let _ = outbox.send(link, &hello);
        let purges = self.purges.load().known.told().into_iter().map(ToCoordinator::purges);
        let _ = purges.into_iter().all(|message| outbox.send(link, &message));
        self.announce(outbox);
        self.tell_held(link, outbox);
    }

    fn received(&mut self, link: LinkId, message: ToNode, outbox: &mut Outbox<ToCoordinator>) {
        match message {
            ToNode::Welcome { is_active, epoch, members } => {
                self.welcomed(link, is_active.then_some(epoch), &members);
            }
            ToNode::Answer { ask, answer } => self.answered(link, ask, answer, outbox),
            ToNode::FileAnswer { ask, answer } => {
                let holders = self.file_holders(link, answer);
                self.file_asks.answered(link, ask, holders);
            }
            ToNode::Tail { names, replica_statuses, roomiest } => {
                self.store.set_replica_statuses(&names, &replica_statuses, roomiest.is_some());
                let members = self.links.get(&link).map(|it| &it.members);
                let peer = roomiest.and_then(|id| members?.get(&id).copied());
                self.roomiest.store(peer.map(Arc::new));
                self.tail_of_stopping(link, &names, outbox);
            }
            ToNode::Purges(news) => self.purged(link, (PurgeKind::Hard, &news), outbox),
            ToNode::SoftPurges(news) => self.purged(link, (PurgeKind::Soft, &news), outbox),
            ToNode::Explain { question, request } => {
                let explanation = (self.explain)(&request).map(Box::new);
                // A link with a full queue ends, of which the asker is notified.
                let _ = outbox.send(link, &ToCoordinator::Explained { question, explanation });
            }
            ToNode::InStep { question } => self.pause.in_step(question),
            ToNode::Slots { number, grants } => self.granted(link, number, &grants, outbox),
            ToNode::AskStatus { question } => {
                self.asked(link, question, NodeQuestion::Pools, outbox);
            }
            ToNode::Ask { question, what } => self.asked(link, question, what, outbox),
            ToNode::ServerOrders(orders) => self.ordered(link, orders, outbox),
            ToNode::Relayed { ask, node, answer } => self.relayed(link, ask, (node, answer)),
            ToNode::RelayEnd { ask } => self.relay_ended(link, ask),
            ToNode::ServerLoads(loads) => self.others_loaded(link, &loads),
            ToNode::Power { is_off } => self.power(link, is_off, outbox),
        }
    }

    fn welcomed(&mut self, link: LinkId, active_in: Option<u64>, members: &[CacheMember]) {
        self.pause.welcomed(link);
        let peer = |member: &CacheMember| {
            let (id, address) = (member.name.peer(), member.address);
            (member.id, PeerNode { id, address, link, member: member.id })
        };
        let known = members.iter().map(peer).collect::<HashMap<_, _>>();
        let owners = members.iter().map(|it| (known[&it.id], it.name.clone()));
        let rendezvous = Some(RendezvousHash::new(owners));
        let peers = known.values().copied().collect();
        let Some(coordinator) = self.links.get_mut(&link) else { return };
        (coordinator.active_in, coordinator.members) = (active_in, known);
        // An active coordinator is preferred; if there is none, any other is used.
        if self.active().is_none_or(|active| active == link) {
            let is_linked = self.active().is_some();
            self.view.store(Arc::new(PeerView { rendezvous, peers, is_linked }));
        }
    }

    /// Publishes whether any coordinator is active; the nodes stay known.
    fn publish_linked(&self) {
        let is_linked = self.active().is_some();
        let known = self.view.load();
        let (rendezvous, peers) = (known.rendezvous.clone(), known.peers.clone());
        self.view.store(Arc::new(PeerView { rendezvous, peers, is_linked }));
    }

    /// The link to the active dispatcher's coordinator, that of the latest epoch if there are
    /// several.
    fn active(&self) -> Option<LinkId> {
        let answering = self.links.iter().filter_map(|(&link, it)| Some((it.active_in?, link)));
        answering.max().map(|(_, link)| link)
    }

    fn told(&mut self, command: Command, outbox: &mut Outbox<ToCoordinator>) {
        let active = self.active();
        let (link, message) = match command {
            Command::Ask { name, bytes, answer } => {
                let Some(link) = active else { return drop(answer.send(None)) };
                let ask = self.asks.ask(link, answer);
                (active, ToCoordinator::Ask { ask, name, bytes })
            }
            Command::FindFile { name, answer } => {
                let Some(link) = active else { return drop(answer.send(None)) };
                let ask = self.file_asks.ask(link, answer);
                (active, ToCoordinator::FindFile { ask, name })
            }
            // Only the coordinator that assigned the number can resolve it; if that link is gone,
            // the report is dropped.
            Command::NotThere { name, holder } => {
                (Some(holder.link), ToCoordinator::NotThere { name, holder: holder.member })
            }
            Command::Invalidate { what } => (active, ToCoordinator::Invalidate(what)),
            Command::Renew { lease } => (active, ToCoordinator::Renew { lease }),
            Command::Ended { lease, is_held } => (active, ToCoordinator::Ended { lease, is_held }),
            Command::Said { link, question, json } => {
                return self.answer_operator(link, question, json, outbox);
            }
            Command::AskNodes { question, limit_ms, asker } => {
                return self.relay((question, limit_ms), asker, outbox);
            }
            Command::OrderHere { order, asker } => {
                let number = dispatcher_number(self.parts.identity.name().as_str());
                let (order, outcome) = self.orders.order_here(order, number);
                if outcome.is_done {
                    self.tell_orders(&[order], None, outbox);
                }
                // The asker may have given up.
                return drop(asker.try_send(outcome));
            }
            Command::Changes { told } => {
                self.tell_changes(outbox);
                let _ = told.send(());
                return;
            }
        };
        if let Some(link) = link {
            let _ = outbox.send(link, &message);
        }
    }

    fn answered(
        &mut self,
        link: LinkId,
        ask: u64,
        answer: CoordinatorAnswer,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        let granted = match answer {
            CoordinatorAnswer::Grant { lease } => Some(lease),
            _ => None,
        };
        let reply = self.reply(link, answer);
        let is_heard = self.asks.answered(link, ask, reply);
        if let (Some(lease), false) = (granted, is_heard) {
            let _ = outbox.send(link, &ToCoordinator::Ended { lease, is_held: false });
        }
    }

    /// Returns an answer in the types of the fetcher; `None`: it does not count as an answer.
    fn reply(&self, link: LinkId, answer: CoordinatorAnswer) -> Option<ResolvedAnswer<PeerNode>> {
        let members = &self.links.get(&link)?.members;
        Some(match answer {
            CoordinatorAnswer::Have { holders } => {
                let holders = holders.iter().filter_map(|id| members.get(id).copied());
                ResolvedAnswer::Have { holders: holders.collect() }
            }
            CoordinatorAnswer::Busy { leader, .. } => {
                ResolvedAnswer::Busy { leader: *members.get(&leader)? }
            }
            CoordinatorAnswer::Grant { lease } => ResolvedAnswer::Grant { lease },
            CoordinatorAnswer::Later => ResolvedAnswer::Later,
            CoordinatorAnswer::Refused => return None,
        })
    }

    /// Returns the nodes that have a file; `None`: this does not count as an answer.
    fn file_holders(&self, link: LinkId, answer: FileAnswer) -> Option<FileHolders> {
        let members = &self.links.get(&link)?.members;
        let possible = |node: PossibleHolder| PeerNode {
            id: node.name.peer(),
            address: node.address,
            link,
            member: MemberId::MAX,
        };
        Some(match answer {
            FileAnswer::Have { holders } => {
                let holders = holders.iter().filter_map(|id| members.get(id).copied());
                FileHolders::These(holders.collect())
            }
            FileAnswer::Nobody => FileHolders::Nobody,
            FileAnswer::Unsure { nodes, are_all } => {
                let nodes = nodes.into_iter().map(possible).collect();
                FileHolders::Perhaps { nodes, are_all }
            }
            FileAnswer::Refused => return None,
        })
    }

    fn tick(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        self.look_for_pause(outbox);
        self.tell_changes(outbox);
        self.tell_slots(outbox);
        self.tell_inventories(outbox);
        self.asks.forget_closed();
        self.file_asks.forget_closed();
        self.follow_power(outbox);
        if let (Some(link), Some(names)) = (self.active(), self.store.tail()) {
            let _ = outbox.send(link, &ToCoordinator::Tail { names });
        }
    }

    /// Reports added and removed segments and files to coordinators.
    fn tell_changes(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        for delta in self.store.changes() {
            self.links.keys().for_each(|&link| _ = outbox.send(link, &delta));
        }
        self.announce(outbox);
    }

    /// Continues to send inventories, after the announcement of files. Not all at once: the
    /// capacity of links is limited, and other messages, above all purges, must not wait.
    fn tell_inventories(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let is_due = |coordinator: &CoordinatorLink| coordinator.announcement.is_told();
        let due = self.links.iter().filter(|(_, coordinator)| is_due(coordinator));
        let links: Vec<_> = due.map(|(&link, _)| link).collect();
        for link in links {
            while outbox.queued_bytes(link) < INVENTORY_QUEUE_BYTES_MAX
                && self.tell_held(link, outbox)
            {}
        }
    }

    /// Sends the next part of an inventory; returns false when it is complete.
    fn tell_held(&mut self, link: LinkId, outbox: &mut Outbox<ToCoordinator>) -> bool {
        let held = |names: &[_]| self.store.held(names);
        let Some(coordinator) = self.links.get_mut(&link) else { return false };
        let inventory = coordinator.inventory.as_mut();
        let part = inventory.and_then(|it| it.next_part(HELD_PER_MESSAGE_MAX, held));
        let is_said = part.is_some_and(|part| outbox.send(link, &part));
        if !is_said {
            coordinator.inventory = None;
        }
        is_said
    }
}
