//! Where the bytes of responses came from.

/// Where the bytes of responses came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesBySource {
    /// The node's memory.
    pub memory: u64,
    /// A fetch that another request had begun.
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

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.memory + self.joined + self.peer + self.fetched
    }

    /// The share of a part.
    pub fn share(&self, part: u64) -> f64 {
        part as f64 / self.total() as f64
    }
}
