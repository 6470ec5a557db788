//! Every limit of this experiment, with its unit and its reason.

/// Rate of each link, of nodes and of the dispatcher, in bits per second, where links are the bound:
/// with fewer, large replies take longer than [`REQUEST_MS`]; with fourteen of them the two cores are busy.
pub(super) const LINK_BITS_S: u64 = 8_000_000;

/// The same of a single node: the paper's.
pub(super) const LINK_OF_ONE_BITS_S: u64 = 100_000_000;

/// Memory of each node for what it serves, in bytes: all objects.
pub(super) const CACHE_BYTES: u64 = 256 << 20;

/// Time for each request with its connection, in milliseconds.
pub(super) const REQUEST_MS: u64 = 20_000;

/// Longest measurement, in milliseconds: more means that nothing gets through.
pub(super) const WINDOW_MS_MAX: u64 = 300_000;

/// Pause between two looks at how many requests have ended, in milliseconds.
pub(super) const POLL_MS: u64 = 50;

/// When a request whose packets are lost counts as one that hangs, in milliseconds: six SYNs in a row must be lost,
/// or eight of any other packet.
pub(super) const HANG_MS: u64 = 60_000;

/// Pause between two looks at how many connections have moved, in milliseconds: each asks all nodes.
pub(super) const RELAY_POLL_MS: u64 = 1_000;

/// Pause between two words on how far it is, in milliseconds.
pub(super) const RELAY_SAY_MS: u64 = 30_000;

/// Longest time without a move, in milliseconds: a request has hung meanwhile, and been counted.
pub(super) const STALL_MS_MAX: u64 = 2 * HANG_MS;
