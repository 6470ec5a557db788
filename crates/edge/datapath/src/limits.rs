//! Every bound of this crate, with unit and reason.

use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::steer::{NODES_MAX, SERVICES_MAX};

/// Elements per batch call to the kernel: the 65,537 rows of a table take 9 calls, while keys and
/// values of a call stay below 400 KiB.
pub(crate) const BATCH_ELEMENTS: usize = 8192;

/// Calls without progress while a hash table is read, at most; the kernel refuses a batch that is
/// smaller than one of its buckets.
pub(crate) const BATCH_GROWTHS_MAX: u32 = 8;

/// Entries that the flow table and the table of sources may have: 4 million take 600 MB of kernel
/// memory.
pub const TABLE_ENTRIES_MAX: u32 = 4 << 20;

/// Networks that are allowed or denied: half the capacity of the map, so that new ones can be added
/// before old ones are removed.
pub const NETWORKS_MAX: usize = 32_768;

/// Machines whose packets are already steered: the capacity of the map less this machine.
pub const STEERERS_MAX: usize = 2 * NODES_MAX - 1;

const _: () = assert!(STEERERS_MAX >= NODES_MAX + DISPATCHERS_MAX, "all machines of a cluster");

/// Connections that are blocked or redirected on a node at once: of 1,000 moves a second those of a minute, long
/// after the dispatcher has learned where they are; of fewer those of ten. If there are more, old ones
/// go. 120 bytes of kernel memory each, taken as they come.
pub const MOVES_MAX: usize = 65_536;

/// Receive buffer of a connection that is handed off here, in bytes as `SO_RCVBUF` counts, half of what the
/// kernel then takes: what was in the donor's queue, 16 KiB at most, fits whatever `net.ipv4.tcp_rmem` begins
/// with. The kernel adapts it afterwards.
pub(crate) const RECEIVE_BUFFER_BYTES: i32 = 128 * 1024;

/// The same of the control socket: offers of 1,024 connections at once, with 16 KiB of a request each, are
/// more than this; those that do not fit are sent again.
pub(crate) const CONTROL_BUFFER_BYTES: i32 = 4 * 1024 * 1024;

/// Time between two comparisons of the small maps with what was written to them, in milliseconds:
/// 3,000 entries.
pub(crate) const COMPARE_MS: u64 = 1_000;

/// Time in which all rows are compared, all networks and all loads, in milliseconds: with 64 services
/// 67 MB.
pub const COMPARE_ALL_MS: u64 = 30_000;

/// Time between comparisons of the loads of a service, in milliseconds: half of what they all have,
/// as it is looked at some times a second.
pub(crate) const COMPARE_LOADS_MS: u64 = COMPARE_ALL_MS / (2 * SERVICES_MAX as u64);

/// Rows that are compared as one: what is remembered of them is 8 bytes.
pub(crate) const ROWS_PER_SUM: usize = 64;

/// Attempts to load a program whose verification signals interrupt, as many as libbpf makes
/// (`PROG_LOAD_ATTEMPTS`).
pub(crate) const LOAD_ATTEMPTS_MAX: u32 = 5;

/// Bytes that one reading of a netlink socket takes: the kernel packs at most
/// 32 KiB into one message.
pub(crate) const NETLINK_BYTES: usize = 64 * 1024;

/// Devices that an error lists.
pub(crate) const DEVICES_NAMED_MAX: usize = 16;

/// Bytes of the verifier's log that an error shows: its end contains the reason.
pub(crate) const VERIFIER_BYTES_MAX: usize = 2048;

/// Bytes that a program may add to a frame in a test run: an ICMP error is
/// longer than a short packet.
pub(crate) const TEST_FRAME_ROOM: usize = 256;
