//! Every bound of this crate, with unit and reason.

/// Time from one look of the coordinator at its leases to the next, in
/// milliseconds.
pub(crate) const COORDINATOR_TICK_MS: u64 = 100;

/// Looks after which what is shown of the coordinator is made anew: walking all
/// its tables is not for every look.
pub(crate) const COORDINATOR_VIEW_TICKS: u32 = 5;

/// How long the thread of the links may take to say that the time of a purge is
/// over, in milliseconds: some looks.
pub(crate) const PURGE_MARGIN_MS: u64 = 2_000;
