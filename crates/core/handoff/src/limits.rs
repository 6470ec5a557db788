//! Bounds and fixed numbers of handoffs, with units and reasons.

/// Longest time that a donor waits for READY, in milliseconds: the rest of [`UNDECIDED_MS`] is
/// enough for seven GOs.
pub const READY_MS_MAX: u64 = 300;

/// How long a receiver that is ready waits for the donor's decision, in milliseconds: enough for
/// eleven GOs. Including the time to detect a dead donor elsewhere, a client receives its RST
/// within a second.
pub const UNDECIDED_MS: u64 = 700;

/// How long a donor repeats GO, in milliseconds: longer than the receiver waits. After that the
/// receiver serves the connection, has closed it, or is dead, and the donor closes it on behalf of
/// a dead one.
pub const GO_MS: u64 = UNDECIDED_MS + 100;

/// First interval between offers, GOs or ABORTs, in milliseconds; it doubles. Fifty round-trip
/// times of a cluster's network.
pub const RETRY_MS: u64 = 5;

/// Longest interval between GOs or ABORTs, in milliseconds.
pub const RETRY_MS_MAX: u64 = 100;

/// Interval at which an undecided receiver repeats READY, in milliseconds: a donor that aborted the
/// move long ago then repeats its ABORT.
pub const READY_REPEAT_MS: u64 = 100;

/// How long an ABORT is repeated, in milliseconds: longer than any ready receiver waits.
pub const ABORT_MS_MAX: u64 = 1_000;

/// Most ABORTs that are being repeated: those of a tenth of a second at the highest rate. The
/// oldest is dropped, and sent again if the receiver repeats READY.
pub const ABORTS_MAX: usize = 2_048;

/// Moves in flight of a node, as donor and as receiver each: one descriptor and up to 16 KiB per
/// move.
pub const MOVES_IN_FLIGHT_MAX: usize = 1_024;

/// How long the outcomes of handoffs are remembered, in milliseconds: longer than any message about
/// one is repeated or delayed.
pub const MEMORY_MS: u64 = 10_000;

/// Most outcomes remembered: those of three seconds at the highest rate, some 8 MB. Those that a
/// receiver has forgotten are below its floor, and refused.
pub const REMEMBERED_MAX: usize = 65_536;

/// How long moved flows are collected before they are reported to a dispatcher, in milliseconds.
/// The dispatcher should know them within 100.
pub const MOVED_WAIT_MS: u64 = 5;

/// First interval in which a report of moved flows is repeated, in milliseconds; it doubles up to
/// [`RETRY_MS_MAX`].
pub const MOVED_RETRY_MS: u64 = 20;

/// How long a report is repeated, in milliseconds. After that, a client may have opened another
/// connection from the same port; until then, and without the report, the donor continues to
/// redirect.
pub const MOVED_MS_MAX: u64 = 1_000;

/// Reports that wait for acknowledgement: 20,000 flows a second for as long as each is repeated.
pub const MOVED_REPORTS_MAX: usize = 640;

/// How long a dispatcher remembers how often a flow was moved, in milliseconds: longer than any
/// report is repeated or delayed.
pub const LEARNED_MS: u64 = 2 * MOVED_MS_MAX;

/// Flows that it remembers: those of three seconds at 20,000 a second.
pub const LEARNED_MAX: usize = 65_536;

/// How long to wait for the answer to a query, in milliseconds: longer than a repeated query takes.
/// After that, the node that has the connection answers the request.
pub const QUERY_MS: u64 = 20;

/// Time after which a query is repeated, in milliseconds; the next repetition waits twice as long.
pub const QUERY_RETRY_MS: u64 = 5;

/// Pending queries: requests that wait for a decision.
pub const QUERIES_MAX: usize = 4_096;
