//! Every bound of this crate, with unit and reason.

use skep_cluster::elasticity::ELASTIC_UNLINKED_MS;

/// Time after which a tunnel is closed in which neither side sends anything, in milliseconds: an hour, as in
/// HAProxy's examples; WebSockets ping every minute or so, and dead peers must not hold connections
/// indefinitely.
pub(crate) const TUNNEL_IDLE_MS: u64 = 3_600_000;

/// Longest time between two wake-ups of the thread that receives loads, in milliseconds; it is also woken by
/// datagrams and commands.
pub(crate) const LOAD_RECEIVER_WAIT_MS: u64 = 1000;

/// Samples of elasticity between two decisions, at least: a decision uses their mean.
pub(crate) const ELASTIC_SAMPLES: u64 = 10;

/// Longest sampling interval of elasticity, in milliseconds: the delay with which it detects that too few
/// nodes serve.
pub(crate) const ELASTIC_LOOK_MS_MAX: u64 = 200;

/// Interval at which a service checks whether elasticity was turned on, in milliseconds.
pub(crate) const ELASTIC_OFF_LOOK_MS: u64 = 1_000;

/// Time before the next attempt to start a node, in milliseconds; doubled each time.
pub(crate) const ELASTIC_RETRY_PAUSE_MS: u64 = 1_000;

/// Time until a node's machine may be switched off, in milliseconds: the node hands over its sole replicas, or has no link for a
/// while, which takes longer.
pub(crate) const POWER_HAND_OVER_MS: u64 = ELASTIC_UNLINKED_MS + 10_000;

/// Characters of a command's output that are logged: the line with the reason.
pub(crate) const POWER_OUTPUT_SHOWN_MAX: usize = 500;
