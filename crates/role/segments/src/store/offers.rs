//! Evicted segments that are offered to other nodes.

use skep_wire::cache::SegmentName;

use super::SegmentStore;
use crate::leaving::Offered;

impl SegmentStore {
    /// Waits until a segment was evicted that may be offered to other nodes. Each wakes one caller.
    pub async fn evicted_to_offer(&self) {
        self.leaving_added.notified().await;
    }

    /// Whether [`SegmentStore::next_leaving`] has something; true for one caller only,
    /// until there is no more.
    pub fn wants_offering(&self) -> bool {
        self.lock().leaving.wants_offering()
    }

    /// The next sole or primary replica to be offered to another node. Until
    /// [`SegmentStore::left`] it can be read.
    pub fn next_leaving(&self) -> Option<Offered> {
        self.lock().leaving.next()
    }

    /// Ends the offer of a replica, passed on or not.
    pub fn left(&self, name: &SegmentName) {
        let mut inner = self.lock();
        if inner.leaving.remove(name).is_some() {
            inner.lost(*name);
        }
    }

    /// Whether a replica that was refused waits to be offered again: in a store that is closed, nothing takes its place.
    pub fn offers_again(&self, offered: &Offered) -> bool {
        let mut inner = self.lock();
        inner.is_closed && inner.leaving.again(offered)
    }

    /// Ends all offers: what no other node has taken by now is lost.
    pub fn end_offers(&self) {
        let mut inner = self.lock();
        inner.leaving.set_wanted(false);
        for name in inner.leaving.clear() {
            inner.lost(name);
        }
    }

    /// Stops offering until the cluster reports a node with room; waiting segments are lost.
    pub fn stop_offering(&self) {
        let mut inner = self.lock();
        inner.leaving.set_wanted(false);
        while let Some(name) = inner.leaving.give_up() {
            inner.lost(name);
        }
    }
}
