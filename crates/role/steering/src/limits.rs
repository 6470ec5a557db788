//! Every bound of this crate, with unit and reason.

/// Time that a dispatcher that starts waits for the heartbeats of all nodes before it steers by a table
/// without the silent ones, in milliseconds: twenty heartbeats.
pub(crate) const PATIENCE_AT_START_MS: u64 = 1000;

/// Time that a dispatcher that has become active waits for nodes that take new flows before it claims the
/// virtual addresses without them, in milliseconds: the time for heartbeats at the start, and as much again
/// for nodes to confirm the table.
pub(crate) const CLAIM_PATIENCE_MS: u64 = 2 * PATIENCE_AT_START_MS;

/// Interval at which the packet programs' counters are read, in milliseconds.
pub(crate) const COUNTERS_MS: u64 = 500;

/// Interval at which netguard is polled for other machines' claims of the virtual addresses and for changes
/// of this machine, in milliseconds.
pub(crate) const LOOK_MS: u64 = 100;

/// Interval at which the network is probed for such claims, in milliseconds: two clusters with the same
/// address may both be silent.
pub(crate) const PROBE_MS: u64 = 5000;

/// Time for which a complaint about a node that answers for a virtual address is shown after its last answer,
/// in milliseconds: two rounds of probes.
pub(crate) const ANSWERING_MS: u64 = 2 * PROBE_MS;

/// Interval at which the tables that nodes have applied are compared for the metrics, in milliseconds.
pub(crate) const NODE_LOOK_MS: u64 = 500;

/// Interval at which new flows are fetched for a standby, in milliseconds: flows that began since then are
/// found by their row if the dispatcher fails.
pub(crate) const STREAM_MS: u64 = 20;

/// Time in which a standby must have received the flow table, in milliseconds; then the table is sent again.
pub(crate) const FLOW_DUMP_PATIENCE_MS: u64 = 10_000;

/// Jobs queued for netguard: batches of flows, loads, probes. If there are more, netguard is blocked, and
/// they wait in the event loop.
pub(crate) const JOBS_MAX: usize = 1024;

/// Jobs that are executed before the executor checks its machine again.
pub(crate) const JOBS_PER_TURN_MAX: usize = 64;

/// Time that an operator's command waits until packets are steered by it, in milliseconds: the time limit of
/// an order to netguard on an overloaded machine.
pub(crate) const ORDER_MS: u64 = 10_000;

/// Interval at which this is checked, in milliseconds.
pub(crate) const ORDER_POLL_MS: u64 = 5;

/// Interval at which the planner reads the services, in milliseconds: an operator's command is in the table
/// with the event loop's next tick after that.
pub(crate) const PLAN_MS: u64 = 10;

/// Longest wait for a message about handoffs, in milliseconds, after which the thread checks whether it must
/// end.
pub(crate) const LCCP_WAIT_MS: u64 = 100;

/// Batches of messages about handoffs that are read before they are answered, at most: of 64 datagrams each,
/// which take about a millisecond.
pub(crate) const LCCP_BATCHES_MAX: usize = 16;

/// Time that one turn of the thread for handoffs may take before the process exits, in seconds.
pub(crate) const LCCP_STALL_S_MAX: u32 = 10;

/// Shortest interval of digests of the nodes' load, in milliseconds: the default interval of the heartbeats
/// that carry the loads.
pub(crate) const DIGEST_MS_MIN: u64 = 50;

/// Interval at which A/B tests are sent to nodes that hand off even without changes, in milliseconds: a node
/// that has just started gets them soon.
pub(crate) const ARMS_MS: u64 = 1_000;

/// Entries in all digests sent to nodes per second, at most: 12 MB, and 2 % of a core.
pub(crate) const DIGEST_ENTRIES_PER_S_MAX: u64 = 1_000_000;

/// Drains queued for the planner. If there are more, they wait in the event loop.
pub(crate) const DRAINS_MAX: usize = 64;

/// News of jobs queued for the event loop.
pub(crate) const NEWS_MAX: usize = 64;

/// Interval at which a dispatcher's machine is checked, in milliseconds: faults there last for minutes.
pub(crate) const CHECK_MS: u64 = 30_000;

/// Time of the first check, in milliseconds after the start.
pub(crate) const FIRST_CHECK_MS: u64 = 2_000;

/// Time after which an epoch that is not persisted counts as failed, in milliseconds: the time limit of a
/// call to the store.
pub(crate) const PERSIST_MS: u64 = skep_store::CALL_TIMEOUT_MS;

/// Time that one turn of the event loop may take before the process exits, in seconds: it waits for datagrams
/// only, at most a quarter of a heartbeat interval.
pub(crate) const LOOP_STALL_S_MAX: u32 = 10;

/// The same for the netguard executor: a job may be several orders, each of up to [`ORDER_MS`].
pub(crate) const EXECUTOR_STALL_S_MAX: u32 = 120;

/// The same for the planner, which waits for the services' locks.
pub(crate) const PLANNER_STALL_S_MAX: u32 = 60;

/// Datagrams of tables that the event loop sends in one turn, at most: they take two milliseconds, between
/// heartbeats every 20 ms. In all at least 40,000 per second, as there is a turn at each tick.
pub(crate) const TABLE_DATAGRAMS_PER_TURN: usize = 200;

/// Datagrams per second by which the active dispatcher relays the nodes' reports of objects, at most: some 5
/// % of a core, on the heartbeat thread.
pub(crate) const RELAYS_PER_S_MAX: u64 = 10_000;
