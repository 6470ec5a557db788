//! The memories of all nodes and the holders of segments: the cache that runs live, keyed by segments, which
//! are numbered across all objects.
//!
//! As in the cluster cache, all copies of a segment but the oldest are redundant, and evicted first.
//! **Invariant:** a segment's holders are exactly the nodes whose memory has it.

use std::cell::Cell;

use foldhash::fast::FixedState;
use skep_cache::{CacheEntry, S3Fifo};
use smallvec::SmallVec;

use crate::cluster::MemoryCosts;
use crate::limits::CHANCES;
use crate::pass_on_queue::EvictedSegment;
use crate::traffic::MemoryChange;

/// The number of a segment among those of all objects.
pub(crate) type SegmentNumber = u32;

/// Nodes that hold a segment, the oldest copy first.
type Holders = SmallVec<[u32; 4]>;

pub(crate) struct Memories {
    of_nodes: Vec<S3Fifo<SegmentNumber, CachedSegment, FixedState>>,
    /// By segment; kept only with a cluster cache.
    holders: Option<Vec<Holders>>,
    evicted: Vec<(SegmentNumber, CachedSegment)>,
    /// Nodes that were lost.
    lost: Vec<bool>,
    costs: MemoryCosts,
    /// By node; kept only where heads cost something.
    heads: Vec<Heads>,
    /// Whether what no other node has is passed on.
    passes_on: bool,
    /// Evicted, with the node that it leaves.
    leaving: Vec<(u32, EvictedSegment)>,
}

/// The heads that a node has, of objects that it was asked for.
#[derive(Debug)]
struct Heads {
    /// Of the whole memory.
    capacity_bytes: u64,
    known: Vec<bool>,
    bytes: u64,
}

/// A segment in memory.
#[derive(Debug)]
struct CachedSegment {
    bytes: u32,
    /// With what it costs.
    charged_bytes: u32,
    frequency: Cell<u8>,
    /// How often it may be passed on, until it is asked for.
    chances: Cell<u8>,
}

impl Memories {
    /// Creates empty memories with these capacities.
    pub(crate) fn new(
        capacities: impl Iterator<Item = u64>,
        segments: u32,
        has_cluster_cache: bool,
    ) -> Self {
        let new = |bytes| S3Fifo::with_hasher(bytes, FixedState::default());
        let of_nodes: Vec<_> = capacities.map(new).collect();
        Self {
            lost: vec![false; of_nodes.len()],
            of_nodes,
            holders: has_cluster_cache.then(|| vec![Holders::new(); segments as usize]),
            evicted: Vec::new(),
            costs: MemoryCosts::default(),
            heads: Vec::new(),
            passes_on: false,
            leaving: Vec::new(),
        }
    }

    /// The same, where nodes pass on what no other node has.
    pub(crate) fn passing_on(self, passes_on: bool) -> Self {
        Self { passes_on, ..self }
    }

    /// The same, with what memory takes beside the bytes of segments, of so many objects.
    pub(crate) fn with_costs(mut self, costs: MemoryCosts, objects: usize) -> Self {
        let heads = |memory: &S3Fifo<_, CachedSegment, _>| Heads {
            capacity_bytes: memory.capacity_bytes(),
            known: vec![false; objects],
            bytes: 0,
        };
        if costs.head_bytes > 0 {
            self.heads = self.of_nodes.iter().map(heads).collect();
        }
        Self { costs, ..self }
    }

    /// A node is asked for an object, whose head it keeps from now on.
    pub(crate) fn asked_for(&mut self, node: u32, object: u32) {
        let MemoryCosts { head_bytes, heads_part, .. } = self.costs;
        let Some(heads) = self.heads.get_mut(node as usize) else { return };
        let is_known = std::mem::replace(&mut heads.known[object as usize], true);
        if is_known || heads.bytes + head_bytes > heads.capacity_bytes / heads_part.max(1) {
            return;
        }
        heads.bytes += head_bytes;
        let capacity_bytes = heads.capacity_bytes - heads.bytes;
        self.of_nodes[node as usize].set_capacity(capacity_bytes, &mut self.evicted);
        self.forget_evicted(node);
    }

    /// Whether a node has a segment in memory; counts the hit.
    pub(crate) fn hit(&self, node: u32, segment: SegmentNumber) -> bool {
        let found = self.of_nodes[node as usize].get(&segment);
        let hit = |cached: &&CachedSegment| {
            cached.touch();
            cached.chances.set(CHANCES);
        };
        found.inspect(hit).is_some()
    }

    /// The nodes that hold a segment; empty without a cluster cache.
    pub(crate) fn holders(&self, segment: SegmentNumber) -> &[u32] {
        self.holders.as_ref().map_or(&[], |holders| &holders[segment as usize])
    }

    /// Stores a segment in a node's memory, if that is large enough.
    pub(crate) fn insert(&mut self, node: u32, segment: SegmentNumber, bytes: u64) -> MemoryChange {
        assert!(!self.is_lost(node), "nothing comes to a lost node");
        let cached = CachedSegment {
            bytes: bytes as u32,
            charged_bytes: self.charged_bytes(bytes) as u32,
            frequency: Cell::new(0),
            chances: Cell::new(CHANCES),
        };
        let memory = &mut self.of_nodes[node as usize];
        let inserted = memory.insert(segment, cached, &mut self.evicted).is_ok();
        let removed = self.evicted.len() as u64;
        self.forget_evicted(node);
        if let (Some(holders), true) = (&mut self.holders, inserted) {
            let holders = &mut holders[segment as usize];
            holders.push(node);
            self.of_nodes[node as usize].set_redundant(&segment, holders.len() > 1);
        }
        let memory = &self.of_nodes[node as usize];
        let is_nearly_full = memory.bytes() >= memory.capacity_bytes() / 4 * 3;
        MemoryChange { added: inserted.into(), removed, is_nearly_full }
    }

    /// What a segment of so many bytes takes.
    pub(crate) fn charged_bytes(&self, bytes: u64) -> u64 {
        let MemoryCosts { segment_bytes, allocator_part, .. } = self.costs;
        bytes + bytes.checked_div(allocator_part).unwrap_or(0) + segment_bytes
    }

    /// What left its last node, and is to be passed on.
    pub(crate) fn next_evicted(&mut self) -> Option<(u32, EvictedSegment)> {
        self.leaving.pop()
    }

    /// How often a segment may be passed on from now on.
    pub(crate) fn set_chances(&mut self, node: u32, segment: SegmentNumber, chances: u8) {
        let cached = self.of_nodes[node as usize].get(&segment);
        cached.into_iter().for_each(|cached| cached.chances.set(chances));
    }

    /// A node is lost, and what it had. Returns how many segments that were.
    pub(crate) fn lose(&mut self, node: u32) -> u64 {
        let segments = self.of_nodes[node as usize].iter().count() as u64;
        self.clear(node);
        self.lost[node as usize] = true;
        segments
    }

    pub(crate) fn is_lost(&self, node: u32) -> bool {
        self.lost[node as usize]
    }

    /// Bytes of segments that no other node has.
    pub(crate) fn sole_bytes(&self, node: u32) -> u64 {
        self.sole(node).iter().map(|(_, bytes)| bytes).sum()
    }

    /// Empties a node's memory.
    pub(crate) fn clear(&mut self, node: u32) {
        self.of_nodes[node as usize].retain(|_, _| false, &mut self.evicted);
        self.forget_evicted(node);
    }

    /// The segments that no other node has, with their bytes, the most frequently requested first.
    pub(crate) fn sole(&self, node: u32) -> Vec<(SegmentNumber, u64)> {
        let Some(holders) = &self.holders else { return Vec::new() };
        let all = self.of_nodes[node as usize].iter();
        let mut sole: Vec<_> =
            all.filter(|(segment, _)| holders[**segment as usize].len() == 1).collect();
        sole.sort_by_key(|(_, cached)| std::cmp::Reverse(cached.frequency()));
        sole.into_iter().map(|(segment, cached)| (*segment, cached.bytes.into())).collect()
    }

    /// Of these nodes, the one with most room for segments handed over, if it has room for `bytes`.
    pub(crate) fn roomiest(&self, nodes: impl Iterator<Item = u32>, bytes: u64) -> Option<u32> {
        let room = |node: u32| {
            let memory = &self.of_nodes[node as usize];
            memory.capacity_bytes() - memory.bytes() + memory.dispensable_bytes()
        };
        nodes.filter(|node| room(*node) >= bytes).max_by_key(|node| room(*node))
    }

    fn forget_evicted(&mut self, node: u32) {
        let Some(holders) = &mut self.holders else { return self.evicted.clear() };
        for (left, cached) in self.evicted.drain(..) {
            let holders = &mut holders[left as usize];
            let was_oldest = holders.first() == Some(&node);
            holders.retain(|holder| *holder != node);
            if let (true, Some(&oldest)) = (was_oldest, holders.first()) {
                self.of_nodes[oldest as usize].set_redundant(&left, false);
            }
            let chances = cached.chances.get().checked_sub(1);
            if let (true, true, Some(chances)) = (self.passes_on, holders.is_empty(), chances) {
                let bytes = cached.bytes.into();
                let leaving = EvictedSegment { segment: left, bytes, chances };
                self.leaving.push((node, leaving));
            }
        }
    }
}

impl CacheEntry for CachedSegment {
    fn bytes(&self) -> u64 {
        self.charged_bytes.into()
    }

    fn frequency(&self) -> u8 {
        self.frequency.get()
    }

    fn set_frequency(&self, frequency: u8) {
        self.frequency.set(frequency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_the_nodes_that_have_it() {
        let mut memories = Memories::new([300, 300, 50].into_iter(), 100, true);
        let mut rng = skep_units::Rng::new(1);
        for _ in 0..10_000 {
            let (node, segment) = (rng.below(3) as u32, rng.below(10) as u32);
            if !memories.hit(node, segment) {
                memories.insert(node, segment, 100);
            }
            for segment in 0..10 {
                for (node, memory) in (0..).zip(&memories.of_nodes) {
                    let is_holder = memories.holders(segment).contains(&node);
                    assert_eq!(is_holder, memory.get(&segment).is_some());
                }
            }
        }
        assert!(memories.holders(0).iter().all(|node| *node != 2), "too small for any");
    }
}
