//! Sites with HTTP origins, whose behaviour is arbitrary.

use std::collections::BTreeSet;
use std::sync::Arc;

use skep_tests::cache::{CacheCluster, SEGMENT};
use skep_tests::content::{self, assert_same};
use skep_tests::origin::{Answer, Asked, FRESH, HEAD_RANGE, Origin, Then};
use skep_tests::{ClientError, Crowd, FreePort, RawClient, Site, Skep, SourceAddress, poll_until};

/// A silent origin is abandoned after this time: longer than a busy machine delays a test's origin.
const STALL: &str = "[site.fetch]\nstall_timeout_ms = \"2s\"\n";

#[test]
fn the_first_request_fills_and_the_others_hit() {
    let origin = Origin::of("hello", "\"v1\"", "Cache-Control: max-age=60\r\nX-Own: 1\r\n");
    let skep = origin.node("hosts = [\"site.example\", \"test\"]\nheaders = { X-Site = \"s\" }");
    let mut client = skep.connect();
    let first = client.get("/a%20b?q=%41&r");
    first.assert_status(200).assert_header("etag", "\"v1\"").assert_header("x-own", "1");
    first.assert_header("x-site", "s").assert_header("cache-control", "max-age=60");
    assert_eq!(
        (first.text(), first.cache_status()),
        ("hello".into(), "skep; fwd=uri-miss; stored")
    );
    for _ in 0..3 {
        let hit = client.get("/a%20b?q=%41&r");
        assert_eq!((hit.text(), hit.cache_status()), ("hello".into(), "skep; hit"));
        assert!(hit.header("age").is_some());
        assert_eq!(
            client.request("HEAD", "/a%20b?q=%41&r", &[]).header("content-length"),
            Some("5")
        );
    }
    let [asked] = &origin.asked()[..] else { panic!("{:?}", origin.asked()) };
    assert_eq!(asked.target, "/a%20b?q=%41&r");
    assert_eq!(asked.field("host"), Some("site.example"));
    assert_eq!(asked.field("range"), Some(HEAD_RANGE));
}

#[test]
fn paths_with_other_queries_are_other_objects_and_other_spellings_are_not() {
    let origin = Origin::start(|asked| Answer::of(asked, asked.target.as_bytes(), "\"v\"", FRESH));
    let skep = origin.node("");
    let mut client = skep.connect();
    for target in ["/a", "/a?", "/a?x", "/a?y", "/b/c"] {
        assert_eq!(client.get(target).text(), target);
        assert_eq!(client.get(target).cache_status(), "skep; hit", "{target}");
    }
    for target in ["/%61", "/x/../a", "/./a"] {
        assert_eq!(client.get(target).text(), "/a", "{target}");
    }
    assert_eq!(origin.asked().len(), 5);
}

#[test]
fn conditions_and_ranges_are_answered_from_memory() {
    let bytes = content::version(1, 1000);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let skep = origin.node("");
    let mut client = skep.connect();
    assert_same(&client.get("/a").body, &bytes);
    let mut with = |name, value| client.request("GET", "/a", &[(name, value)]);
    with("If-None-Match", "\"v1\"").assert_status(304);
    with("If-Match", "\"v2\"").assert_status(412);
    let part = with("Range", "bytes=16-31");
    part.assert_status(206).assert_header("content-range", "bytes 16-31/1000");
    assert_same(&part.body, &bytes[16..32]);
    with("Range", "bytes=1000-").assert_status(416);
    let parts = with("Range", "bytes=0-1,800-801");
    parts.assert_status(206);
    assert!(parts.header("content-type").unwrap().starts_with("multipart/byteranges"));
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn a_range_at_an_offset_reads_its_segments_and_no_others() {
    let bytes = content::version(1, 5 * SEGMENT);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let skep = origin.node("");
    let range = 3 * SEGMENT + 100..3 * SEGMENT + 200;
    let field = format!("bytes={}-{}", range.start, range.end - 1);
    for _ in 0..2 {
        let part = skep.connect().request("GET", "/a", &[("Range", &field)]);
        part.assert_status(206);
        assert_same(&part.body, &bytes[range.clone()]);
    }
    let third = format!("bytes={}-{}", 3 * SEGMENT, 4 * SEGMENT - 1);
    assert_eq!(origin.ranges(), [HEAD_RANGE, &third]);
    assert_eq!(origin.asked()[1].field("if-range"), Some("\"v1\""));
    assert_same(&skep.connect().get("/a").body, &bytes);
    assert_eq!(origin.asked().len(), 5, "each segment once");
}

#[test]
fn what_is_stale_is_asked_for_on_condition_and_kept_if_it_is_the_same() {
    let bytes = content::version(1, SEGMENT + 100);
    let origin = Origin::of(bytes.clone(), "\"v1\"", "Cache-Control: no-cache\r\n");
    let skep = origin.node("");
    let mut client = skep.connect();
    for _ in 0..3 {
        assert_same(&client.get("/a").body, &bytes);
    }
    let second = format!("bytes={SEGMENT}-{}", SEGMENT + 99);
    assert_eq!(origin.ranges(), [HEAD_RANGE, &second, HEAD_RANGE, HEAD_RANGE]);
    assert_eq!(origin.asked()[2].field("if-none-match"), Some("\"v1\""));
    assert_eq!(client.get("/a").cache_status(), "skep; fwd=stale; fwd-status=304");
    let new = content::version(2, SEGMENT);
    let newer = new.clone();
    origin.follow(move |asked| Answer::of(asked, &newer, "\"v2\"", FRESH));
    for _ in 0..2 {
        assert_same(&client.get("/a").body, &new);
    }
    assert_eq!(origin.asked().len(), 6);
}

#[test]
fn an_object_that_changes_on_the_way_is_never_mixed() {
    let (old, new) = (content::version(1, 3 * SEGMENT), content::version(2, 3 * SEGMENT));
    let (first, newer) = (old.clone(), new.clone());
    // The object changes after the first answer.
    let origin = Origin::counting(move |n, asked| match n {
        0 => Answer::of(asked, &first, "\"v1\"", FRESH),
        _ => Answer::of(asked, &newer, "\"v2\"", FRESH),
    });
    let skep = origin.node("");
    let mut client = skep.connect();
    client.ask("/a");
    // Truncated somewhere in the first segment, possibly before anything was sent.
    let received = client.read_to_close();
    let head_len = received.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
    let (head, body) = received.split_at(head_len);
    assert!(head.is_empty() || String::from_utf8_lossy(head).contains("ETag: \"v1\""));
    assert!(body.len() <= SEGMENT, "{} bytes", body.len());
    assert_same(body, &old[..body.len()]);
    let next = skep.connect().get("/a");
    next.assert_header("etag", "\"v2\"");
    assert_same(&next.body, &new);
}

#[test]
fn an_origin_that_breaks_off_or_stalls_is_asked_for_the_rest() {
    let bytes = content::version(1, SEGMENT + 1000);
    // If the origin closes, the request is retried at once, so no timeout is involved.
    for (then, fetch) in [(Then::Close, ""), (Then::Hang, STALL)] {
        let source = bytes.clone();
        // The very first answer is truncated.
        let origin = Origin::counting(move |n, asked| {
            let answer = Answer::of(asked, &source, "\"v1\"", FRESH);
            match n {
                0 => answer.cut(SEGMENT / 2 + 77, then),
                _ => answer,
            }
        });
        let skep = origin.node(fetch);
        let reply = skep.connect().get("/a");
        reply.assert_status(200);
        assert_same(&reply.body, &bytes);
        let rest = format!("bytes={}-{}", SEGMENT / 2, SEGMENT - 1);
        assert!(origin.ranges().contains(&rest), "{then:?}: {:?}", origin.ranges());
    }
}

#[test]
fn an_origin_that_lies_about_lengths_costs_the_connection_and_nothing_is_kept() {
    let bytes = content::version(1, 1000);
    for (said, sent) in [(1000, 500), (1000, 1500)] {
        let source = content::version(1, 2000);
        let origin = Origin::start(move |_| Answer {
            head: format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {said}\r\nETag: \"v\"\r\n{FRESH}\r\n"
            ),
            body: source[..sent].to_vec(),
            then: Then::Close,
            ..Answer::default()
        });
        let skep = origin.node("");
        skep.connect().get("/a").assert_status(502);
        let right = bytes.clone();
        origin.follow(move |asked| Answer::of(asked, &right, "\"v\"", FRESH));
        poll_until(skep_tests::PATIENCE, "the origin is asked again", || {
            let reply = skep.connect().get("/a");
            reply.status == 200 && reply.body == bytes
        });
    }
}

#[test]
fn an_error_page_whose_bytes_are_not_to_be_had_is_asked_for_twice_at_most() {
    let origin = Origin::start(|asked| match &*asked.target {
        "/missing" => Answer::new(404, FRESH, ""),
        _ => Answer::of(asked, &content::version(1, 1000), "\"v\"", FRESH).cut(0, Then::Close),
    });
    let skep = origin.node("error_pages = { \"404\" = \"/page\" }");
    skep.connect().get("/broken").assert_status(502);
    skep.connect().get("/missing").assert_status(404);
    let asked = origin.asked();
    let of = |target: &str| asked.iter().filter(|asked| asked.target == target).count();
    // A reader that arrives before the first fill has failed shares its failure; one that arrives later
    // starts another fill.
    for target in ["/page", "/broken"] {
        assert!((1..=2).contains(&of(target)), "{target} was asked for {} times", of(target));
    }
}

#[test]
fn an_origin_without_ranges_serves_small_objects_from_memory_and_large_ones_past_it() {
    let (small, large) = (content::version(1, 5000), content::version(2, SEGMENT + 5000));
    let (s, l) = (small.clone(), large.clone());
    let origin = Origin::start(move |asked| {
        let bytes = if asked.target == "/small" { &s } else { &l };
        Answer::new(200, &format!("ETag: \"v\"\r\n{FRESH}"), bytes)
    });
    let skep = origin.node("");
    let mut client = skep.connect();
    for _ in 0..2 {
        assert_same(&client.get("/small").body, &small);
        assert_same(&client.get("/large").body, &large);
    }
    let asked = origin.asked();
    let of = |target: &str| asked.iter().filter(|asked| asked.target == target).count();
    assert_eq!((of("/small"), of("/large")), (1, 2));
}

#[test]
fn what_may_not_be_kept_is_passed_on_to_each() {
    for (fields, why) in [
        ("Set-Cookie: a=b\r\nCache-Control: max-age=60\r\n", "set-cookie"),
        ("Cache-Control: private\r\n", "private"),
        ("Cache-Control: no-store\r\n", "no-store"),
        ("CDN-Cache-Control: no-store\r\nCache-Control: max-age=60\r\n", "no-store"),
        ("Vary: *\r\nCache-Control: max-age=60\r\n", "vary-all"),
        ("", "nothing-to-reuse"),
    ] {
        let origin = Origin::counting(move |n, asked| {
            let bytes = content::version(n as u32, 2 * SEGMENT);
            match fields {
                "" => Answer::new(200, "", format!("{n} without a word on caching")),
                fields => Answer::of(asked, &bytes, "\"v\"", fields),
            }
        });
        let skep = origin.node("");
        let mut client = skep.connect();
        let replies = [client.get("/a"), client.get("/a"), client.get("/a")];
        for reply in &replies {
            let expected = format!("skep; fwd=uri-miss; detail={why}");
            assert_eq!(reply.cache_status(), expected, "{fields:?}");
            assert_eq!(reply.status, 200);
            assert_eq!(reply.header("content-range"), None);
        }
        assert!(replies[0].body != replies[1].body && replies[1].body != replies[2].body);
    }
}

#[test]
fn answers_other_than_success_are_passed_on() {
    let origin = Origin::start(|asked| match asked.target.as_str() {
        "/moved" => Answer::new(302, "Location: /a\r\n", ""),
        "/broken" => Answer::new(500, "", "oh"),
        "/chunks" => Answer {
            head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            body: b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec(),
            ..Answer::default()
        },
        "/empty" => Answer::new(200, FRESH, ""),
        _ => Answer::new(404, "X-Why: gone\r\n", "nothing here"),
    });
    let skep = origin.node("error_pages = { \"410\" = \"/sorry\" }");
    let mut client = skep.connect();
    client.get("/moved").assert_status(302).assert_header("location", "/a");
    assert_eq!(client.get("/broken").assert_status(500).text(), "oh");
    assert_eq!(client.get("/chunks").assert_status(200).text(), "abcde");
    assert_eq!(client.get("/empty").assert_status(200).text(), "");
    client.get("/none").assert_status(404).assert_header("x-why", "gone");
    client.request("POST", "/a", &[]).assert_status(405);
    client.request("HEAD", "/none", &[]).assert_status(404);
    assert!(client.get("/empty").body.is_empty());
}

#[test]
fn another_origin_answers_if_the_first_does_not() {
    let port = FreePort::claim();
    let origin = Origin::of("from the second", "\"v\"", FRESH);
    let origins = format!("origins = [\"http://{}\", \"{}\"]", port.address(), origin.url());
    let skep = Skep::node_of(&origins);
    assert_eq!(skep.connect().get("/a").assert_status(200).text(), "from the second");
    let failing = Origin::start(|_| Answer::new(503, "", "not now"));
    let origins = format!("origins = [\"{}\", \"{}\"]", failing.url(), origin.url());
    let skep = Skep::node_of(&origins);
    assert_eq!(skep.connect().get("/a").assert_status(200).text(), "from the second");
    assert_eq!(failing.asked().len(), 1);
}

#[test]
fn without_an_origin_clients_hear_502_or_504_unless_what_is_stale_may_do() {
    let port = FreePort::claim();
    let skep = Skep::node_of(&format!("origins = \"http://{}\"", port.address()));
    skep.connect().get("/a").assert_status(502);
    let silent = Origin::start(|_| Answer { then: Then::Hang, ..Answer::default() });
    let skep = silent.node("[site.fetch]\nresponse_timeout_ms = 100");
    skep.connect().get("/a").assert_status(504);

    let origin = Origin::of("kept", "\"v\"", "Cache-Control: max-age=0, stale-if-error=600\r\n");
    let skep = origin.node("");
    let mut client = skep.connect();
    assert_eq!(client.get("/a").text(), "kept");
    origin.follow(|_| Answer::new(503, "", ""));
    assert_eq!(client.get("/a").assert_status(200).text(), "kept");
    client.get("/b").assert_status(503);
    drop(origin);
    assert_eq!(client.get("/a").assert_status(200).text(), "kept");
    client.get("/b").assert_status(502);
}

#[test]
fn stale_answers_serve_while_the_origin_is_asked() {
    let fields = "Cache-Control: max-age=0, stale-while-revalidate=600\r\n";
    let origin = Origin::of("old", "\"v1\"", fields);
    let skep = origin.node("");
    assert_eq!(skep.connect().get("/a").text(), "old");
    origin.follow(move |asked| Answer::of(asked, b"new", "\"v2\"", fields));
    origin.close();
    for _ in 0..3 {
        assert_eq!(skep.connect().get("/a").text(), "old", "nobody waits");
    }
    poll_until(skep_tests::PATIENCE, "a request", || origin.asked().len() > 1);
    assert_eq!(origin.asked().len(), 2, "one request at a time");
    origin.open();
    poll_until(skep_tests::PATIENCE, "the new one is there", || {
        skep.connect().get("/a").text() == "new"
    });
}

#[test]
fn a_thousand_clients_of_one_cold_object_are_one_request() {
    const CLIENTS: usize = 1000;
    let Some(_crowd) = Crowd::of(2 * CLIENTS as u64) else { return };
    let bytes = content::version(1, 300_000);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let skep = origin.node("[limits]\nconnections_per_address_max = 1000\n");
    origin.close();
    let source = SourceAddress::new();
    let mut clients: Vec<RawClient> =
        (0..CLIENTS).map(|_| source.connect(skep.address())).collect();
    for client in &mut clients {
        client.ask("/a");
    }
    poll_until(skep_tests::PATIENCE, "a request", || !origin.asked().is_empty());
    origin.open();
    for client in &mut clients {
        assert_same(&client.response().body, &bytes);
    }
    assert_eq!(origin.ranges(), [HEAD_RANGE]);
}

#[test]
fn who_waits_for_one_that_gives_up_gets_an_answer() {
    let origin = Origin::of("here", "\"v1\"", FRESH);
    let skep = origin.node("");
    origin.close();
    let mut first = skep.connect();
    first.ask("/a");
    poll_until(skep_tests::PATIENCE, "a request", || !origin.asked().is_empty());
    let mut second = skep.connect();
    second.ask("/a");
    drop(first);
    origin.open();
    assert_eq!(second.response().text(), "here");
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn a_reload_changes_origins_at_once() {
    let (one, two) = (Origin::of("one", "\"v\"", FRESH), Origin::of("two", "\"v\"", FRESH));
    let skep = one.node("");
    assert_eq!(skep.connect().get("/a").text(), "one");
    skep.reconfigure_of(&two.line());
    skep.signal(rustix::process::Signal::HUP);
    poll_until(skep_tests::PATIENCE, "the other origin", || {
        skep.connect().get("/a").text() == "two"
    });
}

/// Asserts that the nodes have requested each segment of an object once.
#[track_caller]
fn assert_each_once(cluster: &CacheCluster, origin: &Origin, len: usize) {
    let asked = origin.asked();
    let segment = |asked: &Asked| asked.range(len).unwrap().start / SEGMENT;
    let segments: BTreeSet<usize> = asked.iter().map(segment).collect();
    assert!(segments.into_iter().eq(0..len.div_ceil(SEGMENT)), "{:?}", origin.ranges());
    cluster.assert_asked(asked.len() as u64, len.div_ceil(SEGMENT) as u64);
}

#[test]
fn three_nodes_ask_for_each_segment_once() {
    let bytes = content::version(1, 5 * SEGMENT / 2);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    let nodes = ["node-1", "node-2", "node-3"];
    for node in nodes {
        assert_same(&cluster.get(node, "/a").body, &bytes);
    }
    assert_each_once(&cluster, &origin, bytes.len());
}

#[test]
fn cold_objects_asked_for_at_once_on_three_nodes_are_got_once() {
    let bytes = content::version(1, 3 * SEGMENT);
    let origin = Arc::new(Origin::of(bytes.clone(), "\"v1\"", FRESH));
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    origin.close();
    let nodes = ["node-1", "node-2", "node-3"];
    let mut clients: Vec<RawClient> =
        nodes.iter().map(|node| RawClient::connect(cluster.outer(node))).collect();
    for client in &mut clients {
        client.ask("/a");
    }
    poll_until(skep_tests::PATIENCE, "a request", || !origin.asked().is_empty());
    origin.open();
    for client in &mut clients {
        let reply: Result<_, ClientError> = client.try_response();
        assert_same(&reply.unwrap().body, &bytes);
    }
    assert_each_once(&cluster, &origin, bytes.len());
}

#[test]
fn through_a_dispatcher_nodes_share_what_they_got() {
    let bytes = content::version(1, SEGMENT + 10);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    cluster.wait_up();
    let mut client = RawClient::connect(cluster.outer("dispatcher-1"));
    for _ in 0..9 {
        assert_same(&client.get("/a").body, &bytes);
    }
    assert_each_once(&cluster, &origin, bytes.len());
    let asked = origin.asked();
    let sent = "skep_origin_requests_total{kind=\"sent\"}";
    assert_eq!(cluster.sum(sent), asked.len() as u64);
    let wanted: usize = asked.iter().map(|asked| asked.range(bytes.len()).unwrap().len()).sum();
    // A node that another one abandoned may have ignored the bytes it was sent.
    let got = cluster.sum("skep_origin_bytes_total") as usize;
    assert!((bytes.len()..=wanted).contains(&got), "{got} of {wanted} bytes");
}

#[test]
fn what_another_node_holds_is_served_when_the_origin_is_gone() {
    let bytes = content::version(1, 2 * SEGMENT);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    assert_same(&cluster.get("node-1", "/a").body, &bytes);
    drop(origin);
    let reply = cluster.get("node-2", "/a");
    assert_eq!(reply.cache_status(), "skep; hit; detail=peer");
    assert_same(&reply.body, &bytes);
}

#[test]
fn a_change_at_the_origin_reaches_all_nodes() {
    let (old, new) = (content::version(1, SEGMENT + 10), content::version(2, SEGMENT + 99));
    let origin = Origin::of(old.clone(), "\"v1\"", "Cache-Control: max-age=1\r\n");
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    let nodes = ["node-1", "node-2", "node-3"];
    nodes.iter().for_each(|node| assert_same(&cluster.get(node, "/a").body, &old));
    let newer = new.clone();
    origin.follow(move |asked| Answer::of(asked, &newer, "\"v2\"", "Cache-Control: max-age=1\r\n"));
    for node in nodes {
        poll_until(skep_tests::PATIENCE, "the new version", || {
            let body = cluster.get(node, "/a").body;
            // One or the other, in full.
            match content::version_of(&body).unwrap() {
                1 => assert_eq!(body.len(), old.len()),
                _ => assert_eq!(body.len(), new.len()),
            }
            body == new
        });
    }
}

#[test]
fn a_version_that_is_gone_is_not_taken_from_another_node_again() {
    let (old, new) = (content::version(1, 3 * SEGMENT), content::version(2, 3 * SEGMENT));
    let (first, newer) = (old.clone(), new.clone());
    let origin = Origin::start(move |asked| Answer::of(asked, &first, "\"v1\"", FRESH));
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    let part = |node: &str, from: usize| {
        let field = format!("bytes={from}-{}", from + 99);
        let mut client = RawClient::connect(cluster.outer(node));
        client.request("GET", "/a", &[("Range", &field)])
    };
    assert_same(&part("node-1", 0).body, &old[..100]);
    origin.follow(move |asked| Answer::of(asked, &newer, "\"v2\"", FRESH));
    // The other node's head is fresh, but no node has these bytes.
    let reply = part("node-2", 2 * SEGMENT);
    reply.assert_status(206).assert_header("etag", "\"v2\"");
    assert_same(&reply.body, &new[2 * SEGMENT..][..100]);
}

#[test]
fn a_fresh_head_whose_bytes_have_left_all_memories_is_asked_for_anew() {
    // No validator: its bytes arrive with its head, or not at all.
    let origin = Origin::start(|asked| match asked.target.as_str() {
        "/once" => Answer::new(200, FRESH, content::version(9, SEGMENT)),
        _ => Answer::of(asked, &content::version(1, SEGMENT), "\"v\"", FRESH),
    });
    let settings = "size_bytes_max = \"12MiB\"";
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), settings);
    let nodes = ["node-1", "node-2"];
    for node in nodes {
        assert_same(&cluster.get(node, "/once").body, &content::version(9, SEGMENT));
    }
    // When it is evicted from which memory is up to the nodes: repeats until it is gone from all.
    let asked = || origin.asked().iter().filter(|asked| asked.target == "/once").count();
    let mut others = 0..;
    poll_until(skep_tests::PATIENCE, "its bytes have left all memories", || {
        for node in nodes {
            // Often enough to be worth more than an object requested once.
            let others = others.by_ref().take(8).flat_map(|n| [n; 4]);
            others.for_each(|n| drop(cluster.get(node, &format!("/other/{n}"))));
        }
        // The second node first: otherwise it would receive the first one's head again.
        for node in nodes.iter().rev() {
            let reply = cluster.get(node, "/once");
            reply.assert_status(200);
            assert_same(&reply.body, &content::version(9, SEGMENT));
        }
        asked() > 1
    });
}

#[test]
fn slow_clients_of_what_is_not_kept_leave_connections_for_what_is() {
    const CONNECTIONS: usize = 4;
    let origin = Origin::start(|asked| match asked.target.starts_with("/private") {
        // More than socket buffers hold.
        true => Answer::new(200, "Cache-Control: private\r\n", vec![7; 16 * SEGMENT]),
        false => Answer::of(asked, b"for all", "\"v\"", FRESH),
    });
    // No other limit ends them or makes room for one more.
    let patient = "[timeouts]\nwrite_stall_ms = \"1h\"\nsend_min_bytes_per_s = 0";
    let settings = format!(
        "{}[site.fetch]\nconnections_max = {CONNECTIONS}\n[machine]\nthreads = 1\n{patient}",
        origin.line()
    );
    let skep = Skep::node_of(&settings);
    let slow =
        |n: usize| SourceAddress::new().ask(skep.address(), "test", &format!("/private/{n}"));
    let mut held: Vec<RawClient> = (0..CONNECTIONS / 2).map(slow).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.try_head().unwrap().status, 200));
    // One more request finds no free connection in time.
    slow(CONNECTIONS).response().assert_status(503);
    assert_eq!(skep.connect().get("/a").assert_status(200).text(), "for all");
    drop(held);
    poll_until(skep_tests::PATIENCE, "a place", || {
        skep.connect().request("HEAD", "/private/last", &[]).status == 200
    });
}
