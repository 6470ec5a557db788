//! Every bound of `skep up`, with unit and reason.

/// Ports of nodes, below Linux's range for outgoing connections (32768 and up), so that no client occupies
/// the port of a node that is being restarted.
pub(super) const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// Timeout for all nodes to be up, in milliseconds: a loaded machine starts processes slowly.
pub(super) const READY_MS: u64 = 60_000;

/// Interval at which the dispatcher is asked whether all nodes are up, in milliseconds.
pub(super) const READY_POLL_MS: u64 = 50;

/// Interval of checks of a node, in milliseconds; shorter than the default, since a user who kills a node is
/// watching.
pub(super) const CHECK_MS: u64 = 500;

/// Time that requests in progress have to complete, in milliseconds; shorter than the default, since the user
/// waits at the terminal.
pub(super) const DRAIN_MS: u64 = 5_000;

/// Time that a child has to end after its drain before it is killed, in milliseconds.
pub(super) const END_MS: u64 = 3_000;

/// Timeout for reading the rest of a dead child's output, in milliseconds: it is already in the pipe.
pub(super) const LAST_WORDS_MS: u64 = 500;

/// Pause before a child that died is restarted, in milliseconds; doubled whenever it dies early.
pub(super) const RESTART_MS: u64 = 100;

/// Maximum of that pause, in milliseconds.
pub(super) const RESTART_MS_MAX: u64 = 5_000;

/// Lifetime from which on a death is not early, in milliseconds.
pub(super) const YOUNG_MS: u64 = 10_000;

/// Bytes after which a line of a child's output is truncated.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of events of children that wait to be handled: one child has few.
pub(super) const EVENTS_MAX: usize = 64;
