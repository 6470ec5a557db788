//! Bounds and fixed numbers of sockets, links and fetches, with units and reasons.

use skep_serve::AdmissionLimits;
use skep_wire::limits::PEERS_MAX;

/// Receive buffer, in bytes (the system may grant less): it holds the heartbeats of 256 nodes of some
/// seconds, or those of 1,024 nodes of half a second, so that none is lost in a pause; or one long table.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Send buffer, in bytes: it holds one long table. (Of the longest possible table a part is lost, and sent
/// again.)
pub(crate) const SEND_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Datagrams that one wait reads before it returns: refused datagrams must not delay the sending of
/// heartbeats.
pub(crate) const DATAGRAMS_PER_WAIT_MAX: usize = 1_024;

/// Datagrams that one call reads for LCCP, including refused ones: the messages of dozens of moves, and some
/// 100 us, during which the other tasks of a worker wait.
pub(crate) const LCCP_BATCH_DATAGRAMS_MAX: usize = 64;

/// Traffic class of network control: CS6 (RFC 4594, 3.1), shifted to its place in the byte.
pub(crate) const TRAFFIC_CLASS: u32 = 48 << 2;

/// Priority of packets in this machine's own queues, which ignore the traffic class: the highest that needs
/// no privilege, `TC_PRIO_INTERACTIVE` (socket(7), `SO_PRIORITY`).
pub(crate) const QUEUE_PRIORITY: u32 = 6;

/// Real-time priority of heartbeats: above everything that is not real-time, below the kernel's threaded
/// interrupts at 50, on which they depend.
pub(crate) const HEARTBEAT_PRIORITY: i32 = 10;

/// Real-time priority of moves of connections: below heartbeats, since threads of the same priority take turns of 100 ms, as
/// long as a heartbeat timeout.
pub(crate) const MOVES_PRIORITY: i32 = 9;

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
    /// Of these, with one address (for IPv6: one /64), so that no machine excludes others.
    pub(crate) per_stranger_max: usize,
    /// With the address of a machine of the config, reserved for it.
    pub(crate) per_member_max: usize,
}

/// Limits of a link server. Per machine of the config: more than the number of its nodes.
pub(crate) const LINK_HANDSHAKES: HandshakeLimits =
    HandshakeLimits { strangers_max: 64, per_stranger_max: 8, per_member_max: 16 };

/// Limits of each worker that serves fetches: for strangers only, since [`PEER_ADMISSION`] bounds the
/// connections of members. A node that connects from an address that is not in the config is a stranger until
/// the handshake is complete, and opens as many connections as one of its workers may have at once.
pub(crate) const FETCH_HANDSHAKES: HandshakeLimits = HandshakeLimits {
    strangers_max: 8 * PEER_CONNECTIONS_MAX,
    per_stranger_max: PEER_CONNECTIONS_MAX,
    per_member_max: 0,
};

/// Maximum number of refused streams that are drained until the refusal has arrived; others are closed at
/// once.
pub(crate) const LINGERING_MAX: usize = 64;

/// Bytes of a refused stream that are read and discarded, so that no reset destroys the refusal.
pub(crate) const LINGER_BYTES_MAX: usize = 4 * 1024;

/// Maximum duration of that draining, in milliseconds.
pub(crate) const LINGER_MS: u64 = 500;

/// Bytes read from a link at once: thousands of messages.
pub(crate) const LINK_READ_BYTES: usize = 64 * 1024;

/// Maximum number of commands that wait for the thread of the links: more than the number of segments that
/// one node fills at a time.
pub(crate) const COMMANDS_MAX: usize = 16 * 1024;

/// Maximum number of bytes that wait to be sent on a link: the answers and changes of some seconds.
/// Inventories are paced ([`Outbox::queued_bytes`](crate::stream::Outbox::queued_bytes)).
pub(crate) const LINK_QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Capacity of a link's send buffer above which it is freed when empty, in bytes.
pub(crate) const LINK_BUFFER_BYTES_KEPT_MAX: usize = 256 * 1024;

/// Milliseconds of silence after which a link sends a keepalive.
pub const PING_MS: u64 = 200;

/// Milliseconds of silence after which the other end of a link is considered dead. Checked every [`PING_MS`],
/// so it is detected within a second.
pub const SILENCE_MS: u64 = 800;

/// Milliseconds within which the other end of a link must accept some bytes.
pub(crate) const LINK_STALL_MS: u64 = 2_000;

/// Shortest and longest pause before a link is reconnected, in milliseconds.
pub const BACKOFF_MS: (u64, u64) = (100, 2_000);

/// Milliseconds after which a link is stable, and the pause is reset to the shortest.
pub(crate) const STABLE_MS: u64 = 2_000;

/// Connect timeout for another node, in milliseconds: a live one accepts in less than one.
pub(crate) const PEER_CONNECT_MS: u64 = 250;

/// Connections of one worker to one other node: each carries one exchange at a time.
pub(crate) const PEER_CONNECTIONS_MAX: usize = 64;

/// Connections that one machine may have to a node: [`PEER_CONNECTIONS_MAX`] of
/// each of 64 workers.
const PEER_CONNECTIONS_PER_ADDRESS_MAX: usize = 64 * PEER_CONNECTIONS_MAX;

/// Limits on connections of other nodes to a node, separate from those of clients, so that neither can
/// exhaust the other's. In total as many as one worker of every machine that a cluster may have can open;
/// machines have more workers, but are never all that busy with one node.
pub const PEER_ADMISSION: AdmissionLimits = AdmissionLimits {
    connections_max: PEERS_MAX * PEER_CONNECTIONS_MAX,
    per_address_max: PEER_CONNECTIONS_PER_ADDRESS_MAX,
    // For strangers: machines of the config are identified by their addresses.
    ipv6_prefix_bits: 64,
};

/// Milliseconds after which an unused connection to a node is closed.
pub(crate) const PEER_IDLE_MS: u64 = 30_000;

/// The same timeout at the serving node: longer, so that no request meets a close.
pub(crate) const PEER_SERVE_IDLE_MS: u64 = 60_000;

/// Timeout to receive or to send a request, in milliseconds from its first byte.
pub(crate) const PEER_REQUEST_MS: u64 = 1_000;

/// Timeout for the reply, in milliseconds.
pub const PEER_REPLY_MS: u64 = 1_000;

/// Timeout for the next frame, in milliseconds.
pub(crate) const PEER_CHUNK_MS: u64 = 2_000;

/// Interval of keepalives from a node whose source is slow, in milliseconds.
pub(crate) const PEER_PING_MS: u64 = 500;

/// Milliseconds without a chunk after which a source that is reported as slow is considered dead: longer than
/// any timeout for reading from an origin.
pub(crate) const PEER_SOURCE_MS: u64 = 60_000;

/// Milliseconds within which the requesting node must accept some bytes.
pub(crate) const PEER_STALL_MS: u64 = 5_000;

/// Maximum number of bytes of chunks per write: beyond this the cost per write is negligible.
pub(crate) const PEER_BATCH_BYTES_MAX: u64 = 512 * 1024;

/// Size of the first read after a request, in bytes: a reply and a small segment.
pub(crate) const PEER_FIRST_READ_BYTES: usize = 16 * 1024;

/// If the socket's queue was empty less than this many milliseconds ago, the kernel is not asked how long a
/// datagram was queued: half a heartbeat. So a busy process makes no such calls.
pub(crate) const QUEUED_MS_MIN: u64 = 10;
