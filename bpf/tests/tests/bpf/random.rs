//! A million packets that nobody thought of, through the host build under
//! sanitizers and the model; a hundred thousand through the kernel's programs
//! and the model. Nothing may differ.
//!
//! `SKEP_BPF_PACKETS` and `SKEP_BPF_KERNEL_PACKETS` set how many in each test;
//! `SKEP_BPF_SEED` the seed of the first batch. A failure names the seed of its

//! batch and the command to see it again.

use skep_bpf_tests::mutate::Mutator;
use skep_bpf_tests::{Host, Kernel, Machine, Model, Object, Program, fixtures};
use skep_steer::{Outcome, PacketAction};
use std::io::{Write, stderr};

/// Packets that meet the same tables; then all begins anew.
const BATCH_PACKETS: u64 = 2_500;

/// Packets of the host's two tests together, unless told otherwise.
const PACKETS: u64 = 1_000_000;

/// Packets of the kernel's three programs together.
const KERNEL_PACKETS: u64 = 105_000;

const SEED: u64 = 1;

#[test]
fn the_host_build_agrees_all_linear() {
    host("the_host_build_agrees_all_linear", false);
}

#[test]
fn the_host_build_agrees_headers_linear() {
    host("the_host_build_agrees_headers_linear", true);
}

#[test]
fn the_kernel_agrees_xdp() {
    kernel("the_kernel_agrees_xdp", Object::DispatchXdp, Program::Dispatch);
}

#[test]
fn the_kernel_agrees_tc() {
    kernel("the_kernel_agrees_tc", Object::DispatchTc, Program::Dispatch);
}

#[test]
fn the_kernel_agrees_node() {
    kernel("the_kernel_agrees_node", Object::Node, Program::Node);
}

fn host(test: &str, is_partial: bool) {
    let packets = variable("SKEP_BPF_PACKETS", PACKETS) / 2;
    for (program, share) in [(Program::Dispatch, packets * 4 / 5), (Program::Node, packets / 5)] {
        let directory = tempfile::tempdir().unwrap();
        let mut host = Host::start(program, directory.path()).unwrap();
        if is_partial {
            host.set_headers_linear();
        }
        for_each_batch(test, share, |seed| host_batch(&mut host, program, seed));
    }
}

fn host_batch(host: &mut Host, program: Program, seed: u64) -> Result<(), String> {
    let mut mutator = Mutator::new(program);
    mutator.seed(seed);
    let mut tables = mutator.tables(&fixtures::base());
    // Its time is ours, so the guard can be tried, too.
    if seed.is_multiple_of(2) {
        mutator.limit(&mut tables);
    }
    let mut model = Model::new(program);
    model.set_tables(&tables).unwrap();
    host.set_tables(&tables).unwrap();
    let mut now_ns = 1;
    for _ in 0..BATCH_PACKETS / 50 {
        now_ns += mutator.pause_ns();
        let frames: Vec<_> = (0..50).map(|_| mutator.frame()).collect();
        let outcomes = host.run_all(now_ns, &frames).map_err(|error| format!("{error:#}"))?;
        for (frame, outcome) in frames.iter().zip(&outcomes) {
            compare(outcome, &model.run(now_ns, frame).unwrap(), frame)?;
        }
    }
    compare_state(host, &mut model)
}

fn kernel(test: &str, object: Object, program: Program) {
    let mut kernel = match Kernel::load(object) {
        Ok(kernel) => kernel,
        Err(error) => {
            let _ = writeln!(stderr(), "SKIPPED: {object:?}: {error:#}");
            return;
        }
    };
    let packets = variable("SKEP_BPF_KERNEL_PACKETS", KERNEL_PACKETS);
    for_each_batch(test, packets / 3, |seed| kernel_batch(&mut kernel, program, seed));
}

fn kernel_batch(kernel: &mut Kernel, program: Program, seed: u64) -> Result<(), String> {
    let mut mutator = Mutator::new(program);
    mutator.seed(seed);
    let tables = mutator.tables(&fixtures::base());
    let mut model = Model::new(program);
    model.set_tables(&tables).unwrap();
    kernel.set_tables(&tables).unwrap();
    for _ in 0..BATCH_PACKETS {
        let frame = mutator.frame();
        if kernel.can_run(&frame) {
            let outcome = kernel.run(0, &frame).map_err(|error| format!("{error:#}"))?;
            compare(&outcome, &model.run(0, &frame).unwrap(), &frame)?;
        }
    }
    compare_state(kernel, &mut model)
}

fn for_each_batch(test: &str, packets: u64, mut run: impl FnMut(u64) -> Result<(), String>) {
    let first = variable("SKEP_BPF_SEED", SEED);
    for seed in first..first + packets.div_ceil(BATCH_PACKETS) {
        if let Err(error) = run(seed) {
            panic!(
                "{error}\nsee it again with: SKEP_BPF_SEED={seed} \
                 cargo test -p skep-bpf-tests --test bpf {test}"
            );
        }
    }
}

fn compare(got: &Outcome, wanted: &Outcome, frame: &[u8]) -> Result<(), String> {
    // A test run tells that tc redirects, not where to.
    let is_same_action = got.action == wanted.action
        || matches!(
            (got.action, wanted.action),
            (PacketAction::Transmit { device_index: 0 }, PacketAction::Transmit { .. })
        );
    if got.verdict == wanted.verdict && is_same_action && got.frame == wanted.frame {
        return Ok(());
    }
    Err(format!("they differ on {frame:02x?}\n  got   {got:02x?}\n  model {wanted:02x?}"))
}

fn compare_state(machine: &mut impl Machine, model: &mut Model) -> Result<(), String> {
    let (got, wanted) = (machine.state().unwrap(), model.state().unwrap());
    if got == wanted {
        return Ok(());
    }
    let flows: Vec<_> =
        wanted.flows.iter().filter(|(key, _)| !got.flows.contains_key(key)).collect();
    Err(format!(
        "tables differ\n  got   {:?} {:?}\n  model {:?} {:?}\n  flows missing: {flows:?}",
        got.counters, got.assigned, wanted.counters, wanted.assigned
    ))
}

fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} wants a number: {value}")),
        Err(_) => default,
    }
}
