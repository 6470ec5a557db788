//! The objects that nodes are assumed to have in memory, as far as a policy instance knows.
//!
//! Nodes do not report evictions. So a node is assumed to have an object that it has served until
//! it has fetched as many bytes of others as fit into its memory, has failed, or has left; objects
//! larger than its memory are not stored.

use skep_units::NodeId;

use crate::limits::{HOLDERS_MAX, OBJECT_BYTES_MAX, REPLY_BYTES};
use crate::url_map::UrlMap;
use crate::{ClusterView, NodeView, ServedObject};

pub(crate) struct Holdings {
    objects: UrlMap<KnownObject>,
    /// By index in the view.
    memories: Vec<NodeMemory>,
    version: Option<u64>,
}

/// Information about an object.
#[derive(Clone, Copy, Default)]
pub(crate) struct KnownObject {
    /// In bytes; `None` if it was never reported.
    pub(crate) size: Option<u64>,
    holders: [Option<Holder>; HOLDERS_MAX],
}

/// A node that was asked for the object.
#[derive(Clone, Copy)]
struct Holder {
    node: NodeId,
    /// [`NodeMemory::fetched_bytes`] at its last use there.
    used_at: u64,
    /// Whether it has served the object.
    has_answered: bool,
}

/// A node's memory.
#[derive(Clone, Copy)]
struct NodeMemory {
    node: NodeId,
    /// Bytes that it has fetched so far.
    fetched_bytes: u64,
    /// Earlier uses are lost, since the node has failed.
    lost_before: u64,
    /// In bytes; 0 if unknown.
    size: u64,
}

impl Holdings {
    pub(crate) fn new() -> Self {
        Self { objects: UrlMap::new(), memories: Vec::new(), version: None }
    }

    /// Updates the nodes to those of a view.
    pub(crate) fn refresh(&mut self, view: &ClusterView) {
        if self.version == Some(view.version) && self.memories.len() == view.nodes.len() {
            return;
        }
        self.version = Some(view.version);
        let known = std::mem::take(&mut self.memories);
        let memory = |node: &NodeView| {
            let before = known.iter().find(|memory| memory.node == node.id).copied();
            let before = before.unwrap_or_else(|| NodeMemory::new(node.id));
            NodeMemory { size: node.memory_bytes, ..before }
        };
        self.memories = view.nodes.iter().map(memory).collect();
    }

    /// The information about an object that was served before.
    pub(crate) fn object(&self, url_hash: u64) -> Option<KnownObject> {
        self.objects.get(url_hash).copied()
    }

    /// Whether the node at an index of the view has the object.
    pub(crate) fn has(&self, position: usize, object: &KnownObject) -> bool {
        self.memories[position].has(object)
    }

    /// Whether a node's memory is full.
    pub(crate) fn is_full(&self, position: usize) -> bool {
        let memory = &self.memories[position];
        memory.size > 0 && memory.fetched_bytes >= memory.size
    }

    /// A node was asked for a known object: it will have it soon.
    pub(crate) fn asked(&mut self, url_hash: u64, node: NodeId) {
        self.used(url_hash, node, false);
    }

    /// A node has served an object.
    pub(crate) fn answered(&mut self, url_hash: u64, object: ServedObject) {
        self.sized(url_hash, object.bytes);
        self.used(url_hash, object.node, true);
    }

    /// The size of an object was reported.
    pub(crate) fn sized(&mut self, url_hash: u64, bytes: u64) {
        self.objects.get_or_insert(url_hash).size = Some(bytes.min(OBJECT_BYTES_MAX));
    }

    /// A node has failed: it may have been restarted.
    pub(crate) fn failed(&mut self, node: NodeId) {
        if let Some(memory) = self.memories.iter_mut().find(|memory| memory.node == node) {
            memory.fetched_bytes = memory.fetched_bytes.saturating_add(1);
            memory.lost_before = memory.fetched_bytes;
        }
    }

    fn used(&mut self, url_hash: u64, node: NodeId, has_answered: bool) {
        let known = self.memories.iter().position(|memory| memory.node == node);
        let at = known.unwrap_or_else(|| {
            // Reported before the first view that contains the node, which states its memory size.
            self.memories.push(NodeMemory::new(node));
            self.memories.len() - 1
        });
        let memory = &mut self.memories[at];
        let object = self.objects.get_or_insert(url_hash);
        let had_answered = object.holder(node).is_some_and(|it| it.has_answered);
        let had_answered = had_answered && memory.has(object);
        // The first response means that it had to fetch the object.
        if has_answered && !had_answered && memory.keeps(object.bytes()) {
            memory.fetched_bytes = memory.fetched_bytes.saturating_add(object.bytes());
        }
        let has_answered = has_answered || had_answered;
        object.note(Holder { node, used_at: memory.fetched_bytes, has_answered }, &self.memories);
    }
}

impl KnownObject {
    /// Its size; that of an average reply if unknown.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.unwrap_or(REPLY_BYTES)
    }

    fn holder(&self, node: NodeId) -> Option<&Holder> {
        self.holders.iter().flatten().find(|holder| holder.node == node)
    }

    /// Records a use. If there are as many holders as allowed, it replaces one that has left, or
    /// else the one that has fetched most bytes since its last use.
    fn note(&mut self, holder: Holder, memories: &[NodeMemory]) {
        let age = |place: &Option<Holder>| {
            let of = |it: &Holder| memories.iter().find(|memory| memory.node == it.node);
            let known = place
                .as_ref()
                .and_then(|it| Some(of(it)?.fetched_bytes.saturating_sub(it.used_at)));
            known.unwrap_or(u64::MAX)
        };
        let is_own = |place: &Option<Holder>| place.is_some_and(|it| it.node == holder.node);
        let own = self.holders.iter().position(is_own);
        let ages = self.holders.iter().map(age).enumerate();
        let oldest = || ages.max_by_key(|(_, age)| *age).map_or(0, |(place, _)| place);
        self.holders[own.unwrap_or_else(oldest)] = Some(holder);
    }
}

impl NodeMemory {
    fn new(node: NodeId) -> Self {
        Self { node, fetched_bytes: 0, lost_before: 0, size: 0 }
    }

    fn has(&self, object: &KnownObject) -> bool {
        let is_there = |holder: &Holder| {
            let since = self.fetched_bytes.saturating_sub(holder.used_at);
            holder.used_at >= self.lost_before && (self.size == 0 || since < self.size)
        };
        object.holder(self.node).is_some_and(is_there) && self.keeps(object.bytes())
    }

    /// Whether it stores objects of this size; others are only sent.
    fn keeps(&self, bytes: u64) -> bool {
        self.size == 0 || bytes <= self.size
    }
}
