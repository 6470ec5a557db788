//! Every bound of this crate, with unit and reason.

use skep_directory::limits::LEASE_TTL_MS;
use skep_peer::stream::{PEER_REPLY_MS, PING_MS, SILENCE_MS};

/// Interval at which the size of an object in use is reported to dispatchers again, in milliseconds: a
/// dispatcher that was restarted learns it within this time, and a busy site costs a few datagrams per
/// second.
pub(crate) const TELL_AGAIN_MS: u64 = 10_000;

/// Objects that wait to be reported, at most; further ones are reported the next time they are due.
pub(crate) const SIZES_WAITING_MAX: usize = 4_096;

/// Object messages sent with one load report: some 960 objects.
pub(crate) const SIZES_MESSAGES_MAX: usize = 16;

/// Bytes that a worker copies from the kernel's page cache by itself before it leaves the rest of a file to
/// the disk pool: about 0.1 ms of its time.
pub(crate) const INLINE_READ_BYTES_MAX: u64 = 512 * 1024;

/// Body of a fixed reply, in bytes: each stays in memory while its config is in force.
pub(crate) const FIXED_BODY_BYTES_MAX: u64 = 1024 * 1024;

/// One compression thread is started per this number of cores, at least one: the other cores are left to the
/// workers, which send what is ready.
pub(crate) const COMPRESSOR_CORES_PART: usize = 2;

/// Objects that may wait for a compression thread; further ones are sent uncompressed. At 4 ms per 200 KiB,
/// the last in the queue waits about as long as its client tolerates.
pub(crate) const COMPRESSIONS_WAITING_MAX: usize = 32;

/// Time for which a request waits for a compressed variant in progress, in milliseconds; then it is sent the
/// uncompressed bytes, and later requests get the variant. The largest objects take that long.
pub(crate) const COMPRESSION_WAIT_MS: u64 = 1_000;

/// Attempts to send a compressed variant whose bytes turn out to have been evicted; then the uncompressed
/// bytes are sent.
pub(crate) const COMPRESSED_ATTEMPTS_MAX: usize = 2;

/// Responses that a worker compresses at the same time while it passes them on, each with an encoder of about
/// 2 MiB; further ones are passed uncompressed.
pub(crate) const PASSED_ENCODERS_MAX: usize = 32;

/// Highest compression level for passed responses, which the worker itself compresses once per request. A
/// piece of 64 KiB takes about a millisecond.
pub(crate) const PASSED_LEVEL_MAX: u32 = 4;

/// Compression must save at least one part in this number of the bytes. Less is not worth a client's work or
/// a node's memory.
pub(crate) const COMPRESSION_GAIN_PART: u64 = 16;

/// Bytes that are encoded at a time: a chunk of a segment.
pub(crate) const COMPRESSION_CHUNK_BYTES: usize = 64 * 1024;

/// Size of one piece for a client that is sent copies and was not found to be slow, and of the buffer of a
/// passed response, in bytes.
pub(crate) const STREAM_BYTES: usize = 128 * 1024;

/// A client that reads a passed response more slowly than this, in bytes per second, occupies an origin
/// connection: 64 KiB/s, as a poor mobile link does.
pub(crate) const PASS_SLOW_BYTES_PER_S: u64 = 64 * 1024;

/// Time that a client must be behind that rate to count as slow, in milliseconds.
pub(crate) const PASS_SLOW_GRACE_MS: u64 = 2_000;

/// Slow clients of one address may hold one part in this number of the slots for passed responses, at least
/// one: seven such addresses at once do not shut out the others.
pub(crate) const PASS_SLOW_SHARE: usize = 8;

/// Bytes that are gathered for a reply before they are sent.
pub(crate) const SEND_BYTES_MAX: u64 = 1024 * 1024;

/// Bodies up to this size are copied behind their head instead of shared: one buffer less to write, and up to
/// a page cheaper than the reference.
pub(crate) const COPY_BYTES_MAX: usize = 4096;

/// Memory of a slot for a head besides the head itself, in bytes: its entry in a table that grows by doubling.
pub(crate) const HEAD_SLOT_BYTES: usize = 192;

/// The workers' indexes together may take one part in this number of the store's capacity.
pub(crate) const WORKER_INDEXES_PART: u64 = 8;

/// Memory of an entry of a worker's index besides its path, in bytes: its place in a table that grows by
/// doubling, and the remains of a removed resource and segment while the entry refers to them.
pub(crate) const WORKER_INDEX_ENTRY_BYTES: usize = 512;

/// Variants of a response in one entry of a worker's index, for clients that accept different codings or
/// languages; further ones are looked up in the cache.
pub(crate) const WORKER_INDEX_VARIANTS_MAX: usize = 8;

/// Times that a slow client's reply waits for memory for a segment of another node's file, which cannot be
/// sent in any other way: half a minute in all.
pub(crate) const ROOM_WAITS_MAX: u32 = 15;

/// Time that a client may take for data sent without a copy before it counts as slow, in milliseconds.
pub(crate) const PATIENCE_MS: u64 = 1_000;

/// Bytes that a client must take in that time to count as fast again.
pub(crate) const FAST_BYTES: u64 = 1024 * 1024;

/// Smallest copy that is sent to a slow client at a time, in bytes: a page.
pub(crate) const PIECE_BYTES_MIN: u64 = 4 * 1024;

/// Largest such copy, in bytes: the default size of a connection's buffers (`limits.connection_bytes_max`).
pub(crate) const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Smallest piece requested from an origin for a slow client, in bytes: a request costs more than this amount
/// of memory.
pub(crate) const ORIGIN_PIECE_BYTES_MIN: u64 = 32 * 1024;

/// Requests to an origin for one piece, at most: a reply of several hours takes thousands of them, during
/// which origins are restarted.
pub(crate) const PIECE_ASKS_MAX: u32 = 16;

/// Time after which a failed request for a piece is not retried, in milliseconds.
pub(crate) const PIECE_PATIENCE_MS: u64 = 10_000;

/// Pause after a request that returned no bytes, in milliseconds.
pub(crate) const PIECE_PAUSE_MS: u64 = 500;

/// Largest body that is sent within the poll that read the request, in bytes: if the client turns out to be
/// slow, the body is copied.
pub(crate) const QUICK_BYTES_MAX: u64 = 64 * 1024;

/// Ranges of one request; a request with more is sent the whole file. 16 is more than readers of PDF or
/// archives use, and bounds the amplification by many small overlapping ranges (CVE-2011-3192).
pub(crate) const RANGES_MAX: usize = 16;

/// Entries of a directory that a listing shows.
pub(crate) const LISTING_ENTRIES_MAX: usize = 10_000;

/// Directories watched for changes. Each costs about 1 KiB in the kernel; files in further directories are
/// checked by time only.
pub(crate) const WATCHES_MAX: usize = 32_768;

/// Paths in one worker's index, at most: a scan of all of them for removed ones takes some milliseconds.
pub(crate) const WORKER_INDEX_ENTRIES_MAX: usize = 65_536;

/// Times that a request starts over because the object it was about to send has a new version or was purged.
pub(crate) const ATTEMPTS_MAX: usize = 4;

/// Bytes of a file name in a message for the operator: enough to identify it.
pub(crate) const TOLD_FILE_BYTES_MAX: usize = 200;

/// Longest path under a root, in bytes: the kernel's limit (PATH_MAX).
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// Interval of reports of changes to coordinators, in milliseconds: the time until other nodes can find a new
/// segment.
pub(crate) const LINK_TICK_MS: u64 = 20;

/// Time that a node which has just started waits for its first link before it determines owners by rendezvous
/// hashing, in milliseconds: a link takes some milliseconds if there is a dispatcher.
pub(crate) const FIRST_LINK_MS: u64 = 1_000;

/// Time that a node which is switched off has to hand over its sole replicas, in milliseconds: 10 GB at 3
/// Gbit/s. The rest is dropped.
pub(crate) const HAND_OVER_MS_MAX: u64 = 30_000;

/// Bytes queued on a link above which no more of an inventory is added. A link sends this in a few
/// milliseconds; at one part per [`LINK_TICK_MS`], 4 million segments take some seconds. Looking up one part
/// occupies the link thread for a few milliseconds.
pub(crate) const INVENTORY_QUEUE_BYTES_MAX: usize = 512 * 1024;

/// Time for which an owner that could not be reached is passed over, in milliseconds: each attempt costs a
/// quarter of a second, and while no coordinator answers the known state of the nodes is out of date.
pub(crate) const OWNER_LOST_MS: u64 = 2_000;

/// Segments of an object that are removed when its version is replaced: those of 256 GiB, which take some
/// milliseconds. Segments beyond that are evicted as others are added.
pub(crate) const FORGOTTEN_SEGMENTS_MAX: usize = 65_536;

/// Pause of offers after a refused one, in milliseconds: until the next report of the node with most room.
pub(crate) const OFFER_PAUSE_MS: u64 = 200;

/// Time that a node waits for all of a sole replica that it is offered, in milliseconds: less than the
/// offering node waits for a reply.
pub(crate) const OFFER_WAIT_MS: u64 = 800;
const _: () = assert!(OFFER_WAIT_MS < PEER_REPLY_MS, "see above");

/// Times that a fill continues where an origin broke off; each attempt must have brought bytes.
pub(crate) const FILL_ATTEMPTS_MAX: usize = 4;

/// Requests for one attempt to fill a segment: an origin may send less than requested, but not byte by byte.
pub(crate) const ORIGIN_ASKS_MAX: usize = 16;

/// Time for which responses for a path that may not be stored are passed on without other requests waiting
/// for them, in milliseconds: as long as other caches use.
pub(crate) const PASS_MS: u64 = 10_000;

/// The same if an origin returns no storable response but another status: that may change soon, for example
/// while the origin is being set up.
pub(crate) const PASS_OTHER_MS: u64 = 1_000;

/// The same if there was no memory for the response, in milliseconds: as long as a miss waits for memory.
pub(crate) const PASS_NO_ROOM_MS: u64 = skep_segments::limits::ROOM_WAIT_MS;

/// Time for which requests of a key do not wait for each other after a pool response that may not be stored,
/// in milliseconds: two minutes, as in Varnish (hit-for-miss). A response that may be stored ends it earlier.
pub(crate) const MARK_MS: u64 = 120_000;

/// The same after an error, in milliseconds: it may be over soon.
pub(crate) const MARK_ERROR_MS: u64 = 1_000;

/// Consecutive responses of a route that other requests could have waited for but that may not be stored;
/// after these, requests for new keys do not wait for each other, since the route's pages are private.
pub(crate) const UNSTORABLE_IN_A_ROW_MAX: u32 = 20;

/// Different `Vary` values remembered per key: applications send one, or a second one with errors.
pub(crate) const VARIES_MAX: usize = 4;

/// Variants of one key that `skep cache explain` shows: as many as an operator reads.
pub(crate) const VARIANTS_TOLD_MAX: usize = 16;
const _: () = assert!(VARIANTS_TOLD_MAX <= skep_wire::limits::EXPLAIN_VARIANTS_MAX);

/// Concurrent refreshes of a route's responses that are not stale yet, per node: no client waits for them,
/// and they must leave the servers to requests that clients wait for.
pub(crate) const REFRESHES_AHEAD_MAX: usize = 16;

/// The same for responses that are stale and still sent (`stale-while-revalidate`): after a soft purge of all
/// pages the application must not receive all of the refreshes at once.
pub(crate) const REFRESHES_STALE_MAX: usize = 64;

/// Keys for which the decision on the last response is remembered, for `skep cache explain`: some 400 KB.
pub(crate) const JUDGEMENTS_MAX: usize = 4_096;

/// Times that a request of a pool waits for another one: once to learn what the response varies by, and once
/// for its own variant.
pub(crate) const COLLAPSES_MAX: usize = 2;

/// Bytes of the copies of responses of unknown length in progress on a node: half of the memory that segments
/// may take beyond the cache, and at least eight copies of the largest size. A site may use its share of
/// fills, half of that.
pub(crate) const COPIES_BYTES_MAX: u64 = skep_segments::limits::PINNED_BYTES_MAX / 2;
const _: () = assert!(COPIES_BYTES_MAX >= 8 * skep_units::SEGMENT_BYTES, "see above");

/// Bytes read of a response body that is not needed, so that its connection can be reused.
pub(crate) const DISCARDED_BYTES_MAX: usize = 64 * 1024;

/// Time that the response to a request that has changed something waits for the coordinator to send the purge
/// to all nodes, in milliseconds: many times the usual duration.
pub(crate) const INVALIDATION_WAIT_MS: u64 = 50;

/// Time for which the failure of a pool is returned to all requests for the same object, in milliseconds.
pub(crate) const POOL_FAILED_MS: u64 = 1_000;

/// Time for which an origin is not asked again for a target that has just failed, in milliseconds: as long as
/// a failed origin is avoided if there is another.
pub(crate) const FAILED_MS: u64 = skep_origin::AVOID_MS;

/// Time for which a request of another node for a head waits for the origin before it is asked to retry, in
/// milliseconds: well before that node considers this one dead.
pub(crate) const HEAD_WAIT_MS: u64 = 500;

/// Time for which a request of another node waits until this one has received its lease, in milliseconds:
/// many times the network latency.
pub(crate) const LEASE_WAIT_MS: u64 = 100;
const _: () = assert!(LEASE_WAIT_MS + HEAD_WAIT_MS < PEER_REPLY_MS, "it hears to ask again");

/// Such retries of a node, at most: together as long as the default timeout of an origin.
pub(crate) const HEAD_WAITS_MAX: u32 = 60;

/// Answers of coordinators that a node acts on to find a head before it asks the origin itself.
pub(crate) const HEAD_ASKS_MAX: u32 = 4;

/// Interval of lease renewals, in milliseconds: a quarter of the time for which a coordinator keeps a lease
/// without one.
pub(crate) const LEASE_RENEW_MS: u64 = LEASE_TTL_MS as u64 / 4;

/// Age below which a file counts as unsettled, in milliseconds: it may be written again in the same tick of
/// its file system's clock, with the same time. Ticks are 10 ms at most (100 per second), and one long write
/// sets the time once, at its beginning.
pub(crate) const UNSETTLED_MS: u64 = 100;

/// The same if the clock seems to count whole seconds, in milliseconds: a tick of FAT is 2 s.
pub(crate) const UNSETTLED_COARSE_MS: u64 = 2_000;

/// Time that a request waits for a file to settle, in milliseconds: twice the time that this takes without
/// another write. Then the file is sent as it is, and not cached.
pub(crate) const SETTLE_WAIT_MS: u64 = 2 * UNSETTLED_MS;

/// Files and folders that a node announces for partitioned folders: some 100 bytes of memory each, 10 MB to
/// announce all. Other nodes ask this node directly for the rest. A directory can store some dozens of such
/// nodes (`FILES_MAX`).
pub(crate) const PART_ENTRIES_MAX: usize = 500_000;

/// Longest interval of checks for changed folders of a partition, in milliseconds: a check is an atomic load
/// per folder.
pub(crate) const PART_TICK_MS: u64 = 100;

/// A folder that changed this shortly before it was read is read again, in milliseconds: it may have changed
/// once more in the same tick.
pub(crate) const PART_UNSETTLED_MS: u64 = UNSETTLED_COARSE_MS;

/// Lifetime of the result that no node has a file, in milliseconds: bounds the cost to other nodes of a flood
/// of requests for missing files; well below the second within which a new file must be visible.
pub(crate) const PART_ABSENT_MS: u64 = 200;

/// Longest search for a node with a file, in milliseconds.
pub(crate) const PART_SEEK_MS: u64 = 2_000;

/// Nodes that are asked for a file while no coordinator knows its holders.
pub(crate) const PART_AROUND_MAX: usize = skep_wire::limits::POSSIBLE_HOLDERS_MAX;

/// Nodes that a fill asks for the bytes of a file.
pub(crate) const PART_HOMES_MAX: usize = 4;

/// Times that a fill waits for an overloaded node.
pub(crate) const PART_WAITS_MAX: u32 = 4;

/// One part in this number of the bytes queued for clients counts when a node decides whether it is
/// overloaded: most of them wait for slow clients, while other nodes read at network speed.
pub(crate) const CLIENT_BYTES_PART: u64 = 8;

/// Time after which a process that was stopped no longer trusts its cache, in milliseconds: other nodes count
/// it as failed after [`SILENCE_MS`] without a message, and its last message was sent up to [`PING_MS`]
/// before the pause.
pub(crate) const PAUSE_MS: u64 = 500;
const _: () =
    assert!(PAUSE_MS + PING_MS < SILENCE_MS, "a purge that did not wait for it is heard of");

/// Longest time that requests then wait for a coordinator, in milliseconds: some attempts to link again.
pub(crate) const PAUSE_WAIT_MS: u64 = 1_000;

/// Secret of an AJP connector, in bytes: it is part of every request's packet.
pub(crate) const SECRET_BYTES_MAX: usize = 256;

/// Attempts to open a file while renames elsewhere interfere: each takes microseconds.
pub(crate) const OPEN_TRIES_MAX: u32 = 1_000;

/// Status response of a server, in bytes: that of a Tomcat with some hundred applications.
pub(crate) const AGENT_BODY_BYTES_MAX: usize = 256 * 1024;

/// Bound of the absolute value of numbers in a server's status: exabytes.
pub(crate) const AGENT_NUMBER_MAX: f64 = 1e18;

/// Longest text of a status that is shown, in bytes: a version.
pub(crate) const AGENT_TEXT_BYTES_MAX: usize = 128;

/// Applications of a server whose sessions are shown.
pub(crate) const AGENT_CONTEXTS_MAX: usize = 64;

/// Interval at which a pool whose servers' status is not queried is looked at again, in milliseconds: a
/// reload may have enabled queries.
pub(crate) const AGENT_LOOK_MS: u64 = 1_000;

/// Time that the link threads of this node and of a coordinator may take in addition to the time that nodes
/// have to answer an operator, in milliseconds: some ticks of both.
pub(crate) const ANSWERS_MARGIN_MS: u64 = 1_500;

/// Operators' questions that wait for this node's workers at the same time: each occupies a thread, for a
/// second at most.
pub(crate) const OPERATOR_QUESTIONS_MAX: usize = 8;
