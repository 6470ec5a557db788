//! Counters of datagrams sent, received and refused, with reasons.

use std::sync::atomic::{AtomicU64, Ordering};

use skep_wire::seal::OpenError;

/// Counters of one socket, readable from any thread.
#[derive(Debug, Default)]
pub struct Counts {
    sent: AtomicU64,
    unsent: AtomicU64,
    live: AtomicU64,
    hellos: AtomicU64,
    refused: [AtomicU64; OpenError::ALL.len()],
    packets: [AtomicU64; PacketRefusal::ALL.len()],
}

/// Why a packet is dropped before its seal is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketRefusal {
    /// Its IP header is invalid, or does not match its length.
    Header,
    /// Its source is not an address of any machine in the config.
    Source,
}

impl PacketRefusal {
    /// All reasons, in the order of their numbers (`as usize`).
    pub const ALL: &'static [Self] = &[Self::Header, Self::Source];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Source => "unknown_source",
        }
    }
}

impl Counts {
    /// Datagrams that the kernel accepted.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Datagrams that the kernel refused: no route, or no room.
    pub fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Datagrams addressed to this incarnation of this process.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Authentic datagrams that do not echo this incarnation yet.
    pub fn hellos(&self) -> u64 {
        self.hellos.load(Ordering::Relaxed)
    }

    /// Datagrams refused for this reason.
    pub fn refused(&self, reason: OpenError) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    /// Packets dropped for this reason, before their seals were verified.
    pub fn dropped(&self, reason: PacketRefusal) -> u64 {
        self.packets[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_dropped(&self, reason: PacketRefusal) {
        self.packets[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_sent(&self, is_sent: bool) {
        let counter = if is_sent { &self.sent } else { &self.unsent };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_live(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_hello(&self) {
        self.hellos.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self, reason: OpenError) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}
