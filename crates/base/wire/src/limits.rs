//! Bounds of messages between machines, with units and reasons.

use crate::steer::{NODES_MAX, SERVICES_MAX};

/// Longest datagram, in bytes: with IPv6 and UDP headers it fits an Ethernet
/// frame (1500) with room for a tunnel or two around it.
pub const DATAGRAM_BYTES_MAX: usize = 1_400;

/// Machines known to one endpoint: all nodes, all dispatchers, and as many again that were renamed
/// since.
pub const PEERS_MAX: usize = 2 * NODES_MAX;

/// Window, in datagrams of one sender, within which a late datagram is distinguished from a
/// replayed one. The network of a cluster reorders only a few.
pub const REPLAY_WINDOW: u64 = 64;

/// The same for LCCP, in which two nodes send each other some 60,000 datagrams per second (20,000
/// moves of three): 68 ms of traffic, more than queues of network devices hold.
pub const HANDOFF_REPLAY_WINDOW: u64 = 4_096;

/// Shortest time between two answers to hellos of one machine, in milliseconds: less than the
/// heartbeat interval, so that a restart misses none, and long enough that replayed hellos cause
/// little traffic.
pub const HELLO_ANSWER_INTERVAL_MS: u64 = 20;

/// Minimum number of characters of a cluster's key: 128 bits if they are random hex.
pub const KEY_CHARACTERS_MIN: usize = 32;

/// Longest message, in bytes: a table of all nodes and all services whose histories have nothing in
/// common needs two thirds of it.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Messages that an endpoint reassembles at a time: a table from each of some senders.
pub const PARTIALS_MAX: usize = 64;

/// Bytes of all incomplete messages together: room for some of the longest.
pub const PARTIALS_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;

pub use skep_units::{DISPATCHERS_MAX, NAME_BYTES_MAX};

/// Memberships that a service records, including the present one: a row has no room for more
/// owners.
pub const HISTORY_MAX: usize = crate::steer::ROW_NODES;

/// Memberships of a table: those of all services may differ.
pub const MEMBERSHIPS_MAX: usize = HISTORY_MAX * SERVICES_MAX;

/// Addresses of its device that a node reports.
pub const ADDRESSES_MAX: usize = 16;

/// Flows in one batch: with IPv6 addresses they still fill a datagram.
pub const FLOWS_PER_BATCH_MAX: usize = 48;

/// Clients with their arms in one message: with ten bytes for a hash and one for an arm, they fill
/// a datagram.
pub const CLIENTS_PER_MESSAGE_MAX: usize = 110;

/// Cells of an arm in one message: some 1,260 exist, most of them 0.
pub const ARM_CELLS_MAX: usize = 2_048;

/// Objects with their sizes in one message: with ten bytes for a hash and ten for a size, they fill
/// a datagram.
pub const OBJECTS_PER_MESSAGE_MAX: usize = 60;

/// Largest weight of a node in a table.
pub const WEIGHT_MAX: u32 = 65_535;

/// Segments in one inventory message or delta: some 80 KiB.
pub const HELD_PER_MESSAGE_MAX: usize = 4_096;

/// Holders named in an answer: one to fetch from, and another if the first refuses.
pub const HOLDERS_TOLD_MAX: usize = 2;

/// Nodes that may have a file, named in an answer: this many are asked at a time.
pub const POSSIBLE_HOLDERS_MAX: usize = 64;

/// Nodes of a cluster that share a cache.
pub const MEMBERS_MAX: usize = NODES_MAX;

/// Segments whose replicas a node requests at a time: those that it may evict until the answer
/// arrives.
pub const TAIL_MAX: usize = 64;

/// Servers of pools in a report of slots or in grants.
pub use skep_units::SLOT_SERVERS_MAX;

/// Head of an explained request, in bytes: the default limit of nodes.
pub const EXPLAIN_HEAD_BYTES_MAX: usize = 16 * 1024;

/// A text of the answer, in bytes: the longest secondary key, or a long URL.
pub const EXPLAIN_TEXT_BYTES_MAX: usize = 4_096;

/// Stored responses in the answer: with the longest texts, a quarter of a message on a link.
pub const EXPLAIN_VARIANTS_MAX: usize = 32;

/// Purges in one message, and in one command: with the longest texts, half of a message.
pub const PURGES_PER_MESSAGE_MAX: usize = 128;

/// Cells of older purges in one message: some 80 KiB.
pub const PURGE_CELLS_PER_MESSAGE_MAX: usize = 8_192;

/// Path and query of a purge, in bytes: the maximum length of paths.
pub const PURGE_TARGET_BYTES_MAX: usize = 4_096;

/// Tag of a purge, in bytes: the usual limit in other software.
pub const PURGE_TAG_BYTES_MAX: usize = 1_024;

/// Name of a host, in bytes (RFC 1035 2.3.4).
pub const HOST_BYTES_MAX: usize = 255;

/// Path and version of an object at its origin, or path of a file, in bytes: the longest
/// path (4095), and an entity tag.
pub const ORIGIN_BYTES_MAX: usize = 8 * 1024;

/// Head of an object sent from one node to another, in bytes.
pub const PEER_HEAD_BYTES_MAX: usize = 32 * 1024;

/// Longest message on a link, in bytes: a delta with two full lists needs an eighth of it, and so
/// do all members with the longest names.
pub const LINK_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Longest node status for operators, in bytes: some hundred servers of pools with their agents'
/// reports.
pub const STATUS_BYTES_MAX: usize = LINK_MESSAGE_BYTES_MAX / 2;

/// Orders about servers of pools that a machine records, and that one message contains: far more
/// than operators give between two changes of a config. Each needs at most some 500 bytes.
pub const SERVER_ORDERS_MAX: usize = 1_024;
const _: () = assert!(SERVER_ORDERS_MAX * 768 < LINK_MESSAGE_BYTES_MAX);

/// How far the clock of an order's sender may be ahead of a receiver's, in milliseconds: one day.
/// An order from further ahead would override later ones for that long.
pub const ORDER_AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// Longest request of a node to another, in bytes: the longest origin and the other fields.
pub const PEER_REQUEST_BYTES_MAX: usize = ORIGIN_BYTES_MAX + 256;

/// Longest reply before the chunks, in bytes: the longest head and the other fields.
pub const PEER_REPLY_BYTES_MAX: usize = PEER_HEAD_BYTES_MAX + 256;

/// Bytes of a chunk, except the last of a segment: the step by which a segment grows.
pub const PEER_CHUNK_BYTES: u32 = 256 * 1024;

/// Largest size of an object accepted from another node or an origin, in bytes: 16 TiB, whose
/// segments can still be counted.
pub const OBJECT_BYTES_MAX: u64 = 4_194_304 * skep_units::SEGMENT_BYTES;

/// Bytes of a connection sent with a handoff, at most: those in its receive queue and those the
/// donor had read. Most requests are a head of 1 or 2 KiB; above the limit, the move costs more
/// than it gains.
pub const HANDOFF_QUEUE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of handoff information before those of the connection: fields of fixed length.
pub const HANDOFF_INFO_HEAD_BYTES: usize = 52;

/// Bytes of handoff information in one fragment: with the longest LCCP header, the seal and an IPv6
/// header, it fits a datagram.
pub const HANDOFF_FRAGMENT_BYTES: usize = 1_264;

/// Fragments of the handoff information of one connection, at most.
pub const HANDOFF_FRAGMENTS_MAX: usize =
    (HANDOFF_INFO_HEAD_BYTES + HANDOFF_QUEUE_BYTES_MAX).div_ceil(HANDOFF_FRAGMENT_BYTES);

/// Flows in one message to a dispatcher, at most: with IPv6 addresses, they fill a datagram.
pub const MOVED_FLOWS_MAX: usize = 32;

/// Host and target of a request in a query to a dispatcher, in bytes: no query is sent for longer
/// ones.
pub const QUERY_BYTES_MAX: usize = HANDOFF_FRAGMENT_BYTES - 2;

/// Maximum number of moves of one connection that a message can count.
pub const MOVES_MAX: u8 = 16;

const _: () = assert!(WEIGHT_MAX >= skep_units::WEIGHT_MAX, "each weight of a config");
