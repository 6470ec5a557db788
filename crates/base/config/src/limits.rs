//! The named limits of this crate, for the file itself and its lists.

/// Longest config text that is parsed, in bytes. The largest cluster within the limits below fits
/// ten times over; a longer text is the wrong file.
pub const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Errors reported for one file; further errors are counted only.
pub const ERRORS_MAX: usize = 20;

/// Rows of one array of tables, such as `[[node]]` or `[[site]]`. (`check` sets lower limits for
/// some.)
pub const ROWS_MAX: usize = skep_units::NODES_MAX;

/// Elements of one list, such as `hosts`, or entries of one map.
pub const LIST_MAX: usize = 1024;

pub use skep_units::NAME_BYTES_MAX;

/// Longest text value of any setting, in bytes (`PATH_MAX` of Linux).
pub const STRING_BYTES_MAX: usize = 4096;

/// Characters of a source line that a message shows around the fault.
pub const EXCERPT_CHARS_MAX: usize = 100;

/// Maximum number of `*` in the path of a route, and its maximum length in bytes: the text between
/// two of them is searched for in each path.
pub const WILDCARDS_MAX: usize = 4;
/// See [`WILDCARDS_MAX`].
pub const ROUTE_PATH_BYTES_MAX: usize = 256;

/// Maximum concurrent requests to a server of a pool: more would exceed its range of ports.
pub const SERVER_CONNECTIONS_MAX: u32 = 65_536;

/// Named networks of clients, and all their subnets together: each pool counts its sessions per
/// name (16 KiB), and each of its requests is compared with all subnets.
pub const CLIENT_NETWORKS_MAX: usize = 32;
/// See [`CLIENT_NETWORKS_MAX`].
pub const CLIENT_SUBNETS_MAX: usize = 256;

/// The name of the network of clients that are in no named network.
pub const CLIENT_NETWORK_OTHER: &str = "other";
