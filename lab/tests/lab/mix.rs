//! A mix of objects against the experiments' origin.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::common::{poll_until, root_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use skep_lab::load::{Content, Issue, Mix, MixObject, Pattern};
use skep_testbed::{Bed, Topology};

/// Delay of each of the origin's answers, in milliseconds.
const DELAY_MS: u64 = 2;

fn bed() -> Bed {
    Bed::new(&Topology { dispatchers: 0, nodes: 0, origin: true, ..Topology::default() }).unwrap()
}

/// Starts an origin in the bed's machine for it, and waits until it listens.
fn start_origin(bed: &Bed) -> (Child, SocketAddr) {
    let machine = bed.origin().unwrap();
    let mut command = machine.command(env!("CARGO_BIN_EXE_skep-lab"));
    command.args(["origin", "--listen", "0.0.0.0:80", "--delay-ms", &DELAY_MS.to_string()]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let address = SocketAddr::from((machine.ipv4(), 80));
    poll_until("the origin listens", || {
        machine.run(|| TcpStream::connect(address)).unwrap().is_ok()
    });
    (child, address)
}

/// The counts that an origin prints at its end.
fn counts(origin: Child) -> serde_json::Value {
    kill_process(Pid::from_child(&origin), Signal::TERM).unwrap();
    serde_json::from_slice(&origin.wait_with_output().unwrap().stdout).unwrap()
}

fn object(id: u64, bytes: u64) -> MixObject {
    let content = Content::Always(Issue { bytes, pattern: Pattern { seed: id << 32 } });
    MixObject { path: format!("/{bytes}/{id}"), content }
}

fn mix(address: SocketAddr, objects: Vec<MixObject>, order: &[u32]) -> Mix {
    let (objects, order) = (objects.into(), order.into());
    let (clients, per_connection, compares) = (4, 5, true);
    Mix { address, objects, order, clients, per_connection, compares, timeout_ms: 30_000 }
}

#[test]
fn a_mix_checks_every_byte_and_the_origin_counts_them() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let (origin, address) = start_origin(&bed);
    let objects = vec![object(0, 1), object(1, 2895), object(2, 541_761)];
    let running = mix(address, objects, &[0, 1, 2, 1]).start_in(&bed.clients()[0]).unwrap();
    poll_until("40 answers are there", || running.report().succeeded >= 40);
    running.measure();
    poll_until("40 more are there", || running.report().succeeded >= 40);
    let report = running.stop().unwrap();
    assert_eq!((report.failed, report.wrong), (0, 0), "{:?}", report.examples);
    // The origin does not state the source of a body.
    assert_eq!(report.requests.unknown, report.succeeded);
    let in_seconds: u64 = report.seconds.iter().map(|second| second.requests.sum()).sum();
    assert_eq!(in_seconds, report.succeeded);
    assert!(report.first_byte_us.p50 >= DELAY_MS * 1000, "{:?}", report.first_byte_us);

    let counts = counts(origin);
    assert!(counts["requests"].as_u64().unwrap() >= 80, "{counts}");
    assert_eq!((&counts["unique"], &counts["unique_bytes"]), (&3.into(), &544_657.into()));
}

#[test]
fn what_is_wrong_is_said() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let (origin, address) = start_origin(&bed);
    let other_bytes = MixObject { path: "/2895/1".into(), ..object(7, 2895) };
    let other_length = MixObject { path: "/100/2".into(), ..object(2, 99) };
    let missing = MixObject { path: "/nowhere".into(), ..object(3, 100) };
    let objects = vec![other_bytes, other_length, missing];
    let running = mix(address, objects, &[0, 1, 2]).start_in(&bed.clients()[0]).unwrap();
    poll_until("30 failures are there", || running.report().failed >= 30);
    let report = running.stop().unwrap();
    assert_eq!(report.succeeded, 0);
    assert!(report.wrong >= 20 && report.wrong < report.failed, "{report:?}");
    assert_eq!((report.hung, report.reset), (0, 0), "{report:?}");
    for word in ["wrong byte at 0", "another length", "status 404"] {
        assert!(report.examples.iter().any(|it| it.contains(word)), "{:?}", report.examples);
    }
    drop(counts(origin));
}

#[test]
fn every_request_of_a_mix_that_is_finished_has_ended_and_is_counted() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let (origin, address) = start_origin(&bed);
    let running = mix(address, vec![object(1, 541_761)], &[0]).start_in(&bed.clients()[0]).unwrap();
    poll_until("20 answers are there", || running.succeeded() >= 20);
    let report = running.finish().unwrap();
    assert_eq!(report.failed, 0, "{:?}", report.examples);
    assert_eq!(counts(origin)["requests"], report.succeeded);
}

#[test]
fn resets_and_silence_are_told_apart() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let (client, machine) = (&bed.clients()[0], bed.origin().unwrap());
    let silent = machine.run(|| TcpListener::bind((machine.ipv4(), 0)).unwrap()).unwrap();
    let nobody = SocketAddr::from((machine.ipv4(), 9));
    for (address, is_refused) in [(nobody, true), (silent.local_addr().unwrap(), false)] {
        let mix = Mix { timeout_ms: 200, ..mix(address, vec![object(1, 100)], &[0]) };
        let running = mix.start_in(client).unwrap();
        poll_until("4 failures are there", || running.report().failed >= 4);
        let report = running.finish().unwrap();
        let expected = if is_refused { (0, report.failed) } else { (report.failed, 0) };
        assert_eq!((report.hung, report.reset), expected, "{report:?}");
    }
}
