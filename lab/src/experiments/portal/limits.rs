//! The numbers of the portal's experiment, each with its unit and its reason.

/// Maximum number of nodes, as in the paper.
pub(super) const NODES_MAX: usize = 4;

/// CPU quota of a node, in cores: four of them, Skep and the clients fit on two cores.
pub(super) const NODE_CPU_CORES: f64 = 0.2;

/// Period of the quota, in microseconds: 4 ms of each 20 ms, one tick of the kernel's clock. With the usual
/// 100 ms a node would answer several pages at full speed and then stop, and two clients would keep four
/// nodes busy.
pub(super) const NODE_CPU_PERIOD_US: u64 = 20_000;

/// Concurrent requests at one node, by Skep's `connections_max`: three nodes together accept all clients of
/// the heavy load at once, two do not.
pub(super) const NODE_REQUESTS_MAX: u32 = 20;

/// Threads of Tomcat: for that many requests, and for checks in addition.
pub(super) const NODE_THREADS: u32 = NODE_REQUESTS_MAX + 5;

/// Maximum number of requests that wait at Skep: its default.
pub(super) const QUEUE_MAX: u32 = 1_024;

/// Heap size of a JVM, in MiB: the paper's nodes have 256 MiB in total.
pub(super) const HEAP_MIB: u32 = 128;

/// Port of a node's AJP connector.
pub(super) const AJP_PORT: u16 = 8009;

/// The user `nobody`, as which Skep serves, and which reads the connector's secret.
pub(super) const SERVING_USER: u32 = 65_534;

/// Timeout for Tomcat's start, in milliseconds: some 3 s of CPU time, which is a minute while many others
/// compile.
pub(super) const START_MS: u64 = 300_000;

/// The warm-up ends when the cost of a page differs from that in the previous run by less than this share.
pub(super) const STEADY_PART: f64 = 0.03;

/// Required requests per second, relative to those of one node times the number of nodes.
pub(super) const LINEAR_PART_MIN: f64 = 0.95;

/// Permitted latency under light load relative to that of one node: the variation between runs.
pub(super) const LIGHT_LATENCY_PART_MAX: f64 = 1.05;
