//! Every number of the portal's experiment, with its unit and its reason.

/// Nodes at most, as in the paper.
pub(super) const NODES_MAX: usize = 4;

/// A node's processor, in cores: four of them, Skep and the clients find room on two cores.
pub(super) const NODE_CPU_CORES: f64 = 0.2;

/// Period over which it counts, in microseconds: 4 ms of each 20 ms, a tick of the kernel's clock. With the usual
/// 100 ms a node would answer several pages at full speed and then stand still, and two clients would keep four
/// nodes busy.
pub(super) const NODE_CPU_PERIOD_US: u64 = 20_000;

/// Requests at a time at one node, by Skep's `connections_max`: three nodes together take all clients of the heavy
/// load at once, two do not.
pub(super) const NODE_REQUESTS_MAX: u32 = 20;

/// Threads of Tomcat: for as many requests, and for checks beside them.
pub(super) const NODE_THREADS: u32 = NODE_REQUESTS_MAX + 5;

/// Requests that may wait at Skep: its default.
pub(super) const QUEUE_MAX: u32 = 1_024;

/// Memory of a JVM's objects, in MiB: the paper's nodes have 256 MiB in all.
pub(super) const HEAP_MIB: u32 = 128;

/// Port of a node's connector for AJP.
pub(super) const AJP_PORT: u16 = 8009;

/// The user as whom Skep serves, who reads the connector's secret: `nobody`.
pub(super) const SERVING_USER: u32 = 65_534;

/// How long Tomcat may take to start, in milliseconds: some 3 s of a core, which is a minute where many others compile.
pub(super) const START_MS: u64 = 300_000;

/// Warm-up ends when a page costs within so much of what it cost in the run before, in parts of it.
pub(super) const STEADY_PART: f64 = 0.03;

/// Requests per second, over those of one node times the number of nodes, that are demanded.
pub(super) const LINEAR_PART_MIN: f64 = 0.95;

/// Latency under light load, over that of one node, that is allowed: what runs differ by.
pub(super) const LIGHT_LATENCY_PART_MAX: f64 = 1.05;
