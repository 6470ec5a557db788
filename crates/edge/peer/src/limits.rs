//! Bounds and fixed numbers of sockets, links and fetches, with units and reasons.

use skep_serve::AdmissionLimits;
use skep_wire::limits::PEERS_MAX;

/// Receive buffer, in bytes (the system may grant less): some seconds of the heartbeats of 256 nodes,
/// half a second of those of 1,024, so that a pause loses none, or one long table.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Send buffer, in bytes: one long table. (Of the longest that can be a part is lost, and sent anew.)
pub(crate) const SEND_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Datagrams that one wait reads before it returns: refused ones must not delay the sending of
/// heartbeats.
pub(crate) const DATAGRAMS_PER_WAIT_MAX: usize = 1_024;

/// Datagrams that one call for LCCP reads, refused ones included: the messages of dozens of moves, and some 100 us in
/// which the other tasks of a worker wait.
pub(crate) const LCCP_BATCH_DATAGRAMS_MAX: usize = 64;

/// Traffic class of network control: CS6 (RFC 4594, 3.1), shifted to its place in the byte.
pub(crate) const TRAFFIC_CLASS: u32 = 48 << 2;

/// Priority of packets in this machine's own queues, which do not look at the traffic class: the highest
/// that needs no privilege, `TC_PRIO_INTERACTIVE` (socket(7), `SO_PRIORITY`).
pub(crate) const QUEUE_PRIORITY: u32 = 6;

/// Real-time priority of the thread: above all that is not real-time, below the kernel's threaded
/// interrupts at 50, which it waits for.
pub(crate) const ROUND_ROBIN_PRIORITY: i32 = 10;

/// Niceness if real-time priority is not permitted.
pub(crate) const NICENESS: i32 = -15;

/// Milliseconds for a complete handshake: two round trips within a cluster, and a margin for a
/// machine that swaps.
pub(crate) const HANDSHAKE_MS: u64 = 1_000;

/// Milliseconds for a link to connect: one lost SYN is retransmitted after 1 s.
pub(crate) const LINK_CONNECT_MS: u64 = 1_500;

/// Bounds on concurrent handshakes of a server; further connections are closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeLimits {
    /// With strangers, whose addresses are not in the config.
    pub(crate) strangers_max: usize,
    /// Of these, with one address (of IPv6: one /64): so no machine excludes others.
    pub(crate) per_stranger_max: usize,
    /// With the address of a machine of the config, reserved for it.
    pub(crate) per_member_max: usize,
}

/// Of a link server. A machine of the config: more than the nodes on it.
pub(crate) const LINK_HANDSHAKES: HandshakeLimits =
    HandshakeLimits { strangers_max: 64, per_stranger_max: 8, per_member_max: 16 };

/// Of each worker that serves fetches: with strangers only, since [`PEER_ADMISSION`] bounds the connections of
/// members. A node that connects from an address that is not in the config is one until it has said who it is, and opens
/// as many as one of its workers may have at once.
pub(crate) const FETCH_HANDSHAKES: HandshakeLimits = HandshakeLimits {
    strangers_max: 8 * PEER_CONNECTIONS_MAX,
    per_stranger_max: PEER_CONNECTIONS_MAX,
    per_member_max: 0,
};

/// Refused streams that are drained until the refusal has arrived; others are closed at once.
pub(crate) const LINGERING_MAX: usize = 64;

/// Bytes of a refused stream that are read and discarded, so that no reset destroys the refusal.
pub(crate) const LINGER_BYTES_MAX: usize = 4 * 1024;

/// Duration of the same, in milliseconds.
pub(crate) const LINGER_MS: u64 = 500;

/// Bytes that one read of a link takes: thousands of messages.
pub(crate) const LINK_READ_BYTES: usize = 64 * 1024;

/// Commands that may wait for the thread of the links: more than the segments that one node fills
/// at a time.
pub(crate) const COMMANDS_MAX: usize = 16 * 1024;

/// Bytes that wait to be sent on a link: the answers and changes of some seconds. Inventories are
/// paced ([`Outbox::queued_bytes`](crate::stream::Outbox::queued_bytes)).
pub(crate) const LINK_QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Capacity of a link's send buffer above which it is freed when empty, in bytes.
pub(crate) const LINK_BUFFER_BYTES_KEPT_MAX: usize = 256 * 1024;

/// Milliseconds of silence after which a link sends a keepalive.
pub const PING_MS: u64 = 200;

/// Milliseconds of silence after which the other end of a link counts as dead. Checked every
/// [`PING_MS`], so it is detected within a second.
pub const SILENCE_MS: u64 = 800;

/// Milliseconds in which the other end of a link must accept some bytes.
pub(crate) const LINK_STALL_MS: u64 = 2_000;

/// Shortest and longest pause before a link is reconnected, in milliseconds.
pub const BACKOFF_MS: (u64, u64) = (100, 2_000);

/// Lifetime of a link, in milliseconds, after which the pause is reset to the shortest.
pub(crate) const STABLE_MS: u64 = 2_000;

/// Milliseconds to connect to another node: a live one accepts in less than one.
pub(crate) const PEER_CONNECT_MS: u64 = 250;

/// Connections of one worker to one other node: each carries one exchange at a time.
pub(crate) const PEER_CONNECTIONS_MAX: usize = 64;

/// Connections that one machine may have to a node: [`PEER_CONNECTIONS_MAX`] of
/// each of 64 workers.
const PEER_CONNECTIONS_PER_ADDRESS_MAX: usize = 64 * PEER_CONNECTIONS_MAX;

/// Connections of other nodes that a node accepts: a separate allowance, so that clients and nodes
/// cannot exhaust each other's. In all as many as one worker of every machine that the cluster may
/// have; machines have more workers, and are never all so busy with one node.
pub const PEER_ADMISSION: AdmissionLimits = AdmissionLimits {
    connections_max: PEERS_MAX * PEER_CONNECTIONS_MAX,
    per_address_max: PEER_CONNECTIONS_PER_ADDRESS_MAX,
    // Of strangers: machines of the config are told by their addresses.
    ipv6_prefix_bits: 64,
};

/// Milliseconds after which an unused connection to a node is closed.
pub(crate) const PEER_IDLE_MS: u64 = 30_000;

/// The same at the node's end: later, so that no request meets a close.
pub(crate) const PEER_SERVE_IDLE_MS: u64 = 60_000;

/// Milliseconds to receive or to send a request, from its first byte.
pub(crate) const PEER_REQUEST_MS: u64 = 1_000;

/// Milliseconds to wait for the reply.
pub const PEER_REPLY_MS: u64 = 1_000;

/// Milliseconds to wait for the next frame.
pub(crate) const PEER_CHUNK_MS: u64 = 2_000;

/// Interval of keepalives from a node whose source is slow, in milliseconds.
pub(crate) const PEER_PING_MS: u64 = 500;

/// Milliseconds without a chunk after which a source that is reported as slow counts as dead:
/// longer than any time to read from an origin.
pub(crate) const PEER_SOURCE_MS: u64 = 60_000;

/// Milliseconds in which the requesting node must accept some bytes.
pub(crate) const PEER_STALL_MS: u64 = 5_000;

/// Bytes of chunks per write: beyond this the cost of a turn is negligible.
pub(crate) const PEER_BATCH_BYTES_MAX: u64 = 512 * 1024;

/// Size of the first read after a request, in bytes: a reply followed by a small segment.
pub(crate) const PEER_FIRST_READ_BYTES: usize = 16 * 1024;

/// Time since a socket's queue was empty from which on the kernel is asked how long a datagram was in
/// it, in milliseconds: half a heartbeat. A busy process is asked for nothing.
pub(crate) const QUEUED_MS_MIN: u64 = 10;
