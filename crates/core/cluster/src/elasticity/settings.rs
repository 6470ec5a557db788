//! The inputs and outputs of elasticity: settings, observations, orders, events.

use std::fmt;

use skep_units::NodeId;

use crate::limits::ELASTIC_TOLERANCE_PERMILLE_MAX;

/// Settings of elasticity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElasticitySettings {
    /// Fewest serving nodes; not 0.
    pub nodes_min: usize,
    /// Most nodes that are on, including starting ones.
    pub nodes_max: usize,
    /// Target of outstanding work per node.
    pub targets: LoadTargets,
    /// Relative deviation of the load from the target that is tolerated, in thousandths.
    pub tolerance_permille: u32,
    /// Time between two decisions, in milliseconds.
    pub interval_ms: u64,
    /// How long the load must last before nodes are started, in milliseconds; 0 for no wait.
    pub scale_out_window_ms: u64,
    /// Window of which the highest load counts when nodes are drained, in milliseconds.
    pub scale_in_window_ms: u64,
    /// Most nodes started by one decision.
    pub step_out_nodes_max: usize,
    /// Most nodes draining at a time.
    pub step_in_nodes_max: usize,
    /// Time that a node has to become ready after the order to start, in milliseconds.
    pub start_timeout_ms: u64,
    /// Orders to a node that does not start, or does not stop, before it is marked failed.
    pub attempts_max: u32,
    /// Pause between two attempts, in milliseconds; doubled each time.
    pub retry_pause_ms: u64,
    /// How long a node that was marked failed is left alone, in milliseconds.
    pub failed_hold_ms: u64,
    /// Time after which a draining node is stopped even if it is not idle, in milliseconds.
    pub drain_timeout_ms: u64,
    /// Time that a node has to be off after the order to stop, in milliseconds.
    pub stop_timeout_ms: u64,
}

/// Target of outstanding work per node; 0 if the quantity is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTargets {
    pub requests: u64,
    pub bytes: u64,
}

/// The observation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeObservation {
    pub id: NodeId,
    pub observed: Observed,
    /// Whether an operator has drained it: it is left alone.
    pub is_held: bool,
    /// Whether it has no requests, and nothing in memory that no other node has.
    pub is_idle: bool,
    /// Whether the last order to it could not be carried out; reported once.
    pub order_failed: bool,
    /// Requests that it has not answered completely.
    pub requests: u64,
    /// Bytes that it has announced but not sent yet.
    pub bytes: u64,
}

/// Whether a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Its checks pass.
    Ready,
    /// It does not serve, and its agent or driver reports that this is intended.
    Off,
    /// It does not serve, and is assumed not to have started yet.
    Silent,
    /// It was reachable before, and is no longer.
    Lost,
}

/// The states of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleState {
    Off,
    Starting,
    Active,
    Draining,
}

/// An order to a node. A repeated order is carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOrder {
    /// It must serve; a draining node accepts requests again.
    Start(NodeId),
    /// It receives no new requests; segments that only it has are offered to others.
    Drain(NodeId),
    /// It must be off.
    Stop(NodeId),
}

/// Why a node did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFault {
    /// The order could not be carried out.
    OrderFailed,
    /// The order was carried out, but the node did not become ready in time.
    NotInTime,
    /// It was lost while starting.
    Lost,
}

/// An event, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// It serves, `after_ms` after the first order.
    Started { node: NodeId, after_ms: u64 },
    /// It serves without an order.
    Joined { node: NodeId },
    /// It did not start; the start is repeated.
    StartRetried { node: NodeId, attempt: u32, fault: StartFault },
    /// It did not start, and is marked failed.
    StartFailed { node: NodeId, attempts: u32, fault: StartFault },
    /// It is off, as ordered.
    Stopped { node: NodeId },
    /// It is not off; the stop is repeated.
    StopRetried { node: NodeId, attempt: u32 },
    /// It could not be stopped, and serves again.
    StopFailed { node: NodeId, attempts: u32 },
    /// It was stopped with requests left, because its drain timed out.
    DrainTimedOut { node: NodeId, requests: u64 },
    /// A node that should serve does not.
    Lost { node: NodeId },
    /// It serves again.
    Returned { node: NodeId },
    /// A node was lost while draining: segments that only it had are lost.
    LostDraining { node: NodeId },
    /// More nodes are wanted than can be started.
    Short { wanted: usize, counted: usize },
}

/// The result of a tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElasticityStep {
    pub orders: Vec<PowerOrder>,
    pub events: Vec<PowerEvent>,
}

impl ElasticitySettings {
    /// # Panics
    /// If the bounds are inconsistent, there is no target, or an interval is 0.
    pub(super) fn check(&self) {
        assert!(self.nodes_min >= 1 && self.nodes_min <= self.nodes_max, "bounds are in order");
        assert!(self.targets.requests > 0 || self.targets.bytes > 0, "there is a target");
        assert!(self.tolerance_permille <= ELASTIC_TOLERANCE_PERMILLE_MAX, "less than all");
        assert!(self.interval_ms > 0 && self.attempts_max > 0, "something happens");
        assert!(self.step_in_nodes_max > 0 && self.step_out_nodes_max > 0, "steps are taken");
    }
}

impl LifecycleState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Off, Self::Starting, Self::Active, Self::Draining];

    /// The word that is displayed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Starting => "starting",
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }
}

impl PowerEvent {
    /// The node that the event concerns, if it concerns one.
    pub fn node(&self) -> Option<NodeId> {
        match *self {
            Self::Started { node, .. }
            | Self::Joined { node }
            | Self::StartRetried { node, .. }
            | Self::StartFailed { node, .. }
            | Self::Stopped { node }
            | Self::StopRetried { node, .. }
            | Self::StopFailed { node, .. }
            | Self::DrainTimedOut { node, .. }
            | Self::Lost { node }
            | Self::Returned { node }
            | Self::LostDraining { node } => Some(node),
            Self::Short { .. } => None,
        }
    }

    /// Whether an operator should be alerted.
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self,
            Self::Started { .. }
                | Self::Joined { .. }
                | Self::Stopped { .. }
                | Self::Returned { .. }
        )
    }
}

impl fmt::Display for StartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OrderFailed => "the order failed",
            Self::NotInTime => "no node came in time",
            Self::Lost => "it was lost while it started",
        })
    }
}

/// Omits the node, which the log line names.
impl fmt::Display for PowerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { after_ms, .. } => write!(f, "active, {after_ms} ms after the order"),
            Self::Joined { .. } => f.write_str("active, without an order"),
            Self::StartRetried { attempt, fault, .. } => {
                write!(f, "attempt {attempt} to start it failed: {fault}; it is tried again")
            }
            Self::StartFailed { attempts, fault, .. } => {
                write!(f, "marked failed after {attempts} attempts to start it: {fault}")
            }
            Self::Stopped { .. } => f.write_str("off"),
            Self::StopRetried { attempt, .. } => {
                write!(f, "attempt {attempt} to stop it failed; it is tried again")
            }
            Self::StopFailed { attempts, .. } => {
                write!(f, "marked failed after {attempts} attempts to stop it; it serves again")
            }
            Self::DrainTimedOut { requests, .. } => {
                write!(f, "its time to drain is over, it is stopped with {requests} requests")
            }
            Self::Lost { .. } => f.write_str("active, and does not serve"),
            Self::Returned { .. } => f.write_str("serves again"),
            Self::LostDraining { .. } => {
                f.write_str("lost while it drained, with what only it had in memory")
            }
            Self::Short { wanted, counted } => {
                write!(f, "nodes wanted: {wanted}, on: {counted}; no other can be started")
            }
        }
    }
}
