//! Upgrades: WebSockets and similar protocols.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::rig::{FakeNode, Rig, Wire, fence, field, has, next, ok, seen, wait_until};

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: \
                       websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: \
                         websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn echo(mut wire: Wire) {
    while let Some(bytes) = wire.exactly(1) {
        if !wire.send(bytes) {
            return;
        }
    }
}

#[test]
fn bytes_flow_both_ways_after_the_switch_and_not_before() {
    let address: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
    let dispatcher = Arc::clone(&address);
    let (saw, seen) = seen();
    let node = FakeNode::new(move |_, mut wire| {
        let Some(head) = wire.head() else { return };
        if head.contains("/fence") {
            wire.send(ok(""));
            return;
        }
        let address = dispatcher.lock().unwrap().unwrap();
        fence(address);
        saw.send((head, wire.has_bytes())).unwrap();
        // The node's first frame is sent together with its head.
        wire.send(SWITCHING.to_owned() + "hello ");
        echo(wire);
    });
    let rig = Rig::new(&[&node], "");
    *address.lock().unwrap() = Some(rig.address);
    let mut client = rig.client();
    assert!(client.send(UPGRADE.to_owned() + "early "));
    let (head, came_early) = next(&seen);
    assert!(has(&head, "connection: upgrade") && has(&head, "upgrade: websocket"), "{head}");
    assert!(field(&head, "sec-websocket-key").is_some());
    assert!(!came_early, "bytes behind the head wait for the 101");
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("upgrade")), (101, Some("websocket")));
    assert_eq!(reply.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.exactly(12).unwrap(), b"hello early ");
    for _ in 0..10 {
        assert!(client.send("ping"));
        assert_eq!(client.exactly(4).unwrap(), b"ping");
    }
    let status = rig.node("n1");
    assert_eq!((status.tunnels, status.outstanding_requests, status.connections), (1, 0, 1));
    assert_eq!(rig.totals().upgrades, 1);
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), (Vec::new(), true));
    wait_until("the tunnel is gone", || rig.node("n1").tunnels == 0);
}

#[test]
fn a_drain_waits_for_tunnels() {
    let node = FakeNode::new(|_, mut wire| {
        if wire.head().is_some() {
            wire.send(SWITCHING);
            echo(wire);
        }
    });
    let rig = Rig::new(&[&node], "");
    rig.start_checks();
    let mut client = rig.client();
    assert_eq!(client.ask(UPGRADE).status, 101);
    rig.dispatcher.group().drain("n1").unwrap();
    assert!(client.send("x"));
    assert_eq!(client.exactly(1).unwrap(), b"x");
    assert_eq!(rig.node("n1").state, "draining");
    drop(client);
    wait_until("drained", || rig.node("n1").state == "drained");
}

#[test]
fn a_node_may_decline() {
    let node = FakeNode::answering(|_, _| ok("plain"));
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    let reply = client.ask(UPGRADE);
    assert_eq!((reply.status, reply.text()), (200, "plain"));
    assert_eq!(client.get("/").text(), "plain", "the connection goes on");
}

#[test]
fn a_switch_that_nobody_asked_for_is_a_502() {
    let node = FakeNode::new(|_, mut wire| {
        let _ = wire.head();
        wire.send(SWITCHING);
        let _ = wire.rest();
    });
    let rig = Rig::new(&[&node], "health.passive_failures_max = 1000");
    assert_eq!(rig.get("/").status, 502, "no upgrade asked for");
    let other = UPGRADE.replace("websocket", "frobnicate");
    assert_eq!(rig.client().ask(&other).status, 502, "another protocol asked for");
    let h2c = UPGRADE.replace("websocket", "h2c");
    assert_eq!(rig.client().ask(&h2c).status, 502, "h2c is never passed on");
    assert_eq!(rig.totals().upgrades, 0);
}

#[test]
fn where_others_are_redirected_an_upgrade_is_proxied() {
    let node = FakeNode::new(|_, mut wire| {
        if wire.head().is_some() {
            wire.send(SWITCHING);
            echo(wire);
        }
    });
    let rig = Rig::new(&[&node], "dispatch = \"redirect\"");
    assert_eq!(rig.get("/").status, 307);
    let mut client = rig.client();
    assert_eq!(client.ask(UPGRADE).status, 101);
    assert!(client.send("x"));
    assert_eq!(client.exactly(1).unwrap(), b"x");
}
