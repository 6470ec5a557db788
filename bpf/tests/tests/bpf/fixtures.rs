//! Every named packet through the kernel's programs, the host build and the

//! model: the stated verdict, the same bytes out, the same tables after.

use std::collections::BTreeSet;
use std::io::{Write, stderr};

use skep_bpf_tests::fixtures::{self, Fixture};
use skep_bpf_tests::world::node_mac;
use skep_bpf_tests::{Host, Kernel, Machine, Model, Object, Program};
use skep_steer::{Outcome, PacketAction};
use skep_wire::steer::Verdict;

/// Enough of them, and no name twice.
#[test]
fn there_are_many_and_their_names_differ() {
    let all = fixtures::all();
    let names: BTreeSet<_> = all.iter().map(|fixture| fixture.name).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.len() >= 120, "only {} fixtures", all.len());
    println!("{} fixtures", all.len());
}

#[test]
fn the_model_meets_each() {
    for program in [Program::Dispatch, Program::Node] {
        check(
            program,
            |_| Model::new(program),
            |model, fixture| {
                model.set_sockets(&fixture.sockets);
            },
        );
    }
}

#[test]
fn the_host_build_meets_each() {
    for program in [Program::Dispatch, Program::Node] {
        for is_linear in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let start = |_: ()| {
                let mut host = Host::start(program, directory.path()).unwrap();
                if !is_linear {
                    host.set_headers_linear();
                }
                host
            };
            check(program, start, |host, fixture| host.set_sockets(&fixture.sockets).unwrap());
        }
    }
}

#[test]
fn the_kernel_meets_each() {
    for (object, program) in [
        (Object::DispatchXdp, Program::Dispatch),
        (Object::DispatchTc, Program::Dispatch),
        (Object::Node, Program::Node),
    ] {
        let kernel = match Kernel::load(object) {
            Ok(kernel) => kernel,
            Err(error) => {
                let _ = writeln!(stderr(), "SKIPPED: {object:?}: {error:#}");
                continue;
            }
        };
        check(program, |_| kernel, |_, _| {});
    }
}

/// Runs the fixtures of a program on a machine and on the model.
fn check<M: Machine>(
    program: Program,
    start: impl FnOnce(()) -> M,
    set_sockets: impl Fn(&mut M, &Fixture),
) {
    let world = fixtures::base();
    let mut machine = start(());
    let mut model = Model::new(program);
    let is_kernel = machine.name().starts_with("kernel");
    let mut failures = Vec::new();
    for fixture in fixtures::all() {
        let frames = || fixture.before.iter().chain([&fixture.frame]);
        // Connections of the kernel's own are in another test.
        let is_out_of_reach = is_kernel && !fixture.sockets.is_empty();
        let can_run = frames().all(|frame| machine.can_run(frame));
        if fixture.program != program || !can_run || is_out_of_reach {
            continue;
        }
        let tables = fixture.tables(&world);
        machine.set_tables(&tables).unwrap();
        model.set_tables(&tables).unwrap();
        set_sockets(&mut machine, &fixture);
        model.set_sockets(&fixture.sockets);
        if let Err(error) = run(&mut machine, &mut model, &fixture) {
            failures.push(format!("{}: {error}", fixture.name));
        }
    }
    assert!(failures.is_empty(), "{}:\n{}", machine.name(), failures.join("\n"));
}

fn run(machine: &mut impl Machine, model: &mut Model, fixture: &Fixture) -> Result<(), String> {
    for frame in fixture.before.iter().chain([&fixture.frame]) {
        let got = machine.run(1, frame).map_err(|error| format!("{error:#}"))?;
        let wanted = model.run(1, frame).unwrap();
        differ(machine.name(), &got, &wanted)?;
        if std::ptr::eq(frame, &fixture.frame) {
            meets(fixture, &got)?;
        }
    }
    let (got, wanted) = (machine.state().unwrap(), model.state().unwrap());
    if got != wanted {
        return Err(format!("tables differ\n  got    {got:?}\n  wanted {wanted:?}"));
    }
    Ok(())
}

fn meets(fixture: &Fixture, got: &Outcome) -> Result<(), String> {
    if got.verdict != fixture.verdict {
        return Err(format!("{:?}, not {:?}", got.verdict, fixture.verdict));
    }
    match fixture.node {
        Some(node) if got.frame[..6] != node_mac(node) => {
            Err(format!("to {:02x?}, not to node {node}", &got.frame[..6]))
        }
        _ => Ok(()),
    }
}

fn differ(name: &str, got: &Outcome, wanted: &Outcome) -> Result<(), String> {
    // A test run tells that tc redirects, not where to.
    let is_same_action = got.action == wanted.action
        || matches!(
            (got.action, wanted.action),
            (PacketAction::Transmit { device_index: 0 }, PacketAction::Transmit { .. })
        );
    if got.verdict == wanted.verdict && is_same_action && got.frame == wanted.frame {
        return Ok(());
    }
    Err(format!("{name} and model differ\n  got    {got:02x?}\n  wanted {wanted:02x?}"))
}

/// Nothing that the programs say goes untried; the guard is tried where time
/// can be told, in `random.rs` and `kernel.rs`.
#[test]
fn every_verdict_is_met() {
    let met: BTreeSet<_> = fixtures::all().iter().map(|fixture| fixture.verdict as u32).collect();
    for &verdict in Verdict::ALL {
        let is_met = met.contains(&(verdict as u32)) || verdict == Verdict::ForwardGuarded;
        assert!(is_met, "{verdict:?}");
    }
}
