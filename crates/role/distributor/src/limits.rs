//! Every bound of this crate, with unit and reason.

/// Connections of all workers that wait for the mover: as many as it moves at the same time.
pub(crate) const MOVES_WAITING_MAX: usize = skep_handoff::limits::MOVES_IN_FLIGHT_MAX;

/// Connections that wait for one worker, which takes them in its next turn.
pub(crate) const ARRIVALS_WAITING_MAX: usize = 1_024;

/// Time for which a worker counts requests sent to other nodes while no dispatcher reports the nodes' load,
/// in milliseconds: most requests take less.
pub(crate) const FORGET_MS: u64 = 1_000;

/// Longest wait of the mover, in milliseconds, after which it checks for a new table.
pub(crate) const TURN_MS_MAX: u64 = 50;

/// Batches of messages that the mover reads before it reads the clock, at most: of 64 datagrams each, about
/// the capacity of its socket. There are more only in a flood, which must not delay timeouts.
pub(crate) const HEARD_BATCHES_MAX: usize = 64;

/// Time that an order waits to be sent together with others, in milliseconds: until then netguard holds a
/// descriptor of a connection that has moved. As long as the report of the move waits, so that one wake-up
/// serves both.
pub(crate) const LATER_MS_MAX: u64 = skep_handoff::limits::MOVED_WAIT_MS;

/// Time that one turn of the mover may take before the process exits, in seconds: it never blocks.
pub(crate) const MOVER_STALL_S_MAX: u32 = 10;

/// Pause before the socket of a handoff to the same node is created again, in milliseconds.
pub(crate) const RECREATE_MS: u64 = 1;

/// Time for which that is retried, in milliseconds. Netguard drops the connection after 10 s.
pub(crate) const RECREATE_MS_MAX: u64 = 5_000;

/// Time for which a request that was sent on counts as unanswered, in milliseconds, unless a digest arrives:
/// longer than most requests take.
pub(crate) const SENT_MS: u64 = 10;

/// Such requests per worker and service, at most.
pub(crate) const SENT_MAX: usize = 4_096;

/// Interval at which counts of A/B tests are sent to dispatchers, in milliseconds: some 3 KB for each arm.
pub(crate) const ARM_COUNTS_MS: u64 = 1_000;
