//! Evicted segments that are offered to other nodes.

use skep_wire::cache::SegmentName;

use super::SegmentStore;
use crate::leaving::Offered;

impl SegmentStore {
    /// Waits until a segment that may be offered to other nodes is evicted. Each such segment wakes one
    /// caller.
    pub async fn evicted_to_offer(&self) {
        self.leaving_added.notified().await;
    }

    /// Whether [`SegmentStore::next_leaving`] has a segment. Returns true to one caller only, until there
    /// is none left.
    pub fn wants_offering(&self) -> bool {
        self.lock().leaving.wants_offering()
    }

    /// Returns the next sole or primary replica to offer to another node. It can be read until
    /// [`SegmentStore::left`].
    pub fn next_leaving(&self) -> Option<Offered> {
        self.lock().leaving.next()
    }

    /// Ends the offer of a replica, whether it was passed on or not.
    pub fn left(&self, name: &SegmentName) {
        let mut inner = self.lock();
        if inner.leaving.remove(name).is_some() {
            inner.lost(*name);
        }
    }

    /// Queues a refused replica to be offered again, and returns whether it did: only in a closed store,
    /// in which nothing takes its place.
    pub fn offers_again(&self, offered: &Offered) -> bool {
        let mut inner = self.lock();
        inner.is_closed && inner.leaving.again(offered)
    }

    /// Ends all offers: replicas that no other node has accepted by now are lost.
    pub fn end_offers(&self) {
        let mut inner = self.lock();
        inner.leaving.set_wanted(false);
        for name in inner.leaving.clear() {
            inner.lost(name);
        }
    }

    /// Stops offering until the cluster reports a node with room; segments that wait are lost.
    pub fn stop_offering(&self) {
        let mut inner = self.lock();
        inner.leaving.set_wanted(false);
        while let Some(name) = inner.leaving.give_up() {
            inner.lost(name);
        }
    }
}
