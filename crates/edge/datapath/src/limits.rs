//! Every bound of this crate, with unit and reason.

use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::steer::{NODES_MAX, SERVICES_MAX};

/// Elements per batch call to the kernel: the 65,537 rows of a table take 9 calls, while keys and
/// values of a call stay below 400 KiB.
pub(crate) const BATCH_ELEMENTS: usize = 8192;

/// Maximum number of calls without progress while a hash table is read; the kernel refuses a batch that is
/// smaller than one of the table's buckets.
pub(crate) const BATCH_GROWTHS_MAX: u32 = 8;

/// Maximum number of entries of the flow table and of the table of sources: 4 million take 600 MB of kernel
/// memory.
pub const TABLE_ENTRIES_MAX: u32 = 4 << 20;

/// Networks that are allowed or denied: half the capacity of the map, so that new ones can be added
/// before old ones are removed.
pub const NETWORKS_MAX: usize = 32_768;

/// Machines whose packets are already steered: the capacity of the map less this machine.
pub const STEERERS_MAX: usize = 2 * NODES_MAX - 1;

const _: () = assert!(STEERERS_MAX >= NODES_MAX + DISPATCHERS_MAX, "all machines of a cluster");

/// Connections that are blocked or redirected on a node at once: at 1,000 moves a second those of one minute,
/// long after the dispatcher has learned where they are; at lower rates those of ten minutes. If there are
/// more, old ones are removed. Each takes 120 bytes of kernel memory, allocated on use.
pub const MOVES_MAX: usize = 65_536;

/// Receive buffer of a connection that is handed off to this node, in bytes as passed to `SO_RCVBUF`, which
/// is half of what the kernel then allocates: the content of the donor's queue, 16 KiB at most, fits whatever
/// the initial value in `net.ipv4.tcp_rmem`. The kernel adapts the buffer afterwards.
pub(crate) const RECEIVE_BUFFER_BYTES: i32 = 128 * 1024;

/// Receive buffer of the control socket, in the same unit: offers of 1,024 connections at once, each with 16
/// KiB of a request, exceed it; those that do not fit are sent again.
pub(crate) const CONTROL_BUFFER_BYTES: i32 = 4 * 1024 * 1024;

/// Time between two comparisons of the small maps with what was written to them, in milliseconds:
/// 3,000 entries.
pub(crate) const COMPARE_MS: u64 = 1_000;

/// Time within which all rows, networks and loads are compared, in milliseconds: with 64 services 67 MB.
pub const COMPARE_ALL_MS: u64 = 30_000;

/// Time between two comparisons of loads, each of one service, in milliseconds: half of an equal share of
/// [`COMPARE_ALL_MS`], since comparisons are possible only a few times a second.
pub(crate) const COMPARE_LOADS_MS: u64 = COMPARE_ALL_MS / (2 * SERVICES_MAX as u64);

/// Rows whose comparison shares one checksum: each checksum takes 8 bytes.
pub(crate) const ROWS_PER_SUM: usize = 64;

/// Attempts to load a program whose verification is interrupted by signals, as many as libbpf makes
/// (`PROG_LOAD_ATTEMPTS`).
pub(crate) const LOAD_ATTEMPTS_MAX: u32 = 5;

/// Bytes read from a netlink socket at once: the kernel packs at most 32 KiB into one message.
pub(crate) const NETLINK_BYTES: usize = 64 * 1024;

/// Devices that an error lists.
pub(crate) const DEVICES_NAMED_MAX: usize = 16;

/// Bytes of the verifier's log that an error shows: its end contains the reason.
pub(crate) const VERIFIER_BYTES_MAX: usize = 2048;

/// Bytes that a program may add to a frame in a test run: an ICMP error is
/// longer than a short packet.
pub(crate) const TEST_FRAME_ROOM: usize = 256;
