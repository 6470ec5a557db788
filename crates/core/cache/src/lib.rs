//! S3-FIFO in bytes: admission and eviction.
//!
//! [`S3Fifo`] is a map that keeps the bytes of its values within a capacity. It maintains only the
//! order of eviction: no locks, no clock. A hit does not change it (the value counts its own hits,
//! see [`CacheEntry`]), so readers can share it behind any kind of lock.
//!
//! The algorithm is that of Yang et al., "FIFO queues are all you need for
//! cache eviction", SOSP 2023:
//!
//! ```text
//!   new ----> small (10 %) --2 hits--> main (90 %) <--+ hit: once more round
//!                |                       |    |-------+
//!                v not hit               v not hit
//!              ghost --asked for again-> main
//! ```
//!
//! Most objects are requested once. They pass through the small queue and are
//! evicted, so a scan over the whole site cannot flush the main queue.
//!
//! Three things differ from the paper. Values that can be fetched from another node's memory are
//! kept in a separate queue, `redundant`: they are evicted first, unless they are hit repeatedly
//! and are few. Queues are bounded in bytes, not objects. And an object larger than the small queue
//! is admitted if it fits into the cache: the authors' simulator refuses it, since whole files of
//! that size would flush the queue, but here objects are segments of at most 4 MiB, and a cache of
//! 32 MiB must still hold one.

#![forbid(unsafe_code)]

mod entry;
mod ghost;
mod limits;
mod queue;
mod s3fifo;

pub use entry::{CacheEntry, TooLarge};
pub use limits::{FREQUENCY_MAX, PROMOTION_HITS};
pub use s3fifo::S3Fifo;

#[cfg(test)]
mod tests;
