//! The fetches in progress, by node and segment.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use slab::Slab;
use smallvec::SmallVec;

use crate::byte_sources::BytesBySource;
use crate::memory::SegmentNumber;

/// The fetches of all nodes.
pub(crate) struct Fetches {
    pub(crate) all: Slab<Fetch>,
    pub(crate) of_nodes: Vec<HashMap<SegmentNumber, u32, FixedState>>,
    /// The fetches from disk or origin.
    pub(crate) leaders: HashMap<SegmentNumber, u32, FixedState>,
    /// Bytes that each node has to send to other nodes.
    pub(crate) peer_bytes: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) wanted: WantedSegment,
    pub(crate) from: FetchFrom,
    pub(crate) has_arrived: bool,
    /// There is a chunk of it, so that it can be sent on.
    pub(crate) is_readable: bool,
    /// Its node was lost, and an event of it is on its way still.
    pub(crate) is_cut: bool,
    pub(crate) began_ns: u64,
    /// Requests that wait, each with the number of the segment in its object.
    pub(crate) waiters: SmallVec<[(u32, u32); 4]>,
    /// Fetches of other nodes that start when this one has ended.
    pub(crate) followers: SmallVec<[u32; 2]>,
}

/// A segment that a node needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedSegment {
    pub(crate) node: u32,
    pub(crate) segment: SegmentNumber,
    pub(crate) bytes: u64,
    /// Whether the same request has just received the preceding segment from disk or origin.
    pub(crate) is_continued: bool,
    /// Processor time in nanoseconds, if the source is a computation at the node.
    pub(crate) compute_ns: u64,
}

/// The source of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFrom {
    Source,
    Peer(u32),
    /// The node of this fetch, once it has the segment.
    Leader(u32),
}

/// A fetch as a request finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundFetch {
    pub(crate) has_arrived: bool,
    pub(crate) is_joined: bool,
    pub(crate) is_from_peer: bool,
}

impl FoundFetch {
    /// Whether the request has started the fetch, from disk or origin.
    pub(crate) fn is_from_source(self) -> bool {
        !self.is_joined && !self.is_from_peer
    }

    /// The count to which the request's bytes belong.
    pub(crate) fn counts_in(self, bytes: &mut BytesBySource) -> &mut u64 {
        match (self.is_joined, self.is_from_peer) {
            (true, _) => &mut bytes.joined,
            (false, true) => &mut bytes.peer,
            (false, false) => &mut bytes.fetched,
        }
    }
}

impl Fetches {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            all: Slab::new(),
            of_nodes: (0..nodes).map(|_| HashMap::default()).collect(),
            leaders: HashMap::default(),
            peer_bytes: vec![0; nodes],
        }
    }
}
