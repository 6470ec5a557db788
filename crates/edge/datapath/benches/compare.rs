//! What comparing the maps with what was written to them costs netguard, in percent of a core.
//!
//! `cargo bench -p skep-datapath --bench compare`, as root
//!
//! Ten comparisons are made per second of a simulated clock, as often as a dispatcher makes them, until
//! everything was compared once. The CPU time of this thread is divided by the seconds of that clock.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement")]

#[path = "../tests/datapath/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{SETTINGS, SIZES, in_bed, rows, service};
use rustix::time::{ClockId, clock_gettime};
use skep_datapath::limits::COMPARE_ALL_MS;
use skep_datapath::{DispatchProgram, Sizes};
use skep_wire::guard::Steerer;
use skep_wire::steer::{DatapathNode, ForwardingState, Network};

/// Nodes, addresses and networks.
const CLUSTERS: [(u16, u16, u32); 3] = [(256, 64, 0), (1_000, 8, 0), (1_000, 8, 4_096)];

/// Time between two comparisons of a dispatcher.
const LOOK_MS: u64 = 100;

fn main() {
    println!("| comparing maps | percent of a core | longest, us |\n|---|---|---|");
    for (nodes, addresses, networks) in CLUSTERS {
        in_bed(move |bed| {
            let sizes = Sizes { services_max: addresses.into(), ..SIZES };
            let mut dispatch = DispatchProgram::open(&bed.place, sizes).unwrap();
            write(&mut dispatch, nodes, addresses, networks);
            let (percent, longest_us) = compare(&mut dispatch);
            let networks =
                if networks > 0 { format!(", {networks} networks") } else { String::new() };
            println!(
                "| {nodes} nodes x {addresses} addresses{networks} | {percent:.2} | {longest_us} |"
            );
        });
    }
}

fn write(dispatch: &mut DispatchProgram, nodes: u16, addresses: u16, networks: u32) {
    let mac = |index: u16| {
        let [high, low] = index.to_be_bytes();
        [2, 0, 0, 1, high, low]
    };
    let node = |index: u16| DatapathNode {
        index,
        mac: mac(index),
        device_index: 1,
        mtu: 1_500,
        state: ForwardingState::Up,
        is_local: false,
    };
    dispatch.set_settings(&SETTINGS).unwrap();
    dispatch.set_nodes(&(0..nodes).map(node).collect::<Vec<_>>()).unwrap();
    let steerers: Vec<_> = (0..nodes).map(|index| (mac(index), Steerer::Node)).collect();
    dispatch.set_steerers(&steerers).unwrap();
    let services: Vec<_> = (0..addresses).map(service).collect();
    dispatch.set_services(&services).unwrap();
    services.iter().for_each(|it| dispatch.set_rows(it, &rows(&[0, 1, 2])).unwrap());
    let network = |number: u32| {
        let [_, high, middle, low] = number.to_be_bytes();
        Network { address: [10 + high, middle, low, 0].into(), prefix_bits: 24 }
    };
    dispatch.set_networks(&[], &(0..networks).map(network).collect::<Vec<_>>()).unwrap();
}

/// Returns the cost in percent, and the longest comparison in microseconds.
fn compare(dispatch: &mut DispatchProgram) -> (f64, u64) {
    let (mut now, mut longest_ns) = (Instant::now(), 0);
    let begin = cpu_ns();
    for _ in 0..COMPARE_ALL_MS / LOOK_MS {
        now += Duration::from_millis(LOOK_MS);
        let before = cpu_ns();
        assert_eq!(dispatch.changed(now).unwrap(), []);
        longest_ns = longest_ns.max(cpu_ns() - before);
    }
    let percent = (cpu_ns() - begin) as f64 / (COMPARE_ALL_MS as f64 * 1e4);
    (percent, longest_ns / 1_000)
}

/// CPU time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
