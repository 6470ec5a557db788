//! Dispatch policies: the choice of the node for the next request.
//!
//! One trait, [`Policy`], and one table of implementations ([`build`],
//! [`policies`]). A policy takes a [`RequestKey`] and a [`ClusterView`] and
//! returns a [`Decision`]; it does not depend on the caller. Dispatchers,
//! and nodes (before a handoff, and for pools), run the same code.
//!
//! Invariants, checked for every entry of the table by `tests/properties.rs`:
//! - a node that is not eligible, or is excluded, is never picked;
//! - `Decision::None` if and only if there is no other node;
//! - the same seed and the same calls give the same decisions;
//! - `pick` allocates only if `ClusterView::version` has changed, and a bounded number of times for
//!   its stored state.
//!
//! **Slow start.** A node that has just come back receives a growing share
//! (`NodeView::slow_start_permille`). Policies with weights scale the weight by it. The others
//! reduce the node's requests: random and round-robin policies skip it in proportion, policies that
//! compare loads limit it to that share of the others' load. Shares are relative to the highest
//! share, so a cluster in which all nodes have just started is not slowed down.

#![forbid(unsafe_code)]

mod holdings;
mod idlest_half;
mod lard;
mod latency;
mod least;
mod limits;
mod maglev;
mod peak_ewma;
mod permutation;
mod prequal;
mod random;
mod registry;
mod report;
mod rotation;
mod rows;
mod served;
mod size_histogram;
mod size_intervals;
mod transfer_time;
mod url_map;
mod view;

use skep_units::{NodeId, Now};

pub use limits::{
    MAGLEV_ENTRIES, NODES_MAX, REPLY_BYTES, REPORTS_MISSED_MAX, SLOW_START_PERMILLE_FULL,
};
pub use registry::{DirectLoad, DirectPolicy, PolicyInfo, UnknownPolicy, build, names, policies};
pub use report::{Work, is_stale};
pub use rows::rows;
pub use served::{ServedLog, ServedReader};
pub use view::{ClusterView, NodeView, RequestKey, url_hash};

/// Selects a node for each request.
///
/// `&mut self`: an instance belongs to one thread. Instances on several cores or machines have
/// different seeds; where they must agree (Maglev), the seed is not used.
pub trait Policy: Send {
    /// The name used in the config.
    fn name(&self) -> &'static str;

    /// Selects a node for `request` among those of `view` that are eligible and not in `exclude`
    /// (nodes that were already tried).
    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision;

    /// A request was sent to `node`. Called once for each attempt.
    fn started(&mut self, _node: NodeId) {}

    /// An attempt at `node` has received a response head, has failed, or is inconclusive. Called
    /// once for each attempt.
    fn finished(&mut self, _now: Now, _node: NodeId, _end: AttemptEnd) {}

    /// A response head states the size of the object with this [`url_hash`](RequestKey::url_hash).
    /// Called by processes that see responses; policies with [`PolicyInfo::learns_sizes`] use it.
    fn learned(&mut self, _url_hash: u64, _object: ServedObject) {}

    /// A node has reported that it served the object with this [`url_hash`](RequestKey::url_hash),
    /// of this many bytes; `by` is the node, if it is in the view. Called instead of
    /// [`Self::learned`] by processes that see no responses, and not for every response.
    fn told(&mut self, _url_hash: u64, _bytes: u64, _by: Option<NodeId>) {}

    /// A request for the object with this hash was sent to a node whose response is not seen.
    fn sent_unseen(&mut self, _url_hash: u64) {}
}

/// How an attempt at a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// A response head was received after this many microseconds.
    Answered { latency_us: u64 },
    /// The node failed.
    Failed,
    /// The latency is not meaningful: the client has left, or a tunnel has ended.
    Inconclusive,
}

/// The object of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedObject {
    /// The node that served it.
    pub node: NodeId,
    /// Length of the response body, in bytes.
    pub bytes: u64,
}

/// The decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send the request to this node.
    Node(NodeId),
    /// No node is available: respond with 503.
    None,
}

impl Decision {
    /// The chosen node, if there is one.
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Node(id) => Some(id),
            Self::None => None,
        }
    }
}

impl From<Option<NodeId>> for Decision {
    fn from(node: Option<NodeId>) -> Self {
        node.map_or(Self::None, Self::Node)
    }
}

#[cfg(test)]
mod tests;
