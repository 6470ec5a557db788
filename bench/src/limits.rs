//! Every number that the measurements rest on, with its unit and reason.

use std::time::Duration;

/// The core that servers under test are pinned to.
pub(crate) const SERVER_CORE: usize = 0;
/// The core of wrk, of origins and of this program.
pub(crate) const CLIENT_CORE: usize = 1;

/// Connections of a measurement: enough that one core always has work, few
/// enough that queues do not measure the caches of the processor.
pub(crate) const CONNECTIONS: u32 = 64;

/// Workers of php-fpm where there are many: one for each connection, and some for checks and for those
/// that were just closed.
pub(crate) const MANY_WORKERS: u32 = CONNECTIONS + 8;
/// Workers of php-fpm where there are few: as many as Debian's has.
pub(crate) const FEW_WORKERS: u32 = 5;
/// Slow clients beside those that are measured (issue 13).
pub(crate) const SLOW_CLIENTS: usize = 100;

/// Clients that ask at once for one page, nodes that they ask, and what the page takes (issue 13).
pub(crate) const COLLAPSE_CLIENTS: u32 = 1_000;
pub(crate) const COLLAPSE_NODES: usize = 4;
pub(crate) const COMPUTATION: Duration = Duration::from_millis(500);

/// One upload (issue 13).
pub(crate) const UPLOAD_BYTES: u64 = 1 << 30;

/// Warm-up before each measurement, in seconds; the least that wrk runs.
pub(crate) const WARM_UP_SECONDS: u32 = 1;

/// A turn of the warm-up of a backend that compiles what it does while it does it, in seconds, and how many
/// turns there are at most.
pub(crate) const BACKEND_WARM_UP_SECONDS: u32 = 2;
pub(crate) const BACKEND_WARM_UP_TURNS_MAX: u32 = 30;
/// It is warm after so many turns in a row in which a request cost it more than this part of the cheapest one.
pub(crate) const BACKEND_WARM_TURNS: u32 = 3;
pub(crate) const BACKEND_WARM_RATIO: f64 = 0.97;

/// From start to the first right answer. Varnish compiles C at start.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two looks at a server that is starting or ending.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// From SIGTERM to SIGKILL.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// For one answer while checking, far above any healthy one.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// wrk counts an answer that takes longer as an error, in seconds.
pub(crate) const WRK_TIMEOUT_SECONDS: u32 = 5;

/// Idle connections held, as issue 2 asks.
pub(crate) const IDLE_CONNECTIONS: u32 = 10_000;
/// Idle connections from one loopback address: below any server's limit for
/// one client. 40 addresses then.
pub(crate) const IDLE_PER_ADDRESS: u32 = 250;
/// The first port of idle clients: below those that kernels give away (32768).
pub(crate) const IDLE_PORT_MIN: u16 = 20_000;

/// Descriptors that a process here may need: 10,000 idle connections, twice
/// for a proxy, and room.
pub(crate) const FILES_MAX: u64 = 65_536;

/// Replicas of the WebBench classes (`workloads.md`).
pub(crate) const MIX_REPLICAS: u64 = 20;
/// Requests drawn in advance; wrk goes through them in a circle. 100 of them
/// are for the rarest class.
pub(crate) const MIX_REQUESTS: usize = 100_000;
/// Seed of contents and of the mix: every run asks for the same.
pub(crate) const SEED: u64 = 2;

/// Weight of our processes among the sessions of this machine (autogroup), so
/// that other work disturbs less: 1 % of a core is left to it.
pub(crate) const SESSION_NICENESS: i32 = -19;

/// Nodes behind a dispatcher in direct dispatch; wrk has a thread for each.
pub(crate) const DIRECT_NODES: usize = 3;
/// Connections at once for short requests, a multiple of the nodes.
pub(crate) const SHORT_CONNECTIONS: u32 = 60;
/// Downloads at once: few, so that each makes headway.
pub(crate) const DOWNLOAD_CONNECTIONS: u32 = 12;
/// Link of each node and of the dispatcher where links have a rate, in bits per
/// second: so low that two cores can fill three of them and links are the bound.
pub(crate) const LINK_BITS_S: u64 = 200_000_000;
/// Ports of clients that open connections without end.
pub(crate) const CLIENT_PORTS: &str = "1024 65535";
