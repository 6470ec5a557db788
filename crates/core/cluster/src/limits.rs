//! Bounds and fixed numbers of the cluster's state, with units and reasons.

/// Nodes per service, including those added by commands.
pub use skep_units::NODES_MAX;

/// Largest weight of a node in the config. Products of weights, shares and loads stay far below 64
/// bits.
pub use skep_units::WEIGHT_MAX;

pub use skep_units::NAME_BYTES_MAX;

use skep_units::DISPATCHER_NUMBER_BITS;

/// Longest interval between checks of a joining node, in milliseconds: a starting cluster is ready
/// soon after its slowest node.
pub(crate) const JOINING_INTERVAL_MS_MAX: u64 = 250;

/// Checks begin early by up to this percentage of the interval, so that many dispatchers do not
/// check a node in step.
pub(crate) const CHECK_JITTER_PERCENT: u64 = 20;

/// Share of the nodes that failed requests may eject at a time, in percent, unless configured
/// otherwise (Envoy's default). If more fail at once, the requests rather than the nodes are the
/// cause; dead nodes are detected by checks.
pub(crate) const EJECTED_PERCENT_MAX: u32 = 10;

/// How long an unused retry token is kept, in milliseconds (Finagle's and linkerd's default): an
/// idle night does not pay for a retry storm in the morning.
pub(crate) const RETRY_WINDOW_MS: u64 = 10_000;

/// Slots of the window: tokens expire in steps of a tenth of it.
pub(crate) const RETRY_SLOTS: usize = 10;

/// Time after which a dispatcher announces its addresses once more, in milliseconds: a second
/// chance for switches and hosts that were busy (keepalived does so after five seconds).
pub(crate) const ANNOUNCE_AGAIN_MS: u64 = 1_000;

/// Shortest interval between two defences of an address, in milliseconds: RFC 5227, 1.1
/// (DEFEND_INTERVAL).
pub(crate) const DEFEND_INTERVAL_MS: u64 = 10_000;

/// How long an address counts as in conflict after another machine was seen to hold it, in
/// milliseconds. After that it is probed again.
pub(crate) const ADDRESS_CONFLICT_HOLD_MS: u64 = 10_000;

/// How long a standby must have been one before it preempts, in milliseconds: a shorter time would
/// let a dispatcher that keeps crashing take over each time.
pub(crate) const PREEMPT_SETTLE_MS: u64 = 1_000;

/// Batches of flows in flight to a standby: some 12,000 flows, a third of a megabyte, which fits
/// into a receive buffer.
pub(crate) const FLOW_WINDOW: usize = 256;

/// Silence after which batches are sent again, in milliseconds: several round-trip times to a
/// standby, including its processing.
pub(crate) const FLOW_RESEND_MS: u64 = 200;

/// Most batches that wait for a standby: the flows of a full table of the default size, and as many
/// again that began meanwhile.
pub(crate) const FLOW_BATCHES_KEPT_MAX: usize = 24_000;

/// Epochs that a dispatcher reserves ahead, 64 of which are its own; it reserves more when half of
/// them are used: enough for thirty takeovers in a row.
pub(crate) const EPOCHS_RESERVED: u64 = 64 << DISPATCHER_NUMBER_BITS;

/// Most epochs that a dispatcher skips if it cannot persist those that it uses: a million of them
/// are its own, so two of its processes choose the same one with a probability of one in a million.
/// Below the greatest epoch that is accepted from a disk, there is room for 60 million such
/// processes.
pub(crate) const EPOCHS_SKIPPED_MAX: u64 = 1 << (20 + DISPATCHER_NUMBER_BITS);

/// Time without heartbeats of any node after which an active dispatcher leaves the lease in the
/// shared store to others, in milliseconds: twenty heartbeats.
pub(crate) const DATA_PATH_LOST_MS: u64 = 1_000;

/// How long heartbeats of the leader in the shared store must arrive before a dispatcher that lost
/// the lease may take over from it like any other, in milliseconds: twenty heartbeats.
pub(crate) const LEADER_HEARD_MS: u64 = 1_000;

/// How long a claim waits for epochs to be persisted, in milliseconds: several times what a disk
/// takes. There is no wait while reserved epochs are left.
pub(crate) const RESERVE_PATIENCE_MS: u64 = 250;

/// Time after which a failed attempt to persist epochs is repeated, in milliseconds.
pub(crate) const RESERVE_AGAIN_MS: u64 = 1_000;

/// Time after which a failed step of the reconciler is repeated, in milliseconds.
pub(crate) const RETRY_MS: u64 = 500;

/// Age up to which a want of the virtual addresses is valid, in milliseconds: failover's ticks
/// renew it, so one from before a pause of the process is older.
pub(crate) const WANTS_MS_MAX: u64 = 1_000;

/// How long an active dispatcher whose machine cannot steer keeps trying, in milliseconds, before
/// it steps down in favour of another one: some retries of the reconciler.
pub(crate) const HINDERED_MS_MAX: u64 = 2_000;

/// How long it then leaves the term to others, in milliseconds: if they cannot steer, either, the
/// addresses move at most once a minute.
pub(crate) const HINDERED_HOLD_MS: u64 = 60_000;

/// How much longer than others it waits meanwhile before it takes over, in milliseconds: the time
/// of five takeovers.
pub(crate) const HINDERED_WAIT_MS: u64 = 1_000;

/// Pause before an epoch that the shared store did not accept is written again, in milliseconds, so
/// that a store that refuses at once is not flooded.
pub(crate) const RECORD_AGAIN_MS: u64 = 1_000;

/// Shortest interval between two tables of a dispatcher, in milliseconds, unless a node must not
/// receive flows any more: one heartbeat. Changes in the meantime are part of the second table.
pub(crate) const TABLE_INTERVAL_MS_MIN: u64 = 50;

/// What each node adds to this interval, in microseconds: each table is sent to all nodes, so this
/// limits the total to 2,000 messages per second, some hundredths of a core.
pub(crate) const TABLE_INTERVAL_US_PER_NODE: u64 = 500;

/// Tables that may follow each other at once because nodes must not receive flows any more; after
/// them, there is one per interval in any case. If a rack fails, its nodes are found dead within a
/// few ticks.
pub(crate) const TABLES_AT_ONCE_MAX: u64 = 8;

/// Tables that a machine keeps as bases of deltas: more than are made in the second that a slow
/// machine may take to apply one.
pub(crate) const TABLES_RECENT_MAX: usize = 16;

/// Time after which a table is sent again: in heartbeats of the machine, which report whether it
/// was applied, and at least this many milliseconds.
pub(crate) const TABLE_RESEND_HEARTBEATS: u64 = 2;
pub(crate) const TABLE_RESEND_MS_MIN: u64 = 100;

/// How often that time doubles between whole tables, at most.
pub(crate) const TABLE_RESEND_DOUBLINGS_MAX: u32 = 2;

/// How long a machine may apply no delta before it is sent the whole table, in units of that time:
/// at least 400 ms, which a slow machine needs for a table of many services.
pub(crate) const TABLE_STUCK_RESENDS: u64 = 4;

/// How long an active dispatcher defers announcements for the last table of another one, and then
/// for nodes to apply the merged table, in milliseconds: several times what a slow machine needs
/// for a table. Meanwhile, the other dispatcher steers the clients' packets.
pub(crate) const HANDOVER_MS_MAX: u64 = 5_000;

/// How long a dispatcher whose term has ended defers tables of another one that lack its own nodes,
/// in milliseconds: until that dispatcher has announced the addresses.
pub(crate) const LAST_TABLE_MS_MAX: u64 = 2 * HANDOVER_MS_MAX;

/// Interval at which it sends its last table meanwhile, in milliseconds, since datagrams may be
/// lost.
pub(crate) const LAST_TABLE_RESEND_MS: u64 = 200;

/// Largest tolerance of elasticity, in thousandths: with more than half of the target, a load could
/// be halved without any effect.
pub const ELASTIC_TOLERANCE_PERMILLE_MAX: u32 = 500;

/// How often the pause between two attempts to start or stop a node doubles, at most: by then it is
/// as long as a machine takes to boot.
pub(crate) const ELASTIC_RETRY_DOUBLINGS_MAX: u32 = 4;

/// Time that a node has to report that it returns its memory, in milliseconds; after that, another
/// dispatcher is assumed to want it on. Some ticks of the links.
pub(crate) const ELASTIC_AGREE_MS: u64 = 2_000;

/// How long a node must serve without a link before its machine is switched off anyway, in
/// milliseconds: longer than handing over takes, and than links take to be re-established.
pub const ELASTIC_UNLINKED_MS: u64 = 60_000;
