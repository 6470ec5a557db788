//! Ordinary requests through the proxy: what the node receives, what the client receives, and which
//! connections are reused.

use std::io::Write;

use skep_proxy::MemberSource;

use super::rig::{BRIEF, FakeNode, Rig, cut_short, fence, field, has, next, ok, seen};

#[test]
fn the_node_sees_a_rebuilt_request_and_the_client_a_rebuilt_reply() {
    let (saw, seen) = seen();
    let node = FakeNode::answering(move |head, _| {
        saw.send(head.to_owned()).unwrap();
        b"HTTP/1.1 200 Fine\r\nX-App: a\r\nConnection: x-hop\r\nX-Hop: b\r\nKeep-Alive: \
          timeout=5\r\nContent-Length: 5\r\n\r\nhello"
            .to_vec()
    });
    let rig = Rig::new(&[&node], "");
    let reply = rig.client().ask(
        "GET /a%20b?c=d HTTP/1.1\r\nHost: example.org\r\nX-Own: 1\r\nConnection: \
         keep-alive, X-Secret\r\nX-Secret: 2\r\nX-Forwarded-For: 6.6.6.6\r\nTE: trailers\r\n\r\n",
    );
    let head = next(&seen);
    assert!(head.starts_with("GET /a%20b?c=d HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "host"), Some("example.org"));
    assert_eq!(field(&head, "x-own"), Some("1"));
    assert_eq!(field(&head, "x-forwarded-for"), Some("127.0.0.1"), "clients can lie");
    assert_eq!(field(&head, "x-forwarded-proto"), Some("http"));
    assert!(field(&head, "forwarded").unwrap().starts_with("for=127.0.0.1"));
    assert_eq!(field(&head, "x-secret"), None, "{head}");
    assert_eq!((field(&head, "te"), field(&head, "connection")), (Some("trailers"), Some("TE")));
    assert_eq!((reply.status, reply.text()), (200, "hello"));
    assert_eq!(reply.field("x-app"), Some("a"));
    for gone in ["x-hop", "keep-alive", "connection", "x-skep-node"] {
        assert_eq!(reply.field(gone), None, "{}", reply.head);
    }
    assert!(reply.field("date").is_some());
}

#[test]
fn trusted_proxies_extend_what_came_before() {
    let (saw, seen) = seen();
    let node = FakeNode::answering(move |head, _| {
        saw.send(head.to_owned()).unwrap();
        ok("")
    });
    let rig = Rig::new(&[&node], "trust_forwarded = true\nnode_header = true");
    let reply = rig.client().ask(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\r\n",
    );
    let head = next(&seen);
    assert_eq!(field(&head, "x-forwarded-for"), Some("6.6.6.6, 127.0.0.1"));
    assert_eq!(field(&head, "x-forwarded-proto"), Some("https"));
    assert_eq!(reply.field("x-skep-node"), Some("n1"));
}

#[test]
fn connections_are_kept_on_both_sides() {
    let node = FakeNode::named("one");
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "one");
    }
    assert_eq!(node.connections(), 1);
    let totals = rig.totals();
    assert_eq!((totals.upstream_requests, totals.upstream_connects), (20, 1));
    assert_eq!((totals.upstream_reused, totals.upstream_failures), (19, 0));
    let status = rig.node("n1");
    assert_eq!((status.requests, status.failures, status.bytes), (20, 0, 60));
    assert_eq!((status.connections, status.outstanding_requests), (0, 0));
    assert!(status.latency_us > 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let node = FakeNode::answering(|head, _| ok(head.split(' ').nth(1).unwrap()));
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.send(get("/1") + &get("/2") + &get("/3")));
    for path in ["/1", "/2", "/3"] {
        assert_eq!(client.reply().text(), path);
    }
}

#[test]
fn requests_are_spread_by_the_policy() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    let rig = Rig::new(&[&one, &two], "policy = \"round-robin\"");
    let mut client = rig.client();
    let bodies: Vec<_> = (0..10).map(|_| client.get("/").text().to_owned()).collect();
    assert!(bodies.windows(2).all(|pair| pair[0] != pair[1]), "{bodies:?}");
    assert_eq!((rig.node("n1").requests, rig.node("n2").requests), (5, 5));
}

#[test]
fn a_sticky_policy_sees_host_and_path() {
    let (one, two) = (FakeNode::named("one"), FakeNode::named("two"));
    let rig = Rig::new(&[&one, &two], "policy = \"maglev-url\"");
    let mut client = rig.client();
    let mut of = |host: &str, path: &str| {
        let reply = client.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        reply.text().to_owned()
    };
    let mut names = std::collections::BTreeSet::new();
    for number in 0..32 {
        let name = of("example.org", &format!("/{number}/x"));
        // Case, port and dots do not distinguish resources.
        assert_eq!(of("EXAMPLE.org:80", &format!("/{number}/./x")), name);
        names.insert(name);
    }
    assert_eq!(names.len(), 2, "both nodes have some");
}

#[test]
fn head_and_small_body_reach_the_client_in_one_write() {
    let node = FakeNode::named("body");
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    let mut first = [0; 1024];
    let n = std::io::Read::read(&mut client.stream(), &mut first).unwrap();
    assert!(first[..n].ends_with(b"\r\n\r\nbody"));
}

#[test]
fn head_no_content_and_not_modified_have_no_body() {
    let node = FakeNode::answering(|head, _| {
        let reply: &[u8] = match head.split(' ').nth(1).unwrap() {
            "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
            "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: \"x\"\r\n\r\n",
            "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
        };
        reply.to_vec()
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert_eq!(client.get("/204").status, 204);
    let not_modified = client.get("/304");
    assert_eq!((not_modified.status, not_modified.field("etag")), (304, Some("\"x\"")));
    let head = client.ask("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.field("content-length"), Some("1234"));
    assert_eq!(client.ask("HEAD /chunked HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
    assert_eq!(client.get("/204").status, 204, "nothing was left behind on the way");
    assert_eq!(node.connections(), 1);
}

#[test]
fn a_slow_reader_makes_the_node_wait() {
    const BODY_BYTES: usize = 64 * 1024 * 1024;
    const HELD_BYTES_MAX: usize = 24 * 1024 * 1024;
    let (saw, stalled) = seen();
    let (tell_address, address) = seen::<std::net::SocketAddr>();
    let address = std::sync::Mutex::new(address);
    let node = FakeNode::new(move |_, mut wire| {
        let Some((head, _)) = wire.request() else { return };
        if head.contains("/fence") {
            wire.send(ok(""));
            return;
        }
        let dispatcher = next(&address.lock().unwrap());
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n"));
        let body: Vec<u8> = (0..BODY_BYTES).map(|at| (at % 251) as u8).collect();
        let mut sent = 0;
        let mut tries_without_progress = 0;
        wire.stream.set_nonblocking(true).unwrap();
        while tries_without_progress < 3 && sent < BODY_BYTES {
            match wire.stream.write(&body[sent..]) {
                Ok(n) => {
                    sent += n;
                    tries_without_progress = 0;
                }
                // The worker had its turn and took nothing.
                Err(_) => {
                    fence(dispatcher);
                    tries_without_progress += 1;
                }
            }
        }
        saw.send(sent).unwrap();
        wire.stream.set_nonblocking(false).unwrap();
        wire.send(&body[sent..]);
    });
    let rig = Rig::new(&[&node], "");
    tell_address.send(rig.address).unwrap();
    let mut client = rig.client();
    assert!(client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n"));
    let held = next(&stalled);
    assert!(held < HELD_BYTES_MAX, "{held} bytes sent, none of them read by the client");
    assert!(rig.node("n1").outstanding_bytes > 0);
    let reply = client.reply();
    assert_eq!(reply.body.len(), BODY_BYTES);
    assert!(reply.body.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    assert_eq!(rig.node("n1").outstanding_bytes, 0);
}

#[test]
fn a_node_that_is_late_is_a_504() {
    let (_keep, never) = seen::<()>();
    let never = std::sync::Mutex::new(never);
    let node = FakeNode::new(move |_, mut wire| {
        let _ = wire.request();
        let _ = never.lock().unwrap().recv();
    });
    let rig = Rig::new(&[&node], "response_timeout_ms = 1");
    let mut client = rig.client();
    assert_eq!(client.get("/").status, 504);
    let totals = rig.totals();
    assert_eq!((totals.upstream_timeouts, totals.upstream_retries), (1, 0));
    assert_eq!(rig.node("n1").failures, 1);
}

#[test]
fn a_node_that_stalls_in_its_body_is_cut() {
    let node = FakeNode::new(|_, mut wire| {
        let _ = wire.request();
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        let _ = wire.rest();
    });
    let rig = Rig::new(&[&node], BRIEF);
    let all = cut_short(&rig, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(all.ends_with(b"\r\n\r\nhalf"));
}

#[test]
fn connections_to_a_drained_node_are_closed() {
    let (saw, ended) = seen();
    let node = FakeNode::new(move |_, mut wire| {
        let _ = wire.request();
        wire.send(ok("one"));
        saw.send(wire.rest().0.len()).unwrap();
    });
    let rig = Rig::new(&[&node], "");
    assert_eq!(rig.get("/").text(), "one");
    rig.dispatcher.group().drain("n1").unwrap();
    assert_eq!(next(&ended), 0);
}

#[test]
fn more_connections_than_allowed_are_a_503_and_the_node_stays_up() {
    let (saw, arrived) = seen();
    let (release, released) = seen::<()>();
    let released = std::sync::Mutex::new(released);
    let node = FakeNode::new(move |_, mut wire| {
        while wire.request().is_some() {
            saw.send(()).unwrap();
            next(&released.lock().unwrap());
            wire.send(ok("late"));
        }
    });
    let rig = Rig::new(&[&node], "upstream_connections_max = 1");
    let mut first = rig.client();
    assert!(first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    next(&arrived);
    let refused = rig.get("/");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    release.send(()).unwrap();
    assert_eq!(first.reply().text(), "late");
    assert_eq!((rig.node("n1").state.as_str(), rig.totals().no_node), ("up", 1));
}

#[test]
fn what_a_node_is_doing_shows_in_status_and_metrics() {
    let (saw, arrived) = seen();
    let (release, released) = seen::<()>();
    let released = std::sync::Mutex::new(released);
    let node = FakeNode::new(move |_, mut wire| {
        while wire.request().is_some() {
            saw.send(()).unwrap();
            next(&released.lock().unwrap());
            wire.send(ok(""));
        }
    });
    let rig = Rig::new(&[&node], "");
    let mut client = rig.client();
    assert!(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    next(&arrived);
    assert_eq!((rig.node("n1").outstanding_requests, rig.node("n1").connections), (1, 1));
    let text = rig.registry.prometheus_text();
    let labels = "{service=\"web\",node=\"n1\"}";
    assert!(has(&text, &format!("skep_node_outstanding_requests{labels} 1")), "{text}");
    assert!(has(&text, &format!("skep_node_up{labels} 1")), "{text}");
    release.send(()).unwrap();
    assert_eq!(client.reply().status, 200);
    assert_eq!(rig.node("n1").outstanding_requests, 0);
    assert_eq!(rig.node("n1").source, MemberSource::Config);
}
