//! Passes sole replicas on to the node with most room, before they are lost (N-chance
//! forwarding: Dahlin et al., "Cooperative caching", OSDI '94); before a primary replica
//! leaves, asks its successor to promote its own replica.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use skep_peer::stream::{PeerError, PeerPool};
use skep_segments::{Offered, Segment, SegmentStore};
use skep_telemetry::{CoreCounters, Counter};
use skep_wire::cache::{PeerReply, PeerRequest, SegmentName};

use super::client::fetch_chunks;
use super::{Cluster, PeerClient};
use crate::limits::OFFER_PAUSE_MS;
use crate::model::peer::PeerNode;

impl PeerClient {
    /// Spawns a task that offers segments evicted from `store`, whatever evicts them, until the
    /// worker ends. Only one worker's task offers at a time.
    pub(crate) fn spawn_offering(&self, store: &Arc<SegmentStore>) {
        let offering = Offering {
            cluster: Arc::clone(&self.cluster),
            pool: Rc::clone(&self.pool),
            counters: Arc::clone(&self.counters),
            store: Arc::clone(store),
        };
        tokio::task::spawn_local(async move {
            loop {
                offering.store.evicted_to_offer().await;
                if offering.store.wants_offering() {
                    offering.offer_all().await;
                }
            }
        });
    }

    /// Fetches a segment that `peer` has offered; returns whether all of it arrived.
    pub(crate) async fn take_over(
        &self,
        name: SegmentName,
        segment: &Segment,
        peer: PeerNode,
    ) -> bool {
        let request = PeerRequest::Fetch { name, bytes: segment.len(), from: 0, origin: None };
        let fetched = fetch_chunks(&self.pool, peer.address, &request, segment).await;
        if let Err(error) = &fetched {
            tracing::debug!(%error, "a sole replica was not taken over");
        }
        fetched.is_ok()
    }
}

/// Offers evicted segments, one after the other.
struct Offering {
    cluster: Arc<Cluster>,
    pool: Rc<PeerPool>,
    counters: Arc<CoreCounters>,
    store: Arc<SegmentStore>,
}

impl Offering {
    async fn offer_all(&self) {
        while let Some(offered) = self.store.next_leaving() {
            if self.pass_on(&offered).await {
                self.store.left(&offered.name);
                self.counters.inc(Counter::ClusterPassedOn);
                continue;
            }
            if !self.store.offers_again(&offered) {
                // No node is known to have room: further evicted segments are lost.
                self.store.left(&offered.name);
                self.counters.inc(Counter::ClusterNotPassedOn);
                self.store.stop_offering();
            }
            tokio::time::sleep(Duration::from_millis(OFFER_PAUSE_MS)).await;
        }
    }

    /// Passes the segment on to the successor, which may still hold a replica, otherwise to the
    /// node with most room.
    async fn pass_on(&self, offered: &Offered) -> bool {
        let successor = offered.successor.and_then(|successor| self.cluster.member(successor));
        for peer in
            [successor, self.cluster.roomiest.load_full().map(|it| *it)].into_iter().flatten()
        {
            if self.offer(peer, offered).await {
                return true;
            }
        }
        false
    }

    async fn offer(&self, peer: PeerNode, offered: &Offered) -> bool {
        let &Offered { name, bytes, chances, .. } = offered;
        let offer = PeerRequest::Offer { name, bytes, chances };
        match self.pool.ask(peer.address, &offer).await {
            Ok(PeerReply::Taken) => true,
            Ok(_) | Err(PeerError::Refused(_)) => false,
            Err(error) => {
                tracing::debug!(%error, "a sole replica was not passed on");
                false
            }
        }
    }
}
