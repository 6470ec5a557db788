//! Offers of sole replicas to nodes with room, and promotions of successors: one offer at a time
//! for each node, as in `cluster/offer`.

use std::collections::VecDeque;

use skep_directory::keep::accepts;
use skep_wire::cache::PeerRefusal;
use skep_wire::cache::link::MemberId;

use crate::memory::{Kept, Offered};
use crate::origin::Chunk;
use crate::peers::{PEER_STALL_MS, StreamSays};
use crate::world::{Event, World};

/// Pause after a refused offer.
const OFFER_PAUSE_MS: u64 = 200;
/// How long a node that is offered a segment which it is receiving waits for all of it.
const OFFER_WAIT_MS: u64 = 500;
/// Interval at which it checks.
const OFFER_LOOK_MS: u64 = 20;
/// Silence after which an offer is given up: the longest wait of the other node, and three
/// transmissions with a loss.
const OFFER_STALL_MS: u64 = OFFER_WAIT_MS + PEER_STALL_MS + 3 * 210;

/// An offer of a segment from one node to another.
pub(crate) struct Offer {
    from: usize,
    from_life: u64,
    to: usize,
    to_life: u64,
    offered: Offered,
    since: u64,
    /// Nodes to ask next.
    others: VecDeque<usize>,
    /// Chunks received so far.
    chunks: Vec<Chunk>,
    /// Whether there was room for a segment that was not there yet.
    has_room: bool,
    /// Whether it was taken or refused; later results are ignored.
    is_over: bool,
}

/// The steps of an offer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfferStep {
    Arrives,
    /// No more bytes arrive.
    Stalls,
    Answered(bool),
    GivenUp,
}

impl World {
    /// Begins to offer evicted segments, unless an offer is in progress.
    pub(crate) fn offer_if_wanted(&mut self, node: usize) {
        if !std::mem::replace(&mut self.nodes[node].is_offering, true) {
            self.offer_next(node);
        }
    }

    pub(crate) fn offer_next(&mut self, node: usize) {
        let Some(offered) = self.nodes[node].memory.next_leaving() else {
            self.nodes[node].is_offering = false;
            return;
        };
        let link = self.nodes[node].active();
        let member = |id: MemberId| link.and_then(|link| link.members.get(&id)).copied();
        let successor = offered.successor.and_then(member);
        let others = [successor, self.nodes[node].roomiest].into_iter().flatten();
        let others = others.filter(|it| *it != node).collect();
        self.offer_to_next(node, offered, others);
    }

    fn offer_to_next(&mut self, from: usize, offered: Offered, mut others: VecDeque<usize>) {
        let Some(to) = others.pop_front() else { return self.not_taken(from, offered) };
        let id = self.number();
        self.tell(|| format!("n{from} offers {offered:?} to n{to}"));
        let (from_life, to_life) = (self.nodes[from].life, self.nodes[to].life);
        let (since, chunks) = (self.at, Vec::new());
        let (has_room, is_over) = (false, false);
        let offer = Offer {
            from,
            from_life,
            to,
            to_life,
            offered,
            since,
            others,
            chunks,
            has_room,
            is_over,
        };
        self.offers.insert(id, offer);
        if !self.cuts.contains(&(from, to)) {
            let at = self.hop();
            self.schedule(at, Event::Offer { offer: id, step: OfferStep::Arrives });
        }
        let due = Event::Offer { offer: id, step: OfferStep::GivenUp };
        self.schedule(self.at + OFFER_STALL_MS, due);
    }

    /// No known node has room.
    fn not_taken(&mut self, node: usize, offered: Offered) {
        self.totals.not_taken += 1;
        let memory = &mut self.nodes[node].memory;
        memory.left(&offered.name);
        memory.stop_offering();
        self.changed(node);
        let life = self.nodes[node].life;
        self.schedule(self.at + OFFER_PAUSE_MS, Event::Offering { node, life });
    }

    /// The node where this step happens.
    pub(crate) fn place_of_offer(&self, offer: u64, step: OfferStep) -> usize {
        let offer = &self.offers[&offer];
        match step {
            OfferStep::Arrives | OfferStep::Stalls => offer.to,
            OfferStep::Answered(_) | OfferStep::GivenUp => offer.from,
        }
    }

    pub(crate) fn offer_steps(&mut self, id: u64, step: OfferStep) {
        let Offer { from, from_life, to, to_life, is_over, .. } = self.offers[&id];
        let (is_from_there, is_to_there) = (self.lives(from, from_life), self.lives(to, to_life));
        match step {
            OfferStep::Arrives if is_to_there => self.offer_arrives(id),
            OfferStep::Stalls if is_to_there => self.answer_offer(id, false),
            OfferStep::Answered(is_taken) if is_from_there && !is_over => {
                self.offer_answered(id, is_taken);
            }
            OfferStep::GivenUp if is_from_there && !is_over => self.offer_answered(id, false),
            _ => {}
        }
    }

    fn offer_arrives(&mut self, id: u64) {
        let offer = self.offers.get_mut(&id).expect("an offer");
        offer.has_room = false;
        let Offer { from, to, offered, since, .. } = *offer;
        let node = &mut self.nodes[to];
        if node.growing.contains_key(&offered.name) && self.at < since + OFFER_WAIT_MS {
            // It may be read from the offering node, which must not drop it before.
            self.look_again(id);
        } else if node.memory.promote_replica(&offered.name) {
            self.totals.promoted += 1;
            self.answer_offer(id, true);
        } else if accepts(node.memory.room(), offered.bytes) && !node.knows(&offered.name) {
            offer.has_room = true;
            // It may have arrived before, while it was asked for.
            offer.chunks.clear();
            self.take_over(to, from, offered.name, id);
            let stalls = Event::Offer { offer: id, step: OfferStep::Stalls };
            self.schedule(self.at + PEER_STALL_MS, stalls);
        } else {
            self.answer_offer(id, false);
        }
    }

    fn look_again(&mut self, id: u64) {
        let again = Event::Offer { offer: id, step: OfferStep::Arrives };
        self.schedule(self.at + OFFER_LOOK_MS, again);
    }

    /// Handles the stream of a segment that is taken over.
    pub(crate) fn take_over_says(&mut self, id: u64, says: StreamSays) {
        let offer = self.offers.get_mut(&id).expect("an offer");
        let StreamSays::Chunk(chunk) = says else {
            offer.has_room &= says != StreamSays::Refused(PeerRefusal::Overloaded);
            return self.answer_offer(id, false);
        };
        offer.chunks.push(chunk);
        let offered = offer.offered;
        let Offered { name, bytes, .. } = offered;
        let truth = &self.origin.names[&name];
        if offer.chunks.len() < truth.chunks() {
            return;
        }
        let kept = Kept::new(bytes, offer.chunks.as_slice().into(), truth.is_first);
        let to = offer.to;
        let node = &mut self.nodes[to];
        if node.growing.contains_key(&name) {
            // It was requested meanwhile, and must arrive first.
            return self.look_again(id);
        }
        // Another node may have passed it on meanwhile.
        offer.has_room &= !node.knows(&name);
        if offer.has_room {
            node.memory.take_in(name, kept.passed_on(&offered));
        }
        let is_taken = node.memory.promote_replica(&name);
        self.totals.taken += u64::from(is_taken);
        // Before the offering node reports that it no longer holds it.
        self.tell_held(to);
        self.answer_offer(id, is_taken);
    }

    fn answer_offer(&mut self, id: u64, is_taken: bool) {
        let Offer { from, to, .. } = self.offers[&id];
        if !self.cuts.contains(&(from, to)) {
            let at = self.hop();
            let step = OfferStep::Answered(is_taken);
            self.schedule(at, Event::Offer { offer: id, step });
        }
    }

    fn offer_answered(&mut self, id: u64, is_taken: bool) {
        let offer = self.offers.get_mut(&id).expect("an offer");
        offer.is_over = true;
        let (node, offered, others) =
            (offer.from, offer.offered, std::mem::take(&mut offer.others));
        if !is_taken {
            // If a client of this node asked for it meanwhile, it stayed, and may have been evicted
            // since as a redundant replica.
            let is_leaving = self.nodes[node].memory.is_leaving(&offered.name);
            let is_lost = offer.has_room && is_leaving && self.scenario.is_calm();
            assert!(!is_lost, "{offered:?} is dropped though a node has room");
            return self.offer_to_next(node, offered, others);
        }
        self.nodes[node].memory.left(&offered.name);
        self.changed(node);
        self.offer_next(node);
    }
}
