//! Limits of a cluster: those of its config, its messages, its packet programs and its tables,
//! which all take them from here.

/// Nodes of a cluster: the largest that is simulated and measured.
pub const NODES_MAX: usize = 1_024;

/// Dispatchers of a cluster. One is active; more than two or three serve
/// nothing but experiments.
pub const DISPATCHERS_MAX: usize = 8;

/// Addresses of all services in direct dispatch: each has rows of 2 MiB in the kernel of each
/// machine.
pub const DIRECT_ADDRESSES_MAX: usize = 64;

/// Longest name of a machine, service or policy, in bytes: it goes into file names, header fields,
/// metric labels and messages. A DNS label fits.
pub const NAME_BYTES_MAX: usize = 64;

/// Largest weight of a node, in config and commands: ratios of 1 to 256 are exotic
/// already.
pub const WEIGHT_MAX: u32 = 256;

/// Servers of pools whose requests all nodes count together: in a config, and in a message, which they
/// make 20 KB long. Of those that are added beyond it at run time each node has its own share.
pub const SLOT_SERVERS_MAX: usize = 1_024;

/// Longest path of a Unix socket, in bytes: the kernel's `sun_path` without its NUL (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Arms of one A/B test: to tell more of them apart, more clients are needed than most sites have.
pub const ARMS_MAX: usize = 8;
