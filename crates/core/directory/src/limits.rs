//! Bounds and fixed numbers of the cluster cache, with units and reasons.

/// Most holdings (a segment at a node) in a directory, by default: 64 TiB in full segments, or this
/// many small objects. Memory is allocated as needed, some 800 MB in all.
pub const HOLDINGS_MAX: usize = 16_777_216;

/// Most files and folders times nodes in a directory, by default: those of 32 nodes that announce
/// as many as they may. Memory as for segments. If some are refused, the nodes that announced them
/// are asked directly for files that are not listed.
pub const FILES_MAX: usize = 16_777_216;

/// How long the files of a node whose link has ended are remembered, in milliseconds: enough for a
/// restart of the process, and for most network failures. After that its files count as not
/// existing.
pub const LOST_NODE_MS: u64 = 30_000;

/// Leases at a time, by default. Each keeps a node busy with up to 4 MiB, so origins are saturated
/// earlier; scanning all leases takes negligible time.
pub const LEASES_MAX: usize = 16_384;

/// How long a lease lasts if it is not renewed, in milliseconds: nodes wait this long for a leader
/// that hangs.
pub const LEASE_TTL_MS: u32 = 2_000;

/// Age of a node's load report, in milliseconds, after which it is ignored, by default: five report
/// intervals.
pub const LOAD_MS_MAX: u64 = 500;

/// How long a coordinator that has just started waits for the inventories of nodes, in
/// milliseconds: the longest pause before a node links again, plus time for its inventory.
/// Meanwhile, requests for segments without a known holder wait.
pub const SETTLE_MS: u64 = 2_500;

/// How long a node waits, in milliseconds, before it asks again after `Later`: short, to ask soon
/// after the last inventory is complete. Also used if it has no connection to spare: the
/// transmission time of some segments.
pub const LATER_MS: u64 = 50;

/// How often a node asks again in this way: longer than a coordinator takes to settle.
pub const LATERS_MAX: u32 = (SETTLE_MS / LATER_MS) as u32 + 10;

/// Shards of a directory: only one of them is swept, or grows, at a time, so that answers never
/// wait for all.
pub(crate) const SHARDS: usize = 256;

/// Shards swept at a tick: at ten ticks a second, the holdings of a node that left are removed
/// within about three seconds, and no tick takes more than a millisecond.
pub(crate) const SWEEPS_PER_TICK: usize = 8;

/// Bits of a lease's number that count leases: a trillion. The others are the low bits of the
/// epoch: the number of the dispatcher, and eight that distinguish its processes, as does the
/// random start of the count.
pub(crate) const LEASE_BITS: u32 = 40;

/// Requests to the coordinator per fetch: two leaders may fail, and two holders may have lost the
/// segment; after that, the origin is read.
pub const ASKS_MAX: u32 = 4;

/// How long a node waits before it asks again when the leader of a fill is overloaded, in
/// milliseconds, the first time; it doubles each time. The transmission time of some segments.
pub const OVERLOADED_WAIT_MS: u64 = 50;

/// Time after which no further attempt to get a segment begins, in milliseconds: clients have gone
/// by then.
pub const GIVE_UP_MS: u64 = 30_000;

/// Largest load of an owner relative to the mean, in percent (Mirrokni, Thorup, Zadimoghaddam, SODA
/// 2018: c = 1.25).
pub(crate) const BOUND_PERCENT: u64 = 125;

/// Load below which an owner is never passed over, in bytes, so that nodes agree on owners while
/// load is low (32 segments: 0.1 s at 10 Gbit/s).
pub(crate) const OWNER_LOAD_FLOOR_BYTES: u64 = 32 * skep_units::SEGMENT_BYTES;

/// How often a sole replica may be passed on without a request for it (Dahlin et al., "Cooperative
/// caching", OSDI '94: n = 2).
pub const CHANCES: u8 = 2;

/// Smaller segments are never filled remotely: the detour over another node would cost more than it
/// saves.
pub(crate) const REMOTE_FILL_BYTES_MIN: u32 = skep_units::SEGMENT_BYTES as u32;

/// Segments read ahead for a sequential reader: one that is fetched while another is sent, and one
/// in reserve.
pub const READ_AHEAD: u32 = 2;

/// Consecutive segments after which a reader counts as sequential: more than a range of a few MB at
/// an arbitrary offset.
pub(crate) const SEQUENTIAL_RUN: u32 = 4;

/// Purges of URLs and tags that are stored exactly; older ones also hit everything in the same of
/// 65,536 cells. One page a second for a quarter of an hour; some hundred bytes each.
pub const PURGES_MAX: usize = 1_024;

/// Purges of prefixes that are stored exactly: fewer, since each lookup compares with all of them.
/// Older ones hit the whole topmost folder that they are in.
pub const PURGE_PREFIXES_MAX: usize = 256;

/// Text of each of the two kinds, in bytes: twice the longest command.
pub const PURGE_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// How long a node that has just started waits for its first slots, in milliseconds: linking takes
/// a few milliseconds if there is a coordinator.
pub const SLOTS_FIRST_MS: u64 = 1_000;

/// How long a node without a coordinator keeps its slots, in milliseconds: longer than another
/// coordinator takes to become active.
pub const SLOTS_KEPT_MS: u64 = 2_000;

/// How long the slots of a lost node are granted to nobody, in milliseconds: longer than
/// [`SLOTS_KEPT_MS`], since the node may notice the loss of the link later.
pub const SLOTS_LOST_MS: u64 = 3_000;

/// How long a coordinator waits for all nodes, after the first one follows it, before it grants
/// slots, in milliseconds: as long as nodes may use the grants of another coordinator.
pub const SLOTS_SETTLE_MS: u64 = SLOTS_LOST_MS;

/// How long a node waits for the first slots from a coordinator that it is linked to, in
/// milliseconds: longer than a coordinator takes to settle. One that grants nothing by then does
/// not count this server.
pub const SLOTS_SILENT_MS: u64 = SLOTS_SETTLE_MS + 2_000;

/// How long nodes may follow different coordinators before each is granted its share, in
/// milliseconds: shorter than [`SLOTS_LOST_MS`] by the time it takes to notice the loss of a link.
pub const SLOTS_SPLIT_MS: u64 = SLOTS_KEPT_MS;

/// How long a node's peak demand counts, in milliseconds: after this time, slots that it no longer
/// uses go to other nodes.
pub const SLOTS_WANTED_MS: u64 = 1_000;

/// How long a node keeps a slot if more nodes want one than there are slots, in milliseconds: much
/// longer than it takes to move a slot.
pub const SLOT_TURN_MS: u64 = 1_000;

/// How long slots that were withdrawn from a node count as about to be free, in milliseconds:
/// longer than the node takes to answer. After that, they are used by longer requests.
pub const SLOTS_LEAVE_MS: u64 = 250;

/// Servers of pools whose slots a coordinator counts; for others, nodes have their shares.
pub const SLOTS_SERVERS_MAX: usize = 4_096;
