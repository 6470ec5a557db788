//! Bounds and fixed numbers of the cluster cache, with units and reasons.

/// Holdings (a segment at a node) that a directory knows at most, by default:
/// 64 TiB in whole segments, or so many small objects. Memory is taken as they come,
/// some 800 MB for all.
pub const HOLDINGS_MAX: usize = 16_777_216;

/// Files and folders at a node that a directory knows at most, by default: those of 32 nodes
/// that announce as many as they may. Memory as for segments. Nodes that find no room are asked
/// themselves for what is not known.
pub const FILES_MAX: usize = 16_777_216;

/// How long it is remembered which files a node had whose link has ended, in milliseconds: a
/// process that is restarted is back by then, and so is most often a machine's network. Later
/// its files are said not to exist.
pub const LOST_NODE_MS: u64 = 30_000;

/// Fills under a lease at a time, by default. Each keeps a node busy with up to
/// 4 MiB, so that origins choke first; a look at all of them takes no time.
pub const LEASES_MAX: usize = 16_384;

/// How long a lease lasts if it is not renewed, in milliseconds:
/// nodes that wait for a leader that hangs wait so long.
pub const LEASE_TTL_MS: u32 = 2_000;

/// Age of a node's load, in milliseconds, after which it counts no more, by
/// default: five reports.
pub const LOAD_MS_MAX: u64 = 500;

/// How long a coordinator that has just started waits for nodes to tell what they
/// hold, in milliseconds: the longest pause of a node before it links again, and
/// time for its inventory. Meanwhile requests wait for what nobody is known to have.
pub const SETTLE_MS: u64 = 2_500;

/// After so long, in milliseconds, a node asks again that was told to: soon after
/// the last inventory has come. Likewise one that had no connection to spare: some
/// segments' time on the wire.
pub const LATER_MS: u64 = 50;

/// Times that a node asks again so: some more than a coordinator takes to settle.
pub const LATERS_MAX: u32 = (SETTLE_MS / LATER_MS) as u32 + 10;

/// Tables that a directory is cut into: one is swept, or grows, at a time, so
/// that answers never wait for all.
pub(crate) const SHARDS: usize = 256;

/// Tables swept at a tick: with ten ticks a second what nodes had that left is
/// out of memory in three seconds, and no tick takes more than a millisecond.
pub(crate) const SWEEPS_PER_TICK: usize = 8;

/// Bits of a lease's number that count leases: a trillion. The others are the low ones of the epoch:
/// the number of the dispatcher, and eight that tell its processes apart, as does where each begins
/// to count.
pub(crate) const LEASE_BITS: u32 = 40;

/// Questions that one fetch puts to the coordinator: two leaders may die, and
/// two holders have lost it; then the origin must do.
pub const ASKS_MAX: u32 = 4;

/// How long a node waits before it asks again when the leader of a fill is
/// overloaded, in milliseconds, the first time; then twice as long each time.
/// Some segments' time on the wire.
pub const OVERLOADED_WAIT_MS: u64 = 50;

/// After so long no further attempt to get a segment begins, in milliseconds;
/// clients have gone by then.
pub const GIVE_UP_MS: u64 = 30_000;

/// Load of the fullest owner over the mean, in percent (Mirrokni, Thorup,
/// Zadimoghaddam, SODA 2018: c = 1.25).
pub(crate) const BOUND_PERCENT: u64 = 125;

/// Load below which an owner is never passed over, in bytes: so that nodes agree
/// on owners as long as there is little to do (32 segments: 0.1 s at 10 Gbit/s).
pub(crate) const OWNER_LOAD_FLOOR_BYTES: u64 = 32 * skep_units::SEGMENT_BYTES;

/// How often a sole replica may be passed on without being asked for (Dahlin et
/// al., "Cooperative caching", OSDI '94: n = 2).
pub const CHANCES: u8 = 2;

/// Segments of fewer bytes are not filled remotely, room or not: the way over another
/// node would cost more than it saves.
pub(crate) const REMOTE_FILL_BYTES_MIN: u32 = skep_units::SEGMENT_BYTES as u32;

/// Segments that are read ahead of a sequential reader: while one is sent the
/// next one comes, and one in reserve.
pub const READ_AHEAD: u32 = 2;

/// Segments read one after the other that make a reader a sequential one: more
/// than a range of a few MB that begins anywhere.
pub(crate) const SEQUENTIAL_RUN: u32 = 4;

/// Purges of URLs and tags that are known exactly; older ones hit what falls
/// into the same of 65,536 cells, too. A page of purges a second for a quarter
/// of an hour; each is some hundred bytes.
pub const PURGES_MAX: usize = 1_024;

/// Purges of prefixes that are known exactly: fewer, for each is compared with
/// all that is looked up. Older ones hit the topmost folder that they are in.
pub const PURGE_PREFIXES_MAX: usize = 256;

/// Text of each of the two kinds, in bytes: the longest command and as much again.
pub const PURGE_TEXT_BYTES_MAX: usize = 1024 * 1024;

/// How long a node that has just started waits for its first slots, in milliseconds: links take some
/// milliseconds where there is a coordinator.
pub const SLOTS_FIRST_MS: u64 = 1_000;

/// How long a node without a coordinator keeps the slots that it had, in milliseconds: more than another
/// one takes to become active.
pub const SLOTS_KEPT_MS: u64 = 2_000;

/// How long the slots of a node that was lost are given to nobody, in milliseconds: more than
/// [`SLOTS_KEPT_MS`], by what the node may take longer to find the link lost.
pub const SLOTS_LOST_MS: u64 = 3_000;

/// How long a coordinator waits for all nodes, once the first one follows it, before it grants slots, in
/// milliseconds: as long as nodes use what another one granted.
pub const SLOTS_SETTLE_MS: u64 = SLOTS_LOST_MS;

/// How long a node waits for the first slots of a coordinator that it is linked with, in milliseconds:
/// more than that takes to settle. One that grants nothing then does not count this server.
pub const SLOTS_SILENT_MS: u64 = SLOTS_SETTLE_MS + 2_000;

/// How long nodes may follow different coordinators before each is granted its share, in milliseconds: less
/// than [`SLOTS_LOST_MS`], by what it takes to find a link lost.
pub const SLOTS_SPLIT_MS: u64 = SLOTS_KEPT_MS;

/// How long a node has a use for what it used once, in milliseconds: the time in which slots that it does
/// not use any more go to others.
pub const SLOTS_WANTED_MS: u64 = 1_000;

/// How long a slot stays with one node if there are fewer than nodes that want one, in milliseconds: much
/// more than it takes to move.
pub const SLOT_TURN_MS: u64 = 1_000;

/// How long slots that were taken from a node count as about to be free, in milliseconds: more than a
/// node's answer takes. Then it has requests that last longer.
pub const SLOTS_LEAVE_MS: u64 = 250;

/// Servers of pools that a coordinator counts; nodes have their shares of others.
pub const SLOTS_SERVERS_MAX: usize = 4_096;
