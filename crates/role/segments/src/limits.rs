//! Bounds of segments and their store, with their reasons.

use std::time::Duration;

/// Memory of a segment comes in pieces of this size, in bytes, so that a
/// segment can be read while it grows. Large enough that a 541 KB reply is
/// three parts of one write.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Size from which a segment lives in a memory file and is sent by `sendfile`,
/// in bytes: below it, copying is cheaper than a second system call
/// (`docs/benchmarks.md`, "How large bodies are sent").
pub(crate) const PLACED_BYTES_MIN: u32 = 8 * 1024;

/// Size of a memory file that segments share: so large that little is
/// lost at its end, and as large as the largest segment.
pub(crate) const REGION_BYTES: u32 = 4 * 1024 * 1024;

/// Largest segment that shares a region; larger ones have one of their own.
pub(crate) const REGION_SHARE_MAX: u32 = 1024 * 1024;

/// Smallest store that uses regions, in bytes: below it one region would be too
/// large a part of the whole.
pub(crate) const REGIONS_CAPACITY_MIN: u64 = 16 * REGION_BYTES as u64;

/// Of the store's capacity one part in so many is left for what regions waste.
pub(crate) const REGIONS_SLACK: u64 = 8;

/// A region with more than this of use, in thousandths, is not worth emptying.
pub(crate) const THIN_PERMILLE_MAX: u32 = 850;

/// Of the descriptors that the process may open, one in so many may be a
/// region's; the others are for connections.
pub(crate) const REGION_FILES_SHARE: u64 = 4;

/// Bytes in memory beyond the store's capacity, in segments that replies and fills hold:
/// above it nothing is filled.
pub const PINNED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Of [`PINNED_BYTES_MAX`], one part in so many is for fills: above the rest replies pin
/// no more, and are sent copies.
pub(crate) const FILLS_PART: u64 = 2;

/// Bytes that fills of one site's origins may hold of what is for fills alone: a quarter
/// of all that is beside the capacity, so that no slow origin has all of it.
pub(crate) const SITE_FILLS_BYTES_MAX: u64 = PINNED_BYTES_MAX / 4;

/// What a segment takes beside its bytes, in bytes: itself, 240; its place in the
/// index and, once it has left, among the ghosts, up to 250 while their tables have
/// grown by doubling.
pub const SEGMENT_COST_BYTES: u64 = 512;

/// Of what is allocated, one part in so many is lost by rounding to the allocator's
/// sizes.
pub(crate) const ALLOCATOR_PART: usize = 8;

/// Of the store's capacity heads may take one part in so many: a head of 1.5 KB for
/// each object of 5 KB.
pub(crate) const HEADS_PART: u64 = 4;

/// Of that, heads of each kind (of files, origins, other nodes) may always have one
/// part in so many.
pub(crate) const HEADS_KIND_PART: u64 = 4;

/// Change of what is taken beside segments, as a part of the store's capacity, after
/// which segments make room for it.
pub(crate) const FIT_PART: u64 = 256;

/// How long a miss waits for memory before it passes the cache by, in milliseconds:
/// longer than replies of slow clients hold segments that they were sent.
pub const ROOM_WAIT_MS: u64 = 2_000;

/// Pause between two looks whether there is, in milliseconds.
pub(crate) const ROOM_LOOK_MS: u64 = 10;

/// Bytes of evicted segments that wait to be offered to other nodes, and while
/// they are: four of the largest kind, or many small ones.
pub(crate) const LEAVING_BYTES_MAX: u64 = 4 * skep_units::SEGMENT_BYTES;

/// Names under which segments are forgotten at a time, while all else waits.
pub(crate) const FORGOTTEN_AT_ONCE_MAX: usize = 1024;

/// Buffers that a thread keeps for the next fills, a chunk each: as many as a worker
/// often has at a time.
pub(crate) const BUFFERS_KEPT_MAX: usize = 8;

/// Shortest read of a disk or an origin that counts for its rate, in bytes: shorter ones take as long as one request.
pub(crate) const RATE_READ_BYTES_MIN: u32 = CHUNK_BYTES as u32;

/// Time with reads in progress after which their rate is estimated: some dozens of reads, or one from a slow origin.
pub(crate) const RATE_BUSY_MIN: Duration = Duration::from_millis(200);

/// Weight of the old rate in the moving average, of `n` parts `n - 1`: a changed rate shows after a second of reading.
pub(crate) const RATE_SMOOTHING: u64 = 4;
