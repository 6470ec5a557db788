//! Bounds of segments and their store, with their reasons.

use std::time::Duration;

/// Memory of a segment comes in pieces of this size, in bytes, so that a
/// segment can be read while it grows. Large enough that a 541 KB reply is
/// three parts of one write.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Size in bytes from which a segment is in a memory file and sent by `sendfile`: below it,
/// copying is cheaper than a second system call (`docs/benchmarks.md`, "How large bodies are
/// sent").
pub(crate) const PLACED_BYTES_MIN: u32 = 8 * 1024;

/// Size of a memory file shared by segments, in bytes: so large that little is lost at its end,
/// and as large as the largest segment.
pub(crate) const REGION_BYTES: u32 = 4 * 1024 * 1024;

/// Size of the largest segment that shares a region, in bytes; larger ones have a region of
/// their own.
pub(crate) const REGION_SHARE_MAX: u32 = 1024 * 1024;

/// Smallest store that uses regions, in bytes: below it one region would be too
/// large a part of the whole.
pub(crate) const REGIONS_CAPACITY_MIN: u64 = 16 * REGION_BYTES as u64;

/// One part in this many of the store's capacity is reserved for the waste of regions.
pub(crate) const REGIONS_SLACK: u64 = 8;

/// A region with a larger live share than this, in thousandths, is not worth emptying.
pub(crate) const THIN_PERMILLE_MAX: u32 = 850;

/// Regions may use one in this many of the file descriptors that the process may open; the rest
/// are for connections.
pub(crate) const REGION_FILES_SHARE: u64 = 4;

/// Bytes in memory beyond the store's capacity, in segments held by replies and fills, above
/// which no fill begins.
pub const PINNED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One part in this many of [`PINNED_BYTES_MAX`] is reserved for fills: above the rest, replies
/// pin no further segments and are sent copies.
pub(crate) const FILLS_PART: u64 = 2;

/// Bytes that fills of one site's origins may hold of the part reserved for fills: a quarter of
/// all memory beyond the capacity, so that no slow origin takes all of it.
pub(crate) const SITE_FILLS_BYTES_MAX: u64 = PINNED_BYTES_MAX / 4;

/// Memory of a segment besides its bytes, in bytes: 240 for itself; up to 250 for its entry in
/// the index and, after eviction, among the ghosts, while their tables have grown by doubling.
pub const SEGMENT_COST_BYTES: u64 = 512;

/// One part in this many of allocated memory is lost by rounding up to the allocator's sizes.
pub(crate) const ALLOCATOR_PART: usize = 8;

/// Heads may use one part in this many of the store's capacity: a head of 1.5 KB for each
/// object of 5 KB.
pub(crate) const HEADS_PART: u64 = 4;

/// Heads of each kind (of files, origins, other nodes) may always use one part in this many of
/// that.
pub(crate) const HEADS_KIND_PART: u64 = 4;

/// Change of the memory used besides segments, as a part of the store's capacity, after which
/// the memory for segments is adjusted.
pub(crate) const FIT_PART: u64 = 256;

/// How long a miss waits for memory before it bypasses the cache, in milliseconds: longer than
/// replies to slow clients hold segments already sent.
pub const ROOM_WAIT_MS: u64 = 2_000;

/// Interval between two checks for free memory, in milliseconds.
pub(crate) const ROOM_LOOK_MS: u64 = 10;

/// Bytes of evicted segments that wait to be offered, or are being offered, to other nodes:
/// four segments of the largest size, or many small ones.
pub(crate) const LEAVING_BYTES_MAX: u64 = 4 * skep_units::SEGMENT_BYTES;

/// The number of names whose segments are forgotten in one go, under the store's lock.
pub(crate) const FORGOTTEN_AT_ONCE_MAX: usize = 1024;

/// Buffers that a thread keeps for the next fills, a chunk each: as many as a worker
/// often has at a time.
pub(crate) const BUFFERS_KEPT_MAX: usize = 8;

/// Shortest read of a disk or an origin that counts for its rate, in bytes: shorter ones take as long as one request.
pub(crate) const RATE_READ_BYTES_MIN: u64 = CHUNK_BYTES as u64;

/// Busy intervals that are kept for one estimate: a few KB.
pub(crate) const RATE_INTERVALS_MAX: usize = 128;

/// Time with reads in progress after which their rate is estimated: some dozens of reads, or one from a slow origin.
pub(crate) const RATE_BUSY_MIN: Duration = Duration::from_millis(200);

/// Weight of the old rate in the moving average, of `n` parts `n - 1`: a changed rate shows after a second of reading.
pub(crate) const RATE_SMOOTHING: u64 = 4;
