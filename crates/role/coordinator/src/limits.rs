//! Every bound of this crate, with unit and reason.

/// Interval at which the coordinator checks its leases, in milliseconds.
pub(crate) const COORDINATOR_TICK_MS: u64 = 100;

/// Ticks between updates of the coordinator's displayed state: walking all its tables at every tick would be
/// too expensive.
pub(crate) const COORDINATOR_VIEW_TICKS: u32 = 5;

/// Interval at which the nodes that serve clients are determined again while a purge waits for some, in
/// milliseconds: that of the checks that determine them.
pub(crate) const PURGE_LOOK_MS: u64 = 100;

/// Time for nodes to acknowledge an invalidation by a request, in milliseconds: many times the usual
/// duration. A newer stamp is assigned in that time if a node knows a later one.
pub(crate) const INVALIDATION_MS: u64 = 1_000;

/// Time that the link thread may take to report that a purge has timed out, in milliseconds: some ticks.
pub(crate) const PURGE_MARGIN_MS: u64 = 2_000;

/// Concurrent questions of operators to all nodes: above this number one ends with the answers that it has.
/// Each holds the nodes' answers until they are read.
pub(crate) const QUESTIONS_MAX: usize = 8;

/// Those of them that come from one node: the questions of one process leave room for others.
pub(crate) const QUESTIONS_PER_NODE_MAX: usize = 4;

/// Time that the link thread may take to report that a question has timed out, in milliseconds: some ticks.
pub(crate) const ANSWERS_MARGIN_MS: u64 = 1_000;

/// Longest time that a question of a node's operator to all nodes may take, in milliseconds.
pub(crate) const RELAY_MS_MAX: u64 = 20_000;

/// Bytes queued for a node that has asked all nodes, at most: a further answer is replaced by one that
/// reports it as too long, so that the link is not closed.
pub(crate) const RELAY_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
