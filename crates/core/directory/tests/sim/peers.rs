//! How nodes get segments: fetches, streams between nodes, the origin.

use std::rc::Rc;

use skep_directory::limits::SETTLE_MS;
use skep_directory::{
    FetchAction, FetchEvent, FetchOutcome, Fetcher, FillSource, RendezvousHash, ResolvedAnswer,
};
use skep_units::Now;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{
    CoordinatorAnswer, PeerRefusal, PurgeKind, SegmentName, ToCoordinator, ToNode,
};

use crate::links::{Conn, name_of};
use crate::memory::Kept;
use crate::node::{Growing, Peer};
use crate::origin::{CHUNK_BYTES, Chunk};
use crate::scenario::MISFORTUNE_MS_MAX;
use crate::world::{Event, World};

/// Silence of another node or the origin after which a fetch is given up.
pub(crate) const PEER_STALL_MS: u64 = 700;
pub(crate) const ORIGIN_STALL_MS: u64 = 400;
/// How long a node waits for an answer.
const ASK_TIMEOUT_MS: u64 = 200;
/// Longest wait of a client: a coordinator that settles, one fault of the longest kind, and then
/// one timeout each for a coordinator, a node and the origin.
pub(crate) const WAIT_MS_MAX: u64 =
    SETTLE_MS + MISFORTUNE_MS_MAX + ASK_TIMEOUT_MS + PEER_STALL_MS + ORIGIN_STALL_MS;
/// Streams that a node serves at a time.
const STREAMS_MAX: usize = 5;
/// Chunks that arrive corrupted, per thousand.
const GARBAGE_PERMILLE: u64 = 2;
/// Fetches without a connection to spare, per thousand.
const CROWDED_PERMILLE: u64 = 20;

/// A fetch of a node from another node.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) server: usize,
    pub(crate) client: usize,
    client_life: u64,
    name: SegmentName,
    attempt: u64,
    with_origin: bool,
    /// The client takes over an offered segment.
    offer: Option<u64>,
    /// Index of the next chunk to send.
    next: usize,
    is_over: bool,
    last: u64,
}

/// The messages of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamSays {
    Chunk(Chunk),
    Garbage,
    Refused(PeerRefusal),
    Broken,
}

impl World {
    /// Serves a segment to a client.
    pub(crate) fn serve(&mut self, client: u64, node: usize, name: SegmentName) {
        let found = self.nodes[node].memory.acquire(&name);
        self.changed(node);
        if let Some(chunks) = found {
            return self.served(client, Some(&chunks));
        }
        let bytes = self.origin.names[&name].bytes;
        let begin = Fetcher::new(bytes, Now(self.at));
        let is_new = self.grow(node, name, begin);
        self.nodes[node].growing.get_mut(&name).expect("grows").clients.push(client);
        if is_new {
            self.drive(node, name, FetchEvent::Begin);
        }
    }

    // --- fetches ---

    fn grow(&mut self, node: usize, name: SegmentName, fetcher: Fetcher<Peer>) -> bool {
        let bytes = self.origin.names[&name].bytes;
        let is_new = !self.nodes[node].growing.contains_key(&name);
        self.nodes[node].growing.entry(name).or_insert_with(|| Growing::new(fetcher, bytes));
        is_new
    }

    /// Performs the actions of the fetch until one must be waited for.
    fn drive(&mut self, node: usize, name: SegmentName, mut told: FetchEvent<Peer>) {
        loop {
            let attempt = self.number();
            let growing = self.nodes[node].growing.get_mut(&name).expect("grows");
            growing.attempt = attempt;
            let filled = growing.filled();
            let action = growing.fetcher.next(told.clone(), Now(self.at));
            growing.is_filling = matches!(action, FetchAction::FillFromOrigin { .. });
            growing.fill_source = action.fill_source().unwrap_or(growing.fill_source);
            growing.lease = match action {
                FetchAction::FillFromOrigin { lease, .. } => lease,
                _ => None,
            };
            self.tell(|| format!("n{node} {name:?}: {told:?} -> {action:?}"));
            let due_ms = match action {
                FetchAction::Ask if self.ask(node, name, attempt) => ASK_TIMEOUT_MS,
                FetchAction::Ask => {
                    told = FetchEvent::NoAnswer { owner: self.owner(node, &name) };
                    continue;
                }
                FetchAction::FetchFrom { from, .. } if self.rng.below(1000) < CROWDED_PERMILLE => {
                    assert_eq!(from, filled);
                    told = FetchEvent::Fetched { filled, end: FetchOutcome::Crowded };
                    continue;
                }
                FetchAction::FetchFrom { peer, from, with_origin } => {
                    assert_eq!(from, filled);
                    self.fetch(node, peer.node, name, attempt, with_origin);
                    PEER_STALL_MS
                }
                FetchAction::FillFromOrigin { from, lease } => {
                    assert_eq!(from, filled);
                    self.totals.fills += 1;
                    self.totals.resumed += u64::from(from > 0);
                    self.totals.unleased += u64::from(lease.is_none());
                    self.read_origin(node, name, attempt);
                    ORIGIN_STALL_MS
                }
                FetchAction::TellNotThere { peer } => {
                    if let Some((conn, holder)) = peer.via {
                        self.say(conn, ToCoordinator::NotThere { name, holder });
                    }
                    told = FetchEvent::Told;
                    continue;
                }
                FetchAction::TellEnded { lease, is_whole } => {
                    let fits = u64::from(growing_bytes(self, node, &name))
                        <= self.nodes[node].memory.capacity_bytes();
                    if let Some(conn) = self.nodes[node].growing[&name].lease_conn {
                        let is_held = is_whole && fits;
                        self.say(conn, ToCoordinator::Ended { lease, is_held });
                    }
                    told = FetchEvent::Told;
                    continue;
                }
                FetchAction::Wait { ms } => ms,
                FetchAction::Done => return self.over(node, name, true),
                FetchAction::Failed => return self.over(node, name, false),
            };
            let life = self.nodes[node].life;
            self.schedule(self.at + due_ms, Event::Due { node, life, name, attempt, filled });
            return;
        }
    }

    fn ask(&mut self, node: usize, name: SegmentName, attempt: u64) -> bool {
        let Some(conn) = self.nodes[node].active().map(|link| link.conn) else { return false };
        self.nodes[node].asks.insert(attempt, name);
        let bytes = growing_bytes(self, node, &name);
        self.say(conn, ToCoordinator::Ask { ask: attempt, name, bytes });
        true
    }

    fn owner(&self, node: usize, name: &SegmentName) -> Option<Peer> {
        let known = self.nodes[node].known.iter();
        let member = |&it: &usize| (it, name_of(it));
        let owner = RendezvousHash::new(known.map(member)).owner(name, |_| 0)?;
        (owner != node).then_some(Peer { node: owner, via: None })
    }

    pub(crate) fn due(&mut self, node: usize, name: SegmentName, attempt: u64, filled: u32) {
        let Some(growing) = self.nodes[node].growing.get(&name) else { return };
        if growing.attempt != attempt {
            return;
        }
        let (now_filled, life) = (growing.filled(), self.nodes[node].life);
        let is_asking = self.nodes[node].asks.remove(&attempt).is_some();
        if now_filled > filled {
            // Progress was made: the timeout starts again.
            let event = Event::Due { node, life, name, attempt, filled: now_filled };
            self.schedule(self.at + ORIGIN_STALL_MS, event);
        } else if is_asking {
            let owner = self.owner(node, &name);
            self.drive(node, name, FetchEvent::NoAnswer { owner });
        } else if self.streams.contains_key(&attempt) {
            self.drive(node, name, FetchEvent::Fetched { filled, end: FetchOutcome::Lost });
        } else {
            // Whether this was a wait or a read of the origin depends on the fetch.
            let is_origin = self.nodes[node].growing[&name].is_filling;
            let told = if is_origin { FetchEvent::Filled { filled } } else { FetchEvent::Waited };
            self.drive(node, name, told);
        }
    }

    fn over(&mut self, node: usize, name: SegmentName, is_whole: bool) {
        let growing = self.nodes[node].growing.remove(&name).expect("grows");
        assert_eq!(is_whole, growing.filled() == growing.bytes, "whole is whole");
        let chunks: Rc<[Chunk]> = growing.chunks.into();
        if is_whole {
            let is_first = self.origin.names[&name].is_first;
            let kept = Kept::new(growing.bytes, Rc::clone(&chunks), is_first);
            self.nodes[node].memory.keep(name, kept, growing.fill_source != FillSource::Local);
            self.changed(node);
        } else {
            self.forget_head(node, &name);
        }
        for client in growing.clients {
            self.served(client, is_whole.then_some(&chunks));
        }
        for id in growing.served {
            match is_whole {
                true => self.push(id, &chunks, true),
                false => self.end_stream(id, StreamSays::Broken),
            }
        }
    }

    /// Appends a chunk.
    fn append(&mut self, node: usize, name: SegmentName, chunk: Chunk) -> bool {
        let growing = self.nodes[node].growing.get_mut(&name).expect("grows");
        growing.chunks.push(chunk);
        let (served, chunks) = (growing.served.clone(), growing.chunks.clone());
        let (is_whole, lease, conn) =
            (growing.filled() == growing.bytes, growing.lease, growing.lease_conn);
        served.into_iter().for_each(|id| self.push(id, &chunks, false));
        if let (Some(lease), Some(conn)) = (lease, conn) {
            self.say(conn, ToCoordinator::Renew { lease });
        }
        is_whole
    }

    // --- what coordinators say ---

    pub(crate) fn node_hears(&mut self, conn: u64, message: ToNode) {
        let Conn { node, .. } = self.conns[&conn];
        let is_heard = self.conns[&conn].is_heard(self.at);
        let Some(link) = self.nodes[node].link(conn).filter(|_| is_heard) else { return };
        match message {
            ToNode::Purges(news) => {
                self.node_hears_purges(node, conn, (PurgeKind::Hard, &news));
            }
            ToNode::SoftPurges(news) => {
                self.node_hears_purges(node, conn, (PurgeKind::Soft, &news));
            }
            ToNode::Welcome { is_active, epoch, members } => {
                (link.is_active, link.epoch) = (is_active, epoch);
                link.members =
                    members.iter().map(|it| (it.id, usize::from(it.address.port()))).collect();
                if is_active {
                    let known = link.members.values().copied().collect();
                    self.nodes[node].known = known;
                }
                self.is_bound(node, conn);
            }
            ToNode::Tail { names, replica_statuses, roomiest } => {
                let place = roomiest.and_then(|id| link.members.get(&id)).copied();
                let node = &mut self.nodes[node];
                node.memory.set_replica_statuses(&names, &replica_statuses, roomiest.is_some());
                node.roomiest = place;
            }
            // A node that was paused receives all messages at once.
            ToNode::InStep { .. } => {}
            // There are no operators' requests here.
            ToNode::Explain { .. }
            | ToNode::Ask { .. }
            | ToNode::Relayed { .. }
            | ToNode::RelayEnd { .. } => {}
            // These nodes have no pools.
            ToNode::Slots { .. }
            | ToNode::AskStatus { .. }
            | ToNode::ServerOrders(_)
            | ToNode::ServerLoads(_)
            | ToNode::Power { .. } => {}
            // Checked where it is sent.
            ToNode::FileAnswer { .. } => {}
            ToNode::Answer { ask, answer } => self.answered(node, conn, ask, answer),
        }
    }

    fn answered(&mut self, node: usize, conn: u64, ask: u64, answer: CoordinatorAnswer) {
        let Some(name) = self.nodes[node].asks.remove(&ask) else {
            // It is late: no fetch waits for it any more.
            if let CoordinatorAnswer::Grant { lease } = answer {
                self.say(conn, ToCoordinator::Ended { lease, is_held: false });
            }
            return;
        };
        let link = self.nodes[node].link(conn).expect("it came on it");
        let members = &link.members;
        let peer =
            |id: &MemberId| members.get(id).map(|&node| Peer { node, via: Some((conn, *id)) });
        let reply = match answer {
            CoordinatorAnswer::Have { holders } => {
                let holders = holders.iter().filter_map(peer).collect();
                Some(ResolvedAnswer::Have { holders })
            }
            CoordinatorAnswer::Busy { leader, .. } => {
                peer(&leader).map(|leader| ResolvedAnswer::Busy { leader })
            }
            CoordinatorAnswer::Grant { lease } => {
                let growing = self.nodes[node].growing.get_mut(&name).expect("asks");
                growing.lease_conn = Some(conn);
                Some(ResolvedAnswer::Grant { lease })
            }
            CoordinatorAnswer::Later => Some(ResolvedAnswer::Later),
            CoordinatorAnswer::Refused => None,
        };
        let told = match reply {
            Some(reply) => FetchEvent::Answer(reply),
            None => FetchEvent::NoAnswer { owner: self.owner(node, &name) },
        };
        self.drive(node, name, told);
    }

    // --- the origin ---

    fn read_origin(&mut self, node: usize, name: SegmentName, attempt: u64) {
        let life = self.nodes[node].life;
        let at = (self.at + self.origin.read_ms).max(self.origin.stalls_until);
        self.schedule(at, Event::OriginRead { node, life, name, attempt });
    }

    pub(crate) fn origin_read(&mut self, node: usize, name: SegmentName, attempt: u64) {
        let Some(growing) = self.nodes[node].growing.get(&name) else { return };
        if growing.attempt != attempt {
            return;
        }
        let filled = growing.filled();
        let fails = self.at < self.origin.fails_until;
        let read = self.origin.read(&name, growing.chunks.len()).filter(|_| !fails);
        let Some(chunk) = read else {
            return self.drive(node, name, FetchEvent::Filled { filled });
        };
        self.totals.origin_chunks += 1;
        if self.append(node, name, chunk) {
            let filled = growing_bytes(self, node, &name);
            return self.drive(node, name, FetchEvent::Filled { filled });
        }
        self.read_origin(node, name, attempt);
    }

    // --- streams ---

    fn fetch(
        &mut self,
        client: usize,
        server: usize,
        name: SegmentName,
        attempt: u64,
        with_origin: bool,
    ) {
        let next = self.nodes[client].growing[&name].chunks.len();
        let stream = self.stream((client, server), name, attempt);
        self.open(Stream { with_origin, next, ..stream });
    }

    /// A node fetches all of a segment that another node offers.
    pub(crate) fn take_over(
        &mut self,
        client: usize,
        server: usize,
        name: SegmentName,
        offer: u64,
    ) {
        let attempt = self.number();
        let stream = self.stream((client, server), name, attempt);
        self.open(Stream { offer: Some(offer), ..stream });
    }

    /// A stream that begins now: all of a segment, from the server's memory.
    fn stream(&self, (client, server): (usize, usize), name: SegmentName, attempt: u64) -> Stream {
        Stream {
            server,
            client,
            client_life: self.nodes[client].life,
            name,
            attempt,
            with_origin: false,
            offer: None,
            next: 0,
            is_over: false,
            last: self.at,
        }
    }

    fn open(&mut self, stream: Stream) {
        let Stream { server, client, attempt, .. } = stream;
        self.streams.insert(attempt, stream);
        if !self.cuts.contains(&(client, server)) {
            let at = self.hop();
            self.schedule(at, Event::Fetch { stream: attempt });
        }
    }

    pub(crate) fn fetch_arrives(&mut self, id: u64) {
        let Stream { server, client, name, with_origin, .. } = self.streams[&id];
        if !self.nodes[server].is_alive {
            return self.end_stream(id, StreamSays::Broken);
        }
        if self.nodes[server].streams >= STREAMS_MAX {
            return self.end_stream(id, StreamSays::Refused(PeerRefusal::Overloaded));
        }
        if let Some(chunks) = self.nodes[server].memory.find(&name) {
            return self.push(id, &chunks, true);
        }
        let is_growing = self.nodes[server].growing.get(&name);
        let peer = Peer { node: client, via: None };
        if is_growing.is_some_and(|it| !it.fill_source.may_serve(&peer))
            || (is_growing.is_none() && !with_origin)
        {
            return self.end_stream(id, StreamSays::Refused(PeerRefusal::NotThere));
        }
        let bytes = self.origin.names[&name].bytes;
        let begin = Fetcher::for_peer(bytes, Now(self.at));
        let is_new = self.grow(server, name, begin);
        let growing = self.nodes[server].growing.get_mut(&name).expect("grows");
        growing.served.push(id);
        let (attempt, chunks) = (growing.attempt, growing.chunks.clone());
        let waits_for_us = |it: &u64| *it == attempt && self.streams[it].client == server;
        let back = self.nodes[client].growing.get(&name);
        let is_circle = back.is_some_and(|back| back.served.iter().any(waits_for_us));
        assert!(!is_circle, "n{server} and n{client} wait for each other");
        self.nodes[server].streams += 1;
        self.push(id, &chunks, false);
        if is_new {
            self.drive(server, name, FetchEvent::Begin);
        }
    }

    /// Sends the available chunks that were not sent yet.
    fn push(&mut self, id: u64, chunks: &[Chunk], is_all: bool) {
        while let Some(&chunk) = chunks.get(self.streams[&id].next) {
            self.streams.get_mut(&id).expect("a stream").next += 1;
            let is_garbage = !self.scenario.is_calm() && self.rng.below(1_000) < GARBAGE_PERMILLE;
            let says = if is_garbage { StreamSays::Garbage } else { StreamSays::Chunk(chunk) };
            self.send(id, says);
        }
        if is_all {
            self.close(id);
        }
    }

    fn end_stream(&mut self, id: u64, says: StreamSays) {
        self.send(id, says);
        self.close(id);
    }

    fn send(&mut self, id: u64, says: StreamSays) {
        let delay = 1 + self.rng.below(3);
        let stream = self.streams.get_mut(&id).expect("a stream");
        // A stream that lost a message sends no more.
        stream.is_over |= self.cuts.contains(&(stream.server, stream.client));
        if stream.is_over {
            return;
        }
        stream.last = stream.last.max(self.at + delay);
        let at = stream.last;
        self.schedule(at, Event::Stream { stream: id, says });
    }

    fn close(&mut self, id: u64) {
        let stream = self.streams.get_mut(&id).expect("a stream");
        stream.is_over = true;
        let Stream { server, name, .. } = *stream;
        if let Some(growing) = self.nodes[server].growing.get_mut(&name) {
            growing.served.retain(|it| *it != id);
        }
        let node = &mut self.nodes[server];
        node.streams = node.growing.values().map(|it| it.served.len()).sum();
    }

    pub(crate) fn break_streams(&mut self, is_it: impl Fn(&Stream) -> bool) {
        let ids: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.is_over && is_it(stream))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            // Half of them end silently, as when a machine dies.
            if self.rng.below(2) == 0 {
                self.send(id, StreamSays::Broken);
            }
            self.close(id);
        }
    }

    pub(crate) fn stream_says(&mut self, id: u64, says: StreamSays) {
        let Stream { client, client_life, name, attempt, offer, .. } = self.streams[&id];
        if !self.lives(client, client_life) {
            return;
        }
        if let Some(offer) = offer {
            return self.take_over_says(offer, says);
        }
        let is_its = |growing: &Growing| growing.attempt == attempt;
        if !self.nodes[client].growing.get(&name).is_some_and(is_its) {
            return;
        }
        let filled = self.nodes[client].growing[&name].filled();
        let end = match says {
            StreamSays::Chunk(chunk) => {
                self.totals.peer_chunks += 1;
                if !self.append(client, name, chunk) {
                    return;
                }
                FetchOutcome::Whole
            }
            StreamSays::Refused(refusal) => FetchOutcome::Refused(refusal),
            StreamSays::Garbage | StreamSays::Broken => FetchOutcome::Lost,
        };
        let chunks = self.nodes[client].growing[&name].chunks.len() as u32;
        let bytes = growing_bytes(self, client, &name);
        let filled =
            if end == FetchOutcome::Whole { (chunks * CHUNK_BYTES).min(bytes) } else { filled };
        self.drive(client, name, FetchEvent::Fetched { filled, end });
    }
}

fn growing_bytes(world: &World, node: usize, name: &SegmentName) -> u32 {
    world.nodes[node].growing[name].bytes
}
