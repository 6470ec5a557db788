//! Names, limits, time and numbers that every other crate uses.
//!
//! Nothing here does I/O, reads a clock or draws entropy: time and seeds are passed
//! in by the caller, so that the same code runs live and in a simulator.

#![forbid(unsafe_code)]

mod dispatcher;
mod hash;
mod limits;
mod rng;
mod server_address;
mod student_t;
mod subnet;
mod suggest;
mod time;
mod wildcard;

pub use dispatcher::{DISPATCHER_NUMBER_BITS, EPOCH_MAX, EPOCH_STORED_MAX, dispatcher_number};
pub use hash::stable_hash;
pub use limits::{
    ARMS_MAX, DIRECT_ADDRESSES_MAX, DISPATCHERS_MAX, NAME_BYTES_MAX, NODES_MAX, SLOT_SERVERS_MAX,
    SOCKET_PATH_BYTES_MAX, WEIGHT_MAX,
};
pub use rng::Rng;
pub use server_address::{ServerAddress, ServerAddressError, SocketPath};
pub use student_t::student_t_975;
pub use subnet::{NotASubnet, Subnet};
pub use suggest::{did_you_mean, nearest};
pub use time::Now;
pub use wildcard::matches_wildcard;

/// One kibibyte, in bytes.
pub const KIB: u64 = 1024;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1024 * KIB;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1024 * MIB;

/// Length of a full segment, in bytes: the unit of caching. Small objects are
/// one short segment. (Why 4 MiB: `docs/decisions/0002-segments.md`.)
pub const SEGMENT_BYTES: u64 = 4 * MIB;

/// A node's number within its cluster; small, dense, never reused in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
