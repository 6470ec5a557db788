//! Bounds and fixed numbers of handoffs, with units and reasons.

/// How long a donor may wait for READY, in milliseconds: what is left of [`UNDECIDED_MS`] then is enough for
/// seven GOs.
pub const READY_MS_MAX: u64 = 300;

/// How long a receiver that is ready waits for a word of the donor, in milliseconds. Eleven GOs of the donor
/// fall into it. With the time in which a dead donor is noticed elsewhere, a client gets its RST within a
/// second.
pub const UNDECIDED_MS: u64 = 700;

/// How long a donor repeats GO, in milliseconds: longer than the receiver's wait. Then the receiver serves,
/// has closed the connection, or is dead, and the donor closes it for a dead one.
pub const GO_MS: u64 = UNDECIDED_MS + 100;

/// First interval between two offers, and between two GOs or ABORTs, in milliseconds; it doubles. Fifty
/// round trips of a cluster's network.
pub const RETRY_MS: u64 = 5;

/// Longest interval between two GOs or ABORTs, in milliseconds.
pub const RETRY_MS_MAX: u64 = 100;

/// Interval in which a receiver repeats READY while it is undecided, in milliseconds: a donor that has
/// aborted long ago says so again.
pub const READY_REPEAT_MS: u64 = 100;

/// How long an ABORT is repeated, in milliseconds: past the wait of any receiver that was ready.
pub const ABORT_MS_MAX: u64 = 1_000;

/// Connections whose ABORT is being repeated: those of a tenth of a second at the highest rate. The oldest
/// is dropped, and said again if the receiver asks with READY.
pub const ABORTS_MAX: usize = 2_048;

/// Moves in flight of a node, as donor and as receiver each: descriptors, and up to 16 KiB each.
pub const MOVES_IN_FLIGHT_MAX: usize = 1_024;

/// How long the ends of handoffs are remembered, in milliseconds: longer than any message about one is
/// repeated, or delayed by a network.
pub const MEMORY_MS: u64 = 10_000;

/// Ends that are remembered: those of three seconds at the highest rate, some 8 MB. What is forgotten of a
/// receiver is below its floor, and refused.
pub const REMEMBERED_MAX: usize = 65_536;

/// How long moved flows wait for others before a dispatcher is told, in milliseconds. The dispatcher is to
/// know within 100.
pub const MOVED_WAIT_MS: u64 = 5;

/// First interval in which a report of moved flows is repeated, in milliseconds; it doubles up to
/// [`RETRY_MS_MAX`].
pub const MOVED_RETRY_MS: u64 = 20;

/// How long a report is repeated, in milliseconds. Later, a client may have begun another connection from
/// the same port; until then, and without it, the donor goes on to redirect.
pub const MOVED_MS_MAX: u64 = 1_000;

/// Reports that wait for their acknowledgement: 20,000 flows a second for as long as each is repeated.
pub const MOVED_REPORTS_MAX: usize = 640;

/// How long a dispatcher remembers how often a flow was moved, in milliseconds: longer than any report is
/// repeated, or delayed by a network.
pub const LEARNED_MS: u64 = 2 * MOVED_MS_MAX;

/// Flows of which it does: those of three seconds at 20,000 a second.
pub const LEARNED_MAX: usize = 65_536;

/// How long the answer to a query is awaited, in milliseconds: longer than a repeated one takes. Then the
/// node that has the connection answers.
pub const QUERY_MS: u64 = 20;

/// When a query is repeated, in milliseconds; once, and again after twice as long.
pub const QUERY_RETRY_MS: u64 = 5;

/// Queries that are not answered yet: requests that wait for a decision.
pub const QUERIES_MAX: usize = 4_096;
