//! Every bound of this crate, with unit and reason.

/// A tunnel in which neither side sends anything is closed after this time, in milliseconds: an
/// hour, as in HAProxy's examples; WebSockets ping every minute or so, and dead peers must not hold
/// connections for ever.
pub(crate) const TUNNEL_IDLE_MS: u64 = 3_600_000;

/// How often the thread that receives loads wakes up without a datagram, in milliseconds; it is
/// also woken when there is something to do.
pub(crate) const LOAD_RECEIVER_WAIT_MS: u64 = 1000;
