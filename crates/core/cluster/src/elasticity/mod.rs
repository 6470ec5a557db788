//! Elasticity: how many nodes are on, by the load that they have (after Summers and Thompson, "Awesome Web Server", with what keeps it from flapping).
//!
//! ```text
//!              Start                  checks are good
//!      off ------------> starting -----------------------> active
//!       ^                 |    ^ again, up to attempts_max    |
//!       |<----------------+----+                              | Drain
//!       |                 not in time, or it died             v
//!       +---------------------------------------------- draining
//!            Stop, once it has no request and nothing        (Start takes it back)
//!            left that no other node has
//! ```
//!
//! - Target tracking: load is what nodes have outstanding, counted in nodes' worth (`targets`). Each tick is a sample, and a
//!   decision goes by the mean since the last one: what is outstanding at a moment varies by chance.
//! - Hysteresis: nodes are started above `1 + tolerance` times what those that are on should have, and drained if fewer
//!   would have at most `1 - tolerance` times that. So the load must change by more than both together until one
//!   follows the other.
//! - Scale-out is at the next decision; scale-in goes by the highest load of a stabilisation window, as in Kubernetes' Horizontal Pod
//!   Autoscaler.
//! - A start that fails is repeated; then the node is marked failed for a while, and another one is started.
//!
//! The nodes that are first by their numbers wake first and sleep last: their memories stay warm.
//!
//! **Invariants:** no order to start a node while as many as `nodes_max` are on or starting; none to drain one if fewer than
//! `nodes_min` would serve. Nodes that an operator holds get no order. Time in which nobody looked does not count, so a clock
//! that jumps ends neither a window nor a timeout.

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

pub use machine::{
    CommandEnd, MachinePower, MachineSeen, MachineSettings, MachineStatus, PowerCommand,
};
pub use settings::{
    ElasticitySettings, ElasticityStep, LifecycleState, LoadTargets, NodeObservation, Observed,
    PowerEvent, PowerOrder, StartFault,
};

/// Decides which nodes are on. To be ticked some times in `interval_ms`.
#[derive(Clone, Debug)]
pub struct Elasticity {
    settings: ElasticitySettings,
    clock: WatchedClock,
    nodes: BTreeMap<NodeId, ElasticNode>,
    /// Since the last decision.
    mean: LoadMean,
    window: LoadWindow,
    /// When it decides next, by its own clock.
    decides_at_ms: u64,
    /// More nodes are wanted than can be started.
    is_short: bool,
}

impl Elasticity {
    /// Knows no node yet.
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

    /// The state of a node; `None`: it was not observed yet.
    pub fn state(&self, id: NodeId) -> Option<LifecycleState> {
        self.nodes.get(&id).map(ElasticNode::state)
    }

    /// Whether a node could not be started or stopped lately, so that others are preferred.
    pub fn is_failed(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.is_failed(self.clock.now_ms()))
    }

    /// `seen` is what is known of all nodes. The orders are to be carried out; what came of them shows in later observations.
    pub fn tick(&mut self, now: Now, seen: &[NodeObservation]) -> ElasticityStep {
        // Twice the interval is late, and no more: a process that stood still has seen nothing meanwhile.
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
            // Nodes that are lost are not waited for.
            let missing = self.settings.nodes_min.saturating_sub(self.counted());
            self.start(clock_ms, missing, &mut step);
        }
        self.check_invariants();
        step
    }

    /// Nodes that carry the load, or will soon.
    fn counted(&self) -> usize {
        self.nodes.values().filter(|node| node.counts()).count()
    }

    fn serving(&self) -> usize {
        self.nodes.values().filter(|node| node.serves()).count()
    }

    /// Nodes that are on, or are to be.
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

    /// Starts up to so many nodes. Returns whether there are too few.
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

    /// Drains nodes down to `wanted`, the last ones first.
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
