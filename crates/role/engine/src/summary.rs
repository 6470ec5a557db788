//! The result of a reply, for the access log.

use std::sync::Arc;
use std::time::Instant;

use skep_telemetry::CacheResult;

/// The log entry of a reply.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Status; 0 while no reply was begun.
    pub status: u16,
    /// Bytes of the body that were written to the output.
    pub body_bytes: u64,
    pub cache: CacheResult,
    /// The node that answered, if not this one.
    pub node: Option<Arc<str>>,
    /// Time waited for a node, in microseconds.
    pub queue_us: u64,
    /// Time to connect to the node, in microseconds.
    pub connect_us: u64,
    /// Time from sending to the node until its first byte, in microseconds.
    pub first_byte_us: u64,
    /// Time at which the head was complete, for a reply that took time.
    pub head_at: Option<Instant>,
}
