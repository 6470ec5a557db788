//! Settings of elasticity: how many nodes of a service receive requests.

use skep_units::{GIB, NODES_MAX};

use crate::kind::{HOUR_MS, Kind, MINUTE_MS, bytes, count, ms, number};
use crate::number::Unit;
use crate::table::table;

table! {
    /// The number of nodes of a service that get requests follows the load. Only with `dispatch = "proxy"`;
    /// each dispatcher decides by the requests that it passes on.
    ElasticConfig at "elastic" {
        /// Whether elasticity is on.
        enabled: bool = false => Kind::Switch, live;
        /// Minimum number of nodes that serve.
        nodes_min: u32 = 1 => count(1..=NODES_MAX as u64), live;
        /// Maximum number of nodes that serve, including those that are starting.
        nodes_max: u32 = NODES_MAX as u32 => count(1..=NODES_MAX as u64), live;
        /// Target for the outstanding requests of a node. 0: requests do not count.
        target_requests: u64 = 0 => count(0..=1_000_000), live;
        /// Target for the outstanding bytes of a node: announced, and not yet sent. 0: bytes do not count. If
        /// both targets are set, the one that requires more nodes applies.
        target_bytes_max: u64 = 0 => bytes(0..=1024 * GIB), live;
        /// Deviation of the load from the target, in either direction, up to which the number of nodes does not
        /// change.
        tolerance_percent: u32 = 10 => number(Unit::Percent, 0..=50), live;
        /// Interval between decisions; each uses the mean load of the interval.
        interval_ms: u64 = 1000 => ms(100..=HOUR_MS), live;
        /// How long the load must last before nodes are started.
        scale_out_window_ms: u64 = 2000 => ms(0..=HOUR_MS), live;
        /// Stabilisation window: the highest load of this time counts when nodes are drained.
        scale_in_window_ms: u64 = 5 * MINUTE_MS => ms(0..=HOUR_MS), live;
        /// Maximum number of nodes that one decision starts.
        step_out_nodes_max: u32 = 4 => count(1..=NODES_MAX as u64), live;
        /// Maximum number of nodes that drain at the same time.
        step_in_nodes_max: u32 = 1 => count(1..=NODES_MAX as u64), live;
        /// Time in which a node that was started must pass its checks. If it does not, it is tried again, and
        /// then marked failed.
        start_timeout_ms: u64 = MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Attempts to start a node before it is marked failed.
        attempts_max: u32 = 3 => count(1..=100), live;
        /// Time for which a node that was marked failed is left alone.
        failed_hold_ms: u64 = 5 * MINUTE_MS => ms(0..=HOUR_MS), live;
        /// Time after which a draining node counts as off although it still has requests. These continue,
        /// unless a command of `power` switches the machine off, which ends them.
        drain_timeout_ms: u64 = 10 * MINUTE_MS => ms(0..=HOUR_MS), live;
    }
}
