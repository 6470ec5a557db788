//! The named limits of this crate: of the file itself and of its lists.

/// Longest config text that is parsed, in bytes. The largest cluster of the
/// limits below fits ten times over; more is the wrong file.
pub const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Errors reported for one file; a reader fixes these first.
pub const ERRORS_MAX: usize = 20;

/// Rows of one array of tables, such as `[[node]]` or `[[site]]`. (Of some there may be fewer:
/// see `check`.)
pub const ROWS_MAX: usize = skep_units::NODES_MAX;

/// Elements of one list, such as `hosts`, or entries of one map.
pub const LIST_MAX: usize = 1024;

pub use skep_units::NAME_BYTES_MAX;

/// Longest text value of any setting, in bytes (`PATH_MAX` of Linux).
pub const STRING_BYTES_MAX: usize = 4096;

/// Characters of a source line that a message shows around the fault.
pub const EXCERPT_CHARS_MAX: usize = 100;

/// `*` in the path of a route, and its length in bytes: what stands between two of them is looked
/// for in each path.
pub const WILDCARDS_MAX: usize = 4;
/// See [`WILDCARDS_MAX`].
pub const ROUTE_PATH_BYTES_MAX: usize = 256;

/// Requests at a time that a server of a pool may take, at most: above it lies the range of its ports.
pub const SERVER_CONNECTIONS_MAX: u32 = 65_536;

/// Named networks of clients, and all their networks together: each pool counts its sessions by each name
/// (16 KiB), and each of its requests is compared with all networks.
pub const CLIENT_NETWORKS_MAX: usize = 32;
/// See [`CLIENT_NETWORKS_MAX`].
pub const CLIENT_SUBNETS_MAX: usize = 256;

/// What clients are called that are in no named network.
pub const CLIENT_NETWORK_OTHER: &str = "other";
