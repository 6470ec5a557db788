//! `equiload` and `adaptload`: each node serves the objects of an interval of sizes, so that short
//! requests do not wait behind long ones, and all nodes send the same number of bytes.
//!
//! EquiLoad: Ciardo, Riska, Smirni, "EquiLoad: a load balancing policy for clustered web servers", Performance Evaluation
//! 46, 2001. AdaptLoad: Riska, Sun, Smirni, Ciardo, "AdaptLoad: effective balancing in clustered web servers under
//! transient load conditions", ICDCS 2002.
//!
//! ```text
//!   bytes requested, by size:  |......|.........|...|.........|
//!   boundaries:                0     1/3       2/3            1     for three nodes
//! ```
//!
//! Sizes are those in responses or in nodes' reports; an object of unknown size goes to the idlest
//! node. The first paper uses a trace of the past: here the first requests are the trace. In the
//! second paper a size on a boundary belongs to both nodes, in proportion (*fuzzy boundary*), and
//! boundaries follow the requests.

use skep_units::{NodeId, Rng};

use crate::limits::{
    ADAPTLOAD_DISCOUNT, ADAPTLOAD_WINDOW_REQUESTS, EQUILOAD_REQUESTS, OBJECT_BYTES_MAX,
    SIZES_FIRST_REQUESTS,
};
use crate::size_histogram::{ByteDistribution, SizeHistogram};
use crate::url_map::UrlMap;
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey, ServedObject};

pub(crate) struct SizeIntervals {
    name: &'static str,
    boundaries: Boundaries,
    rng: Rng,
    /// Sizes of objects, in bytes.
    sizes: UrlMap<u64>,
    histogram: SizeHistogram,
    /// The number of responses with a size.
    sized_responses: u64,
    distribution: ByteDistribution,
    has_boundaries: bool,
}

/// How boundaries are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boundaries {
    /// By the first requests, permanently.
    Fixed,
    /// By all requests so far, weighted towards the latest, and fuzzy.
    Adaptive,
}

impl SizeIntervals {
    pub(crate) fn equiload(name: &'static str, rng: Rng) -> Self {
        Self::new(name, Boundaries::Fixed, rng)
    }

    pub(crate) fn adaptload(name: &'static str, rng: Rng) -> Self {
        Self::new(name, Boundaries::Adaptive, rng)
    }

    fn new(name: &'static str, boundaries: Boundaries, rng: Rng) -> Self {
        let (sizes, histogram) = (UrlMap::new(), SizeHistogram::new());
        let (distribution, has_boundaries) = (ByteDistribution::new(), false);
        let sized_responses = 0;
        Self {
            name,
            boundaries,
            rng,
            sizes,
            histogram,
            sized_responses,
            distribution,
            has_boundaries,
        }
    }

    /// Counts a response, and updates the boundaries when due.
    fn count(&mut self, size: u64) {
        if self.boundaries == Boundaries::Fixed && self.sized_responses == EQUILOAD_REQUESTS {
            return;
        }
        self.histogram.add(size);
        self.sized_responses += 1;
        // Few requests are better than none: at first, boundaries are updated at every doubling.
        let is_first =
            self.sized_responses >= SIZES_FIRST_REQUESTS && self.sized_responses.is_power_of_two();
        let is_due = self.sized_responses.is_multiple_of(ADAPTLOAD_WINDOW_REQUESTS);
        let is_adaptive = self.boundaries == Boundaries::Adaptive;
        if is_first || is_adaptive && is_due {
            self.histogram.take(&mut self.distribution);
            self.has_boundaries = true;
        }
        if is_adaptive && is_due {
            self.histogram.discount(ADAPTLOAD_DISCOUNT);
        }
    }

    /// The node whose interval contains this size; `None` if there are no boundaries yet.
    fn owner<'a>(&mut self, size: u64, view: &'a ClusterView) -> Option<&'a NodeView> {
        if !self.has_boundaries {
            return None;
        }
        let (from, to) = self.distribution.of(size);
        let place = match self.boundaries {
            Boundaries::Fixed => from,
            Boundaries::Adaptive => from + (to - from) * self.rng.unit(),
        };
        let shares = view.nodes.iter().map(|node| node.weight_at_least_one() as f64);
        let total: f64 = shares.clone().sum();
        let mut sum = 0.0;
        let ends = shares.map(|share| {
            sum += share;
            sum / total
        });
        let found = ends.zip(&view.nodes).find(|(end, _)| place < *end);
        found.map(|(_, node)| node).or(view.nodes.last())
    }
}

impl Policy for SizeIntervals {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision {
        let hash = request.url_hash();
        let Some(idlest) = view.idlest(hash, exclude) else { return Decision::None };
        let Some(&size) = self.sizes.get(hash) else { return Decision::Node(idlest) };
        let warmest = view.warmest_permille(exclude).unwrap_or(1);
        let owner = self.owner(size, view).filter(|node| node.is_candidate(exclude));
        // A warming node receives its interval with the probability of its share.
        let owner = owner.filter(|node| {
            let share = node.share_permille();
            share == warmest || self.rng.below(warmest) < share
        });
        Decision::Node(owner.map_or(idlest, |node| node.id))
    }

    fn learned(&mut self, url_hash: u64, object: ServedObject) {
        let size = object.bytes.min(OBJECT_BYTES_MAX);
        *self.sizes.get_or_insert(url_hash) = size;
        self.count(size);
    }

    /// The request for this response was counted as one of unknown size; later requests are counted
    /// when they are sent.
    fn told(&mut self, url_hash: u64, bytes: u64, _: Option<NodeId>) {
        let (is_new, size) = (self.sizes.get(url_hash).is_none(), bytes.min(OBJECT_BYTES_MAX));
        *self.sizes.get_or_insert(url_hash) = size;
        if is_new {
            self.count(size);
        }
    }

    fn sent_unseen(&mut self, url_hash: u64) {
        if let Some(&size) = self.sizes.get(url_hash) {
            self.count(size);
        }
    }
}
