//! Variants of objects that nodes compress: each once in the cluster, as far as nodes share the object.
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
//! A variant has a head of its own in the cluster, under a name made of the object's version, the coding
//! and the level. It says how long the bytes are, and their digest, which their own name contains: two
//! nodes that compress by themselves never mix up their bytes.
//!
//! Invariants: an object that broke off has no variant; a variant is one segment; no worker compresses.

mod compressor;
mod heads;
mod segment;

pub(crate) use compressor::{Busy, Compressor};
pub(crate) use heads::{
    CompressedHeads, CompressionFlight, CompressionOutcome, FoundVariant, read,
};
pub(crate) use segment::CompressedSegment;
