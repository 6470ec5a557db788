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
//! - `pick` allocates only when `ClusterView::version` changed, and a bounded number of times for what it remembers.
//!
//! **Slow start.** A node that just came back gets a growing share
//! (`NodeView::slow_start_permille`). Policies with weights scale the
//! weight by it. The others reduce the node's requests: random and round-robin policies skip
//! it in proportion, policies that compare loads limit it to that share of
//! the others' load. Shares are relative to the highest share, so a cluster
//! in which all nodes just started is not slowed at all.

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

/// Chooses a node for each request.
///
/// `&mut self`: an instance belongs to one thread. Instances on several cores
/// or machines get different seeds; where they must agree (Maglev), the seed
/// plays no part.
pub trait Policy: Send {
    /// The name users write in the config.
    fn name(&self) -> &'static str;

    /// Chooses a node for `request` among those of `view` that are eligible
    /// and not in `exclude` (nodes that were already tried).
    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision;

    /// A request was sent to `node`. Called once for each attempt.
    fn started(&mut self, _node: NodeId) {}

    /// An attempt at `node` has a response's head, has failed, or says nothing. Called once for each attempt.
    fn finished(&mut self, _now: Now, _node: NodeId, _end: AttemptEnd) {}

    /// The head of a response has said so much of the object with that [`url_hash`](RequestKey::url_hash). Called by those
    /// who see responses; policies for which [`PolicyInfo::learns_sizes`] holds choose by it.
    fn learned(&mut self, _url_hash: u64, _object: ServedObject) {}

    /// A node has said that it answered for the object with that [`url_hash`](RequestKey::url_hash), of so many bytes; `by`
    /// is the node, if the view has it. Called in place of [`Self::learned`] by those who see no responses, and not for
    /// every response.
    fn told(&mut self, _url_hash: u64, _bytes: u64, _by: Option<NodeId>) {}

    /// A request for the object with that hash was sent to a node whose response is not seen.
    fn sent_unseen(&mut self, _url_hash: u64) {}
}

/// How an attempt at a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// With the head of a response, after so many microseconds.
    Answered { latency_us: u64 },
    /// By a fault of the node.
    Failed,
    /// It says nothing of how fast the node is: the client has left, or what ended was a tunnel.
    Inconclusive,
}

/// What a response says of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedObject {
    /// The node that answered.
    pub node: NodeId,
    /// Bytes of the response's body.
    pub bytes: u64,
}

/// The decision of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send the request to this node.
    Node(NodeId),
    /// No node may take it: answer 503.
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
