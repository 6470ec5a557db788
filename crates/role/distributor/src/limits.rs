//! Every bound of this crate, with unit and reason.

/// Connections that wait for the mover, of all workers: as many as it moves at a time.
pub(crate) const MOVES_WAITING_MAX: usize = skep_handoff::limits::MOVES_IN_FLIGHT_MAX;

/// Connections that wait for one worker, which takes them in its next turn.
pub(crate) const ARRIVALS_WAITING_MAX: usize = 1_024;

/// How long a worker counts what it has sent to other nodes while no dispatcher says what those have to do, in
/// milliseconds: most requests take less.
pub(crate) const FORGET_MS: u64 = 1_000;

/// Longest wait of the mover, in milliseconds: then it looks whether the table is another one.
pub(crate) const TURN_MS_MAX: u64 = 50;

/// Batches of messages that the mover hears before it looks at the clock, at most: of 64 datagrams each, about what its
/// socket holds. More come only if somebody floods it, who must not stop the clock.
pub(crate) const HEARD_BATCHES_MAX: usize = 64;

/// How long an order waits for others to go with, in milliseconds: until then netguard holds a descriptor of a
/// connection that has moved. As long as the report of it waits, so that one wake-up does both.
pub(crate) const LATER_MS_MAX: u64 = skep_handoff::limits::MOVED_WAIT_MS;

/// How long the mover may take for one turn before the process ends, in seconds: it waits for nothing.
pub(crate) const MOVER_STALL_S_MAX: u32 = 10;

/// Pause before a socket that a node hands off to itself is created again, in milliseconds.
pub(crate) const RECREATE_MS: u64 = 1;

/// How long it is tried, in milliseconds. Netguard forgets the connection after 10 s.
pub(crate) const RECREATE_MS_MAX: u64 = 5_000;

/// How long a request that was sent on counts as unanswered, in milliseconds, unless a digest says so: longer than most
/// take.
pub(crate) const SENT_MS: u64 = 10;

/// Such requests at most, for each worker and service.
pub(crate) const SENT_MAX: usize = 4_096;

/// How often dispatchers are told what was counted of A/B tests, in milliseconds: some 3 KB for each arm.
pub(crate) const ARM_COUNTS_MS: u64 = 1_000;
