//! Settings of elasticity: how many nodes of a service receive requests.

use skep_units::{GIB, NODES_MAX};

use crate::kind::{HOUR_MS, Kind, MINUTE_MS, bytes, count, ms, number};
use crate::number::Unit;
use crate::table::table;

table! {
    /// Nodes of a service get requests, or none, by the load. With `dispatch = "proxy"`; each dispatcher decides by the
    /// requests that it passes on.
    ElasticConfig at "elastic" {
        /// Whether it is on.
        enabled: bool = false => Kind::Switch, live;
        /// Nodes that serve at least.
        nodes_min: u32 = 1 => count(1..=NODES_MAX as u64), live;
        /// Nodes that serve at most, those that start included.
        nodes_max: u32 = NODES_MAX as u32 => count(1..=NODES_MAX as u64), live;
        /// Requests that a node should have outstanding. 0: they do not count.
        target_requests: u64 = 0 => count(0..=1_000_000), live;
        /// Bytes that a node should have outstanding: announced, and not sent. 0: they do not count. If both targets are set,
        /// the one that asks for more nodes counts.
        target_bytes_max: u64 = 0 => bytes(0..=1024 * GIB), live;
        /// How far the load may be from the target, either way, before anything changes.
        tolerance_percent: u32 = 10 => number(Unit::Percent, 0..=50), live;
        /// Time from one decision to the next; each goes by the mean load of that time.
        interval_ms: u64 = 1000 => ms(100..=HOUR_MS), live;
        /// How long the load must last until nodes are started.
        scale_out_window_ms: u64 = 2000 => ms(0..=HOUR_MS), live;
        /// Time of which the highest load counts when nodes are drained.
        scale_in_window_ms: u64 = 5 * MINUTE_MS => ms(0..=HOUR_MS), live;
        /// Nodes that one decision starts at most.
        step_out_nodes_max: u32 = 4 => count(1..=NODES_MAX as u64), live;
        /// Nodes that drain at a time at most.
        step_in_nodes_max: u32 = 1 => count(1..=NODES_MAX as u64), live;
        /// Time in which a node that was started must pass its checks; over it, it is tried again, and then marked failed.
        start_timeout_ms: u64 = MINUTE_MS => ms(100..=HOUR_MS), live;
        /// Attempts to start a node until it is marked failed.
        attempts_max: u32 = 3 => count(1..=100), live;
        /// How long a node that was marked failed is left alone.
        failed_hold_ms: u64 = 5 * MINUTE_MS => ms(0..=HOUR_MS), live;
        /// Time after which a draining node counts as off, though it has requests: they go on, unless a
        /// command of `power` switches the machine off, which ends them.
        drain_timeout_ms: u64 = 10 * MINUTE_MS => ms(0..=HOUR_MS), live;
    }
}
