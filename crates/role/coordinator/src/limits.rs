//! Every bound of this crate, with unit and reason.

/// Interval at which the coordinator checks its leases, in milliseconds.
pub(crate) const COORDINATOR_TICK_MS: u64 = 100;

/// Looks after which what is shown of the coordinator is made anew: walking all
/// its tables is not for every look.
pub(crate) const COORDINATOR_VIEW_TICKS: u32 = 5;

/// Time from one look at which nodes serve clients to the next, while a purge waits for some, in
/// milliseconds: that of the checks that tell it.
pub(crate) const PURGE_LOOK_MS: u64 = 100;

/// Time in which nodes are to acknowledge what a request has changed, in milliseconds: many times what
/// they take. A newer stamp is given in that time if one of them knows of one.
pub(crate) const INVALIDATION_MS: u64 = 1_000;

/// How long the thread of the links may take to report that the time of a purge is over, in
/// milliseconds: some ticks.
pub(crate) const PURGE_MARGIN_MS: u64 = 2_000;

/// Questions of operators to all nodes at a time: above it one ends with what it has. Each takes
/// what the nodes answer, until it is read.
pub(crate) const QUESTIONS_MAX: usize = 8;

/// Those of them that come from one node: what one process asks leaves room for the others.
pub(crate) const QUESTIONS_PER_NODE_MAX: usize = 4;

/// How long the thread of the links may take to report that the time of a question is over, in
/// milliseconds: some ticks.
pub(crate) const ANSWERS_MARGIN_MS: u64 = 1_000;

/// Longest time that a question of a node's operator to all nodes may take, in milliseconds.
pub(crate) const RELAY_MS_MAX: u64 = 20_000;

/// What may be under way to a node that has asked all nodes, in bytes: what would be more is said to be too long,
/// so that the link stays.
pub(crate) const RELAY_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
