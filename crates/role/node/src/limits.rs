//! Every bound of this crate, with unit and reason.

use skep_directory::limits::LEASE_TTL_MS;
use skep_peer::stream::{PEER_REPLY_MS, PING_MS, SILENCE_MS};

/// Time after which dispatchers are told again of the size of an object that is served, in milliseconds: one that was
/// started anew knows it by then, and the objects of a busy site cost some datagrams a second.
pub(crate) const TELL_AGAIN_MS: u64 = 10_000;

/// Objects that wait to be told of, at most; further ones have another turn later.
pub(crate) const SIZES_WAITING_MAX: usize = 4_096;

/// Messages about objects that go with one report of the load: some 960 objects.
pub(crate) const SIZES_MESSAGES_MAX: usize = 16;

/// Bytes that a worker itself copies out of the kernel's page cache before it
/// leaves the rest of a file to the pool: about 0.1 ms of its time.
pub(crate) const INLINE_READ_BYTES_MAX: u64 = 512 * 1024;

/// Body of a fixed reply, in bytes: each is in memory for as long as its config is in force.
pub(crate) const FIXED_BODY_BYTES_MAX: u64 = 1024 * 1024;

/// Of the processor's cores one in so many has a thread that compresses, at least one has: the workers, which
/// send what is ready, have the others for themselves.
pub(crate) const COMPRESSOR_CORES_PART: usize = 2;

/// Objects that may wait for one of these threads; what comes then is sent as it is. With 4 ms for 200 KiB,
/// the last of them waits for about as long as its client is willing to.
pub(crate) const COMPRESSIONS_WAITING_MAX: usize = 32;

/// Time for which a request waits for a variant that is being made, in milliseconds; then it gets the plain
/// bytes, and later ones the variant. The largest objects take that long.
pub(crate) const COMPRESSION_WAIT_MS: u64 = 1_000;

/// Variants that a request tries to send whose bytes turn out to have left memory; then it gets the plain
/// bytes.
pub(crate) const COMPRESSED_ATTEMPTS_MAX: usize = 2;

/// Responses that a worker compresses at a time while it passes them on, each with an encoder of about
/// 2 MiB; further ones are passed as they are.
pub(crate) const PASSED_ENCODERS_MAX: usize = 32;

/// Highest level of compression for what is passed on, by the worker itself and once for each request.
/// A piece of 64 KiB takes it about a millisecond.
pub(crate) const PASSED_LEVEL_MAX: u32 = 4;

/// What compression must save at least: one part in so many of the bytes. Less is not worth a client's work,
/// nor a node's memory.
pub(crate) const COMPRESSION_GAIN_PART: u64 = 16;

/// Bytes that are encoded at a time: a chunk of a segment.
pub(crate) const COMPRESSION_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes of one piece for a client that is sent copies and was not found slow, and of
/// the buffer of a passed answer.
pub(crate) const STREAM_BYTES: usize = 128 * 1024;

/// A client that takes less of a passed answer than this, in bytes per second, holds
/// its origin's connection for itself: 64 KiB/s, as a poor mobile link does.
pub(crate) const PASS_SLOW_BYTES_PER_S: u64 = 64 * 1024;

/// Time by which it has to be behind that rate to count as slow, in milliseconds.
pub(crate) const PASS_SLOW_GRACE_MS: u64 = 2_000;

/// Of the places for passed answers one in so many, at least one, may be held by slow
/// clients of one address: seven greedy ones at once do not shut out the others.
pub(crate) const PASS_SLOW_SHARE: usize = 8;

/// Bytes that a reply gathers before it is sent.
pub(crate) const SEND_BYTES_MAX: u64 = 1024 * 1024;

/// Bodies up to this size are copied behind their head instead of shared: one
/// part less to write, and cheaper than the reference up to a page.
pub(crate) const COPY_BYTES_MAX: usize = 4096;

/// What a place for a head takes beside the head, in bytes: its entry in a table that
/// grows by doubling.
pub(crate) const HEAD_SLOT_BYTES: usize = 192;

/// Of the store's capacity the workers' indexes may take one part in so many,
/// together.
pub(crate) const WORKER_INDEXES_PART: u64 = 8;

/// What an entry of a worker's index takes beside its path, in bytes: its place in a
/// table that grows by doubling, and what is left of a resource and a segment that
/// have gone, as long as it points to them.
pub(crate) const WORKER_INDEX_ENTRY_BYTES: usize = 512;

/// Variants of a response that an entry of a worker's index has at most, for those who accept different
/// codings or languages; further ones are looked up in the cache.
pub(crate) const WORKER_INDEX_VARIANTS_MAX: usize = 8;

/// Times that a slow client's reply waits so for a segment of another node's file, which
/// has no other way: half a minute in all.
pub(crate) const ROOM_WAITS_MAX: u32 = 15;

/// How long a client may take for what it is sent without a copy before it counts as
/// slow, in milliseconds.
pub(crate) const PATIENCE_MS: u64 = 1_000;

/// What a client takes in that time at least to count as fast again, in bytes.
pub(crate) const FAST_BYTES: u64 = 1024 * 1024;

/// Smallest copy that a slow client is sent at a time, in bytes: a page.
pub(crate) const PIECE_BYTES_MIN: u64 = 4 * 1024;

/// Largest one: what a connection may have for its buffers by default
/// (`limits.connection_bytes_max`).
pub(crate) const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Smallest piece that an origin is asked for, for a slow client, in bytes: a request
/// costs more than so much memory.
pub(crate) const ORIGIN_PIECE_BYTES_MIN: u64 = 32 * 1024;

/// Times that an origin is asked for one piece: a reply of hours takes thousands of them,
/// and origins are restarted meanwhile.
pub(crate) const PIECE_ASKS_MAX: u32 = 16;

/// Time after which it is not asked once more, in milliseconds.
pub(crate) const PIECE_PATIENCE_MS: u64 = 10_000;

/// Pause behind an ask that brought no byte, in milliseconds.
pub(crate) const PIECE_PAUSE_MS: u64 = 500;

/// Largest body that is answered within the poll that read the request, in bytes:
/// if the client turns out to be slow it gets a copy.
pub(crate) const QUICK_BYTES_MAX: u64 = 64 * 1024;

/// Ranges that one request may ask for; more get the whole file. 16 is more
/// than readers of PDF or archives use, and bounds the amplification of many
/// small overlapping ranges (CVE-2011-3192).
pub(crate) const RANGES_MAX: usize = 16;

/// Entries of a directory that a listing shows.
pub(crate) const LISTING_ENTRIES_MAX: usize = 10_000;

/// Directories watched for changes. Each costs the kernel about 1 KiB; files
/// in directories beyond it are checked by time alone.
pub(crate) const WATCHES_MAX: usize = 32_768;

/// Paths that one worker's index remembers at most: what a scan of all for
/// those that have gone costs is some milliseconds.
pub(crate) const WORKER_INDEX_ENTRIES_MAX: usize = 65_536;

/// Times that a request starts over because what it was to send is another version
/// by now, or was purged.
pub(crate) const ATTEMPTS_MAX: usize = 4;

/// Bytes of the name of a file in a message for the operator: enough to know it by.
pub(crate) const TOLD_FILE_BYTES_MAX: usize = 200;

/// Longest path under a root, in bytes: what the kernel takes (PATH_MAX).
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// Time from one telling of changes to coordinators to the next, in
/// milliseconds: what a node holds is known to all after so long.
pub(crate) const LINK_TICK_MS: u64 = 20;

/// How long a node that has just started waits for its first link before it goes by
/// the hash of names, in milliseconds: links take some milliseconds where there is
/// a dispatcher.
pub(crate) const FIRST_LINK_MS: u64 = 1_000;

/// Time that a node which goes off has to hand over what no other node has, in milliseconds: 10 GB at 3 Gbit/s. What is
/// left then is dropped.
pub(crate) const HAND_OVER_MS_MAX: u64 = 30_000;

/// Bytes that may wait on a link before more of an inventory is put behind them:
/// what a link takes in a few milliseconds, told every [`LINK_TICK_MS`], is 4 million
/// segments in some seconds; and looking them up holds the links' thread up for a few
/// milliseconds at a time.
pub(crate) const INVENTORY_QUEUE_BYTES_MAX: usize = 512 * 1024;

/// Time for which an owner that could not be reached is passed over, in milliseconds:
/// that costs a quarter of a second each time, and all that is known of who is there is
/// old while no coordinator answers.
pub(crate) const OWNER_LOST_MS: u64 = 2_000;

/// Segments of an object that are looked for when its version goes: those of 256 GiB,
/// some milliseconds. What is behind them leaves memory as others come.
pub(crate) const FORGOTTEN_SEGMENTS_MAX: usize = 65_536;

/// How long nothing is offered after an offer was refused, in milliseconds:
/// until the next news of who has room.
pub(crate) const OFFER_PAUSE_MS: u64 = 200;

/// How long a node that is offered a sole replica waits until all of it is there, in
/// milliseconds: less than who offers waits for a reply.
pub(crate) const OFFER_WAIT_MS: u64 = 800;
const _: () = assert!(OFFER_WAIT_MS < PEER_REPLY_MS, "see above");

/// Times that a fill goes on where an origin broke off; each brought bytes.
pub(crate) const FILL_ATTEMPTS_MAX: usize = 4;

/// Asks for one attempt to fill a segment: origins may send less than they were
/// asked for, but not by the byte.
pub(crate) const ORIGIN_ASKS_MAX: usize = 16;

/// Time for which answers of a path that may not be kept are passed on without
/// others waiting for them, in milliseconds: as long as others take.
pub(crate) const PASS_MS: u64 = 10_000;

/// The same where an origin has nothing that could be kept, but another status: that
/// may change soon, as while it is set up.
pub(crate) const PASS_OTHER_MS: u64 = 1_000;

/// The same where there was no memory for what came, in milliseconds: as long as a miss
/// waits for some.
pub(crate) const PASS_NO_ROOM_MS: u64 = skep_segments::limits::ROOM_WAIT_MS;

/// Time for which requests of a key do not wait for each other after a response of a pool that may
/// not be stored, in milliseconds: two minutes, as Varnish has it (hit-for-miss). One that may be
/// ends it earlier.
pub(crate) const MARK_MS: u64 = 120_000;

/// The same after an error, in milliseconds: it may be over soon.
pub(crate) const MARK_ERROR_MS: u64 = 1_000;

/// Responses of a route in a row that others waited for, or could have, and that may not be stored: after them
/// requests for new keys do not wait for each other, since its pages are private.
pub(crate) const UNSTORABLE_IN_A_ROW_MAX: u32 = 20;

/// Different Vary of one key that are remembered: applications send one, or another with errors.
pub(crate) const VARIES_MAX: usize = 4;

/// Variants of one key that `skep cache explain` can name: as many as one looks at.
pub(crate) const VARIANTS_TOLD_MAX: usize = 16;
const _: () = assert!(VARIANTS_TOLD_MAX <= skep_wire::limits::EXPLAIN_VARIANTS_MAX);

/// Refreshes of responses of a route that are not stale yet, under way at a time on a node: they are for nobody who waits,
/// and must leave the servers to those who do.
pub(crate) const REFRESHES_AHEAD_MAX: usize = 16;

/// The same of responses that are stale, and sent meanwhile (`stale-while-revalidate`): after a soft purge of all
/// pages their application must not meet all of them at once.
pub(crate) const REFRESHES_STALE_MAX: usize = 64;

/// Keys whose last response is remembered with what was decided on it, for `skep cache explain`: some
/// 400 KB.
pub(crate) const JUDGEMENTS_MAX: usize = 4_096;

/// Times that a request of a pool waits for another one: once for what the response depends on, and
/// once for its own variant.
pub(crate) const COLLAPSES_MAX: usize = 2;

/// Bytes of the copies of responses of unknown length that are under way on a node: half of what segments
/// may take beyond the cache, and eight of the longest. A site has at most its share of fills, half of that.
pub(crate) const COPIES_BYTES_MAX: u64 = skep_segments::limits::PINNED_BYTES_MAX / 2;
const _: () = assert!(COPIES_BYTES_MAX >= 8 * skep_units::SEGMENT_BYTES, "see above");

/// Bytes of a response that nobody wants that are read, so that its connection can be used again.
pub(crate) const DISCARDED_BYTES_MAX: usize = 64 * 1024;

/// Time that the answer to a request that has changed something waits for the coordinator to tell
/// all nodes, in milliseconds: many times what it takes.
pub(crate) const INVALIDATION_WAIT_MS: u64 = 50;

/// Time for which the failure of a pool is the answer for all who ask for the same, in milliseconds.
pub(crate) const POOL_FAILED_MS: u64 = 1_000;

/// Time for which an origin is not asked again for what it just failed with, in
/// milliseconds: as long as it is avoided where there is another.
pub(crate) const FAILED_MS: u64 = skep_origin::AVOID_MS;

/// How long another node that asks for a head waits for the origin before it is
/// told to ask again, in milliseconds: well before it takes this one for dead.
pub(crate) const HEAD_WAIT_MS: u64 = 500;

/// How long another node waits for this one to hear of its lease, in
/// milliseconds: many times the way.
pub(crate) const LEASE_WAIT_MS: u64 = 100;
const _: () = assert!(LEASE_WAIT_MS + HEAD_WAIT_MS < PEER_REPLY_MS, "it hears to ask again");

/// Times that a node asks again so: in all as long as an origin has by default.
pub(crate) const HEAD_WAITS_MAX: u32 = 60;

/// Answers of coordinators that a node follows for a head before it asks the
/// origin itself.
pub(crate) const HEAD_ASKS_MAX: u32 = 4;

/// Time after which a coordinator hears that what it has granted goes on, in
/// milliseconds: a quarter of what it believes without a word.
pub(crate) const LEASE_RENEW_MS: u64 = LEASE_TTL_MS as u64 / 4;

/// A file that was written so shortly ago may be written again in the same tick of its
/// file system's clock, and look the same, in milliseconds: ticks are 10 ms at most (100
/// a second), and one call that writes much sets the time once, at its beginning.
pub(crate) const UNSETTLED_MS: u64 = 100;

/// The same where the clock seems to count whole seconds, in milliseconds: FAT's ticks
/// are 2 s.
pub(crate) const UNSETTLED_COARSE_MS: u64 = 2_000;

/// How long a request waits for a file to settle, in milliseconds: twice what it takes if
/// nobody writes any more. Then it gets what is there, which is not kept.
pub(crate) const SETTLE_WAIT_MS: u64 = 2 * UNSETTLED_MS;

/// Files and folders that a node announces of the sites of which it has a part:
/// some 100 bytes of memory each, 10 MB to tell them all. Others ask it for
/// the rest. A directory knows some dozens of such nodes (`FILES_MAX`).
pub(crate) const PART_ENTRIES_MAX: usize = 500_000;

/// Longest time from one look for changed folders of a part to the next, in
/// milliseconds: an atomic load for each folder.
pub(crate) const PART_TICK_MS: u64 = 100;

/// A folder that changed so shortly before it was read is read again, in milliseconds:
/// it may have changed once more in the same tick.
pub(crate) const PART_UNSETTLED_MS: u64 = UNSETTLED_COARSE_MS;

/// Time for which "nobody has it" is believed, in milliseconds: bounds what a
/// flood of requests for nothing costs others; well below the second in which a
/// new file is to be seen.
pub(crate) const PART_ABSENT_MS: u64 = 200;

/// Longest search for who has a file, in milliseconds.
pub(crate) const PART_SEEK_MS: u64 = 2_000;

/// Nodes that are asked for a file while no coordinator knows.
pub(crate) const PART_AROUND_MAX: usize = skep_wire::limits::POSSIBLE_HOLDERS_MAX;

/// Nodes that a fill turns to for the bytes of a file.
pub(crate) const PART_HOMES_MAX: usize = 4;

/// Times that a fill waits for a node that has too much to send.
pub(crate) const PART_WAITS_MAX: u32 = 4;

/// Of the bytes that a node owes its clients one in so many counts when it decides
/// whether it has too much to send: most of them wait for slow clients, while what
/// other nodes get is taken as fast as the network goes.
pub(crate) const CLIENT_BYTES_PART: u64 = 8;

/// Time after which a process that did not run stops to trust its memory, in
/// milliseconds: others count it as gone after [`SILENCE_MS`] without a word, and its
/// last word was [`PING_MS`] before the pause, if not less.
pub(crate) const PAUSE_MS: u64 = 500;
const _: () =
    assert!(PAUSE_MS + PING_MS < SILENCE_MS, "a purge that did not wait for it is heard of");

/// Longest time that requests then wait for a coordinator, in milliseconds: some
/// attempts to link anew.
pub(crate) const PAUSE_WAIT_MS: u64 = 1_000;

/// Secret of an AJP connector, in bytes: it is part of every request's packet.
pub(crate) const SECRET_BYTES_MAX: usize = 256;

/// How often the opening of a file is tried while renames elsewhere disturb it: each takes microseconds.
pub(crate) const OPEN_TRIES_MAX: u32 = 1_000;

/// Answer of a server about its status, in bytes: a Tomcat with some hundred applications.
pub(crate) const AGENT_BODY_BYTES_MAX: usize = 256 * 1024;

/// Largest number that is taken from what a server says of itself, and smallest: exabytes.
pub(crate) const AGENT_NUMBER_MAX: f64 = 1e18;

/// Text of such an answer that is shown, in bytes: a version.
pub(crate) const AGENT_TEXT_BYTES_MAX: usize = 128;

/// Applications of a server whose sessions are shown.
pub(crate) const AGENT_CONTEXTS_MAX: usize = 64;

/// Time after which a pool whose servers are not asked is looked at again, in milliseconds: a reload may
/// have changed that.
pub(crate) const AGENT_LOOK_MS: u64 = 1_000;

/// How long the thread of the links, and a coordinator's, may take beside the time that nodes have to answer an
/// operator, in milliseconds: some ticks of both.
pub(crate) const ANSWERS_MARGIN_MS: u64 = 1_500;

/// Questions of operators that wait for this node's workers at a time: each has a thread, for a second at most.
pub(crate) const OPERATOR_QUESTIONS_MAX: usize = 8;
