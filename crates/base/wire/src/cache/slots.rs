//! Slots: how many requests a node may have at a server of a pool, of those that the cluster may have.
//!
//! ```text
//!   node --- Slots: what it may use, what it wants ---> every coordinator
//!   node <-- Slots: what it may use from now on ------- the active one
//!   node --- ServerLoads: requests that it has there -> every coordinator
//!   node <-- ServerLoads: those of all others --------- the active one
//! ```

use serde::{Deserialize, Serialize};

/// A server of a pool, by the hash of its address, as text, and of how many pools before its own have a
/// server there: the same on all nodes, however their configs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerKey(pub u64);

/// What a node has of the slots of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotUse {
    pub server: ServerKey,
    /// All slots of the server, by the node's config.
    pub slots_max: u32,
    /// Slots that it may use, or still uses.
    pub held: u32,
    /// Slots that it has use for.
    pub wanted: u32,
}

/// The slots of a server that a node may use from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotGrant {
    pub server: ServerKey,
    pub slots: u32,
}

/// Requests and upgraded connections at a server, of a node or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoad {
    pub server: ServerKey,
    pub requests: u32,
}

/// A node's report on the slots of all servers that it counts in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotReport {
    /// Number of the last grants that it has received on this link; 0: none yet.
    pub acknowledged: u64,
    /// Whether it follows this coordinator's grants.
    pub is_followed: bool,
    /// At most [`SLOT_SERVERS_MAX`](crate::limits::SLOT_SERVERS_MAX), by ascending key.
    pub servers: Vec<SlotUse>,
}
