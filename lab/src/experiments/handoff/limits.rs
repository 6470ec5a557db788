//! Every limit of this experiment, with its unit and its reason.

/// Rate of each link of nodes and dispatcher, in bits per second, where links are the bottleneck: with a
/// lower rate large replies take longer than [`REQUEST_MS`]; with fourteen such links the two cores are busy.
pub(super) const LINK_BITS_S: u64 = 8_000_000;

/// The same for a single node: the paper's rate.
pub(super) const LINK_OF_ONE_BITS_S: u64 = 100_000_000;

/// Memory of each node for content, in bytes: room for all objects.
pub(super) const CACHE_BYTES: u64 = 256 << 20;

/// Timeout of a request including its connection, in milliseconds.
pub(super) const REQUEST_MS: u64 = 20_000;

/// Maximum length of a measurement, in milliseconds: longer means that nothing gets through.
pub(super) const WINDOW_MS_MAX: u64 = 300_000;

/// Interval at which the number of completed requests is polled, in milliseconds.
pub(super) const POLL_MS: u64 = 50;

/// Time after which a request whose packets are lost counts as hung, in milliseconds: six SYNs in a row must
/// be lost, or eight of any other packet.
pub(super) const HANG_MS: u64 = 60_000;

/// Interval at which the number of moved connections is polled, in milliseconds: each poll queries all nodes.
pub(super) const RELAY_POLL_MS: u64 = 1_000;

/// Interval of progress messages, in milliseconds.
pub(super) const RELAY_SAY_MS: u64 = 30_000;

/// Maximum time without a move, in milliseconds: by then a request has hung, and was counted.
pub(super) const STALL_MS_MAX: u64 = 2 * HANG_MS;
