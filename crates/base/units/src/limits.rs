//! Limits of a cluster, shared by its config, its messages, its packet programs and its tables.

/// Nodes of a cluster: the largest cluster that is simulated and measured.
pub const NODES_MAX: usize = 1_024;

/// Dispatchers of a cluster. One is active; more than two or three are useful only for experiments.
pub const DISPATCHERS_MAX: usize = 8;

/// Addresses of all services in direct dispatch: each needs rows of 2 MiB in the kernel of each
/// machine.
pub const DIRECT_ADDRESSES_MAX: usize = 64;

/// Longest name of a machine, service or policy, in bytes: it is used in file names, header fields,
/// metric labels and messages. A DNS label fits.
pub const NAME_BYTES_MAX: usize = 64;

/// Largest weight of a node, in config and commands: ratios of 1 to 256 are already unusual.
pub const WEIGHT_MAX: u32 = 256;

/// Servers of pools with cluster-wide counting: in a config, and in a message, which then has 20
/// KB. For servers added beyond it at run time, each node has its own share.
pub const SLOT_SERVERS_MAX: usize = 1_024;

/// Longest path of a Unix socket, in bytes: the kernel's `sun_path` without its NUL (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Arms of one A/B test: to distinguish more of them, more clients are needed than most sites have.
pub const ARMS_MAX: usize = 8;
