//! Responses of every framing, split at every byte, and responses with invalid framing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::rig::{FakeNode, Rig, fence, has, next, ok, seen};

/// A node that sends `reply` in two writes, split where the path specifies, and lets the dispatcher
/// read the first part before it sends the second.
fn cutting(reply: &'static [u8]) -> (FakeNode, Arc<Mutex<Option<SocketAddr>>>) {
    let dispatcher: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
    let known = Arc::clone(&dispatcher);
    let node = FakeNode::new(move |_, mut wire| {
        while let Some((head, _)) = wire.request() {
            let path = head.split(' ').nth(1).unwrap();
            let Ok(at) = path[1..].parse::<usize>() else {
                wire.send(ok(""));
                continue;
            };
            wire.send(&reply[..at]);
            let address = known.lock().unwrap().unwrap();
            fence(address);
            wire.send(&reply[at..]);
            if !has(&head, "connection: close") && reply.starts_with(b"HTTP/1.0") {
                return;
            }
        }
    });
    (node, dispatcher)
}

fn cut_everywhere(reply: &'static [u8], body: &str) {
    let (node, dispatcher) = cutting(reply);
    let rig = Rig::new(&[&node], "");
    *dispatcher.lock().unwrap() = Some(rig.address);
    let mut client = rig.client();
    for at in 1..reply.len() {
        let got = client.get(&format!("/{at}"));
        assert_eq!((got.status, got.text()), (200, body), "cut at {at}");
    }
    assert_eq!(rig.totals().upstream_failures, 0);
}

#[test]
fn a_length_cut_at_every_byte() {
    cut_everywhere(
        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 11\r\n\r\nhello world",
        "hello world",
    );
}

#[test]
fn chunks_with_trailers_cut_at_every_byte() {
    cut_everywhere(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n\
          5;ext=\"1\"\r\nhello\r\nB\r\n world and \r\n1\r\n!\r\n0\r\nX-T: 1\r\n\r\n",
        "hello world and !",
    );
}

#[test]
fn until_close_cut_at_every_byte() {
    cut_everywhere(b"HTTP/1.0 200 OK\r\n\r\nhello\r\n\r\nworld", "hello\r\n\r\nworld");
}

#[test]
fn interim_responses_cut_at_every_byte() {
    cut_everywhere(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "ok",
    );
}

#[test]
fn hints_reach_clients_that_know_them_and_trailers_those_that_ask() {
    let node = FakeNode::answering(|_, _| {
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\nX: 1\r\n\r\n\
          HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n\
          2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"
            .to_vec()
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n"));
    let hint = client.head().unwrap();
    assert_eq!(hint, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    let head = client.head().unwrap();
    assert!(has(&head, "trailer: x-t"), "{head}");
    assert_eq!(client.until(b"1\r\n\r\n").unwrap(), b"2\r\nok\r\n0\r\nX-T: 1\r\n\r\n");
    let plain = client.get("/");
    assert_eq!((plain.text(), plain.field("trailer")), ("ok", None));
    assert!(client.send("GET / HTTP/1.0\r\n\r\n"));
    let all = String::from_utf8(client.rest().0).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.ends_with("\r\n\r\nok"), "{all}");
}

#[test]
fn a_client_of_http_1_0_gets_no_chunks() {
    let node = FakeNode::answering(|_, _| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec()
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    let (all, is_orderly) = client.rest();
    let text = String::from_utf8(all).unwrap();
    assert!(is_orderly && text.ends_with("\r\n\r\nhello"), "{text}");
    assert!(has(&text, "connection: close") && !text.contains("chunked"), "{text}");
}

#[test]
fn a_reply_cut_short_never_ends_cleanly() {
    // The node's response, the client's version, and bytes that must not be at the end of what the
    // client receives.
    let cases: &[(&[u8], &str)] = &[
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhello", "1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.0"),
    ];
    for (number, &(reply, version)) in cases.iter().enumerate() {
        let address: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let dispatcher = Arc::clone(&address);
        let (at, _) = reply.split_at(reply.len() - 4);
        let first = at.to_vec();
        let node = FakeNode::new(move |_, mut wire| {
            while let Some((head, _)) = wire.request() {
                if head.contains("/fence") {
                    wire.send(ok(""));
                    continue;
                }
                wire.send(&first);
                let address = dispatcher.lock().unwrap().unwrap();
                fence(address);
                wire.send(&reply[first.len()..]);
                return;
            }
        });
        let rig = Rig::new(&[&node], "");
        *address.lock().unwrap() = Some(rig.address);
        let mut client = rig.client();
        assert!(client.send(format!("GET /cut HTTP/{version}\r\nHost: a\r\n\r\n")));
        let (all, is_orderly) = client.rest();
        let text = String::from_utf8(all).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "case {number}: {text}");
        assert!(!text.ends_with("0\r\n\r\n"), "case {number}: {text}");
        assert!(version == "1.1" || !is_orderly, "case {number}: passed off as complete");
        let totals = rig.totals();
        assert_eq!((totals.upstream_failures, totals.upstream_retries), (1, 0), "case {number}");
    }
}

#[test]
fn responses_that_two_readers_would_read_differently_are_a_502() {
    let cases: &[&[u8]] = &[
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\nhi",
    ];
    let (saw, ended) = seen();
    let node = FakeNode::new(move |_, mut wire| {
        let Some((head, _)) = wire.request() else { return };
        let number: usize = head.split(' ').nth(1).unwrap()[1..].parse().unwrap();
        wire.send(cases[number]);
        // Nobody may read what follows on that connection.
        wire.send(ok("poison"));
        saw.send(wire.rest().0).unwrap();
    });
    let rig = Rig::new(&[&node], "health.passive_failures_max = 1000");
    let mut client = rig.client();
    for (number, case) in cases.iter().enumerate() {
        let reply = client.get(&format!("/{number}"));
        let shown = String::from_utf8_lossy(case);
        assert_eq!(reply.status, 502, "{shown:?}");
        assert!(next(&ended).is_empty(), "{shown:?}: another request went there");
    }
    assert_eq!(node.connections(), cases.len(), "none was reused");
    assert_eq!(rig.node("n1").failures as usize, cases.len());
}

#[test]
fn heads_without_end_are_a_502() {
    let node = FakeNode::new(|number, mut wire| {
        let _ = wire.request();
        match number {
            0 => {
                wire.send("HTTP/1.1 200 OK\r\n");
                while wire.send("X-Filler: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n") {}
            }
            _ => while wire.send("HTTP/1.1 103 Early Hints\r\n\r\n") {},
        }
    });
    let rig = Rig::new(&[&node], "");
    assert_eq!(rig.get("/").status, 502);
    assert_eq!(rig.get("/").status, 502);
}

#[test]
fn bytes_behind_a_response_reach_nobody() {
    let (saw, ended) = seen();
    let node = FakeNode::new(move |number, mut wire| {
        let Some(_) = wire.request() else { return };
        if number == 0 {
            let mut both = ok("mine");
            both.extend(ok("poison"));
            wire.send(both);
            saw.send(wire.rest().0).unwrap();
        } else {
            wire.send(ok("clean"));
        }
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "mine");
    assert!(next(&ended).is_empty(), "the connection was closed");
    assert_eq!(client.get("/").text(), "clean");
}

#[test]
fn a_node_that_closes_is_not_reused() {
    let node = FakeNode::new(|_, mut wire| {
        let _ = wire.request();
        wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    for _ in 0..3 {
        let reply = client.get("/");
        assert_eq!((reply.text(), reply.field("connection")), ("ok", None));
    }
    assert_eq!((node.connections(), rig.totals().upstream_failures), (3, 0));
}
