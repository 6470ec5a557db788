//! Every bound of this crate, with unit and reason.

/// Bytes waiting for a node above which no more of the client's body is read.
/// Below it, head and first body bytes leave together.
pub(crate) const UPLOAD_BYTES_WAITING: u64 = 16 * 1024;

/// A tunnel in which neither side says anything is closed after this time, in
/// milliseconds: an hour, as HAProxy's examples have it; WebSockets ping every
/// minute or so, and dead peers must not hold connections for ever.
pub(crate) const TUNNEL_IDLE_MS: u64 = 3_600_000;

/// Retries per second on one worker that are free of the budget's share, so
/// that a quiet service retries too (Finagle's default).
pub(crate) const RETRY_FLOOR_PER_S: u32 = 10;

/// How often drains, removals and slow starts are looked at, in milliseconds.
pub(crate) const HOUSEKEEPING_MS: u64 = 100;

/// Time that the requests of a node get which a new config no longer has, in
/// milliseconds; after it the node is forgotten, and they go on unwatched.
pub(crate) const RELOAD_REMOVE_MS: u64 = 30_000;

/// Bytes of a check's response body that are looked at: the word `draining`.
pub(crate) const CHECK_BODY_BYTES_MAX: usize = 64;

/// Weight of one request in the moving average of latencies, as a divisor.
pub(crate) const LATENCY_SMOOTHING: u64 = 16;

/// How long a dispatcher that starts waits for all nodes' heartbeats before it
/// steers by a table without those that it has not heard, in milliseconds: twenty
/// heartbeats.
pub(crate) const PATIENCE_AT_START_MS: u64 = 1000;

/// How long a dispatcher that has become active waits for nodes that take new flows before it
/// claims the virtual addresses without them, in milliseconds: what heartbeats may take at the
/// start, and as much again for nodes to say that they have the table.
pub(crate) const CLAIM_PATIENCE_MS: u64 = 2 * PATIENCE_AT_START_MS;

/// When a claim that netguard could not make is made again, in milliseconds.
pub(crate) const CLAIM_AGAIN_MS: u64 = 500;

/// How often the thread that hears loads looks around while nobody says
/// anything, in milliseconds; it is woken when there is something to do.
pub(crate) const LOAD_RECEIVER_WAIT_MS: u64 = 1000;

/// How often the packet programs' counters are read, in milliseconds.
pub(crate) const COUNTERS_MS: u64 = 500;

/// How often others' claims of the virtual addresses are looked for, in
/// milliseconds.
pub(crate) const OWNERS_MS: u64 = 100;

/// How often the network is asked for them, in milliseconds: two clusters with
/// one address may both be silent.
pub(crate) const PROBE_OWNERS_MS: u64 = 5000;

/// How often new flows are fetched for a standby, in milliseconds: what began
/// since is found by its row if the dispatcher dies.
pub(crate) const STREAM_MS: u64 = 20;

/// Time in which a standby must have taken the flow table, in milliseconds;
/// after it the table is sent anew.
pub(crate) const FLOW_DUMP_PATIENCE_MS: u64 = 10_000;

/// Jobs for the guard that wait: tables, claims, batches of flows. More is the
/// sign of a guard that is stuck, and waits in the event loop.
pub(crate) const JOBS_MAX: usize = 1024;

/// How long an operator waits until packets are steered by his order, in
/// milliseconds: as long as the guard has for an order, on a machine that is
/// overloaded.
pub(crate) const ORDER_MS: u64 = 10_000;

/// How often it is looked whether they are, in milliseconds.
pub(crate) const ORDER_POLL_MS: u64 = 5;

/// News of jobs that wait for the event loop.
pub(crate) const NEWS_MAX: usize = 64;

/// How often a dispatcher's machine is looked over, in milliseconds: what is
/// wrong there is wrong for minutes.
pub(crate) const CHECK_MS: u64 = 30_000;

/// When it is looked over first, in milliseconds after the start.
pub(crate) const FIRST_CHECK_MS: u64 = 2_000;

/// Pause before an epoch is written again that the shared store did not take,
/// in milliseconds: a store that refuses at once is not to be flooded.
pub(crate) const RECORD_AGAIN_MS: u64 = 1_000;

/// Bytes of one reply that count as load, at most: 1 TiB. A node may announce 2^64, and
/// a million of these must not overflow a sum.
pub(crate) const OWED_BYTES_MAX: u64 = 1 << 40;
