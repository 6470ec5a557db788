//! The streams of the cluster cache.
//!
//! - [`NodeLinks`] and [`LinkServer`]: the two ends of the links between nodes and
//!   coordinators; one thread each, in which a role's state machine runs.
//! - [`PeerPool`] and [`PeerService`]: the two ends of fetches between nodes, on
//!   the connections of a worker.
//!
//! Invariants: messages are accepted only from holders of the cluster's key; bytes are returned exactly as
//! they were sent; no input causes a panic, an endless wait, or growth beyond the bounds of
//! [`limits`](crate::limits).

mod counts;
mod fetch;
mod greet;
mod handshake_permits;
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
