//! The streams of the cluster cache.
//!
//! - [`NodeLinks`] and [`LinkServer`]: the two ends of the links between nodes and
//!   coordinators; one thread each, in which a role's state machine runs.
//! - [`PeerPool`] and [`PeerService`]: the two ends of fetches between nodes, on
//!   the connections of a worker.
//!
//! Invariants: nothing is heard from who does not hold the cluster's key; bytes
//! handed out are those that were sent; nothing that comes makes it panic, wait
//! for ever, or grow beyond the bounds of [`limits`](crate::limits).

mod counts;
mod fetch;
mod greet;
mod link;

pub use crate::limits::{BACKOFF_MS, PEER_ADMISSION, PEER_REPLY_MS, PING_MS, SILENCE_MS};
pub use counts::{StreamCount, StreamCounts};
pub use fetch::{
    Chunk, ChunkSource, FETCH_BUFFER_BYTES, Fetching, PeerAnswer, PeerError, PeerHandler, PeerPool,
    PeerService, SourceFailed,
};
pub use link::{
    CommandSender, LinkEvent, LinkId, LinkMessage, LinkServer, LinkSettings, LinkTarget, Lost,
    NodeLinks, NotSent, Outbox,
};
