//! Nodes fetch segments from another node's memory, or from disk or origin, once for all concurrent requests.
//!
//! **Invariant:** a node has at most one fetch of a segment; with a cluster cache the cluster has at most one
//! from disk or origin, unless nodes that hold the segment refuse.

use smallvec::SmallVec;

use crate::cluster::FetchSource;
use crate::fetch_table::{Fetch, FetchFrom, FoundFetch, WantedSegment};
use crate::limits::{CLIENT_BYTES_PART, NS_PER_MS, NS_PER_US, RENEW_MS};
use crate::memory::SegmentNumber;
use crate::world::{Event, Transfer, World};

impl World<'_> {
    /// Joins a node's fetch of a segment, or starts one.
    pub(crate) fn fetch(
        &mut self,
        now: u64,
        wanted: WantedSegment,
        waiter: (u32, u32),
    ) -> FoundFetch {
        let WantedSegment { node, segment, .. } = wanted;
        if let Some(&id) = self.fetches.of_nodes[node as usize].get(&segment) {
            let fetch = &mut self.fetches.all[id as usize];
            fetch.waiters.push(waiter);
            self.outcome.totals.joined += 1;
            let has_arrived = fetch.is_readable;
            return FoundFetch { has_arrived, is_joined: true, is_from_peer: false };
        }
        let from = self.find_source(now, node, segment);
        let fetch = Fetch {
            wanted,
            from,
            has_arrived: false,
            is_readable: false,
            is_cut: false,
            began_ns: now,
            waiters: SmallVec::from_slice(&[waiter]),
            followers: SmallVec::new(),
        };
        let id = self.fetches.all.insert(fetch) as u32;
        self.fetches.of_nodes[node as usize].insert(segment, id);
        self.begin_fetch(now, id);
        let is_from_peer = from != FetchFrom::Source;
        FoundFetch { has_arrived: false, is_joined: false, is_from_peer }
    }

    /// The first byte of a fetch has arrived: the rest follows at the rate of its source.
    pub(crate) fn fetch_arrives(&mut self, now: u64, id: u32) {
        let fetch = &mut self.fetches.all[id as usize];
        if let FetchFrom::Peer(peer) = fetch.from
            && (fetch.is_cut || self.memories.is_lost(peer))
        {
            self.fetches.peer_bytes[peer as usize] -= fetch.wanted.bytes;
        }
        if fetch.is_cut {
            self.fetches.all.remove(id as usize);
            return;
        }
        if matches!(fetch.from, FetchFrom::Peer(peer) if self.memories.is_lost(peer)) {
            return self.peer_is_silent(now, id);
        }
        // What is shorter than a chunk is sent when it is whole.
        let is_readable = fetch.wanted.bytes > self.run.cluster.chunk_bytes;
        (fetch.has_arrived, fetch.is_readable) = (true, is_readable);
        let (bytes, nodes) = (fetch.wanted.bytes, self.run.cluster.nodes.len());
        let rate = match (fetch.from, self.run.cluster.source) {
            (FetchFrom::Peer(peer), _) => peer as usize,
            (_, FetchSource::OwnDisk) => nodes + fetch.wanted.node as usize,
            (_, FetchSource::SharedOrigin { .. }) => nodes,
        };
        self.transfer(now, rate, bytes, Transfer::Fetch(id));
        if !is_readable {
            return;
        }
        // Who asks meanwhile has seen that it is there.
        for at in 0..self.fetches.all[id as usize].waiters.len() {
            let (request, segment) = self.fetches.all[id as usize].waiters[at];
            self.segment_arrives(now, request, segment);
        }
    }

    /// The last byte of a fetch has arrived.
    pub(crate) fn fetch_ended(&mut self, now: u64, id: u32) {
        let fetch = self.fetches.all.remove(id as usize);
        let WantedSegment { node, segment, bytes, .. } = fetch.wanted;
        if !fetch.is_cut {
            self.fetches.of_nodes[node as usize].remove(&segment);
        }
        match fetch.from {
            FetchFrom::Peer(peer) => {
                self.fetches.peer_bytes[peer as usize] -= bytes;
                self.outcome.totals.peer_bytes += bytes;
            }
            _ if fetch.is_cut => {}
            _ => {
                self.fetches.leaders.remove(&segment);
                self.note_fill(now, fetch.began_ns);
                self.outcome.totals.fetched_bytes += bytes;
                self.outcome.totals.fetches += 1;
            }
        }
        if fetch.is_cut {
            return;
        }
        self.keep(now, node, segment, bytes);
        for follower in fetch.followers {
            if self.fetches.all[follower as usize].is_cut {
                self.fetches.all.remove(follower as usize);
                continue;
            }
            self.fetches.all[follower as usize].from = FetchFrom::Peer(node);
            self.begin_fetch(now, follower);
        }
        for (request, segment) in fetch.waiters {
            self.segment_ended(now, request, segment);
        }
    }

    /// Stores a segment in a node's memory, and reports the change to the coordinator.
    pub(crate) fn keep(&mut self, now: u64, node: u32, segment: SegmentNumber, bytes: u64) {
        let change = self.memories.insert(node, segment, bytes);
        if self.run.cluster.has_cluster_cache {
            self.traffic.changed(now, node, change);
        }
        self.pass_on_evicted(now);
    }

    /// Records the end of a fetch from disk or origin, and of its lease.
    fn note_fill(&mut self, now: u64, began_ns: u64) {
        if self.run.cluster.has_cluster_cache {
            self.traffic.traffic.fills_ended += 1;
            self.traffic.traffic.renewals += (now - began_ns) / (RENEW_MS * NS_PER_MS);
        }
    }

    pub(crate) fn begin_fetch(&mut self, now: u64, id: u32) {
        let (fetch, cluster) = (&self.fetches.all[id as usize], self.run.cluster);
        let latency_us = match fetch.from {
            FetchFrom::Leader(leader) => {
                return self.fetches.all[leader as usize].followers.push(id);
            }
            FetchFrom::Peer(peer) => {
                self.fetches.peer_bytes[peer as usize] += fetch.wanted.bytes;
                cluster.peer_latency_us
            }
            FetchFrom::Source => {
                self.fetches.leaders.insert(fetch.wanted.segment, id);
                let WantedSegment { node, compute_ns, .. } = fetch.wanted;
                if compute_ns > 0 {
                    let processor = &mut self.processors_ns[node as usize];
                    *processor = now.max(*processor) + compute_ns;
                    let at = *processor;
                    return self.events.schedule(at, Event::FetchArrives(id));
                }
                if fetch.wanted.is_continued { 0 } else { cluster.fetch_latency_us }
            }
        };
        self.events.schedule(now + latency_us * NS_PER_US, Event::FetchArrives(id));
    }

    /// Returns the less loaded of two nodes that have a segment, else a node that is fetching it, else disk
    /// or origin.
    pub(crate) fn find_source(&mut self, now: u64, node: u32, segment: SegmentNumber) -> FetchFrom {
        if !self.run.cluster.has_cluster_cache {
            return FetchFrom::Source;
        }
        self.traffic.traffic.look_ups += 1;
        let count = self.memories.holders(segment).len() as u64;
        if count == 0 {
            let leader = self.fetches.leaders.get(&segment);
            return leader.map_or(FetchFrom::Source, |leader| FetchFrom::Leader(*leader));
        }
        let first = self.peer_rng.below(count);
        let second = (first + 1 + self.peer_rng.below(count.max(2) - 1)) % count;
        let holder = |at| self.memories.holders(segment)[at as usize];
        let pair =
            [holder(first), holder(second)].map(|peer| (self.bytes_to_send(now, peer), peer));
        let (bytes, peer) = pair[0].min(pair[1]);
        debug_assert_ne!(peer, node, "it would have been a hit");
        if bytes > self.run.cluster.peer_bytes_max {
            FetchFrom::Source
        } else {
            FetchFrom::Peer(peer)
        }
    }

    /// The bytes that count towards a node's refusal of other nodes.
    fn bytes_to_send(&self, now: u64, node: u32) -> u64 {
        self.fetches.peer_bytes[node as usize] + self.client_bytes(now, node) / CLIENT_BYTES_PART
    }
}
