//! Loss of nodes: work in progress there is cut, fetches from there are redirected, and no chooser selects
//! the lost nodes after the timeout of the live failure detector.
//!
//! **Invariant:** nothing is stored in the memory of a lost node, and it is not a holder of anything.

use skep_cluster::failure_detector::{FailureDetector, FailureDetectorSettings};

use crate::cluster::FetchSource;
use crate::fetch_table::FetchFrom;
use crate::limits::{CONNECT_TIMEOUT_MS, NS_PER_MS, NS_PER_S, PEER_CHUNK_MS, PEER_REPLY_MS};
use crate::loss::LossOutcome;
use crate::request::SendState;
use crate::world::{Event, OfferedLoad, World};

impl World<'_> {
    /// Called before each request, with the number of requests so far: loses the nodes if it is time.
    pub(crate) fn lose_if_due(&mut self, now: u64, asked: u64) {
        let Some(loss) = self.run.cluster.loss else { return };
        if asked != loss.at_request(self.run.requests) || self.outcome.loss.is_some() {
            return;
        }
        self.measure_until(now, asked);
        let nodes = self.run.cluster.nodes.len();
        let lost: Vec<u32> =
            (0..nodes).filter(|node| loss.takes(*node, nodes)).map(|node| node as u32).collect();
        assert!(lost.len() < nodes, "some nodes stay");
        let mut outcome = LossOutcome::new(loss.window_ms);
        outcome.nodes = lost.len() as u64;
        outcome.at_s = now as f64 / NS_PER_S as f64;
        std::mem::swap(&mut outcome.windows, &mut self.windows);
        outcome.sole_bytes = lost.iter().map(|node| self.memories.sole_bytes(*node)).sum();
        self.outcome.loss = Some(outcome);
        for &node in &lost {
            let holdings = self.memories.lose(node);
            if self.run.cluster.has_cluster_cache {
                self.traffic.forget(holdings);
            }
            self.rates[node as usize].cut(now);
            if self.have_own_disks() {
                self.rates[nodes + node as usize].cut(now);
            }
        }
        self.cut_requests(now);
        self.cut_fetches(now);
        let detector = FailureDetector::new(FailureDetectorSettings::default());
        // A request that a lost node did not accept is retried only when the loss is known.
        assert!(CONNECT_TIMEOUT_MS > detector.silence_ms(), "detected before a connect times out");
        let silence_ns = detector.silence_ms() * NS_PER_MS;
        self.events.schedule(now + silence_ns, Event::LossDetected);
    }

    /// Whether each node has a disk, whose rates follow those of the links; otherwise one origin serves all.
    fn have_own_disks(&self) -> bool {
        self.run.cluster.source == FetchSource::OwnDisk
    }

    /// From now on the lost nodes are not chosen.
    pub(crate) fn loss_detected(&mut self) {
        for node in 0..self.run.cluster.nodes.len() as u32 {
            if self.memories.is_lost(node) {
                self.choosers.iter_mut().for_each(|chooser| chooser.set_share(node, None));
            }
        }
    }

    /// A request was sent to a lost node, which does not answer.
    pub(crate) fn wait_for_lost(&mut self, now: u64, id: u32) {
        if let Some(loss) = &mut self.outcome.loss {
            loss.late_requests += 1;
        }
        self.events.schedule(now + CONNECT_TIMEOUT_MS * NS_PER_MS, Event::Retry(id));
    }

    /// Sends a request to another node: by now the loss is known.
    pub(crate) fn retry(&mut self, now: u64, id: u32) {
        let request = &self.requests[id as usize];
        let (client, object, node) = (request.client, request.object, request.node);
        let chooser = request.chooser as usize;
        self.choosers[chooser].failed(now, node);
        let node = self.choose(now, chooser, (client, object));
        self.requests[id as usize].node = node;
        self.send_to(now, id);
    }

    /// Restarts a fetch that was interrupted.
    pub(crate) fn refetch(&mut self, now: u64, id: u32) {
        let wanted = self.fetches.all[id as usize].wanted;
        self.fetches.all[id as usize].from = self.find_source(now, wanted.node, wanted.segment);
        self.begin_fetch(now, id);
    }

    /// The first byte of a fetch from a lost node is due, and does not arrive.
    pub(crate) fn peer_is_silent(&mut self, now: u64, id: u32) {
        self.refetch_after(now, id, PEER_REPLY_MS);
    }

    fn refetch_after(&mut self, now: u64, id: u32, wait_ms: u64) {
        if let Some(loss) = &mut self.outcome.loss {
            loss.refetches += 1;
        }
        self.events.schedule(now + wait_ms * NS_PER_MS, Event::Refetch(id));
    }

    fn cut_requests(&mut self, now: u64) {
        let is_cut = |node| self.memories.is_lost(node);
        let of_lost = self.requests.iter().filter(|(_, request)| is_cut(request.node));
        let cut: Vec<usize> = of_lost.map(|(id, _)| id).collect();
        for id in cut {
            let request = &mut self.requests[id];
            request.is_cut = true;
            let sent = match request.sending {
                SendState::Ahead(end) => end,
                SendState::Nothing | SendState::Until(..) => request.sent,
            };
            let first = request.part.segments().start;
            let sent_bytes = request.part.bytes_of(first..sent);
            let client = request.client;
            // If its node has not read the request yet, an event is still scheduled for it.
            if request.looked_up > first {
                self.requests.remove(id);
            }
            if let Some(loss) = &mut self.outcome.loss {
                loss.cut_requests += 1;
                loss.cut_bytes += sent_bytes;
            }
            if let OfferedLoad::Closed { .. } | OfferedLoad::Ramp(_) = self.run.load {
                self.events.schedule(now, Event::Client(client));
            }
        }
    }

    /// Ends the fetches of lost nodes, and restarts those from lost nodes.
    fn cut_fetches(&mut self, now: u64) {
        let ids: Vec<u32> = self.fetches.all.iter().map(|(id, _)| id as u32).collect();
        for &id in &ids {
            let fetch = &mut self.fetches.all[id as usize];
            fetch.is_cut = self.memories.is_lost(fetch.wanted.node);
        }
        for node in 0..self.run.cluster.nodes.len() {
            if self.memories.is_lost(node as u32) {
                self.fetches.of_nodes[node].clear();
            }
        }
        for id in ids {
            // It may have been removed with the fetch that it followed.
            let Some(fetch) = self.fetches.all.get(id as usize) else { continue };
            let (is_cut, from, has_arrived) = (fetch.is_cut, fetch.from, fetch.has_arrived);
            let from_lost = matches!(from, FetchFrom::Peer(peer) if self.memories.is_lost(peer));
            match from {
                FetchFrom::Source if is_cut => self.cut_fill(now, id),
                FetchFrom::Peer(peer) if from_lost && has_arrived => {
                    self.fetches.peer_bytes[peer as usize] -= fetch.wanted.bytes;
                    match is_cut {
                        true => drop(self.fetches.all.remove(id as usize)),
                        false => self.refetch_after(now, id, PEER_CHUNK_MS),
                    }
                }
                // A fetch in progress, or one that follows another, ends with a scheduled event, or with the
                // one that it follows.
                _ => {}
            }
        }
    }

    /// Ends a lost node's fetch from disk or origin, for which others wait.
    fn cut_fill(&mut self, now: u64, id: u32) {
        let has_own_disk = self.have_own_disks();
        let fetch = &mut self.fetches.all[id as usize];
        let segment = fetch.wanted.segment;
        fetch.waiters.clear();
        let followers = std::mem::take(&mut fetch.followers);
        let is_over = fetch.has_arrived && has_own_disk;
        if self.fetches.leaders.get(&segment) == Some(&id) {
            self.fetches.leaders.remove(&segment);
        }
        if is_over {
            self.fetches.all.remove(id as usize);
        }
        for follower in followers {
            match self.fetches.all[follower as usize].is_cut {
                true => drop(self.fetches.all.remove(follower as usize)),
                false => self.refetch_after(now, follower, PEER_CHUNK_MS),
            }
        }
    }
}
