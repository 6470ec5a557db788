//! The numbers on which the measurements are based, each with its unit and reason.

use std::time::Duration;

/// The core to which measured servers are pinned.
pub(crate) const SERVER_CORE: usize = 0;
/// The core of wrk, of origins and of this program.
pub(crate) const CLIENT_CORE: usize = 1;

/// Connections of a measurement: enough that one core always has work, few enough that queues do not exceed
/// the processor's caches.
pub(crate) const CONNECTIONS: u32 = 64;

/// Workers of php-fpm in the case with many: one for each connection, and some for checks and for connections
/// that were just closed.
pub(crate) const MANY_WORKERS: u32 = CONNECTIONS + 8;
/// Workers of php-fpm in the case with few: Debian's default.
pub(crate) const FEW_WORKERS: u32 = 5;
/// Slow clients in addition to the measured ones (issue 13).
pub(crate) const SLOW_CLIENTS: usize = 100;

/// Clients that request one page at once, the nodes that they use, and the time that the page takes (issue
/// 13).
pub(crate) const COLLAPSE_CLIENTS: u32 = 1_000;
pub(crate) const COLLAPSE_NODES: usize = 4;
pub(crate) const COMPUTATION: Duration = Duration::from_millis(500);

/// Size of one upload, in bytes (issue 13).
pub(crate) const UPLOAD_BYTES: u64 = 1 << 30;

/// Warm-up before each measurement, in seconds; the minimum of wrk.
pub(crate) const WARM_UP_SECONDS: u32 = 1;

/// Length of a warm-up turn of a backend with a JIT compiler, in seconds, and the maximum number of turns.
pub(crate) const BACKEND_WARM_UP_SECONDS: u32 = 2;
pub(crate) const BACKEND_WARM_UP_TURNS_MAX: u32 = 30;
/// The backend is warm after this many consecutive turns in which a request cost more than this share of the
/// cheapest one.
pub(crate) const BACKEND_WARM_TURNS: u32 = 3;
pub(crate) const BACKEND_WARM_RATIO: f64 = 0.97;

/// Timeout from the start to the first right answer. Varnish compiles C at start.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which a starting or ending server is polled.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time from SIGTERM to SIGKILL.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one answer in checks, far above any healthy one.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which wrk counts an answer as an error, in seconds.
pub(crate) const WRK_TIMEOUT_SECONDS: u32 = 5;

/// Number of idle connections, as issue 2 requires.
pub(crate) const IDLE_CONNECTIONS: u32 = 10_000;
/// Idle connections per loopback address: below any server's limit per client. Results in 40 addresses.
pub(crate) const IDLE_PER_ADDRESS: u32 = 250;
/// The first port of idle clients: below the range from which kernels allocate (32768).
pub(crate) const IDLE_PORT_MIN: u16 = 20_000;

/// Descriptors that a process may need: 10,000 idle connections, twice for a proxy, and a reserve.
pub(crate) const FILES_MAX: u64 = 65_536;

/// Replicas of the WebBench classes (`workloads.md`).
pub(crate) const MIX_REPLICAS: u64 = 20;
/// Requests drawn in advance; wrk repeats them. 100 of them are for the rarest class.
pub(crate) const MIX_REQUESTS: usize = 100_000;
/// Seed of contents and of the mix: the requests of every run are the same.
pub(crate) const SEED: u64 = 2;

/// Niceness of our processes among the sessions of this machine (autogroup), so that other work interferes
/// less: it gets 1 % of a core.
pub(crate) const SESSION_NICENESS: i32 = -19;

/// Nodes behind a dispatcher in direct dispatch; wrk has a thread for each.
pub(crate) const DIRECT_NODES: usize = 3;
/// Concurrent connections for short requests, a multiple of the nodes.
pub(crate) const SHORT_CONNECTIONS: u32 = 60;
/// Concurrent downloads: few, so that each makes progress.
pub(crate) const DOWNLOAD_CONNECTIONS: u32 = 12;
/// Rate of the link of each node and of the dispatcher in the case with limited links, in bits per second:
/// low enough that two cores can saturate three of them, so that links are the bottleneck.
pub(crate) const LINK_BITS_S: u64 = 200_000_000;
/// Range of ports of clients that open connections without end.
pub(crate) const CLIENT_PORTS: &str = "1024 65535";
