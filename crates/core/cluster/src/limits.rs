//! Bounds and fixed numbers of the cluster's state, with units and reasons.

/// Nodes a service may have, those that commands added included.
pub use skep_units::NODES_MAX;

/// Largest weight of a node: what the config takes. Products of weights, shares and
/// loads stay far inside 64 bits.
pub use skep_units::WEIGHT_MAX;

pub use skep_units::NAME_BYTES_MAX;

use skep_units::DISPATCHER_NUMBER_BITS;

/// Longest time between the checks of a node that is joining, in milliseconds:
/// a cluster that starts is ready soon after its slowest node.
pub(crate) const JOINING_INTERVAL_MS_MAX: u64 = 250;

/// Checks begin up to so much of the interval early, in percent, so that many
/// dispatchers do not check a node in step.
pub(crate) const CHECK_JITTER_PERCENT: u64 = 20;

/// Share of the nodes that failed requests may take out at a time, in percent, unless
/// the operator says otherwise: Envoy's. More at once is rather a matter of the
/// requests than of the nodes, and what is dead is found by checks.
pub(crate) const EJECTED_PERCENT_MAX: u32 = 10;

/// How long an unused right to retry is kept, in milliseconds (Finagle's and
/// linkerd's default): an idle night does not pay for a storm in the morning.
pub(crate) const RETRY_WINDOW_MS: u64 = 10_000;

/// Slots the window is cut into: rights expire in steps of a tenth of it.
pub(crate) const RETRY_SLOTS: usize = 10;

/// When a dispatcher announces its addresses once more, in milliseconds: a
/// switch or host that was busy then has a second chance (keepalived does so
/// after five seconds).
pub(crate) const ANNOUNCE_AGAIN_MS: u64 = 1_000;

/// Shortest time between two defences of an address, in milliseconds: RFC 5227,
/// 1.1 (DEFEND_INTERVAL).
pub(crate) const DEFEND_INTERVAL_MS: u64 = 10_000;

/// How long an address counts as in conflict after another machine was seen to
/// hold it, in milliseconds. Then it is probed again.
pub(crate) const ADDRESS_CONFLICT_HOLD_MS: u64 = 10_000;

/// How long a standby has been one before it preempts, in milliseconds: less
/// would let a dispatcher that keeps crashing take over each time.
pub(crate) const PREEMPT_SETTLE_MS: u64 = 1_000;

/// Batches of flows on their way to a standby at a time: some 12,000 flows, a
/// third of a megabyte, which a receive buffer holds.
pub(crate) const FLOW_WINDOW: usize = 256;

/// Silence after which batches are sent again, in milliseconds: some times the
/// way to a standby and back, with its work in between.
pub(crate) const FLOW_RESEND_MS: u64 = 200;

/// Batches that wait for a standby, at most: the flows of a full table of the
/// default size, and as many again that began meanwhile.
pub(crate) const FLOW_BATCHES_KEPT_MAX: usize = 24_000;

/// Epochs that a dispatcher reserves ahead, 64 of them its own; it reserves more when half of them are
/// used up: by thirty takeovers, each at most a step after the last one.
pub(crate) const EPOCHS_RESERVED: u64 = 64 << DISPATCHER_NUMBER_BITS;

/// Epochs that a dispatcher skips at most if it cannot persist those that it uses: two of its
/// processes use the same one in one of a million pairs, as a million of them are its own. There is
/// room for 60 million such processes below the greatest epoch that is believed of a disk.
pub(crate) const EPOCHS_SKIPPED_MAX: u64 = 1 << (20 + DISPATCHER_NUMBER_BITS);

/// Time without any node's heartbeat after which an active dispatcher leaves the lease in the shared
/// store to others, in milliseconds: twenty heartbeats.
pub(crate) const DATA_PATH_LOST_MS: u64 = 1_000;

/// How long the heartbeats of the leader in the shared store must arrive until a dispatcher that lost the
/// lease takes over from it as others do, in milliseconds: twenty heartbeats.
pub(crate) const LEADER_HEARD_MS: u64 = 1_000;

/// How long a claim waits for epochs to be persisted, in milliseconds: some times what a disk needs.
/// There is no wait while those that were reserved ahead last.
pub(crate) const RESERVE_PATIENCE_MS: u64 = 250;

/// Time until epochs that could not be persisted are tried again, in milliseconds.
pub(crate) const RESERVE_AGAIN_MS: u64 = 1_000;

/// Time after which a step of the reconciler that failed is repeated, in milliseconds.
pub(crate) const RETRY_MS: u64 = 500;

/// Age up to which a want of the virtual addresses counts, in milliseconds: as failover's ticks
/// renew it, that of a process that was paused is older.
pub(crate) const WANTS_MS_MAX: u64 = 1_000;

/// How long an active dispatcher whose machine cannot steer as it should tries to, in milliseconds,
/// before it steps down for another one: some retries of the reconciler.
pub(crate) const HINDERED_MS_MAX: u64 = 2_000;

/// How long it leaves the term to others then, in milliseconds: if they cannot steer, either, the
/// addresses move once a minute at most.
pub(crate) const HINDERED_HOLD_MS: u64 = 60_000;

/// How much longer than others it waits before it takes over meanwhile, in milliseconds: others
/// had five takeovers' time.
pub(crate) const HINDERED_WAIT_MS: u64 = 1_000;

/// Pause before an epoch that the shared store did not accept is written again, in milliseconds: a
/// store that refuses at once is not to be flooded.
pub(crate) const RECORD_AGAIN_MS: u64 = 1_000;

/// Shortest time between two tables of a dispatcher, in milliseconds, unless flows must not go on to
/// a node: a heartbeat. What changes meanwhile comes with the second one.
pub(crate) const TABLE_INTERVAL_MS_MIN: u64 = 50;

/// What each node adds to it in larger clusters, in microseconds: every one is sent each table, 2,000
/// times a second all of them together, for which a core needs some hundredths of its time.
pub(crate) const TABLE_INTERVAL_US_PER_NODE: u64 = 500;

/// Tables that may follow each other at once because flows must not go on to a node; then there is
/// one for each interval, whatever happens. Several nodes of a rack that fails are found
/// dead at one tick, all of them within some.
pub(crate) const TABLES_AT_ONCE_MAX: u64 = 8;

/// Tables that a machine keeps as bases of deltas: some more than those of a second, which a slow
/// machine may take to apply one.
pub(crate) const TABLES_RECENT_MAX: usize = 16;

/// Time from sending a table to sending it again, in heartbeats of the machine, one of which tells whether it was
/// applied, and in milliseconds at least.
pub(crate) const TABLE_RESEND_HEARTBEATS: u64 = 2;
pub(crate) const TABLE_RESEND_MS_MIN: u64 = 100;

/// How often that time doubles between whole tables, at most.
pub(crate) const TABLE_RESEND_DOUBLINGS_MAX: u32 = 2;

/// How long a machine may apply none of the deltas that it is sent before it is sent the whole table, in times of that:
/// at least 400 ms, which a slow one needs for a table of many services.
pub(crate) const TABLE_STUCK_RESENDS: u64 = 4;

/// How long an active dispatcher puts announcements off for the last table of another one, and then
/// for nodes to apply what comes of it, in milliseconds: some times what a slow machine needs for a
/// table. Clients' packets are steered by the other one meanwhile.
pub(crate) const HANDOVER_MS_MAX: u64 = 5_000;

/// How long a dispatcher whose term has ended puts off the tables of another one that lack nodes of its
/// own, in milliseconds: until that one has announced the addresses.
pub(crate) const LAST_TABLE_MS_MAX: u64 = 2 * HANDOVER_MS_MAX;

/// How often it sends its last table meanwhile, in milliseconds, as datagrams may be lost.
pub(crate) const LAST_TABLE_RESEND_MS: u64 = 200;

/// Largest tolerance of elasticity, in thousandths: with half of the target or more, a load could be halved and nothing would
/// follow.
pub const ELASTIC_TOLERANCE_PERMILLE_MAX: u32 = 500;

/// How often the pause between two attempts to start or stop a node doubles, at most: then it is as long as a machine needs to
/// boot.
pub(crate) const ELASTIC_RETRY_DOUBLINGS_MAX: u32 = 4;

/// Time that a node has to say that it returns its memory, in milliseconds; over it, another dispatcher wants it on. Some ticks
/// of the links.
pub(crate) const ELASTIC_AGREE_MS: u64 = 2_000;

/// Time for which a node must serve without a link until its machine is switched off all the same, in milliseconds: longer than
/// handing over takes, and than links need to come back.
pub(crate) const ELASTIC_UNLINKED_MS: u64 = 60_000;
