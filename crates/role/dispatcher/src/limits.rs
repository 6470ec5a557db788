//! Every bound of this crate, with unit and reason.

/// A tunnel in which neither side sends anything is closed after this time, in milliseconds: an
/// hour, as in HAProxy's examples; WebSockets ping every minute or so, and dead peers must not hold
/// connections for ever.
pub(crate) const TUNNEL_IDLE_MS: u64 = 3_600_000;

/// How often the thread that receives loads wakes up without a datagram, in milliseconds; it is
/// also woken when there is something to do.
pub(crate) const LOAD_RECEIVER_WAIT_MS: u64 = 1000;

/// Looks of elasticity between two decisions, at least: their mean is what a decision goes by.
pub(crate) const ELASTIC_SAMPLES: u64 = 10;

/// Longest time between two looks of elasticity, in milliseconds: so late it sees that fewer nodes serve than must.
pub(crate) const ELASTIC_LOOK_MS_MAX: u64 = 200;

/// Time between two looks whether elasticity was turned on, in milliseconds.
pub(crate) const ELASTIC_OFF_LOOK_MS: u64 = 1_000;

/// Time between two attempts to start a node, in milliseconds; doubled each time.
pub(crate) const ELASTIC_RETRY_PAUSE_MS: u64 = 1_000;

/// Time that a node has to hand over what only it has in memory, before its machine is switched off, in milliseconds: a little
/// more than it takes at most.
pub(crate) const POWER_HAND_OVER_MS: u64 = 40_000;

/// Characters of the output of a command that are logged: the line that says why.
pub(crate) const POWER_OUTPUT_SHOWN_MAX: usize = 500;
