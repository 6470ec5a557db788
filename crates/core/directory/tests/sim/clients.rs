//! Clients, and the heads of requested objects in nodes: a head names the version of an object, may
//! be used for a limited time, and is sent from node to node, as in `role/node`.

use skep_wire::cache::{PurgeKind, PurgeStamp, SegmentName};

use crate::origin::{Chunk, Part};
use crate::peers::{ORIGIN_STALL_MS, PEER_STALL_MS, WAIT_MS_MAX};
use crate::world::{Event, World};

/// How long a head may be used after the request to the origin.
pub(crate) const MAX_AGE_MS: u64 = 600;

/// Time after which TCP retransmits.
const AGAIN_MS: u64 = 200;

/// A client that waits for a segment of an object.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) node: usize,
    object: usize,
    index: usize,
    since: u64,
    /// When its reply began, by time and by event number, and the part that it consists of.
    began: Option<(u64, u64, Part)>,
}

/// The head of an object in a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    version: u64,
    /// The latest hard purge of the object that was known before the request to the origin.
    purged: PurgeStamp,
    /// The latest soft purge, likewise.
    softly_purged: PurgeStamp,
    /// The end of its freshness.
    until: u64,
}

/// A request of a node for a head.
#[derive(Default)]
pub(crate) struct Seeking {
    attempt: u64,
    /// When the peer was asked, and the purges known then, hard and soft.
    asked_at: u64,
    purged: (PurgeStamp, PurgeStamp),
    clients: Vec<u64>,
}

/// The steps of such a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadStep {
    /// It reaches another node.
    Asked { peer: usize },
    /// That node has a head that is fresh for this many milliseconds, or none.
    Told(Option<(Head, u64)>),
    /// The origin answers.
    Read,
    /// The timeout has passed.
    Due { is_origin: bool },
}

/// Identifies a request of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadAsk {
    pub(crate) node: usize,
    life: u64,
    object: usize,
    attempt: u64,
}

impl World {
    pub(crate) fn clients_come(&mut self, count: u64) {
        let object = self.rng.below(self.origin.objects.len() as u64) as usize;
        let index = self.rng.below(3) as usize;
        for _ in 0..count {
            let node = self.rng.below(self.nodes.len() as u64) as usize;
            if !self.nodes[node].is_alive || self.nodes[node].paused_until > self.at {
                continue;
            }
            let client = self.number();
            self.tell(|| format!("client {client} wants object {object} of n{node}"));
            let (since, began) = (self.at, None);
            self.clients.insert(client, Client { node, object, index, since, began });
            self.reply(client);
        }
    }

    /// Begins the reply, or asks for the head first.
    fn reply(&mut self, client: u64) {
        let Client { node, object, index, .. } = self.clients[&client];
        let Some(head) = self.current_head(node, object) else {
            let is_new = !self.nodes[node].seeking.contains_key(&object);
            self.nodes[node].seeking.entry(object).or_default().clients.push(client);
            if is_new {
                self.seek_head(node, object);
            }
            return;
        };
        let part = self.origin.part(object, index, head.version);
        let name = self.origin.name(part, head.purged);
        self.clients.get_mut(&client).expect("waits").began =
            Some((self.at, self.totals.events, part));
        self.serve(client, node, name);
    }

    /// The head of an object that may be used without asking.
    fn current_head(&self, node: usize, object: usize) -> Option<Head> {
        let Self { nodes, origin, at, .. } = self;
        let head = nodes[node].heads.get(&object).filter(|head| *at < head.until)?;
        let (hard, soft) = origin.objects[object].purged_at(&nodes[node]);
        (head.purged >= hard && head.softly_purged >= soft).then_some(*head)
    }

    /// A client has received its reply, or the connection was closed.
    pub(crate) fn served(&mut self, client: u64, chunks: Option<&[Chunk]>) {
        let Client { node, object, since, began, .. } =
            self.clients.remove(&client).expect("waits");
        let (ms, is_served) = (self.at - since, chunks.is_some());
        self.tell(|| format!("client {client} of n{node} waited {ms} ms: {is_served}"));
        self.totals.wait_ms_max = self.totals.wait_ms_max.max(ms);
        assert!(ms <= WAIT_MS_MAX, "client {client} of n{node} waited {ms} ms");
        let Some(chunks) = chunks else { return self.totals.failed += 1 };
        self.totals.served += 1;
        let (began_at, began, part) = began.expect("a reply has begun");
        let promised =
            |kind| self.purging.promised(kind, node, &self.origin.objects[object], began);
        let got_since = promised(PurgeKind::Hard);
        let fresh_since = began_at.saturating_sub(MAX_AGE_MS).max(promised(PurgeKind::Soft));
        let verified = self.origin.verify(part, chunks, fresh_since, got_since);
        verified.unwrap_or_else(|wrong| panic!("client {client} of n{node}: {wrong}"));
    }

    // --- heads ---

    /// Asks another node or the origin.
    fn seek_head(&mut self, node: usize, object: usize) {
        let members = self.nodes[node].active().map(|link| &link.members);
        let others: Vec<usize> = members.into_iter().flat_map(|it| it.values().copied()).collect();
        let chosen = self.rng.below(2 * self.nodes.len() as u64) as usize;
        match others.get(chosen).filter(|it| **it != node) {
            Some(&peer) => self.ask_for_head(node, object, Some(peer)),
            None => self.ask_for_head(node, object, None),
        }
    }

    fn ask_for_head(&mut self, node: usize, object: usize, peer: Option<usize>) {
        let attempt = self.number();
        let at = self.at;
        let Self { nodes, origin, .. } = self;
        let life = nodes[node].life;
        let purged = origin.objects[object].purged_at(&nodes[node]);
        let seeking = nodes[node].seeking.get_mut(&object).expect("it is sought");
        (seeking.attempt, seeking.asked_at, seeking.purged) = (attempt, at, purged);
        let ask = HeadAsk { node, life, object, attempt };
        let (step, step_at, due_ms) = match peer {
            Some(peer) => (HeadStep::Asked { peer }, self.hop(), PEER_STALL_MS),
            None => {
                let read_at = (at + self.origin.read_ms).max(self.origin.stalls_until);
                (HeadStep::Read, read_at, ORIGIN_STALL_MS)
            }
        };
        if peer.is_none_or(|peer| !self.cuts.contains(&(node, peer))) {
            self.schedule(step_at, Event::Head { ask, step });
        }
        let step = HeadStep::Due { is_origin: peer.is_none() };
        self.schedule(at + due_ms, Event::Head { ask, step });
    }

    pub(crate) fn head_steps(&mut self, ask: HeadAsk, step: HeadStep) {
        let HeadAsk { node, life, object, attempt } = ask;
        if let HeadStep::Asked { peer } = step {
            return self.tell_peer_head(ask, peer);
        }
        let seeking = self.nodes[node].seeking.get(&object);
        let is_asked = seeking.is_some_and(|seeking| seeking.attempt == attempt);
        if !self.lives(node, life) || !is_asked {
            return;
        }
        match step {
            HeadStep::Told(Some((head, fresh_ms))) => self.told_head(node, object, head, fresh_ms),
            HeadStep::Read if self.at >= self.origin.fails_until => self.read_head(node, object),
            HeadStep::Read | HeadStep::Due { is_origin: true } => self.head_failed(node, object),
            _ => self.ask_for_head(node, object, None),
        }
    }

    /// Another node receives the request for a head.
    fn tell_peer_head(&mut self, ask: HeadAsk, peer: usize) {
        if self.nodes[peer].is_alive && !self.cuts.contains(&(ask.node, peer)) {
            let head = self.current_head(peer, ask.object);
            let told = head.map(|head| (head, head.until - self.at));
            let at = self.hop();
            self.schedule(at, Event::Head { ask, step: HeadStep::Told(told) });
        }
    }

    /// Refuses the head if it is older than a purge that the other node does not know.
    fn told_head(&mut self, node: usize, object: usize, head: Head, fresh_ms: u64) {
        let Self { nodes, origin, .. } = self;
        let (hard, soft) = origin.objects[object].purged_at(&nodes[node]);
        if head.purged < hard || head.softly_purged < soft {
            return self.ask_for_head(node, object, None);
        }
        self.totals.peer_heads += 1;
        let until = nodes[node].seeking[&object].asked_at + fresh_ms;
        self.found_head(node, object, Head { until, ..head });
    }

    fn read_head(&mut self, node: usize, object: usize) {
        let Seeking { asked_at, purged: (purged, softly_purged), .. } =
            self.nodes[node].seeking[&object];
        let (version, until) = (self.origin.objects[object].version(), asked_at + MAX_AGE_MS);
        self.found_head(node, object, Head { version, purged, softly_purged, until });
    }

    /// Clients continue; what is purged or too old by now is requested again.
    fn found_head(&mut self, node: usize, object: usize, head: Head) {
        self.tell(|| format!("n{node} knows of object {object} {head:?}"));
        self.nodes[node].heads.insert(object, head);
        let seeking = self.nodes[node].seeking.remove(&object).expect("it was sought");
        seeking.clients.into_iter().for_each(|client| self.reply(client));
    }

    fn head_failed(&mut self, node: usize, object: usize) {
        let seeking = self.nodes[node].seeking.remove(&object).expect("it was sought");
        seeking.clients.into_iter().for_each(|client| self.served(client, None));
    }

    /// Drops a head whose segment is not available.
    pub(crate) fn forget_head(&mut self, node: usize, name: &SegmentName) {
        let Part { object, version, .. } = self.origin.names[name].part;
        let heads = &mut self.nodes[node].heads;
        if heads.get(&object).is_some_and(|head| head.version == version) {
            heads.remove(&object);
        }
    }

    /// Arrival time of a message sent now to another machine; a lost one is retransmitted.
    pub(crate) fn hop(&mut self) -> u64 {
        let is_lost = self.rng.below(32) == 0;
        self.at + 1 + self.rng.below(3) + if is_lost { AGAIN_MS } else { 0 }
    }
}
