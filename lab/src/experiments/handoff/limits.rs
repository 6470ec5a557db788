//! Every limit of this experiment, with its unit and its reason.

/// Rate of each link, of nodes and of the dispatcher, in bits per second, where links are the bound:
/// fourteen of them leave two cores half idle if clients ask the nodes themselves.
pub(super) const LINK_BITS_S: u64 = 4_000_000;

/// Memory of each node for what it serves, in bytes: all objects.
pub(super) const CACHE_BYTES: u64 = 256 << 20;

/// Time for each request with its connection, in milliseconds.
pub(super) const REQUEST_MS: u64 = 20_000;

/// Longest measurement, in milliseconds: more means that nothing gets through.
pub(super) const WINDOW_MS_MAX: u64 = 300_000;

/// Pause between two looks at how many requests have ended, in milliseconds.
pub(super) const POLL_MS: u64 = 50;
