//! Fetches between nodes, on the connections of workers.
//!
//! One exchange at a time on a connection: a request, a reply, and after `Coming` the chunks. A
//! connection is reused only after a complete exchange. Chunks are sent by reference to the cache's
//! memory, with the checksums computed when they were stored, and are verified by the receiver:
//! this detects changes by memory or devices in between.

mod error;
mod fetching;
mod pool;
mod service;

pub use error::PeerError;
pub use fetching::{FETCH_BUFFER_BYTES, Fetching};
pub use pool::PeerPool;
pub use service::{Chunk, ChunkSource, PeerAnswer, PeerHandler, PeerService, SourceFailed};
