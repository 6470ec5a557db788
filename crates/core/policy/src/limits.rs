//! Bounds and fixed numbers of the policies, with units and reasons.

/// Entries of a Maglev table. A prime much larger than the number of nodes, as
/// the paper (Eisenbud et al., NSDI 2016, section 3.4) and Envoy choose it:
/// 65,537 keeps 600 nodes within 1 % of their share in 128 KiB.
pub const MAGLEV_ENTRIES: usize = 65_537;

/// Nodes in a view. A Maglev entry has 16 bits, and with more nodes a share would be fewer than 16
/// entries.
pub const NODES_MAX: usize = 4_096;

/// `NodeView::slow_start_permille` of a warm node, in thousandths.
pub const SLOW_START_PERMILLE_FULL: u16 = 1_000;

/// Consecutive reports of a node that may be missing before its last one is ignored: one or two may
/// be lost, or late on a busy machine; a node that was silent for longer may have completed all of
/// its work.
pub const REPORTS_MISSED_MAX: u64 = 5;

/// Bytes that count as much as a request of unknown size: an average reply (the WebBench mix has a
/// mean of 15 KiB).
pub const REPLY_BYTES: u64 = 16 * 1024;

const _: () = assert!(NODES_MAX * 16 <= MAGLEV_ENTRIES && NODES_MAX < u16::MAX as usize);
const _: () = assert!(NODES_MAX >= skep_units::NODES_MAX, "each node of a cluster");

/// Unanswered requests of a node relative to its share, in percent, above which
/// `bounded-maglev-url` skips it: with 1.25, few keys move according to the paper, and HAProxy's
/// manual recommends it.
pub(crate) const BOUND_PERCENT: u64 = 125;

/// Unanswered requests that a node may always have: under low load, moving a key costs more than
/// waiting.
pub(crate) const BOUND_FLOOR_REQUESTS: u64 = 4;

/// Unanswered requests below which a node of `lard` counts as idle, and above which it counts as
/// overloaded: the paper's thresholds (section 3.2).
pub(crate) const LARD_LOW_REQUESTS: u64 = 25;
pub(crate) const LARD_HIGH_REQUESTS: u64 = 65;

/// Time without changes after which `lard-r` removes a node of a URL that has several, in
/// milliseconds: the paper's K.
pub(crate) const LARD_SHRINK_MS: u64 = 20_000;

/// Nodes per URL under `lard-r`: a URL that needs more is too hot for any content-aware policy.
pub(crate) const LARD_REPLICAS_MAX: usize = 8;

/// How long nodes that are not eligible keep their URLs under `lard` and `lard-r`, in milliseconds:
/// a node that is full for a moment is not gone.
pub(crate) const LARD_AWAY_MS: u64 = 1_000;

/// URLs that an instance remembers, up to 3.6 MB (`lard`), 7.4 (`lard-r`), 1.6 (`equiload`,
/// `adaptload`) or 11 (`transfer-time`); World Cup 1998 had 20,000 files.
pub(crate) const URLS_MAX: usize = 1 << 16;

/// Nodes' messages about served objects that are kept until workers have read them: some 7,700
/// objects, more than nodes report between two requests of a busy worker. What an idle worker
/// misses is reported again.
pub(crate) const SERVED_BATCHES_MAX: usize = 128;

/// URLs per row, of which the oldest is evicted.
pub(crate) const URLS_PER_ROW: usize = 8;

/// Time constant of the mean latency, in milliseconds: linkerd's.
pub(crate) const LATENCY_DECAY_MS: u64 = 10_000;

/// Nodes that `prequal` compares: the size of the paper's probe pool.
pub(crate) const PREQUAL_COMPARED_MAX: usize = 16;

/// Quantile of the requests in flight above which a node is hot, in percent: the paper's 2^-0.25.
pub(crate) const PREQUAL_HOT_PERCENT: usize = 84;

/// Latency that a failed attempt counts as, in microseconds: long from a client's view.
pub(crate) const FAILED_LATENCY_US: f64 = 1e6;

/// How long a request to a node of unknown latency keeps others away, in milliseconds; after that
/// its age is used as the latency.
pub(crate) const TRIED_MS_MAX: u64 = 1_000;

/// Larger sizes count as this one, in bytes: a server may announce any length.
pub(crate) const OBJECT_BYTES_MAX: u64 = 1 << 40;

/// Bins of sizes, 8 for each power of two: all sizes have one.
pub(crate) const SIZE_BINS: usize = 496;

/// Requests for objects of known size after which `equiload` and `adaptload` start; before that
/// they use only the load.
pub(crate) const SIZES_FIRST_REQUESTS: u64 = 64;

/// Requests from which `equiload` determines its boundaries, a power of two: a day's trace of a
/// small site.
pub(crate) const EQUILOAD_REQUESTS: u64 = 1 << 14;

/// Requests between two updates of `adaptload`'s boundaries, and the weight of earlier ones: half,
/// so that requests from three windows ago count an eighth. The papers tune both to a trace.
pub(crate) const ADAPTLOAD_WINDOW_REQUESTS: u64 = 1 << 12;
pub(crate) const ADAPTLOAD_DISCOUNT: f64 = 0.5;

/// Nodes per object that `transfer-time` remembers.
pub(crate) const HOLDERS_MAX: usize = 8;

/// Bandwidth of a node's link if unknown, in bytes per second: 1 Gbit/s.
pub(crate) const LINK_BYTES_PER_S: f64 = 125e6;

/// Cost of a request besides its bytes, in microseconds.
pub(crate) const REQUEST_US: f64 = 50.0;

/// Time until the first byte of an object that is not in memory, in microseconds: a disk seek, or a
/// round trip to an origin.
pub(crate) const FETCH_LATENCY_US: f64 = 5_000.0;

/// The same if another node has it in memory.
pub(crate) const PEER_LATENCY_US: f64 = 500.0;

/// Ratio of a node's link rate to its fetch rate.
pub(crate) const FETCH_RATE_DIVISOR: f64 = 4.0;

/// Largest acceptable cost of a node that has the object: this percentage of the cheapest node's
/// cost (bounded loads have the same slack), plus the time that node takes to send this many bytes, a
/// segment.
pub(crate) const HYSTERESIS_PERCENT: f64 = 125.0;
pub(crate) const HYSTERESIS_BYTES: f64 = 4_194_304.0;
