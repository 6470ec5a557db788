//! The memory of a node: segments of objects, their store, and their eviction.
//!
//! ```text
//!  SegmentStore::acquire(name) --> Ready: a Segment     --> Pin: held by a reply
//!                  |          '--> Growing: one that is being filled
//!                  '--> Fill: a Filler publishes chunks, or fails with a FetchError
//!
//!  S3-FIFO in bytes (skep-cache) selects what to evict; sole replicas wait in Leaving to
//!  be offered to other nodes. Larger segments are in memory files (Arena).
//! ```
//!
//! Invariants: a segment's bytes are of one version, and each is set once; at most one fill per
//! segment at a time; memory is bounded by the store's capacity, plus what replies and fills hold.
//! This crate reads no files and contacts no origins: roles fill segments.

#![forbid(unsafe_code)]

mod account;
mod arena;
mod backend_rate;
mod buffer;
mod fetch_error;
mod fills;
mod leaving;
pub mod limits;
mod pins;
mod segment;
mod store;
#[cfg(test)]
mod tests;

pub use account::{Charge, HeadAccount, allocated};
pub use arena::Ledger;
pub use backend_rate::{BackendRate, BackendRead};
pub use buffer::Buffer;
pub use fetch_error::{DiskError, FetchError};
pub use fills::{Filling, Fills};
pub use leaving::Offered;
pub use pins::{Pin, Pins};
pub use segment::{PeerFillSource, Placement, Segment};
pub use store::{Acquired, Filler, SegmentStore, StoreStats, Wanted};
