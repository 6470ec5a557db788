//! A node: its memory, links and growing segments.

use std::collections::BTreeMap;

use skep_directory::{Changes, Fetcher, FillSource, Inventory, PurgeTables};
use skep_sim::StateSummary;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{Held, LeaseId, SegmentName, ToCoordinator};

use crate::clients::{Head, Seeking};
use crate::memory::Memory;
use crate::origin::{CHUNK_BYTES, Chunk};

/// A node as another node identifies it: equal if it is the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) node: usize,
    /// The link on which it was named, and its member number there.
    pub(crate) via: Option<(u64, MemberId)>,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

/// A segment that is not complete yet.
pub(crate) struct Growing {
    pub(crate) fetcher: Fetcher<Peer>,
    pub(crate) bytes: u32,
    pub(crate) chunks: Vec<Chunk>,
    /// Number of the action in progress; results of earlier ones are ignored.
    pub(crate) attempt: u64,
    /// Whether it reads the origin.
    pub(crate) is_filling: bool,
    pub(crate) fill_source: FillSource<Peer>,
    /// The lease under which it reads the origin.
    pub(crate) lease: Option<LeaseId>,
    /// The link on which the lease was granted.
    pub(crate) lease_conn: Option<u64>,
    pub(crate) clients: Vec<u64>,
    /// Streams that other nodes read from it.
    pub(crate) served: Vec<u64>,
}

impl Growing {
    pub(crate) fn new(fetcher: Fetcher<Peer>, bytes: u32) -> Self {
        let (chunks, clients, served) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            fetcher,
            bytes,
            chunks,
            attempt: 0,
            is_filling: false,
            fill_source: FillSource::Local,
            lease: None,
            lease_conn: None,
            clients,
            served,
        }
    }

    pub(crate) fn filled(&self) -> u32 {
        (self.chunks.len() as u32 * CHUNK_BYTES).min(self.bytes)
    }
}

/// A link to a coordinator, on the node's side.
pub(crate) struct Link {
    pub(crate) conn: u64,
    pub(crate) changes: Changes,
    pub(crate) inventory: Inventory,
    pub(crate) is_active: bool,
    pub(crate) epoch: u64,
    /// The nodes, by member number.
    pub(crate) members: BTreeMap<MemberId, usize>,
}

pub(crate) struct Node {
    pub(crate) is_alive: bool,
    pub(crate) life: u64,
    pub(crate) paused_until: u64,
    pub(crate) memory: Memory,
    /// Whether it is offering evicted segments, or was refused just now.
    pub(crate) is_offering: bool,
    /// The node with most room, according to the last answer.
    pub(crate) roomiest: Option<usize>,
    pub(crate) growing: BTreeMap<SegmentName, Growing>,
    /// The heads that it has, and those that it is asking for.
    pub(crate) heads: BTreeMap<usize, Head>,
    pub(crate) seeking: BTreeMap<usize, Seeking>,
    pub(crate) purges: PurgeTables,
    /// By coordinator.
    pub(crate) links: BTreeMap<usize, Link>,
    pub(crate) asks: BTreeMap<u64, SegmentName>,
    /// Nodes in the last list of members from an active coordinator.
    pub(crate) known: Vec<usize>,
    pub(crate) streams: usize,
}

impl Node {
    pub(crate) fn new(capacity_bytes: u64, life: u64) -> Self {
        Self {
            is_alive: true,
            life,
            paused_until: 0,
            memory: Memory::new(capacity_bytes),
            is_offering: false,
            roomiest: None,
            growing: BTreeMap::new(),
            heads: BTreeMap::new(),
            seeking: BTreeMap::new(),
            purges: PurgeTables::default(),
            links: BTreeMap::new(),
            asks: BTreeMap::new(),
            known: Vec::new(),
            streams: 0,
        }
    }

    /// Its state, as printed in the story of a seed.
    pub(crate) fn summary(&self) -> StateSummary {
        StateSummary::default()
            .with("lives", self.is_alive)
            .with("links", self.links.len())
            .with("segments", self.memory.names().len())
            .with("growing", self.growing.len())
            .with("offering", self.is_offering)
            .with("newest purge", self.purges.newest())
    }

    /// The link to the active coordinator.
    pub(crate) fn active(&self) -> Option<&Link> {
        self.links.values().filter(|link| link.is_active).max_by_key(|link| link.epoch)
    }

    pub(crate) fn link(&mut self, conn: u64) -> Option<&mut Link> {
        self.links.values_mut().find(|link| link.conn == conn)
    }

    /// The next messages about its holdings: a part of the inventory, of at most `names_max`
    /// segments, and changes; and whether there was such a part.
    pub(crate) fn holdings(&mut self, conn: u64, names_max: usize) -> (Vec<ToCoordinator>, bool) {
        let Self { links, memory, .. } = self;
        let Some(link) = links.values_mut().find(|link| link.conn == conn) else {
            return (Vec::new(), false);
        };
        let part = link.inventory.next_part(names_max, |names| memory.held(names));
        let is_part = part.is_some();
        (part.into_iter().chain(link.changes.drain()).collect(), is_part)
    }

    /// Whether it holds or is fetching a segment.
    pub(crate) fn knows(&self, name: &SegmentName) -> bool {
        self.growing.contains_key(name) || self.memory.has(name)
    }

    /// Records additions and evictions for all coordinators; returns the evicted segments.
    pub(crate) fn note_changes(&mut self) -> Vec<SegmentName> {
        let mut gone = Vec::new();
        for (name, bytes) in self.memory.changes() {
            for Link { changes, .. } in self.links.values_mut() {
                match bytes {
                    Some(bytes) => changes.added(Held { name, bytes }),
                    None => changes.removed(name),
                }
            }
            gone.extend(bytes.is_none().then_some(name));
        }
        gone
    }
}
