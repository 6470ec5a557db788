//! Checks, and their effect on a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use super::rig::{FakeNode, Rig, config, field, next, ok, seen, wait_until};

const BRISK: &str = "health.interval_ms = 250\nhealth.timeout_ms = 250\nhealth.fall = 2";

/// Gives every check enough time: even on a busy machine no check times out.
const PATIENT: &str = "health.interval_ms = 5000\nhealth.timeout_ms = 5000\nhealth.fall = 1";

fn rig(node: &FakeNode, service: &str) -> Rig {
    let nodes = [("n1".to_owned(), node.address)];
    let rig = Rig::unchecked(&config(&nodes, service));
    rig.start_checks();
    rig
}

fn wait_for(rig: &Rig, state: &str) {
    wait_until(state, || rig.node("n1").state == state);
}

#[test]
fn a_node_gets_requests_after_its_first_good_check() {
    let (saw, seen) = seen();
    let node = FakeNode::answering(move |head, _| {
        let _ = saw.try_send(head.to_owned());
        ok("one")
    });
    let rig = rig(&node, "health.path = \"/well\"");
    let head = next(&seen);
    assert!(head.starts_with("GET /well HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "host"), Some(&*node.address.to_string()));
    assert_eq!(field(&head, "connection"), Some("close"));
    wait_for(&rig, "up");
    assert_eq!(rig.get("/").text(), "one");
}

#[test]
fn a_refused_node_comes_back_by_checks() {
    let node = FakeNode::named("one");
    let rig = rig(&node, BRISK);
    wait_for(&rig, "up");
    let address = node.close();
    assert_eq!(rig.get("/").status, 503);
    wait_for(&rig, "down");
    let _back = FakeNode::at(address, |_, mut wire| {
        while wire.request().is_some() {
            wire.send(ok("back"));
        }
    });
    wait_for(&rig, "up");
    assert_eq!(rig.get("/").text(), "back");
}

#[test]
fn the_wrong_status_takes_a_node_out() {
    let status = Arc::new(AtomicU16::new(200));
    let said = Arc::clone(&status);
    let node = FakeNode::answering(move |_, _| {
        format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", said.load(SeqCst)).into_bytes()
    });
    let rig = rig(&node, PATIENT);
    wait_for(&rig, "up");
    status.store(500, SeqCst);
    wait_for(&rig, "down");
    assert_eq!(rig.node("n1").reason.as_deref(), Some("checks failed: status 500"));
    status.store(200, SeqCst);
    wait_for(&rig, "up");
}

#[test]
fn a_node_that_says_it_drains_is_out_and_not_down() {
    let status = Arc::new(AtomicU16::new(200));
    let said = Arc::clone(&status);
    let node = FakeNode::answering(move |_, _| match said.load(SeqCst) {
        503 => b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\ndraining\n".to_vec(),
        _ => ok("one"),
    });
    let rig = rig(&node, PATIENT);
    wait_for(&rig, "up");
    status.store(503, SeqCst);
    wait_for(&rig, "draining");
    assert_eq!(rig.node("n1").reason.as_deref(), Some("reported by its health check"));
    assert_eq!(rig.get("/").status, 503);
    assert_eq!(rig.totals().upstream_requests, 0, "nothing was sent there");
    status.store(200, SeqCst);
    wait_for(&rig, "up");
    assert_eq!(rig.get("/").text(), "one");
}

#[test]
fn nodes_that_do_not_speak_http_or_do_not_answer_never_come_up() {
    for (script, reason) in [
        (b"SSH-2.0-x\r\n\r\n".to_vec(), "checks failed: not a valid answer"),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), "checks failed: not a valid answer"),
        (Vec::new(), "checks failed: connection broken"),
    ] {
        let node = FakeNode::new(move |_, mut wire| {
            let _ = wire.request();
            wire.send(&script);
        });
        let rig = rig(&node, PATIENT);
        wait_for(&rig, "down");
        assert_eq!(rig.node("n1").reason.as_deref(), Some(reason));
    }
    let silent = FakeNode::new(|_, mut wire| drop(wire.rest()));
    let rig = rig(&silent, BRISK);
    wait_for(&rig, "down");
    assert_eq!(rig.node("n1").reason.as_deref(), Some("checks failed: timed out"));
}

#[test]
fn a_node_that_came_back_grows_to_its_share() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    let rig = Rig::new(&[&one, &two], "health.slow_start_ms = 3600000");
    let share = rig.node("n1").share_permille;
    assert!((1..100).contains(&share), "{share}");
    assert_eq!(rig.get("/").status, 200, "an all-new cluster serves");
}
