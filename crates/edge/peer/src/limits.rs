//! Bounds and fixed numbers of sockets, links and fetches, with units and reasons.

use skep_serve::AdmissionLimits;
use skep_wire::limits::PEERS_MAX;

/// Receive buffer, in bytes (the system may grant less): some seconds of the
/// heartbeats of 256 nodes, so that a pause loses none, or one long table.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Send buffer, in bytes: one long table.
pub(crate) const SEND_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Datagrams that one wait looks at before it gives the caller a turn: those
/// that are refused must not keep heartbeats from being sent.
pub(crate) const DATAGRAMS_PER_WAIT_MAX: usize = 1_024;

/// Traffic class of what keeps the network going: CS6 (RFC 4594, 3.1), shifted
/// to its place in the byte.
pub(crate) const TRAFFIC_CLASS: u32 = 48 << 2;

/// Real-time priority of the thread: above everything that is not real-time,
/// below what the kernel runs at 50 (threaded interrupts), which it waits for.
pub(crate) const ROUND_ROBIN_PRIORITY: i32 = 10;

/// Niceness where real time is not allowed.
pub(crate) const NICENESS: i32 = -15;

/// Milliseconds for a whole handshake: two round trips within a cluster, and
/// time for a machine that swaps.
pub(crate) const HANDSHAKE_MS: u64 = 1_000;

/// Milliseconds for a link to connect: one lost SYN is sent again after 1 s.
pub(crate) const LINK_CONNECT_MS: u64 = 1_500;

/// Handshakes that a server of links does at a time with strangers, whose addresses
/// are not in the config; who comes then is closed.
pub(crate) const HANDSHAKES_MAX: usize = 64;

/// Of these, with one address (of IPv6: one /64): so no machine keeps others out.
pub(crate) const HANDSHAKES_PER_ADDRESS_MAX: usize = 8;

/// Handshakes with the address of a machine of the config at a time, which no
/// stranger takes from it: more nodes than one machine has.
pub(crate) const HANDSHAKES_PER_MEMBER_MAX: usize = 16;

/// Refused streams that are read on until the refusal has arrived; others are closed
/// at once.
pub(crate) const LINGERING_MAX: usize = 64;

/// Bytes that a refused stream may still send and that are thrown away, lest a
/// reset takes the refusal from it.
pub(crate) const LINGER_BYTES_MAX: usize = 4 * 1024;

/// And so long, in milliseconds.
pub(crate) const LINGER_MS: u64 = 500;

/// Bytes that one read of a link takes: thousands of messages.
pub(crate) const LINK_READ_BYTES: usize = 64 * 1024;

/// Commands that may wait for the thread of the links: more than segments that
/// one node fills at a time.
pub(crate) const COMMANDS_MAX: usize = 16 * 1024;

/// Bytes that wait to be sent on a link: the answers of some seconds, and what
/// comes and goes in them. Inventories are paced
/// ([`Outbox::queued_bytes`](crate::stream::Outbox::queued_bytes)).
pub(crate) const LINK_QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Capacity of a link's send buffer above which it is freed when empty, in bytes.
pub(crate) const LINK_BUFFER_BYTES_KEPT_MAX: usize = 256 * 1024;

/// Milliseconds of silence after which a link says that it is alive.
pub const PING_MS: u64 = 200;

/// Milliseconds of silence after which the other end of a link counts as gone.
/// Looked at every [`PING_MS`], so it is found within a second.
pub const SILENCE_MS: u64 = 800;

/// Milliseconds in which the other end of a link must take some bytes.
pub(crate) const LINK_STALL_MS: u64 = 2_000;

/// Shortest and longest pause before a link is tried again, in milliseconds.
pub const BACKOFF_MS: (u64, u64) = (100, 2_000);

/// A link that lasted so many milliseconds begins anew with the shortest pause.
pub(crate) const STABLE_MS: u64 = 2_000;

/// Milliseconds to connect to another node: a live one answers in less than one.
pub(crate) const PEER_CONNECT_MS: u64 = 250;

/// Connections of one worker to one other node: one exchange each at a time.
pub(crate) const PEER_CONNECTIONS_MAX: usize = 64;

/// Connections that one machine may have to a node: [`PEER_CONNECTIONS_MAX`] of
/// each of 64 workers.
const PEER_CONNECTIONS_PER_ADDRESS_MAX: usize = 64 * PEER_CONNECTIONS_MAX;

/// Connections of other nodes that a node takes: an allowance of their own, so that
/// clients can't take theirs, nor they the clients'. In all as many as one worker
/// of every machine that the cluster may have; machines have more workers, and are
/// never all so busy with one node.
pub const PEER_ADMISSION: AdmissionLimits = AdmissionLimits {
    connections_max: PEERS_MAX * PEER_CONNECTIONS_MAX,
    per_address_max: PEER_CONNECTIONS_PER_ADDRESS_MAX,
    // Of strangers: machines of the config are told by their addresses.
    ipv6_prefix_bits: 64,
};

/// Milliseconds after which an unused connection to a node is closed.
pub(crate) const PEER_IDLE_MS: u64 = 30_000;

/// And by the node at its other end: later, so that no request meets a close.
pub(crate) const PEER_SERVE_IDLE_MS: u64 = 60_000;

/// Milliseconds to take or to send a request, once it has begun.
pub(crate) const PEER_REQUEST_MS: u64 = 1_000;

/// Milliseconds until the reply is here.
pub const PEER_REPLY_MS: u64 = 1_000;

/// Milliseconds until the next frame is here.
pub(crate) const PEER_CHUNK_MS: u64 = 2_000;

/// How often a node whose source is slow says that it is still there, in
/// milliseconds.
pub(crate) const PEER_PING_MS: u64 = 500;

/// Milliseconds without a chunk after which a source that is said to be slow
/// counts as dead: longer than any time to read from an origin.
pub(crate) const PEER_SOURCE_MS: u64 = 60_000;

/// Milliseconds in which the asker must take some bytes.
pub(crate) const PEER_STALL_MS: u64 = 5_000;

/// Bytes of chunks that one write is given: the cost of a turn no longer counts.
pub(crate) const PEER_BATCH_BYTES_MAX: u64 = 512 * 1024;

/// Bytes that the first read after a request takes: a reply with a small
/// segment behind it.
pub(crate) const PEER_FIRST_READ_BYTES: usize = 16 * 1024;
