//! Turns of nodes where there are fewer slots than clients: each is served, however long requests
//! last.

use skep_directory::limits::SLOT_TURN_MS;
use skep_sim::Simulation;
use skep_units::Rng;

use super::{MOVE_MS, Node, SIMULATION, Totals, World, total};

/// More clients than slots, with requests that may last as long as turns: never more requests than
/// slots, the slots are in use, and nodes are served in turn.
fn contend(seed: u64) -> Totals {
    let mut rng = Rng::new(seed);
    let mut below = |bound: u64| rng.next_u64() % bound;
    let (nodes, slots) = (2 + below(6), 1 + below(6));
    let mut world = World::new(seed, nodes as usize, slots as u32);
    let lasts_ms = [50, 500, SLOT_TURN_MS, 2 * SLOT_TURN_MS, 3 * SLOT_TURN_MS][below(5) as usize];
    // All of equal length, or of random length up to that at some nodes or at all.
    let varied = below(3) * nodes / 2;
    for (number, node) in world.nodes.iter_mut().enumerate() {
        node.clients = 1 + below(4) as u32;
        let least_ms = if (number as u64) < varied { 5 } else { lasts_ms };
        node.lasts_ms = least_ms..lasts_ms + 1;
    }
    let comes_and_goes = below(3) == 0;
    (0..nodes as usize).for_each(|node| world.link(node, 0));
    let cycle_ms = SLOT_TURN_MS + lasts_ms + MOVE_MS;
    world.run(2 * cycle_ms);
    world.nodes.iter_mut().for_each(|node| (node.served, node.starved_ms_max) = (0, 0));
    let used_percent = world.run_busy(4 * nodes * cycle_ms, comes_and_goes);
    // Any other node may be ahead of one whose clients return.
    let before = if comes_and_goes { nodes - 1 } else { nodes.saturating_sub(slots) };
    let bound_ms = before.div_ceil(slots).max(1) * cycle_ms;
    for Node { name, starved_ms_max: starved_ms, .. } in &world.nodes {
        assert!(
            *starved_ms <= bound_ms,
            "seed {seed}: {name} starved {starved_ms} of {bound_ms} ms"
        );
    }
    let served = |node: &Node| node.served;
    let least = world.nodes.iter().map(served).min().unwrap_or(0);
    let most = world.nodes.iter().map(served).max().unwrap_or(0);
    // If all nodes can use their part, and their requests are of equal length.
    if slots < nodes && varied == 0 && !comes_and_goes {
        assert!(least * 10 >= most * 6, "seed {seed}: from {least} to {most}");
    }
    let used_percent_min = if comes_and_goes { 40 } else { 85 };
    assert!(used_percent >= used_percent_min, "seed {seed}: {used_percent} % used");
    Totals { seeds: 1, served: total(&world), ..world.totals }
}

impl World {
    /// Returns the slots used, in percent of those that clients had use for. Occasionally the
    /// clients of a node leave or return.
    fn run_busy(&mut self, ms: u64, comes_and_goes: bool) -> u64 {
        let clients: Vec<_> = self.nodes.iter().map(|node| node.clients).collect();
        let (mut used, mut usable) = (0, 0);
        for _ in 0..ms {
            if comes_and_goes && self.below(500) == 0 {
                let number = self.below(self.nodes.len() as u64) as usize;
                let node = &mut self.nodes[number];
                node.clients = if node.clients > 0 { 0 } else { clients[number] };
                node.waiting = 0;
            }
            self.step();
            used += self.nodes.iter().map(|node| node.requests.len() as u64).sum::<u64>();
            let asking: u32 = self.nodes.iter().map(|node| node.clients).sum();
            usable += u64::from(asking.min(self.slots));
        }
        used * 100 / usable.max(1)
    }
}

/// With `slots` slots, clients at all nodes, and requests of this length: the requests served by
/// each node in 30 s, and the longest time that a node was without a request.
fn served_in_turn(nodes: usize, slots: u32, lasts_ms: u64) -> (Vec<u64>, u64) {
    let mut world = World::new(1, nodes, slots);
    for node in 0..nodes {
        world.link(node, 0);
        (world.nodes[node].clients, world.nodes[node].lasts_ms) = (3, lasts_ms..lasts_ms + 1);
    }
    world.run(10_000);
    world.nodes.iter_mut().for_each(|node| (node.served, node.starved_ms_max) = (0, 0));
    world.run(30_000);
    let starved_ms = world.nodes.iter().map(|node| node.starved_ms_max).max();
    (world.nodes.iter().map(|node| node.served).collect(), starved_ms.unwrap_or(0))
}

#[test]
fn each_node_is_served_in_turn_however_long_requests_last() {
    let simulation = Simulation { seeds: 200, ..SIMULATION };
    let Some(totals) = simulation.run(|seed, _| Ok(contend(seed))) else { return };
    assert!(totals.served > 0, "{totals}");
}

#[test]
fn requests_that_last_as_long_as_all_turns_do_not_shift_them_to_one_node() {
    let (served, starved_ms) = served_in_turn(2, 1, 2 * SLOT_TURN_MS);
    assert!(served[0].abs_diff(served[1]) <= 1, "{served:?}");
    assert!(starved_ms <= 2 * SLOT_TURN_MS + MOVE_MS, "{starved_ms}");
}

#[test]
fn the_more_slots_there_are_the_shorter_a_node_waits_for_its_turn() {
    let (_, starved_ms) = served_in_turn(7, 2, 50);
    // Five nodes are ahead of it, at two slots.
    assert!(starved_ms <= 3 * (SLOT_TURN_MS + MOVE_MS), "{starved_ms}");
    let (_, starved_ms) = served_in_turn(7, 6, 50);
    assert!(starved_ms <= SLOT_TURN_MS + MOVE_MS, "{starved_ms}");
}
