//! S3-FIFO in bytes: what stays in memory and what leaves.
//!
//! [`S3Fifo`] is a map that keeps the bytes of its values within a capacity.
//! It owns the order of eviction and nothing else: no locks, no clock. A hit
//! does not change it (the value counts its own hits, see [`Entry`]), so
//! readers can share it behind whatever the owner chooses.

#![forbid(unsafe_code)]

mod limits;
mod s3fifo;

pub use limits::FREQUENCY_MAX;
pub use s3fifo::{Entry, S3Fifo, TooLarge};
