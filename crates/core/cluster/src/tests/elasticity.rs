//! Elasticity: tests by name, a sweep of loads around every threshold, and random sequences against
//! the invariants.

use std::collections::BTreeMap;

use proptest::prelude::*;
use skep_units::{NodeId, Now, Rng};

use crate::elasticity::{
    Elasticity, ElasticitySettings, ElasticityStep, LifecycleState, LoadTargets, NodeObservation,
    Observed, PowerEvent, PowerOrder, StartFault,
};

/// Target per node, in requests: load `n` in the tests is `n` times this.
const TARGET: u64 = 100;

fn settings(nodes_max: usize) -> ElasticitySettings {
    ElasticitySettings {
        nodes_min: 1,
        nodes_max,
        targets: LoadTargets { requests: TARGET, bytes: 0 },
        tolerance_permille: 100,
        interval_ms: 1_000,
        scale_out_window_ms: 0,
        scale_in_window_ms: 30_000,
        step_out_nodes_max: 4,
        step_in_nodes_max: 1,
        start_timeout_ms: 5_000,
        attempts_max: 3,
        retry_pause_ms: 1_000,
        failed_hold_ms: 60_000,
        drain_timeout_ms: 10_000,
        stop_timeout_ms: 5_000,
    }
}

/// Nodes that carry out their orders, each after some ticks, unless a test specifies otherwise.
struct World {
    elasticity: Elasticity,
    now: Now,
    nodes: BTreeMap<NodeId, SimulatedPower>,
    /// Requests in all, distributed over the serving nodes.
    load: u64,
    events: Vec<PowerEvent>,
}

#[derive(Clone, Copy, Debug)]
struct SimulatedPower {
    observed: Observed,
    /// Ticks until it serves.
    comes_in: Option<u32>,
    is_draining: bool,
    is_held: bool,
    is_broken: bool,
    order_failed: bool,
}

impl World {
    /// The first `on` of `count` nodes serve.
    fn new(settings: ElasticitySettings, count: u32, on: u32) -> Self {
        let node = |number| {
            let observed = if number < on { Observed::Ready } else { Observed::Off };
            let node = SimulatedPower {
                observed,
                comes_in: None,
                is_draining: false,
                is_held: false,
                is_broken: false,
                order_failed: false,
            };
            (NodeId(number), node)
        };
        Self {
            elasticity: Elasticity::new(settings),
            now: Now(1_000_000),
            nodes: (0..count).map(node).collect(),
            load: 0,
            events: Vec::new(),
        }
    }

    fn serving(&self) -> usize {
        let serves = |node: &&SimulatedPower| {
            node.observed == Observed::Ready && !node.is_draining && !node.is_held
        };
        self.nodes.values().filter(serves).count()
    }

    fn in_state(&self, state: LifecycleState) -> usize {
        self.nodes.keys().filter(|id| self.elasticity.state(**id) == Some(state)).count()
    }

    fn node(&mut self, number: u32) -> &mut SimulatedPower {
        self.nodes.get_mut(&NodeId(number)).unwrap()
    }

    /// Advances the time, and carries out the orders.
    fn tick(&mut self, passed_ms: u64) -> ElasticityStep {
        self.now = self.now.plus_ms(passed_ms);
        for node in self.nodes.values_mut() {
            match &mut node.comes_in {
                Some(0) => (node.observed, node.comes_in) = (Observed::Ready, None),
                Some(ticks) => *ticks -= 1,
                None => {}
            }
        }
        let share = self.load / self.serving().max(1) as u64;
        let mut rest = self.load - share * self.serving().max(1) as u64;
        let mut seen = Vec::new();
        for (id, node) in &mut self.nodes {
            let serves = node.observed == Observed::Ready && !node.is_draining && !node.is_held;
            let extra = if serves { std::mem::take(&mut rest) } else { 0 };
            seen.push(NodeObservation {
                id: *id,
                observed: node.observed,
                is_held: node.is_held,
                is_idle: node.is_draining,
                order_failed: std::mem::take(&mut node.order_failed),
                requests: if serves { share + extra } else { 0 },
                bytes: 0,
            });
        }
        let step = self.elasticity.tick(self.now, &seen);
        for order in &step.orders {
            self.obey(*order);
        }
        self.events.extend(&step.events);
        step
    }

    fn obey(&mut self, order: PowerOrder) {
        match order {
            PowerOrder::Start(id) => {
                let node = self.nodes.get_mut(&id).unwrap();
                let is_on = node.observed == Observed::Ready;
                node.is_draining = false;
                node.comes_in = (!is_on && !node.is_broken).then_some(2);
            }
            PowerOrder::Drain(id) => self.nodes.get_mut(&id).unwrap().is_draining = true,
            PowerOrder::Stop(id) => {
                let node = self.nodes.get_mut(&id).unwrap();
                (node.is_draining, node.observed, node.comes_in) = (false, Observed::Off, None);
            }
        }
    }

    fn run(&mut self, ticks: usize) {
        (0..ticks).for_each(|_| _ = self.tick(1_000));
    }
}

#[test]
fn load_starts_nodes_at_once_and_stops_them_after_the_window() {
    let mut world = World::new(settings(8), 8, 1);
    world.load = 6 * TARGET;
    let step = world.tick(0);
    let first = [1, 2, 3, 4].map(|it| PowerOrder::Start(NodeId(it)));
    assert_eq!(step.orders, first, "the first ones, as many as a step has");
    assert_eq!(world.tick(1_000).orders, [PowerOrder::Start(NodeId(5))], "and the rest");
    world.run(10);
    assert_eq!((world.serving(), world.in_state(LifecycleState::Active)), (6, 6));
    world.load = TARGET;
    world.run(29);
    assert_eq!(world.serving(), 6, "the window has seen more");
    world.run(2);
    assert_eq!(world.in_state(LifecycleState::Draining), 1, "one at a time");
    assert_eq!(
        world.elasticity.state(NodeId(5)),
        Some(LifecycleState::Draining),
        "the last one first"
    );
    world.run(20);
    assert_eq!(
        (world.serving(), world.in_state(LifecycleState::Off)),
        (2, 6),
        "with the tolerance"
    );
}

#[test]
fn bytes_count_where_they_are_more() {
    let targets = LoadTargets { requests: 10, bytes: 1_000 };
    let seen = |requests, bytes| NodeObservation {
        id: NodeId(0),
        observed: Observed::Ready,
        is_held: false,
        is_idle: false,
        order_failed: false,
        requests,
        bytes,
    };
    for (requests, bytes, worth) in [(20, 0, 2_000), (20, 5_000, 5_000), (0, 500, 500)] {
        assert_eq!(targets.load_permille(&[seen(requests, bytes)]), worth);
    }
}

#[test]
fn a_decision_goes_by_the_mean_since_the_last_one() {
    for (loads, is_enough) in [([20, 180, 30, 190], true), ([20, 180, 100, 190], false)] {
        let mut world = World::new(settings(8), 8, 1);
        world.tick(0);
        for load in loads {
            world.load = load;
            let step = world.tick(250);
            let is_last = load == 190;
            assert_eq!(step.orders.is_empty(), is_enough || !is_last, "{loads:?}: {step:?}");
        }
    }
}

#[test]
fn a_draining_node_takes_requests_again_before_another_one_starts() {
    let mut world = World::new(settings(8), 8, 3);
    world.load = TARGET / 2;
    while world.in_state(LifecycleState::Draining) == 0 {
        world.tick(1_000);
    }
    world.load = 6 * TARGET;
    let step = world.tick(1_000);
    // It was idle, so it is being stopped already.
    assert!(!step.orders.contains(&PowerOrder::Start(NodeId(2))), "{step:?}");
    let mut world = World::new(settings(8), 8, 3);
    let id = NodeId(2);
    world.load = TARGET / 2;
    while world.elasticity.state(id) != Some(LifecycleState::Draining) {
        world.tick(1_000);
    }
    world.node(2).is_draining = false;
    world.load = 6 * TARGET;
    assert_eq!(world.tick(1_000).orders[0], PowerOrder::Start(id));
    assert_eq!(world.elasticity.state(id), Some(LifecycleState::Active));
}

#[test]
fn a_start_without_a_node_is_tried_again_then_another_one_starts_and_it_is_marked() {
    let mut world = World::new(settings(3), 3, 1);
    world.node(1).is_broken = true;
    world.load = 2 * TARGET;
    world.run(5);
    assert_eq!(world.serving(), 1);
    world.run(6);
    assert_eq!(world.serving(), 2, "the third one, once the second was late");
    assert_eq!(world.elasticity.state(NodeId(1)), Some(LifecycleState::Starting), "tried again");
    world.run(20);
    let failed =
        PowerEvent::StartFailed { node: NodeId(1), attempts: 3, fault: StartFault::NotInTime };
    assert!(world.events.contains(&failed), "{:?}", world.events);
    assert!(world.elasticity.is_failed(NodeId(1)));
    // It is the only one left, and is not tried again before its hold time ends.
    world.load = 4 * TARGET;
    let orders = (0..30).flat_map(|_| world.tick(1_000).orders).count();
    assert_eq!(orders, 0);
    assert!(world.events.contains(&PowerEvent::Short { wanted: 3, counted: 2 }));
    world.node(1).is_broken = false;
    world.run(60);
    assert_eq!(world.serving(), 3, "it is well again");
}

#[test]
fn an_order_that_fails_and_a_node_that_dies_while_it_wakes_are_told_apart() {
    for (fault, order_failed, observed) in [
        (StartFault::OrderFailed, true, Observed::Silent),
        (StartFault::Lost, false, Observed::Lost),
    ] {
        let mut world = World::new(settings(2), 2, 1);
        world.node(1).is_broken = true;
        world.load = 2 * TARGET;
        world.tick(1_000);
        (world.node(1).order_failed, world.node(1).observed) = (order_failed, observed);
        let step = world.tick(10);
        let retried = PowerEvent::StartRetried { node: NodeId(1), attempt: 1, fault };
        assert_eq!(step.events, [retried], "at once");
        world.node(1).is_broken = false;
        world.run(8);
        assert_eq!(world.serving(), 2, "the second attempt");
    }
}

#[test]
fn a_node_that_dies_is_replaced_and_one_that_dies_while_it_drains_is_let_go() {
    let mut world = World::new(settings(3), 3, 2);
    world.load = 2 * TARGET;
    world.run(3);
    world.node(1).observed = Observed::Lost;
    world.run(5);
    assert_eq!(world.elasticity.state(NodeId(2)), Some(LifecycleState::Active), "in its place");
    assert!(world.events.contains(&PowerEvent::Lost { node: NodeId(1) }));
    world.node(1).observed = Observed::Ready;
    world.run(2);
    assert!(world.events.contains(&PowerEvent::Returned { node: NodeId(1) }));

    let mut world = World::new(settings(3), 3, 3);
    world.load = TARGET / 2;
    while world.in_state(LifecycleState::Draining) == 0 {
        world.tick(1_000);
    }
    world.node(2).observed = Observed::Lost;
    world.tick(1_000);
    assert!(world.events.contains(&PowerEvent::LostDraining { node: NodeId(2) }));
    assert!(world.elasticity.is_failed(NodeId(2)));
}

#[test]
fn fewer_nodes_than_must_serve_do_not_wait_for_a_decision() {
    let mut world = World::new(ElasticitySettings { interval_ms: 60_000, ..settings(3) }, 3, 1);
    world.tick(1_000);
    for lost in [0, 1] {
        match lost {
            0 => world.node(0).observed = Observed::Lost,
            // Drained by an operator.
            _ => world.node(1).is_held = true,
        }
        let step = world.tick(1_000);
        assert_eq!(step.orders, [PowerOrder::Start(NodeId(lost + 1))]);
        assert_eq!(world.tick(100).orders, [], "it is on its way");
        (0..5).for_each(|_| _ = world.tick(100));
        assert_eq!(world.serving(), 1);
    }
}

#[test]
fn a_node_that_cannot_be_stopped_serves_again() {
    let mut elasticity = Elasticity::new(settings(2));
    let seen = |is_idle| {
        [0, 1].map(|id| NodeObservation {
            id: NodeId(id),
            observed: Observed::Ready,
            is_held: false,
            is_idle: is_idle && id == 1,
            order_failed: false,
            requests: 1,
            bytes: 0,
        })
    };
    let mut events = Vec::new();
    let mut orders = Vec::new();
    for second in 0..60 {
        let step = elasticity.tick(Now(second * 1_000), &seen(true));
        events.extend(step.events);
        orders.extend(step.orders);
    }
    let node = NodeId(1);
    assert!(events.contains(&PowerEvent::StopFailed { node, attempts: 3 }), "{events:?}");
    let stop = PowerOrder::Stop(node);
    assert_eq!(orders[..5], [PowerOrder::Drain(node), stop, stop, stop, PowerOrder::Start(node)]);
    assert_eq!(orders[5], PowerOrder::Drain(NodeId(0)), "the other one instead");
    assert_eq!(elasticity.state(node), Some(LifecycleState::Active));
}

#[test]
fn an_operators_node_is_left_alone() {
    let mut world = World::new(settings(8), 4, 2);
    world.node(1).is_held = true;
    world.load = TARGET;
    world.run(100);
    assert_eq!(world.events, [], "one serves, which is enough");
    world.load = 4 * TARGET;
    world.run(10);
    assert_eq!(world.elasticity.state(NodeId(1)), Some(LifecycleState::Active), "as it was found");
    assert_eq!(world.serving(), 3, "the others");
}

/// The number of changes of direction in a sequence of counts.
fn reversals(counts: &[usize]) -> usize {
    let signs: Vec<bool> =
        counts.windows(2).filter(|it| it[0] != it[1]).map(|it| it[0] < it[1]).collect();
    signs.windows(2).filter(|it| it[0] != it[1]).count()
}

/// Counts of serving nodes under a constant load with noise of up to `noise_percent` either way.
fn counts_under(load_percent: u64, noise_percent: u64, on: u32, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed);
    let mut world = World::new(settings(8), 8, on);
    let mut counts = Vec::new();
    for _ in 0..300 {
        let noisy = 100 - noise_percent + rng.below(2 * noise_percent + 1);
        world.load = load_percent * noisy * TARGET / 10_000;
        world.tick(1_000);
        counts.push(world.serving());
    }
    counts
}

#[test]
fn a_constant_load_never_flaps_whatever_it_is_and_whatever_was_on() {
    for load_percent in (5..=850).step_by(5) {
        for (noise_percent, on) in [(0, 1), (0, 8), (8, 1), (8, 4), (8, 8)] {
            let counts = counts_under(load_percent, noise_percent, on, load_percent);
            let what = format!("load {load_percent} %, noise {noise_percent} %, {on} on");
            assert_eq!(reversals(&counts), 0, "{what}: {counts:?}");
        }
    }
}

#[test]
fn without_hysteresis_and_window_it_would() {
    let mut rng = Rng::new(1);
    let bare = ElasticitySettings { tolerance_permille: 0, scale_in_window_ms: 0, ..settings(8) };
    let mut world = World::new(bare, 8, 3);
    let mut counts = Vec::new();
    for _ in 0..300 {
        world.load = 3 * TARGET - 5 + rng.below(11);
        world.tick(1_000);
        counts.push(world.serving());
    }
    assert!(reversals(&counts) > 20, "the sweep can find it: {counts:?}");
}

#[test]
fn time_that_jumps_ends_no_window_and_no_start() {
    let mut world = World::new(settings(4), 4, 3);
    world.load = TARGET;
    world.run(10);
    // The process was paused for an hour, twice, and then time goes back.
    world.tick(3_600_000);
    world.tick(3_600_000);
    world.now = Now(5);
    world.tick(0);
    assert_eq!((world.serving(), world.events.len()), (3, 0), "the window has not passed");
    world.load = 4 * TARGET;
    world.node(3).is_broken = true;
    world.tick(1_000);
    world.tick(3_600_000);
    assert_eq!(world.events, [], "a start has its time, as far as somebody looks");
}

#[derive(Clone, Debug)]
enum Chance {
    Load(u64),
    Observe(u32, Observed),
    Break(u32, bool),
    Fail(u32),
    Hold(u32, bool),
    Pass(u64),
}

fn chance() -> impl Strategy<Value = Chance> {
    let observed = prop_oneof![
        Just(Observed::Ready),
        Just(Observed::Off),
        Just(Observed::Silent),
        Just(Observed::Lost)
    ];
    prop_oneof![
        1 => (0..1_000u64).prop_map(Chance::Load),
        1 => (0..6u32, observed).prop_map(|(node, observed)| Chance::Observe(node, observed)),
        1 => (0..6u32, any::<bool>()).prop_map(|(node, is_broken)| Chance::Break(node, is_broken)),
        1 => (0..6u32).prop_map(Chance::Fail),
        1 => (0..6u32, any::<bool>()).prop_map(|(node, is_held)| Chance::Hold(node, is_held)),
        8 => prop_oneof![0..3_000u64, Just(10_000_000)].prop_map(Chance::Pass),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_orders_stay_within_bounds(
        chances in prop::collection::vec(chance(), 1..200),
        nodes_min in 1..4usize,
        more in 0..4usize,
    ) {
        let nodes_max = nodes_min + more;
        let mut world = World::new(ElasticitySettings { nodes_min, ..settings(nodes_max) }, 6, 3);
        for chance in chances {
            match chance {
                Chance::Load(load) => world.load = load,
                Chance::Observe(node, observed) => {
                    // A node that was off or lost returns without a drain.
                    world.node(node).is_draining &= observed == Observed::Ready;
                    world.node(node).observed = observed;
                }
                Chance::Break(node, is_broken) => world.node(node).is_broken = is_broken,
                Chance::Fail(node) => world.node(node).order_failed = true,
                Chance::Hold(node, is_held) => {
                    // The operator's drain replaces ours.
                    world.node(node).is_draining &= !is_held;
                    world.node(node).is_held = is_held;
                }
                Chance::Pass(ms) => check_tick(&mut world, ms, (nodes_min, nodes_max)),
            }
        }
    }
}

/// Checks bounds and held nodes at a tick.
fn check_tick(world: &mut World, ms: u64, (nodes_min, nodes_max): (usize, usize)) {
    let held: Vec<NodeId> =
        world.nodes.iter().filter(|(_, it)| it.is_held).map(|(id, _)| *id).collect();
    let step = world.tick(ms);
    for order in &step.orders {
        let (PowerOrder::Start(id) | PowerOrder::Drain(id) | PowerOrder::Stop(id)) = order;
        assert!(!held.contains(id), "{order:?} to an operator's node");
    }
    let started = step.orders.iter().any(|it| matches!(it, PowerOrder::Start(_)));
    let is_on = |id: &&NodeId| {
        let node = &world.nodes[*id];
        !held.contains(id)
            && match world.elasticity.state(**id) {
                Some(LifecycleState::Active) => node.observed == Observed::Ready,
                Some(LifecycleState::Starting) => true,
                _ => false,
            }
    };
    let on = world.nodes.keys().filter(is_on).count();
    let stop_failed = step.events.iter().any(|it| matches!(it, PowerEvent::StopFailed { .. }));
    if started && !stop_failed {
        assert!(on <= nodes_max, "{on} on, {nodes_max} at most: {step:?}");
    }
    if step.orders.iter().any(|it| matches!(it, PowerOrder::Drain(_))) {
        assert!(world.serving() >= nodes_min, "{} of {nodes_min}: {step:?}", world.serving());
    }
}
