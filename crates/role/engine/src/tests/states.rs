//! The state of a connection, step by step, and its deadlines.

use skep_serve::{ConnectionHandler, monotonic_ms};
use skep_telemetry::{CoreGauge, Counter};

use super::bodies::SMUGGLED;
use super::client::{get, head, post};
use super::rig::{Rig, wait_until};
use super::script::Scripted;
use crate::limits::{DRAIN_MS_MAX, TURN_REQUESTS_MAX};
use crate::state::State;
use crate::{Engine, EngineSettings};

/// Longer than any deadline.
const LONG_MS: u64 = u64::MAX / 2;

#[test]
fn a_connection_is_new_and_then_rests_between_heads() {
    let rig = Rig::new();
    let mut client = rig.client();
    assert_eq!(rig.states(&client), ["New"]);
    let request = get("/quick:1");
    client.send(&request[..3]);
    rig.until_state(&client, "HalfHead(0: 3)");
    assert_eq!(client.ask(&request[3..]).body, b"a");
    rig.until_state(&client, "Resting");
    client.send(&request[..5]);
    rig.until_state(&client, "HalfHead(1: 5)");
    assert_eq!(client.ask(&request[5..]).body, b"a");
    rig.until_state(&client, "Resting");
    client.finish_sending();
    rig.until_state(&client, "Closing(ClosedClient)");
    assert_eq!(rig.states(&client).len(), 6);
}

#[test]
fn what_stands_behind_a_request_that_takes_time_is_not_looked_at() {
    let rig = Rig::new();
    let mut client = rig.client();
    let (first, second) = (get("/wait/reply:1"), get("/quick:2"));
    client.send([&first[..], &second[..]].concat());
    rig.until_step("wait");
    assert_eq!(rig.targets(), ["/wait/reply:1"]);
    assert_eq!(rig.gauge(CoreGauge::RequestsInFlight), 1);
    rig.shared.gate.add_permits(1);
    assert_eq!(client.reply().unwrap().body, b"a");
    assert_eq!(client.reply().unwrap().body, b"ab");
    rig.until_state(&client, "Resting");
    let (first, second) = (first.len(), second.len());
    let slow = format!("Slow({first}/{})", first + second);
    let pipelined = format!("Pipelined({second})");
    assert_eq!(rig.states(&client), ["New", &slow, "Answering", &pipelined, "Resting"]);
}

#[test]
fn a_turn_ends_after_so_many_requests_and_others_get_the_thread() {
    let rig = Rig::new();
    let mut client = rig.client();
    let request = get("/quick:1");
    client.send(request.repeat(TURN_REQUESTS_MAX + 1));
    for _ in 0..=TURN_REQUESTS_MAX {
        assert_eq!(client.reply().unwrap().body, b"a");
    }
    rig.until_state(&client, "Resting");
    let pipelined = format!("Pipelined({})", request.len());
    assert_eq!(rig.states(&client), ["New", &pipelined, "Resting"]);
}

#[test]
fn nothing_is_parsed_behind_a_refusal() {
    let unclear = head("POST", "/quick", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    let refused: [(&[u8], u16); 5] = [
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
        (&unclear, 400),
        (&head("POST", "/quick", "Content-Length: +5\r\n"), 400),
        (&head("POST", "/quick", "Transfer-Encoding: gzip, chunked\r\n"), 501),
        (b"\0", 400),
    ];
    for (bytes, status) in refused {
        for rig in [Rig::new(), Rig::slow()] {
            let mut client = rig.client();
            client.send([&get("/quick:1"), bytes, SMUGGLED].concat());
            assert_eq!(client.reply().unwrap().status, 200);
            let reply = client.reply().unwrap();
            assert_eq!((reply.status, reply.says_close()), (status, true));
            client.assert_closed();
            assert_eq!(rig.targets(), ["/quick:1"]);
            assert_eq!(rig.states(&client).last().unwrap(), "Closing(ClosedReject)");
            assert_eq!(rig.get(Counter::reject(status)), 1);
        }
    }
}

#[test]
fn a_connection_is_new_only_as_long_as_a_head_may_take() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.pass(LONG_MS);
    client.assert_closed();
    assert_eq!(rig.states(&client), ["New", "Closing(ClosedHeadTimeout)"]);
}

#[test]
fn a_head_that_stays_half_is_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask(get("/quick:0"));
    client.send(&get("/quick:1")[..9]);
    rig.until_state(&client, "HalfHead(1: 9)");
    rig.pass(LONG_MS);
    assert_eq!(client.reply().unwrap().status, 408);
    client.assert_closed();
    assert_eq!(rig.states(&client).last().unwrap(), "Closing(ClosedHeadTimeout)");
}

/// Expires the deadline of a head that was awaited since `since_ms`, and none that began later.
fn pass_head_of(rig: &Rig, since_ms: u64) {
    let until_ms = since_ms + EngineSettings::default().head_ms;
    rig.on_worker(move |worker| worker.deadlines().sweep(until_ms));
}

/// Waits until the clock has advanced; returns the previous time.
fn let_time_pass() -> u64 {
    let before_ms = monotonic_ms();
    wait_until(|| monotonic_ms() > before_ms, || "the clock goes".to_owned());
    before_ms
}

#[test]
fn the_deadline_of_a_head_stands_however_many_reads_it_takes() {
    let rig = Rig::new();
    let mut client = rig.client();
    let accepted_ms = let_time_pass();
    client.send("GET ");
    rig.until_state(&client, "HalfHead(0: 4)");
    let_time_pass();
    client.send("/qui");
    rig.until_state(&client, "HalfHead(0: 8)");
    pass_head_of(&rig, accepted_ms);
    assert_eq!(client.reply().unwrap().status, 408);
}

#[test]
fn each_head_has_a_deadline_of_its_own() {
    let rig = Rig::new();
    let mut client = rig.client();
    let request = get("/quick:1");
    client.send(&request[..4]);
    rig.until_state(&client, "HalfHead(0: 4)");
    let first_ms = let_time_pass();
    // The end of one head and the beginning of the next, in one read.
    let reply = client.ask([&request[4..], &request[..8]].concat());
    assert_eq!(reply.body, b"a");
    rig.until_state(&client, "HalfHead(1: 8)");
    let second_ms = let_time_pass();
    pass_head_of(&rig, first_ms);
    client.send(&request[8..9]);
    rig.until_state(&client, "HalfHead(1: 9)");
    pass_head_of(&rig, second_ms);
    assert_eq!(client.reply().unwrap().status, 408);
}

#[test]
fn a_connection_at_rest_ends_when_it_was_idle_for_long() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.ask(get("/quick:0"));
    rig.until_state(&client, "Resting");
    rig.pass(LONG_MS);
    client.assert_closed();
    assert_eq!(rig.states(&client).last().unwrap(), "Closing(ClosedIdle)");
}

#[test]
fn a_handler_has_all_the_time_it_takes() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send(get("/wait/reply:1"));
    rig.until_step("wait");
    rig.pass(LONG_MS);
    rig.shared.gate.add_permits(1);
    assert_eq!(client.reply().unwrap().status, 200);
}

#[test]
fn a_body_that_does_not_come_is_408_if_it_is_read_and_the_end_if_it_is_drained() {
    let rig = Rig::new();
    let mut reading = rig.client();
    reading.send(&post("/read/reply:1", SMUGGLED)[..70]);
    rig.until_step("read");
    rig.pass(LONG_MS);
    let reply = reading.reply().unwrap();
    assert_eq!((reply.status, reply.says_close()), (408, true));
    reading.assert_closed();
    assert_eq!(rig.states(&reading)[2..], ["Answering", "Closing(ClosedBodySlow)"]);

    let mut draining = rig.client();
    draining.send(&post("/reply:1", SMUGGLED)[..70]);
    assert_eq!(draining.reply().unwrap().status, 200);
    rig.until_state(&draining, "Draining");
    rig.pass(LONG_MS);
    draining.assert_closed();
    assert_eq!(rig.states(&draining)[2..], ["Answering", "Draining", "Closing(ClosedClient)"]);
}

#[test]
fn who_sent_its_body_in_time_is_not_late_any_more() {
    for target in ["/read/late/reply:1", "/head:1/flush/read/late/body:1", "/read/late/fail"] {
        let rig = Rig::new();
        let mut client = rig.client();
        let request = post(target, SMUGGLED);
        client.send(&request[..request.len() - 1]);
        rig.until_step("read");
        rig.until_received(request.len() as u64 - 1);
        client.send(&request[request.len() - 1..]);
        let status = if target.contains("fail") { 502 } else { 200 };
        assert_eq!(client.reply().unwrap().status, status, "{target}");
    }
}

#[test]
fn a_client_is_late_with_its_body_only_while_somebody_reads() {
    let rig = Rig::new();
    let cases = [("/read:40/pause/late/wait/read/reply:1", 200), ("/read:40/late/wait/read", 408)];
    for (target, status) in cases {
        let mut client = rig.client();
        let request = post(target, SMUGGLED);
        let (begin, end) = request.split_at(request.len() - 1);
        let (head, begin) = begin.split_at(begin.len() - 40);
        client.send(head);
        rig.until_step("read");
        client.send(begin);
        rig.until_step("wait");
        client.send(end);
        rig.shared.gate.add_permits(1);
        assert_eq!(client.reply().unwrap().status, status, "{target}");
    }
}

#[test]
fn a_body_is_drained_for_so_long_however_much_of_it_comes() {
    let hour_ms = 3_600_000;
    let rig = Rig::with(EngineSettings { body_grace_ms: hour_ms, ..EngineSettings::default() });
    let mut client = rig.client();
    let request = post("/reply:1", SMUGGLED);
    client.send(&request[..70]);
    assert_eq!(client.reply().unwrap().status, 200);
    rig.until_state(&client, "Draining");
    client.send(&request[70..71]);
    rig.until_received(71);
    rig.pass(DRAIN_MS_MAX);
    client.assert_closed();
}

#[test]
fn a_panic_ends_its_connection_and_no_other() {
    let mut rig = Rig::new();
    rig.panics_expected = 2;
    let mut other = rig.client();
    other.send(get("/wait/reply:1"));
    rig.until_step("wait");
    for target in ["/panic", "/head:3/flush/panic"] {
        let mut client = rig.client();
        client.send(get(target));
        let (said, _) = client.rest();
        assert!(!said.windows(4).any(|bytes| bytes == b"\r\nabc"));
    }
    rig.shared.gate.add_permits(1);
    assert_eq!(other.reply().unwrap().status, 200);
    assert_eq!(rig.get(Counter::ClosedError), 2);
    drop(other);
    rig.assert_at_rest();
}

#[test]
fn the_drain_ends_who_rests_and_lets_others_finish() {
    let rig = Rig::new();
    let [mut resting, mut half, mut busy] = [(); 3].map(|()| rig.client());
    resting.ask(get("/quick:0"));
    half.send(&get("/quick:1")[..7]);
    busy.send([get("/wait/reply:1"), get("/quick:1")].concat());
    rig.until_state(&resting, "Resting");
    rig.until_state(&half, "HalfHead(0: 7)");
    rig.until_step("wait");
    rig.drain();
    resting.assert_closed();
    assert_eq!(rig.states(&resting).last().unwrap(), "Closing(ClosedDraining)");
    let reply = half.ask(&get("/quick:1")[7..]);
    assert_eq!((reply.body, half.rest()), (b"a".to_vec(), (Vec::new(), true)));
    rig.shared.gate.add_permits(1);
    let replies = [(); 2].map(|()| busy.reply().unwrap().says_close());
    assert_eq!(replies, [false, true], "it was told so before the drain began, and after");
    busy.assert_closed();
    assert_eq!(rig.get(Counter::ClosedDraining), 3);
}

/// Size of the future returned by `serve`, in bytes.
fn future_bytes<A, B, F>(_serve: impl FnOnce(A, B) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn a_connection_at_rest_is_small() {
    // All data that it stores about its client is in its state, which is only a name when it rests.
    assert!(size_of::<State>() <= 64, "{}", size_of::<State>());
    let bytes = future_bytes(<Engine<Scripted> as ConnectionHandler>::serve);
    assert!(bytes <= 1_056, "{bytes}");
}
