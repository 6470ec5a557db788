//! Bounds and fixed numbers of the cache, with units and reasons.

/// Highest frequency of an entry. Two bits are enough to tell an entry that is
/// used again and again from one that is not (S3-FIFO: Yang et al.,
/// SOSP 2023).
pub const FREQUENCY_MAX: u8 = 3;

/// Hits in the small queue after which an entry moves to the main queue
/// instead of leaving. One is too weak a sign: a reader that asks for a file
/// in two parts would make it (libCacheSim's default too).
pub(crate) const PROMOTION_HITS: u8 = 2;

/// Share of the small queue in the capacity, in percent: the paper's value.
pub(crate) const SMALL_PERCENT: u64 = 10;

/// Bytes of evicted entries that ghosts remember, in percent of the capacity:
/// as much as the main queue holds.
pub(crate) const GHOST_PERCENT: u64 = 90;

/// Ghosts that may always be kept, whatever the number of entries. Above it,
/// there are never more ghosts than entries, so that ghosts of tiny objects
/// cannot outgrow the cache (a ghost takes about 40 bytes).
pub(crate) const GHOSTS_MIN: usize = 1_024;
