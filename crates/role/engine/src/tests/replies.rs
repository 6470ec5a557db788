//! Replies that fail, that no client reads, or that are never written.

use skep_serve::Pace;
use skep_telemetry::{CoreGauge, Counter};

use super::bodies::SMUGGLED;
use super::client::{get, head, post};
use super::rig::{Rig, wait_until};
use super::script::reply_body;
use crate::EngineSettings;

/// More than socket buffers hold.
const LARGE: usize = 16 << 20;

#[test]
fn a_handler_that_fails_before_anything_was_sent_is_a_502() {
    for target in ["/fail", "/read:1/fail", "/head:5/fail", "/reply:5/fail", "/until-close:5/fail"]
    {
        let rig = Rig::new();
        let mut client = rig.client();
        client.send([&post(target, b"12345")[..], SMUGGLED].concat());
        let reply = client.reply().unwrap();
        assert_eq!((reply.status, reply.says_close()), (502, true), "{target}");
        assert_eq!(reply.field("Script"), None, "nothing is left of what was taken back");
        assert_eq!(rig.targets(), [target]);
        rig.until_state(&client, "Closing(ClosedError)");
    }
}

#[test]
fn a_failure_is_told_though_the_client_goes_on_sending() {
    let rig = Rig::new();
    let mut client = rig.client();
    let request = post("/wait/fail", &[b'x'; 100_000]);
    client.send(&request[..100]);
    rig.until_step("wait");
    client.send(&request[100..]);
    rig.shared.gate.add_permits(1);
    assert_eq!(client.reply().unwrap().status, 502);
    client.assert_closed();
}

#[test]
fn a_reply_that_was_begun_is_cut_so_that_its_client_can_tell() {
    let rig = Rig::new();
    let mut framed = rig.client();
    framed.send([&get("/head:5/body:2/flush/fail"), SMUGGLED].concat());
    assert!(framed.head().unwrap().contains("Content-Length: 5"));
    assert_eq!(framed.rest().0, b"ab");
    let mut open_ended = rig.client();
    open_ended.send(get("/until-close:3/flush/fail"));
    assert!(open_ended.head().unwrap().contains("Connection: close"));
    let (_, is_orderly) = open_ended.rest();
    assert!(!is_orderly, "its end would pass for the end of the body");
    assert_eq!(rig.seen().len(), 2);
}

#[test]
fn a_reply_that_ends_with_its_connection_is_whole_at_an_orderly_end() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send([&get("/until-close:3"), SMUGGLED].concat());
    assert!(client.head().unwrap().contains("Connection: close"));
    assert_eq!(client.rest(), (b"abc".to_vec(), true));
    assert_eq!(rig.targets(), ["/until-close:3"]);
}

#[test]
fn replies_without_a_body_have_none_and_the_next_one_follows() {
    let rig = Rig::new();
    let mut client = rig.client();
    for target in ["/quick:5", "/reply:5", "/head:5/body:5"] {
        client.send([head("HEAD", target, ""), get("/empty"), get("/quick:1")].concat());
        assert_eq!(client.reply_to("HEAD").unwrap().field("Content-Length"), Some("5"));
        assert_eq!(client.reply().unwrap().status, 204);
        assert_eq!(client.reply().unwrap().body, b"a");
    }
    rig.until_state(&client, "Resting");
}

#[test]
fn nothing_is_answered_while_an_earlier_reply_is_not_taken() {
    for (target, state) in [("/quick", "Pipelined(41)"), ("/reply", "Answering")] {
        let rig = Rig::new();
        let mut client = rig.client();
        client.send([&get(&format!("{target}:{LARGE}")), SMUGGLED].concat());
        let outstanding = || rig.gauge(CoreGauge::BytesOutstanding);
        wait_until(|| outstanding() > 0, || "bytes wait for the client".to_owned());
        rig.until_state(&client, state);
        assert_eq!((rig.seen().len(), rig.gauge(CoreGauge::RequestsInFlight)), (1, 1));
        assert!(client.reply().unwrap().body == reply_body(LARGE));
        assert_eq!(client.reply().unwrap().body, reply_body(9));
        rig.until_state(&client, "Resting");
        let gauges = [CoreGauge::BytesOutstanding, CoreGauge::RequestsInFlight];
        assert_eq!(gauges.map(|gauge| rig.gauge(gauge)), [0, 0]);
    }
}

#[test]
fn a_client_that_takes_nothing_is_cut_and_leaves_nothing() {
    for target in ["/quick", "/reply"] {
        let pace = Pace { stall_ms: 1, bytes_per_s_min: 0, average_ms: 1 };
        let rig = Rig::with(EngineSettings { pace, ..EngineSettings::default() });
        let mut client = rig.client();
        client.send([&get(&format!("{target}:{LARGE}")), SMUGGLED].concat());
        rig.until_state(&client, "Closing(ClosedWriteStall)");
        assert_eq!(rig.seen().len(), 1);
        assert!(client.reply().is_none(), "there is only the beginning of it");
    }
}

#[test]
fn a_handler_that_says_what_is_no_reply_is_stopped_before_the_client_sees_a_next_one() {
    const BUGS: [&str; 13] = [
        "/says-nothing",
        "/says-half",
        "/says-later",
        "/nothing",
        "/half-head",
        "/half-head/flush",
        "/body:1",
        "/reply:1/reply:1",
        "/reply:1/flush/reply:1",
        "/reply:1/half-head",
        "/empty/body:1",
        "/head:1/flush/until-close:1",
        "/reply:1/flush/wait/reply:1",
    ];
    let mut rig = Rig::new();
    rig.panics_expected = BUGS.len();
    rig.shared.gate.add_permits(1);
    for target in BUGS {
        let mut client = rig.client();
        client.send([&get(target), SMUGGLED].concat());
        let (said, _) = client.rest();
        let replies = said.windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count();
        assert!(replies <= 1, "{target}: {}", String::from_utf8_lossy(&said));
    }
    assert!(rig.seen().iter().all(|seen| seen.target != "/quick:9"));
    assert_eq!(rig.get(Counter::ClosedError), BUGS.len() as u64);
}
