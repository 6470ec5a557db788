//! Elasticity: how many nodes are on, by their load (after Summers and Thompson, "Awesome Web
//! Server", plus measures against flapping).
//!
//! ```text
//!              Start                  checks pass
//!      off ------------> starting -----------------------> active
//!       ^                 |    ^ again, up to attempts_max    |
//!       |<----------------+----+                              | Drain
//!       |                 not in time, or it was lost         v
//!       +---------------------------------------------- draining
//!            Stop, once it has no requests and no            (Start takes it back)
//!            segment that no other node has
//! ```
//!
//! - Target tracking: the load is the nodes' outstanding work, in units of one node's target
//!   (`targets`). Each tick takes a sample, and a decision uses the mean since the last decision,
//!   since momentary values fluctuate.
//! - Hysteresis: nodes are started if the load exceeds `1 + tolerance` times the target of those
//!   that are on, and drained if fewer nodes would have at most `1 - tolerance` times their target.
//!   So a start is not followed by a drain, or the reverse, unless the load changes by more than
//!   both tolerances.
//! - Scale-out happens at the next decision; scale-in uses the highest load of a stabilisation
//!   window, as in Kubernetes' Horizontal Pod Autoscaler.
//! - A start that fails is repeated; then the node is marked failed for a while, and another one is started.
//!
//! Nodes with the lowest numbers are started first and stopped last: their memories stay warm.
//!
//! **Invariants:** no node is ordered to start while `nodes_max` nodes are on or starting; none is
//! ordered to drain if fewer than `nodes_min` would remain. Nodes held by an operator receive no
//! orders. Time without ticks does not count, so a clock that jumps ends neither a window nor a
//! timeout.

mod machine;
mod node;
mod settings;
mod target;
mod watched_clock;

use std::collections::BTreeMap;

use skep_units::{NodeId, Now};

use node::ElasticNode;
use target::{LoadMean, LoadWindow};
use watched_clock::WatchedClock;

pub use crate::limits::ELASTIC_UNLINKED_MS;
pub use machine::{
    CommandEnd, MachinePower, MachineSeen, MachineSettings, MachineStatus, PowerCommand,
};
pub use settings::{
    ElasticitySettings, ElasticityStep, LifecycleState, LoadTargets, NodeObservation, Observed,
    PowerEvent, PowerOrder, StartFault,
};

/// Decides which nodes are on. Tick it several times per `interval_ms`.
#[derive(Clone, Debug)]
pub struct Elasticity {
    settings: ElasticitySettings,
    clock: WatchedClock,
    nodes: BTreeMap<NodeId, ElasticNode>,
    /// The mean load since the last decision.
    mean: LoadMean,
    window: LoadWindow,
    /// Time of the next decision, by the watched clock.
    decides_at_ms: u64,
    /// Whether more nodes are wanted than can be started.
    is_short: bool,
}

impl Elasticity {
    /// Starts without nodes.
    ///
    /// # Panics
    /// On settings that the config does not allow: see [`ElasticitySettings::check`].
    pub fn new(settings: ElasticitySettings) -> Self {
        settings.check();
        Self {
            settings,
            clock: WatchedClock::default(),
            nodes: BTreeMap::new(),
            mean: LoadMean::default(),
            window: LoadWindow::default(),
            decides_at_ms: 0,
            is_short: false,
        }
    }

    /// Settings were reloaded.
    pub fn set_settings(&mut self, settings: ElasticitySettings) {
        settings.check();
        self.settings = settings;
    }

    /// The state of a node; `None` if it was not observed yet.
    pub fn state(&self, id: NodeId) -> Option<LifecycleState> {
        self.nodes.get(&id).map(ElasticNode::state)
    }

    /// Whether a node recently failed to start or stop, so that others are preferred.
    pub fn is_failed(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.is_failed(self.clock.now_ms()))
    }

    /// `seen` is the observation of all nodes. The caller carries out the orders; later
    /// observations show the results.
    pub fn tick(&mut self, now: Now, seen: &[NodeObservation]) -> ElasticityStep {
        // A tick counts for at most twice the interval: a process that was paused has observed
        // nothing meanwhile.
        self.clock.advance(now, 2 * self.settings.interval_ms);
        let (clock_ms, settings) = (self.clock.now_ms(), self.settings);
        let mut step = ElasticityStep::default();
        self.nodes.retain(|id, _| seen.iter().any(|node| node.id == *id));
        for node in seen {
            match self.nodes.get_mut(&node.id) {
                Some(known) => known.observe(clock_ms, &settings, node, &mut step),
                None => _ = self.nodes.insert(node.id, ElasticNode::new(node)),
            }
        }
        self.repeat_starts(clock_ms, &mut step);
        self.mean.add(settings.targets.load_permille(seen));
        if clock_ms >= self.decides_at_ms {
            self.decides_at_ms = clock_ms + settings.interval_ms;
            self.window.add(clock_ms, self.mean.take(), &settings);
            self.decide(clock_ms, &mut step);
        } else {
            // Lost nodes are not waited for.
            let missing = self.settings.nodes_min.saturating_sub(self.counted());
            self.start(clock_ms, missing, &mut step);
        }
        self.check_invariants();
        step
    }

    /// The number of nodes that carry load, or will soon.
    fn counted(&self) -> usize {
        self.nodes.values().filter(|node| node.counts()).count()
    }

    fn serving(&self) -> usize {
        self.nodes.values().filter(|node| node.serves()).count()
    }

    /// The number of nodes that are on or starting.
    fn on(&self) -> usize {
        self.nodes.values().filter(|node| node.serves() || node.is_starting()).count()
    }

    fn repeat_starts(&mut self, clock_ms: u64, step: &mut ElasticityStep) {
        let mut on = self.on();
        for (id, node) in &mut self.nodes {
            let is_too_many = on > self.settings.nodes_max;
            let order = node.repeat_start(clock_ms, &self.settings, *id, is_too_many);
            on -= usize::from(matches!(order, Some(PowerOrder::Stop(_))));
            step.orders.extend(order);
        }
    }

    fn decide(&mut self, clock_ms: u64, step: &mut ElasticityStep) {
        let counted = self.counted();
        let wanted = self.window.wanted(clock_ms, counted, &self.settings);
        let wanted = wanted.clamp(self.settings.nodes_min, self.settings.nodes_max);
        let is_short = match wanted > counted {
            true => self.start(clock_ms, wanted - counted, step),
            false => {
                self.drain(clock_ms, wanted, step);
                false
            }
        };
        if is_short && !self.is_short {
            step.events.push(PowerEvent::Short { wanted, counted });
        }
        self.is_short = is_short;
    }

    /// Starts up to `missing` nodes. Returns whether there are too few.
    fn start(&mut self, clock_ms: u64, missing: usize, step: &mut ElasticityStep) -> bool {
        let room = self.settings.nodes_max.saturating_sub(self.on());
        let settings = self.settings;
        let mut candidates: Vec<_> = self
            .nodes
            .iter_mut()
            .filter_map(|(id, node)| Some((node.start_rank(clock_ms)?, *id, node)))
            .collect();
        candidates.sort_by_key(|(rank, id, _)| (*rank, *id));
        let is_short = candidates.len().min(room) < missing;
        let starts = missing.min(room).min(settings.step_out_nodes_max);
        for (_, id, node) in candidates.into_iter().take(starts) {
            node.start(clock_ms, &settings);
            step.orders.push(PowerOrder::Start(id));
        }
        is_short
    }

    /// Drains nodes down to `wanted`, those with the highest numbers first.
    fn drain(&mut self, clock_ms: u64, wanted: usize, step: &mut ElasticityStep) {
        let draining = self.nodes.values().filter(|node| node.is_draining()).count();
        let excess = self.serving().saturating_sub(wanted);
        let drains = excess.min(self.settings.step_in_nodes_max.saturating_sub(draining));
        let settings = self.settings;
        let may = |node: &ElasticNode| node.serves() && !node.is_failed(clock_ms);
        let last = self.nodes.iter_mut().rev().filter(|(_, node)| may(node)).take(drains);
        for (id, node) in last {
            node.drain(clock_ms, &settings);
            step.orders.push(PowerOrder::Drain(*id));
        }
    }

    fn check_invariants(&self) {
        debug_assert!(self.nodes.len() <= crate::NODES_MAX, "as many as the table has");
    }
}
