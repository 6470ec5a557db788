//! Counters of streams and of the reasons for their end.

use std::sync::atomic::{AtomicU64, Ordering};

use skep_wire::cache::{HelloError, Reason};

/// Counted events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StreamCount {
    /// Handshakes that succeeded.
    Greeted,
    /// Handshakes that timed out or broke off.
    Ungreeted,
    /// Messages received.
    Received,
    /// Messages queued for sending.
    Sent,
    /// Streams closed because of a malformed frame or message.
    Garbled,
    /// Links whose other end fell silent or accepted no more bytes.
    Silent,
    /// Links closed because too many bytes waited to be sent.
    Overflowed,
    /// Exchanges with other nodes that this node started.
    Asked,
    /// Requests of other nodes that this node answered.
    Answered,
    /// Chunks received from other nodes.
    ChunksTaken,
    /// Chunks sent to other nodes.
    ChunksSent,
}

/// Counters of some streams, readable from any thread.
#[derive(Debug, Default)]
pub struct StreamCounts {
    counts: [AtomicU64; StreamCount::ALL.len()],
    refused_here: [AtomicU64; Reason::ALL.len()],
    refused_there: [AtomicU64; Reason::ALL.len()],
}

impl StreamCount {
    /// All events, in their order.
    pub const ALL: [Self; 11] = [
        Self::Greeted,
        Self::Ungreeted,
        Self::Received,
        Self::Sent,
        Self::Garbled,
        Self::Silent,
        Self::Overflowed,
        Self::Asked,
        Self::Answered,
        Self::ChunksTaken,
        Self::ChunksSent,
    ];

    /// The name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greeted => "greeted",
            Self::Ungreeted => "ungreeted",
            Self::Received => "received",
            Self::Sent => "sent",
            Self::Garbled => "garbled",
            Self::Silent => "silent",
            Self::Overflowed => "overflowed",
            Self::Asked => "asked",
            Self::Answered => "answered",
            Self::ChunksTaken => "chunks_taken",
            Self::ChunksSent => "chunks_sent",
        }
    }
}

impl StreamCounts {
    /// The number of these events.
    pub fn of(&self, what: StreamCount) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// The number of streams that this side refused for this reason.
    pub fn refused_here(&self, reason: Reason) -> u64 {
        self.refused_here[reason as usize - 1].load(Ordering::Relaxed)
    }

    /// The number of streams that the other side refused for this reason.
    pub fn refused_there(&self, reason: Reason) -> u64 {
        self.refused_there[reason as usize - 1].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, what: StreamCount) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refused(&self, error: HelloError) {
        let (counts, reason) = match error {
            HelloError::Here(reason) => (&self.refused_here, reason),
            HelloError::There(reason) => (&self.refused_there, reason),
        };
        counts[reason as usize - 1].fetch_add(1, Ordering::Relaxed);
    }
}
