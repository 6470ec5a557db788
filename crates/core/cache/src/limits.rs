//! Bounds and fixed numbers of the cache, with units and reasons.

/// Highest frequency of an entry. Two bits are enough to distinguish an entry that is
/// used repeatedly from one that is not (S3-FIFO: Yang et al.,
/// SOSP 2023).
pub const FREQUENCY_MAX: u8 = 3;

/// Hits in the small queue after which an entry moves to the main queue instead of being evicted.
/// One would be too weak a sign, since a reader that requests a file in two parts already causes it
/// (libCacheSim's default, too).
pub const PROMOTION_HITS: u8 = 2;

/// Share of the small queue in the capacity, in percent: the paper's value.
pub(crate) const SMALL_PERCENT: u64 = 10;

/// Share of the capacity that redundant values may always use, in percent: enough for a hot one to
/// be hit before it is considered for eviction. It is small because they take the place of values
/// that no other node has.
pub(crate) const REDUNDANT_PERCENT_MIN: u64 = 3;

/// Share of the capacity that redundant values may use if all of them are hit, in percent: replicas
/// of objects that are requested from all nodes. Beyond it even they are evicted, since each byte
/// of them reduces what the cluster can hold.
pub(crate) const REDUNDANT_PERCENT_MAX: u64 = 25;

/// Bytes of evicted entries that ghosts represent, in percent of the capacity: as much as the main
/// queue holds.
pub(crate) const GHOST_PERCENT: u64 = 90;

/// Ghosts that may always be kept, whatever the number of entries. Above it, there are never more
/// ghosts than entries, so that ghosts of tiny objects cannot outgrow the cache (a ghost takes
/// about 40 bytes).
pub(crate) const GHOSTS_MIN: usize = 1_024;

/// Tables with room for more than this many times their content are rebuilt: growth by doubling
/// reaches two, so that none is rebuilt too often.
pub(crate) const TABLE_SPARSE: usize = 3;

/// Entries below which a rebuild is not worthwhile.
pub(crate) const TABLE_MIN: usize = 4_096;
