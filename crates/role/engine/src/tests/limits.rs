//! Limits on the number of requests, their duration and their concurrency.

use skep_serve::monotonic_ms;
use skep_telemetry::{CoreGauge, Counter};

use super::client::{get, post};
use super::rig::{Rig, wait_until};
use crate::EngineSettings;

#[test]
fn a_connection_carries_so_many_requests_however_they_are_answered() {
    for (first, second) in [("/quick:1", "/reply:1"), ("/reply:1", "/quick:1")] {
        let mixed = [first, second, first, second];
        for targets in [mixed, [first; 4]] {
            let settings =
                EngineSettings { requests_per_connection_max: 3, ..EngineSettings::default() };
            let rig = Rig::with(settings);
            let mut client = rig.client();
            client.send(targets.map(get).concat());
            let closes = [(); 3].map(|()| client.reply().unwrap().says_close());
            assert_eq!(closes, [false, false, true], "{targets:?}");
            client.assert_closed();
            assert_eq!(rig.targets(), targets[..3]);
        }
    }
}

#[test]
fn a_connection_ends_after_its_lifetime_with_a_whole_reply() {
    let rig = Rig::with(EngineSettings { lifetime_ms: 1, ..EngineSettings::default() });
    for target in ["/quick:1", "/reply:1"] {
        let mut client = rig.client();
        let opened_ms = monotonic_ms();
        wait_until(|| monotonic_ms() > opened_ms, || "the clock goes".to_owned());
        client.send([get(target), get("/quick:2")].concat());
        let reply = client.reply().unwrap();
        assert_eq!((&reply.body[..], reply.says_close()), (&b"a"[..], true));
        client.assert_closed();
    }
    assert_eq!(rig.targets(), ["/quick:1", "/reply:1"]);
}

#[test]
fn who_finds_no_place_among_the_requests_in_work_is_told_when_to_come_again() {
    let settings =
        EngineSettings { slow_requests_max: 1, retry_after_s: 7, ..EngineSettings::default() };
    let rig = Rig::with(settings);
    let [mut first, mut second, mut third] = [(); 3].map(|()| rig.client());
    first.send(get("/wait/reply:1"));
    rig.until_step("wait");
    second.send([post("/read/reply:1", b"GET"), get("/quick:1")].concat());
    let reply = second.reply().unwrap();
    assert_eq!((reply.status, reply.field("Retry-After")), (503, Some("7")));
    second.assert_closed();
    assert_eq!(rig.states(&second).last().unwrap(), "Closing(ClosedReject)");
    assert_eq!(third.ask(get("/quick:1")).status, 200, "that needs no place");
    rig.shared.gate.add_permits(1);
    assert_eq!(first.reply().unwrap().status, 200);
    wait_until(|| rig.gauge(CoreGauge::RequestsInFlight) == 0, || "its place is free".to_owned());
    assert_eq!(third.ask(get("/reply:1")).status, 200);
    assert_eq!(rig.get(Counter::RefusedOverload), 1);
}

#[test]
fn replies_beyond_so_many_bytes_are_sent_before_more_are_made() {
    let rig = Rig::with(EngineSettings { connection_bytes_max: 1, ..EngineSettings::default() });
    let mut client = rig.client();
    let request = get("/quick:1");
    client.send(request.repeat(3));
    assert!((0..3).all(|_| client.reply().unwrap().body == b"a"));
    rig.until_state(&client, "Resting");
    let one = request.len();
    let pipelined = [2, 1, 0].map(|left| format!("Pipelined({})", left * one));
    assert_eq!(rig.states(&client)[1..], [&pipelined[..], &["Resting".to_owned()]].concat());
}
