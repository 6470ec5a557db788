//! Variants of objects that nodes compress: each is made once in the cluster if nodes share the object.
//!
//! ```text
//!  a request accepts a coding -> CompressedHeads::find -- made ---------> a segment, as any other
//!                                   | nothing           ^ outcome
//!                                   v                   |
//!                                one makes it, others wait
//!                                   | lease of the cluster, or another node's head
//!                                   v
//!                                Compressor: a thread, an Encoder --> segment
//! ```
//!
//! A variant has its own head in the cluster, under a name made of the object's version, the coding and
//! the level. The head contains the number of bytes and their digest, which is part of the name of the
//! bytes: two nodes that compress the same object independently never mix their bytes.
//!
//! Invariants: an object whose transfer broke off has no variant; a variant is one segment; no worker
//! compresses.

mod compressor;
mod heads;
mod segment;

pub(crate) use compressor::{Busy, Compressor};
pub(crate) use heads::{
    CompressedHeads, CompressionFlight, CompressionOutcome, FoundVariant, read,
};
pub(crate) use segment::CompressedSegment;
