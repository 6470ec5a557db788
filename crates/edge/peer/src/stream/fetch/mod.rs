//! Fetches between nodes, on the connections of workers.
//!
//! A connection carries one exchange at a time: a request, a reply, and after `Coming` the chunks. It is
//! reused only after a complete exchange. Chunks are sent by reference to the cache's memory, with the
//! checksums computed when they were stored, and are verified by the receiver: this detects corruption by
//! memory or devices on the way.

mod error;
mod fetching;
mod pool;
mod service;

pub use error::PeerError;
pub use fetching::{FETCH_BUFFER_BYTES, Fetching};
pub use pool::PeerPool;
pub use service::{Chunk, ChunkSource, PeerAnswer, PeerHandler, PeerService, SourceFailed};
