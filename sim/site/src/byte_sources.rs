//! The sources of the bytes of responses.

/// Bytes of responses, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesBySource {
    /// The node's memory.
    pub memory: u64,
    /// A fetch that another request had started.
    pub joined: u64,
    /// Another node's memory.
    pub peer: u64,
    /// Disk or origin.
    pub fetched: u64,
}

impl BytesBySource {
    pub(crate) fn add(&mut self, other: Self) {
        self.memory += other.memory;
        self.joined += other.joined;
        self.peer += other.peer;
        self.fetched += other.fetched;
    }

    /// The sum over all sources.
    pub fn total(&self) -> u64 {
        self.memory + self.joined + self.peer + self.fetched
    }

    /// The share of one part in the sum.
    pub fn share(&self, part: u64) -> f64 {
        part as f64 / self.total() as f64
    }
}
