//! Request bodies: both framings, expectations, early responses.

use std::io::Write;

use super::rig::{BRIEF, FakeNode, Rig, cut_short, fence, field, has, next, ok, seen};

fn echo() -> FakeNode {
    FakeNode::answering(|head, body| {
        let framing = match field(head, "content-length") {
            Some(_) => "length",
            None => "chunked",
        };
        let mut reply = format!(
            "HTTP/1.1 200 OK\r\nX-Framing: {framing}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        reply.extend_from_slice(body);
        reply
    })
}

#[test]
fn a_body_of_known_length_arrives_whole() {
    let node = echo();
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    for len in [1, 100, 20_000, 3_000_000] {
        let body: String = (0..len).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        let reply = client.ask(&(head + &body));
        assert_eq!((reply.status, reply.field("x-framing")), (200, Some("length")));
        assert!(reply.text() == body, "{len} bytes");
    }
    assert_eq!(node.connections(), 1);
}

#[test]
fn chunks_are_cut_anew_and_trailers_follow() {
    let (saw, seen) = seen();
    let node = FakeNode::new(move |_, mut wire| {
        while let Some(head) = wire.head() {
            saw.send((head, wire.until(b"1\r\n\r\n").unwrap())).unwrap();
            wire.send(ok("thanks"));
        }
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    let reply = client.ask(
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         5;a=b\r\nhello\r\n006\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n",
    );
    assert_eq!(reply.text(), "thanks");
    let (head, body) = next(&seen);
    assert!(has(&head, "transfer-encoding: chunked"), "{head}");
    assert_eq!(body, b"b\r\nhello world\r\n0\r\nX-Trailer: 1\r\n\r\n");
}

#[test]
fn a_client_that_waits_is_told_to_continue() {
    let node = echo();
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    assert!(client.send(head));
    assert_eq!(client.head().unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.ask("hello").text(), "hello");
    // Without a node the client must not be told to continue.
    rig.dispatcher.group().drain("n1").unwrap();
    let refused = rig.client().ask(head);
    assert_eq!(refused.status, 503);
}

#[test]
fn an_early_answer_ends_the_upload() {
    let (saw, ended) = seen();
    let node = FakeNode::new(move |_, mut wire| {
        let Some(head) = wire.head() else { return };
        assert_eq!(field(&head, "content-length"), Some("100000000"));
        wire.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 4\r\n\r\nstop");
        saw.send(wire.rest().0.len()).unwrap();
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
    let reply = client.ask(&(head.to_owned() + "the beginning"));
    assert_eq!((reply.status, reply.text()), (413, "stop"));
    assert!(next(&ended) < 100_000_000, "the node's connection was closed, not reused");
    // The rest of the body is not parsed as a request.
    assert!(client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"));
    drop(client);
    assert_eq!(rig.totals().upstream_requests, 1);
}

#[test]
fn an_answer_may_begin_before_the_body_has_ended() {
    let node = FakeNode::new(|_, mut wire| {
        let Some(_) = wire.head() else { return };
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        // Each byte of the body is returned before the next one is sent.
        for _ in 0..5 {
            let byte = wire.exactly(1).unwrap();
            wire.send([b"1\r\n", &byte[..], b"\r\n"].concat());
        }
        wire.send(b"0\r\n\r\n");
        let _ = wire.rest();
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"));
    assert!(client.head().unwrap().starts_with("HTTP/1.1 200"));
    for byte in [b"h", b"e", b"l", b"l", b"o"] {
        assert!(client.send(byte));
        assert_eq!(client.until(b"\r\n").unwrap(), b"1\r\n");
        assert_eq!(client.exactly(3).unwrap(), [byte[0], b'\r', b'\n']);
    }
    assert_eq!(client.until(b"0\r\n\r\n").unwrap(), b"0\r\n\r\n");
}

#[test]
fn a_client_that_sent_its_body_in_time_waits_for_its_node_as_long_as_that_takes() {
    let ((saw, all_there), (go_on, waiting)) = (seen(), seen::<()>());
    let waiting = std::sync::Mutex::new(waiting);
    let node = FakeNode::new(move |_, mut wire| {
        let Some(_) = wire.head() else { return };
        saw.send(wire.exactly(4).unwrap()).unwrap();
        saw.send(wire.exactly(1).unwrap()).unwrap();
        next(&waiting.lock().unwrap());
        wire.send(ok("done"));
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbody"));
    assert_eq!(next(&all_there), b"body");
    assert!(client.send("!"));
    assert_eq!(next(&all_there), b"!");
    // Longer than the limit for a body, and shorter than that for a node.
    let (passed, is_later) = seen();
    rig.workers.as_ref().unwrap().handles()[0].run(move |worker| {
        worker.deadlines().sweep(worker.now_ms() + 10_000);
        passed.send(()).unwrap();
    });
    next(&is_later);
    go_on.send(()).unwrap();
    assert_eq!(client.reply().status, 200);
}

#[test]
fn a_client_that_gives_up_in_its_body_is_not_the_nodes_fault() {
    let (saw, ended) = seen();
    let node = FakeNode::new(move |_, mut wire| {
        let _ = wire.head();
        saw.send(wire.rest().0).unwrap();
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"));
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.reply().status, 400);
    assert_eq!(next(&ended), b"half");
    assert_eq!((rig.node("n1").failures, rig.totals().upstream_failures), (0, 0));
}

#[test]
fn a_node_that_takes_no_more_may_still_say_why() {
    let node = FakeNode::new(|_, mut wire| {
        let Some(_) = wire.head() else { return };
        wire.send(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
        // Closes with unread bytes: a client that continues to send gets a reset.
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    let body = "x".repeat(4_000_000);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(head + &body);
    let reply = client.reply();
    assert!(matches!(reply.status, 403 | 502), "{}", reply.head);
}

#[test]
fn a_slow_node_makes_the_client_wait() {
    const BODY_BYTES: usize = 64 * 1024 * 1024;
    const HELD_BYTES_MAX: usize = 24 * 1024 * 1024;
    let (go_on, waiting) = seen::<()>();
    let waiting = std::sync::Mutex::new(waiting);
    let node = FakeNode::new(move |_, mut wire| {
        let Some(head) = wire.head() else { return };
        if head.contains("/fence") {
            wire.send(ok(""));
            return;
        }
        next(&waiting.lock().unwrap());
        let body = wire.exactly(BODY_BYTES).unwrap();
        assert!(body.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        wire.send(ok("all"));
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    // Created before the head is sent: from then on the client's rate is measured.
    let body: Vec<u8> = (0..BODY_BYTES).map(|at| (at % 251) as u8).collect();
    let head = format!("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    assert!(client.send(head));
    let (mut sent, mut tries_without_progress) = (0, 0);
    client.stream().set_nonblocking(true).unwrap();
    while tries_without_progress < 3 && sent < BODY_BYTES {
        match client.stream().write(&body[sent..]) {
            Ok(n) => {
                sent += n;
                tries_without_progress = 0;
            }
            // The worker had its turn and took nothing.
            Err(_) => {
                fence(rig.address);
                tries_without_progress += 1;
            }
        }
    }
    assert!(sent < HELD_BYTES_MAX, "{sent} bytes taken, none of them read by the node");
    go_on.send(()).unwrap();
    client.stream().set_nonblocking(false).unwrap();
    assert!(client.send(&body[sent..]));
    assert_eq!(client.reply().text(), "all");
}

#[test]
fn two_sides_that_wait_for_each_other_are_parted() {
    let node = FakeNode::new(|_, mut wire| {
        let Some(_) = wire.head() else { return };
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
        let _ = wire.rest();
    });
    let rig = Rig::new(&[&node], BRIEF);
    let all = cut_short(&rig, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf");
    assert!(all.ends_with(b"1\r\na\r\n"), "no end of the body");
}
