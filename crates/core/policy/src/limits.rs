//! Bounds and fixed numbers of the policies, with units and reasons.

/// Entries of a Maglev table. A prime much larger than the number of nodes, as
/// the paper (Eisenbud et al., NSDI 2016, section 3.4) and Envoy choose it:
/// 65,537 keeps 600 nodes within 1 % of their share in 128 KiB.
pub const MAGLEV_ENTRIES: usize = 65_537;

/// Nodes a view may hold. A Maglev entry is 16 bits wide, and with more nodes
/// than this a share would be fewer than 16 entries.
pub const NODES_MAX: usize = 4_096;

/// `NodeView::slow_start_permille` of a node that is warm, in thousandths.
pub const SLOW_START_PERMILLE_FULL: u16 = 1_000;

/// Consecutive reports of a node that may be missing before its last one is
/// ignored: one or two are lost, or late on a busy machine; a node that was silent
/// for longer may have completed all of its work.
pub const REPORTS_MISSED_MAX: u64 = 5;

/// Bytes that weigh as much as a request of unknown size: an average reply (the
/// WebBench mix has a mean of 15 KiB).
pub const REPLY_BYTES: u64 = 16 * 1024;

const _: () = assert!(NODES_MAX * 16 <= MAGLEV_ENTRIES && NODES_MAX < u16::MAX as usize);
const _: () = assert!(NODES_MAX >= skep_units::NODES_MAX, "each node of a cluster");

/// Unanswered requests of a node over its share of all, in percent, from which on
/// `bounded-maglev-url` passes it over: 1.25 is what the paper finds to move few
/// keys and HAProxy's manual advises.
pub(crate) const BOUND_PERCENT: u64 = 125;

/// Unanswered requests that a node may always have: under little load, moving a
/// key costs more than waiting.
pub(crate) const BOUND_FLOOR_REQUESTS: u64 = 4;
