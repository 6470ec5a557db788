//! What elasticity is told and what it says: settings, observations, orders, events.

use std::fmt;

use skep_units::NodeId;

use crate::limits::ELASTIC_TOLERANCE_PERMILLE_MAX;

/// How elastic a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElasticitySettings {
    /// Nodes that serve at least; not 0.
    pub nodes_min: usize,
    /// Nodes that are on at most, those that start included.
    pub nodes_max: usize,
    /// What a node should have outstanding.
    pub targets: LoadTargets,
    /// By how much the load may differ from the target before anything is done, in thousandths.
    pub tolerance_permille: u32,
    /// Time between two decisions, in milliseconds.
    pub interval_ms: u64,
    /// How long the load must last until nodes are started, in milliseconds; 0: not at all.
    pub scale_out_window_ms: u64,
    /// Time of which the highest load counts when nodes are drained, in milliseconds.
    pub scale_in_window_ms: u64,
    /// Nodes that one decision starts at most.
    pub step_out_nodes_max: usize,
    /// Nodes that drain at a time at most.
    pub step_in_nodes_max: usize,
    /// Time that a node has to serve after the order to start, in milliseconds.
    pub start_timeout_ms: u64,
    /// Orders to a node that does not start, or does not stop, until it is marked failed.
    pub attempts_max: u32,
    /// Time between two attempts, in milliseconds; doubled each time.
    pub retry_pause_ms: u64,
    /// How long a node that was marked failed is left alone, in milliseconds.
    pub failed_hold_ms: u64,
    /// Time after which a draining node is stopped, whatever it has, in milliseconds.
    pub drain_timeout_ms: u64,
    /// Time that a node has to be off after the order to stop, in milliseconds.
    pub stop_timeout_ms: u64,
}

/// What a node should have outstanding; 0: that is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTargets {
    pub requests: u64,
    pub bytes: u64,
}

/// What is seen of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeObservation {
    pub id: NodeId,
    pub observed: Observed,
    /// An operator has drained it: it is left alone.
    pub is_held: bool,
    /// It has no request and nothing in memory that no other node has.
    pub is_idle: bool,
    /// The last order to it could not be carried out; to be said once.
    pub order_failed: bool,
    /// Requests that it has not answered in full.
    pub requests: u64,
    /// Bytes that it has announced and not sent.
    pub bytes: u64,
}

/// Whether a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Its checks are good.
    Ready,
    /// It does not serve, and its agent or its driver says that this is meant.
    Off,
    /// It does not serve yet, for all that is known.
    Silent,
    /// It could be reached, and cannot be any more.
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

/// What is to be done to a node. An order that is repeated is carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOrder {
    /// It is to serve; one that drains takes requests again.
    Start(NodeId),
    /// No new requests for it; what only it has goes to others.
    Drain(NodeId),
    /// It is to be off.
    Stop(NodeId),
}

/// Why a node did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFault {
    /// The order could not be carried out.
    OrderFailed,
    /// The order was carried out, and no node came.
    NotInTime,
    /// It was lost while it started.
    Lost,
}

/// What happened, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// It serves, so long after the first order.
    Started { node: NodeId, after_ms: u64 },
    /// It serves without an order.
    Joined { node: NodeId },
    /// It did not come; it is tried again.
    StartRetried { node: NodeId, attempt: u32, fault: StartFault },
    /// It did not come, and is marked failed.
    StartFailed { node: NodeId, attempts: u32, fault: StartFault },
    /// It is off, as ordered.
    Stopped { node: NodeId },
    /// It is not off; it is tried again.
    StopRetried { node: NodeId, attempt: u32 },
    /// It could not be switched off, and serves again.
    StopFailed { node: NodeId, attempts: u32 },
    /// It was stopped with this work, since its time to drain was over.
    DrainTimedOut { node: NodeId, requests: u64 },
    /// A node that should serve does not.
    Lost { node: NodeId },
    /// It serves again.
    Returned { node: NodeId },
    /// A node was lost while it drained: what only it had is gone.
    LostDraining { node: NodeId },
    /// More nodes are wanted than can be started.
    Short { wanted: usize, counted: usize },
}

/// What a tick says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElasticityStep {
    pub orders: Vec<PowerOrder>,
    pub events: Vec<PowerEvent>,
}

impl ElasticitySettings {
    /// # Panics
    /// If the bounds are in disorder, there is no target, or time stands still.
    pub(super) fn check(&self) {
        assert!(self.nodes_min >= 1 && self.nodes_min <= self.nodes_max, "bounds are in order");
        assert!(self.targets.requests > 0 || self.targets.bytes > 0, "there is a target");
        assert!(self.tolerance_permille <= ELASTIC_TOLERANCE_PERMILLE_MAX, "less than all");
        assert!(self.interval_ms > 0 && self.attempts_max > 0, "something happens");
        assert!(self.step_in_nodes_max > 0 && self.step_out_nodes_max > 0, "steps are taken");
    }
}

impl LifecycleState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Starting, Self::Active, Self::Draining];

    /// As it is shown.
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
    /// The node that it is about, if it is about one.
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

    /// Whether an operator should look.
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

/// Without the node, which the log names.
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
