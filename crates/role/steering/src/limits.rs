//! Every bound of this crate, with unit and reason.

/// How long a dispatcher that starts waits for all nodes' heartbeats before it steers by a table
/// without the silent ones, in milliseconds: twenty heartbeats.
pub(crate) const PATIENCE_AT_START_MS: u64 = 1000;

/// How long a dispatcher that has become active waits for nodes that take new flows before it
/// claims the virtual addresses without them, in milliseconds: the time for heartbeats at the
/// start, and as much again for nodes to confirm the table.
pub(crate) const CLAIM_PATIENCE_MS: u64 = 2 * PATIENCE_AT_START_MS;

/// How often the packet programs' counters are read, in milliseconds.
pub(crate) const COUNTERS_MS: u64 = 500;

/// How often netguard is polled for others' claims of the virtual addresses and for changes of this
/// machine, in milliseconds.
pub(crate) const LOOK_MS: u64 = 100;

/// How often the network is asked for them, in milliseconds: two clusters with
/// one address may both be silent.
pub(crate) const PROBE_MS: u64 = 5000;

/// How long a complaint about a node that answers for a virtual address lasts after the last such
/// answer, in milliseconds: two rounds of probes.
pub(crate) const ANSWERING_MS: u64 = 2 * PROBE_MS;

/// How often the tables that nodes have applied are compared for the metrics, in milliseconds.
pub(crate) const NODE_LOOK_MS: u64 = 500;

/// How often new flows are fetched for a standby, in milliseconds: what began
/// since is found by its row if the dispatcher dies.
pub(crate) const STREAM_MS: u64 = 20;

/// Time in which a standby must have taken the flow table, in milliseconds;
/// after it the table is sent anew.
pub(crate) const FLOW_DUMP_PATIENCE_MS: u64 = 10_000;

/// Jobs that wait for netguard: batches of flows, loads, probes. If there are more, netguard is
/// stuck, and they wait in the event loop.
pub(crate) const JOBS_MAX: usize = 1024;

/// Jobs that are executed before the executor looks at its machine again.
pub(crate) const JOBS_PER_TURN_MAX: usize = 64;

/// How long an operator's command waits until packets are steered by it, in milliseconds: as long
/// as netguard has for an order, on a machine that is overloaded.
pub(crate) const ORDER_MS: u64 = 10_000;

/// How often this is checked, in milliseconds.
pub(crate) const ORDER_POLL_MS: u64 = 5;

/// How often the planner looks at the services, in milliseconds: a command of an operator is in the
/// table with the event loop's next tick after that.
pub(crate) const PLAN_MS: u64 = 10;

/// Longest wait for a message about handoffs, in milliseconds: then the thread looks whether it is to end.
pub(crate) const LCCP_WAIT_MS: u64 = 100;

/// Batches of messages about handoffs that are read before they are answered, at most: of 64 datagrams each, a
/// millisecond's.
pub(crate) const LCCP_BATCHES_MAX: usize = 16;

/// How long the thread that hears of handoffs may take for one turn before the process ends, in seconds.
pub(crate) const LCCP_STALL_S_MAX: u32 = 10;

/// Shortest time between two digests of the nodes' work, in milliseconds: that of their heartbeats by
/// default, which bring it.
pub(crate) const DIGEST_MS_MIN: u64 = 50;

/// How often nodes that hand off are told of A/B tests even if nothing has changed, in milliseconds: one that has just
/// started knows them soon.
pub(crate) const ARMS_MS: u64 = 1_000;

/// Entries of all digests that are sent to nodes in a second, at most: 12 MB, and 2 % of a core.
pub(crate) const DIGEST_ENTRIES_PER_S_MAX: u64 = 1_000_000;

/// Drains that wait for the planner. If there are more, they wait in the event loop.
pub(crate) const DRAINS_MAX: usize = 64;

/// News of jobs that wait for the event loop.
pub(crate) const NEWS_MAX: usize = 64;

/// How often a dispatcher's machine is checked, in milliseconds: faults there last for minutes.
pub(crate) const CHECK_MS: u64 = 30_000;

/// Time of the first check, in milliseconds after the start.
pub(crate) const FIRST_CHECK_MS: u64 = 2_000;

/// How long epochs may take to be persisted before that counts as failed, in milliseconds: as long
/// as a call to the store may take.
pub(crate) const PERSIST_MS: u64 = skep_store::CALL_TIMEOUT_MS;

/// How long the event loop may take for one turn before the process ends, in seconds: it waits for
/// nothing but datagrams, a quarter of an interval at most.
pub(crate) const LOOP_STALL_S_MAX: u32 = 10;

/// The same of the netguard executor: a job may be several orders, each of up to [`ORDER_MS`].
pub(crate) const EXECUTOR_STALL_S_MAX: u32 = 120;

/// The same of the planner, which waits for the services' locks.
pub(crate) const PLANNER_STALL_S_MAX: u32 = 60;

/// Datagrams of tables that the event loop sends in a turn, at most: two milliseconds, between
/// heartbeats each 20 ms. In all, 40,000 a second at least, as there is a turn at each tick.
pub(crate) const TABLE_DATAGRAMS_PER_TURN: usize = 200;

/// Datagrams in a second by which the active dispatcher relays what nodes report of objects: some 5 % of a core, on the thread of
/// heartbeats.
pub(crate) const RELAYS_PER_S_MAX: u64 = 10_000;
