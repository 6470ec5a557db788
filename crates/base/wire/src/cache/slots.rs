//! Slots: how many of the cluster's concurrent requests to a server of a pool a node may use.
//!
//! ```text
//!   node --- Slots: what it may use and what it needs --> every coordinator
//!   node <-- Slots: what it may use from now on --------- the active one
//!   node --- ServerLoads: its own requests there -------> every coordinator
//!   node <-- ServerLoads: those of all other nodes ------ the active one
//! ```

use serde::{Deserialize, Serialize};

/// A server of a pool: a hash of its address as text and of the number of preceding pools with the
/// same server. It is the same on all nodes, whatever names their configs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerKey(pub u64);

/// A node's use of the slots of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotUse {
    pub server: ServerKey,
    /// All slots of the server, as set in the node's config.
    pub slots_max: u32,
    /// Slots that the node may use, or still uses.
    pub held: u32,
    /// Slots that the node needs.
    pub wanted: u32,
}

/// The slots of a server that a node may use from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotGrant {
    pub server: ServerKey,
    pub slots: u32,
}

/// Requests and upgraded connections at a server, of one node or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoad {
    pub server: ServerKey,
    pub requests: u32,
}

/// A node's report on the slots of all servers with cluster-wide counting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotReport {
    /// Number of the last grants received on this link; 0 if none.
    pub acknowledged: u64,
    /// Whether the node follows this coordinator's grants.
    pub is_followed: bool,
    /// At most [`SLOT_SERVERS_MAX`](crate::limits::SLOT_SERVERS_MAX), in ascending order of keys.
    pub servers: Vec<SlotUse>,
}
