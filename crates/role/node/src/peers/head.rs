//! Heads of origins' objects, from the node that fetched them from the origin.
//!
//! Coordinators are asked for heads as for segments, under names of their own. The node that gets the
//! lease asks the origin; the others ask that node. Heads count no bytes, since they take none of a
//! node's segment memory.

use std::sync::Arc;
use std::time::Duration;

use skep_directory::limits::{LATER_MS, LATERS_MAX};
use skep_directory::{FetchEvent, FetchOutcome, ResolvedAnswer};
use skep_peer::stream::{PeerError, PeerPool};
use skep_serve::monotonic_ms;
use skep_telemetry::Counter;
use skep_wire::cache::{LeaseId, PeerRefusal, PeerReply, PeerRequest, PurgeStamp, SegmentName};

use super::client::end_of;
use super::{Cluster, PeerClient};
use crate::limits::{HEAD_ASKS_MAX, HEAD_WAITS_MAX};
use crate::model::peer::{PeerHead, PeerNode};

/// The result of a request for a head.
pub(crate) enum HeadSought<T> {
    /// Another node has it; the result of reading it.
    Found(T),
    /// No node has it; this node has the lease to fetch it.
    Granted(HeadLease),
    /// It may not be stored, according to a node that has just asked the origin.
    NotStored,
    /// No node has it, or the nodes that may have it do not answer.
    Nowhere,
}

/// The duty to fetch a head from its origin. A lease that is dropped ends in failure.
pub(crate) struct HeadLease {
    cluster: Arc<Cluster>,
    lease: LeaseId,
    is_held: bool,
}

impl HeadLease {
    /// Reports that the origin has not answered yet.
    pub(crate) fn renew(&self) {
        self.cluster.tell_renewed(self.lease);
    }

    /// A closure that renews the lease and does not borrow it.
    pub(crate) fn renewer(&self) -> impl Fn() + use<> {
        let (cluster, lease) = (Arc::clone(&self.cluster), self.lease);
        move || cluster.tell_renewed(lease)
    }

    /// Ends the lease; `is_held`: the head is stored here and available to other nodes.
    pub(crate) fn end(mut self, is_held: bool) {
        self.is_held = is_held;
    }
}

impl Drop for HeadLease {
    fn drop(&mut self) {
        self.cluster.tell_ended(self.lease, self.is_held);
    }
}

/// The result of asking nodes for a head.
enum Tried<T> {
    Found(T),
    /// The nodes do not have it.
    NotThere,
    /// Their head is of no use: it has become stale.
    Useless,
    /// Unreachable, silent or unintelligible.
    Lost,
    /// It may not be stored.
    NotStored,
    /// This node must find out itself whether the head may be cached, or whether the origin
    /// answers.
    Alone,
}

impl PeerClient {
    /// Seeks a head with a bounded number of questions. A head that `read` rejects counts as absent, so
    /// that eventually one node asks the origin. `read` also receives the milliseconds from the
    /// question to the answer.
    pub(crate) async fn seek_head<T>(
        &self,
        name: SegmentName,
        read: impl Fn(&PeerHead, u64) -> Option<T>,
    ) -> HeadSought<T> {
        for _ in 0..HEAD_ASKS_MAX {
            let tried = match self.ask_for_head(name).await {
                FetchEvent::Answer(ResolvedAnswer::Grant { lease }) => {
                    let cluster = Arc::clone(&self.cluster);
                    return HeadSought::Granted(HeadLease { cluster, lease, is_held: false });
                }
                FetchEvent::Answer(ResolvedAnswer::Have { holders }) => {
                    self.try_holders(holders, name, &read).await
                }
                FetchEvent::Answer(ResolvedAnswer::Busy { leader }) => {
                    self.try_leader(leader, name, &read).await
                }
                _ => {
                    self.counters.inc(Counter::ClusterSilent);
                    return HeadSought::Nowhere;
                }
            };
            match tried {
                Tried::Found(found) => return HeadSought::Found(found),
                Tried::NotStored => return HeadSought::NotStored,
                Tried::Alone | Tried::Lost => return HeadSought::Nowhere,
                // The coordinator has been corrected; ask it again.
                Tried::NotThere | Tried::Useless => {}
            }
        }
        HeadSought::Nowhere
    }

    /// Tries the holders one after the other. Unreachable ones are not reported: other nodes may reach
    /// them.
    async fn try_holders<T>(
        &self,
        holders: Vec<PeerNode>,
        name: SegmentName,
        read: impl Fn(&PeerHead, u64) -> Option<T>,
    ) -> Tried<T> {
        let mut tried = Tried::Lost;
        for holder in holders {
            match self.try_peer(holder, name, &read).await {
                Tried::NotThere | Tried::Useless => {
                    self.tell_head_not_there(name, holder);
                    tried = Tried::NotThere;
                }
                Tried::Lost => {}
                found_or_alone => return found_or_alone,
            }
        }
        tried
    }

    /// Asks the leader. The first node that reports the leader as gone gets its lease. A leader whose
    /// response is of no use may already have a lease for the next one.
    async fn try_leader<T>(
        &self,
        leader: PeerNode,
        name: SegmentName,
        read: impl Fn(&PeerHead, u64) -> Option<T>,
    ) -> Tried<T> {
        match self.try_peer(leader, name, read).await {
            Tried::NotThere | Tried::Lost => {
                self.tell_head_not_there(name, leader);
                Tried::NotThere
            }
            found_or_alone => found_or_alone,
        }
    }

    async fn try_peer<T>(
        &self,
        peer: PeerNode,
        name: SegmentName,
        read: impl Fn(&PeerHead, u64) -> Option<T>,
    ) -> Tried<T> {
        let error = match self.head_of(peer, name).await {
            Ok((peer_head, transit_ms)) => {
                return read(&peer_head, transit_ms).map_or(Tried::Useless, Tried::Found);
            }
            Err(error) => error,
        };
        tracing::debug!(%error, "a head was not fetched from another node");
        match end_of(&error) {
            FetchOutcome::Refused(PeerRefusal::NotThere) => Tried::NotThere,
            FetchOutcome::Refused(PeerRefusal::NotStored) => Tried::NotStored,
            FetchOutcome::Refused(PeerRefusal::OriginFailed | PeerRefusal::Mismatch)
            | FetchOutcome::Crowded => Tried::Alone,
            _ => {
                self.counters.inc(Counter::ClusterLost);
                Tried::Lost
            }
        }
    }

    fn tell_head_not_there(&self, name: SegmentName, peer: PeerNode) {
        self.counters.inc(Counter::ClusterDirectoryError);
        self.cluster.tell_not_there(name, peer);
    }

    /// Repeats the question while a coordinator that has just started asks to retry later.
    async fn ask_for_head(&self, name: SegmentName) -> FetchEvent<PeerNode> {
        for _ in 0..LATERS_MAX {
            match self.cluster.ask(name, 0).await {
                FetchEvent::Answer(ResolvedAnswer::Later) => {
                    tokio::time::sleep(Duration::from_millis(LATER_MS)).await;
                }
                event => return event,
            }
        }
        self.cluster.ask(name, 0).await
    }

    /// Waits for a node that waits for an origin. Also returns the milliseconds between the question
    /// that succeeded and its answer.
    async fn head_of(
        &self,
        peer: PeerNode,
        name: SegmentName,
    ) -> Result<(PeerHead, u64), PeerError> {
        let mut waits = 0;
        loop {
            let asked_ms = monotonic_ms();
            let asked = ask_head(&self.pool, peer, PeerRequest::Head { name, place: None }).await;
            match asked.as_ref().map_err(end_of) {
                // The other node has already waited before it refused.
                Err(FetchOutcome::Refused(PeerRefusal::Overloaded)) if waits < HEAD_WAITS_MAX => {}
                Err(FetchOutcome::Crowded) if waits < HEAD_WAITS_MAX => {
                    tokio::time::sleep(Duration::from_millis(LATER_MS)).await;
                }
                _ => return asked.map(|head| (head, monotonic_ms().saturating_sub(asked_ms))),
            }
            waits += 1;
        }
    }
}

/// The answer of `peer` to a request for the head of an object or file.
pub(super) async fn ask_head(
    pool: &PeerPool,
    peer: PeerNode,
    request: PeerRequest,
) -> Result<PeerHead, PeerError> {
    match pool.ask(peer.address, &request).await? {
        PeerReply::Head { fresh_ms, head } => {
            Ok(PeerHead { fresh_ms, softly_purged: PurgeStamp::NONE, head })
        }
        PeerReply::HeadAfter { fresh_ms, softly_purged, head } => {
            Ok(PeerHead { fresh_ms, softly_purged, head })
        }
        _ => Err(PeerError::Unexpected),
    }
}
