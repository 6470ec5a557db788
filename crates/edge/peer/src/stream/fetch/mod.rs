//! Fetches between nodes, on the connections of workers.
//!
//! One exchange at a time on a connection: a request, a reply, and after
//! `Coming` the chunks. Only a connection whose exchange is complete carries
//! another. Chunks leave by reference to where the cache keeps them, with the
//! checksums that were made when they were stored, and are checked where they
//! arrive: so what a memory or device has changed in between is found.

mod error;
mod fetching;
mod pool;
mod service;

pub use error::PeerError;
pub use fetching::{FETCH_BUFFER_BYTES, Fetching};
pub use pool::PeerPool;
pub use service::{Chunk, ChunkSource, PeerAnswer, PeerHandler, PeerService, SourceFailed};
