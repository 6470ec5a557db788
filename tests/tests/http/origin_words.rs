//! Origins' cache directives, and their effect.

use std::time::SystemTime;

use skep_tests::cache::{CacheCluster, SEGMENT};
use skep_tests::content::{assert_same, version};
use skep_tests::origin::{Answer, Asked, FRESH, Origin, Then};
use skep_tests::{RawClient, Response, Site};

#[test]
fn what_a_304_forbids_to_keep_is_kept_no_longer() {
    for (fields, why) in [
        ("Set-Cookie: a={n}\r\nCache-Control: max-age=60\r\n", "set-cookie"),
        ("Cache-Control: private\r\n", "private"),
    ] {
        let expected = format!("skep; fwd=uri-miss; detail={why}");
        let origin = Origin::counting(move |n, asked| match n {
            0 => Answer::of(asked, b"bytes", "\"v\"", "Cache-Control: no-cache\r\n"),
            _ => Answer::of(asked, b"bytes", "\"v\"", &fields.replace("{n}", &n.to_string())),
        });
        let skep = origin.node("");
        let mut client = skep.connect();
        assert_eq!(client.get("/a").text(), "bytes");
        let replies = [client.get("/a"), client.get("/a")];
        for reply in &replies {
            assert_eq!((reply.text(), reply.cache_status()), ("bytes".into(), expected.as_str()));
        }
        let [one, two] = replies.each_ref().map(|reply| reply.header("set-cookie"));
        assert!(one.is_none() == two.is_none() && (one.is_none() || one != two), "{one:?} {two:?}");
    }
}

#[test]
fn what_an_origin_says_to_this_cache_decides_alone() {
    let targeted = "CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n";
    let ours = "Skep-Cache-Control: max-age=60\r\nCDN-Cache-Control: no-store\r\n";
    let invalid = "CDN-Cache-Control: max-age=60, &&\r\nCache-Control: no-store\r\n";
    for (fields, is_kept) in [(targeted, true), (ours, true), (invalid, false)] {
        let origin = Origin::of("bytes", "\"v\"", fields);
        let skep = origin.node("");
        let mut client = skep.connect();
        let replies = [client.get("/a"), client.get("/a")];
        assert_eq!(replies[1].cache_status() == "skep; hit", is_kept, "{fields}");
        for reply in &replies {
            assert_eq!(reply.header("skep-cache-control"), None, "it is for Skep");
            let forwarded =
                fields.lines().find_map(|line| line.strip_prefix("CDN-Cache-Control: "));
            assert_eq!(reply.header("cdn-cache-control"), forwarded, "others may need it");
        }
        assert_eq!(origin.asked().len(), if is_kept { 1 } else { 2 });
    }
}

#[test]
fn a_stale_object_serves_while_it_is_fetched_anew_without_a_validator_too() {
    let fields = "Cache-Control: max-age=0, stale-while-revalidate=60\r\n";
    let origin = Origin::counting(move |n, _| Answer::new(200, fields, format!("number {n}")));
    let skep = origin.node("");
    let mut client = skep.connect();
    assert_eq!(client.get("/a").cache_status(), "skep; fwd=uri-miss; stored");
    let stale = client.get("/a");
    assert_eq!((stale.text(), stale.cache_status()), ("number 0".into(), "skep; hit"));
}

#[test]
fn an_origin_with_too_much_to_do_costs_nothing_that_is_kept() {
    for status in [408, 425, 429] {
        let origin = Origin::of("kept", "\"v\"", "Cache-Control: no-cache\r\n");
        let skep = origin.node("");
        let mut client = skep.connect();
        assert_eq!(client.get("/a").text(), "kept");
        origin.follow(move |_| Answer::new(status, "Retry-After: 1\r\n", ""));
        client.get("/a").assert_status(status).assert_header("retry-after", "1");
        origin.follow(|asked| Answer::of(asked, b"kept", "\"v\"", "Cache-Control: no-cache\r\n"));
        let reply = client.get("/a");
        assert_eq!(reply.cache_status(), "skep; fwd=stale; fwd-status=304", "{status}");
        assert_eq!(reply.text(), "kept");
    }
}

#[test]
fn an_object_of_an_impossible_size_is_passed_by() {
    for total in [1 << 52, u64::MAX] {
        let origin = Origin::start(move |asked| {
            let range = asked.field("range").is_some();
            let said = format!("Content-Range: bytes 0-4/{total}\r\nETag: \"v\"\r\n{FRESH}");
            match range {
                true => Answer::new(206, &said, "hello"),
                false => Answer::new(200, "ETag: \"v\"\r\n", "hello"),
            }
        });
        let skep = origin.node("");
        for _ in 0..2 {
            let reply = skep.connect().get("/a");
            assert_eq!(
                (reply.text(), reply.cache_status()),
                ("hello".into(), "skep; fwd=uri-miss; detail=too-long")
            );
        }
    }
}

/// An origin with statuses other than 200, and with explicit lifetimes.
fn of_statuses() -> Origin {
    Origin::start(|asked| {
        let status = asked.target[1..4].parse().unwrap();
        let fields = "Location: /b\r\nETag: \"v\"\r\n";
        match asked.target.ends_with("/fresh") {
            true => Answer::new(status, &format!("{fields}{FRESH}"), "not here"),
            false => Answer::new(status, fields, "not here"),
        }
    })
}

#[test]
fn other_statuses_are_kept_for_as_long_as_they_say() {
    let origin = of_statuses();
    let skep = origin.node("");
    let mut client = skep.connect();
    for status in [301, 302, 307, 308, 404, 410] {
        let path = format!("/{status}/fresh");
        let miss = client.get(&path);
        assert_eq!(miss.cache_status(), "skep; fwd=uri-miss; stored", "{status}");
        // Conditions and ranges apply to objects only.
        for field in [("Accept", "*/*"), ("If-None-Match", "\"v\""), ("Range", "bytes=0-1")] {
            let hit = client.request("GET", &path, &[field]);
            hit.assert_status(status).assert_header("location", "/b");
            assert_eq!((hit.text(), hit.cache_status()), ("not here".into(), "skep; hit"));
            assert_eq!(hit.header("accept-ranges"), None);
        }
        let passed = client.get(&format!("/{status}/mute"));
        let why = if matches!(status, 302 | 307) { "status-no-lifetime" } else { "no-lifetime" };
        let expected = format!("skep; fwd=uri-miss; detail={why}");
        assert_eq!(passed.assert_status(status).cache_status(), expected);
    }
    let kept = origin.asked().iter().filter(|asked| asked.target.ends_with("/fresh")).count();
    assert_eq!(kept, 6);
    let passed = client.get("/403/fresh");
    assert_eq!(passed.assert_status(403).cache_status(), "skep; fwd=uri-miss; detail=status");
}

#[test]
fn a_kept_status_gets_the_operators_page_and_is_none_itself() {
    let origin = of_statuses();
    let pages = "error_pages = { \"404\" = \"/410/fresh\" }";
    let skep = origin.node(pages);
    for _ in 0..2 {
        let reply = skep.connect().get("/404/fresh");
        assert_ne!(reply.assert_status(404).text(), "not here", "neither the one nor the other");
    }
}

#[test]
fn nodes_hand_kept_statuses_to_each_other() {
    let origin = of_statuses();
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    for node in ["node-1", "node-2", "node-1", "node-2"] {
        let reply = cluster.get(node, "/404/fresh");
        assert_eq!(reply.assert_status(404).text(), "not here", "{node}");
    }
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn an_origin_may_say_eight_times_that_it_will_answer() {
    for (times, status) in [(8, 200), (9, 502)] {
        let origin = Origin::start(move |asked| {
            let answer = Answer::of(asked, b"at last", "\"v\"", FRESH);
            let head = "HTTP/1.1 103 Soon\r\n\r\n".repeat(times) + &answer.head;
            Answer { head, ..answer }
        });
        origin.node("").connect().get("/a").assert_status(status);
    }
}

#[test]
fn an_origin_that_gives_a_little_each_time_is_asked_so_often_and_no_more() {
    let body = version(1, SEGMENT);
    let little = |asked: &Asked, body: &[u8], bytes: usize| {
        let range = asked.range(body.len()).unwrap();
        let (first, end) = (range.start, range.end.min(range.start + bytes));
        let fields = format!("Content-Range: bytes {first}-{}/{}\r\n", end - 1, body.len());
        Answer::new(206, &format!("{fields}ETag: \"v\"\r\n{FRESH}"), &body[first..end])
    };
    // Each time bytes of a complete answer, or of a truncated one.
    for (is_whole, asks) in [(true, 64), (false, 4)] {
        let bytes = body.clone();
        let origin = Origin::start(move |asked| match is_whole {
            true => little(asked, &bytes, 50_000),
            false => Answer::of(asked, &bytes, "\"v\"", FRESH).cut(300_000, Then::Close),
        });
        let skep = origin.node("");
        let mut client = skep.connect();
        client.ask("/a");
        let received = client.read_to_close();
        assert!(received.len() < SEGMENT, "{} bytes", received.len());
        assert_eq!(origin.asked().len(), asks);
        let bytes = body.clone();
        origin.follow(move |asked| Answer::of(asked, &bytes, "\"v\"", FRESH));
        assert_same(&skep.connect().get("/a").body, &body);
    }
}

/// In 2020, and one second later.
const MADE: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
const MADE_UNIX_S: u64 = 1_577_836_800;
const NEXT: &str = "Wed, 01 Jan 2020 00:00:01 GMT";

/// A downstream cache adds up `Age` and its own residence time, and compares the sum with `Expires` minus
/// `Date` (RFC 9111, section 4.2.1): with another date the result would be wrong.
#[test]
fn a_reply_keeps_the_date_that_its_age_counts_from() {
    let fields = format!("Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\nDate: {MADE}\r\n");
    let origin = Origin::start(move |asked| {
        let kept =
            if asked.target == "/passed" { "Age: 7\r\nCache-Control: no-store\r\n" } else { "" };
        Answer::of(asked, b"hello", "\"v\"", &format!("{fields}{kept}"))
    });
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    let dates = |reply: &Response| reply.header_all("date").map(str::to_owned).collect::<Vec<_>>();
    let nodes = ["node-1", "node-1", "node-2", "node-2"];
    for node in nodes {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let reply = cluster.get(node, "/kept");
        assert_eq!(dates(&reply), [MADE], "{node}: {}", reply.head_text());
        let age: u64 = reply.header("age").unwrap().parse().unwrap();
        // A node uses the kernel's coarse clock, where this second may not have begun.
        assert!(age >= now - 1 - MADE_UNIX_S, "{age}");
    }
    let client = || RawClient::connect(cluster.outer("node-1"));
    let tag = [("If-None-Match", "\"v\"")];
    let same = client().request("GET", "/kept", &tag);
    assert_eq!(dates(same.assert_status(304)), [MADE]);
    let part = client().request("GET", "/kept", &[("Range", "bytes=0-1")]);
    assert_eq!(dates(part.assert_status(206)), [MADE]);
    assert_eq!(dates(&cluster.get("node-1", "/passed")), [MADE]);
}

/// RFC 9110, sections 13.1.5 and 8.8.2.2.
#[test]
fn a_date_pins_what_was_made_after_it_and_nothing_else() {
    let origin = Origin::start(|asked| {
        let date = if asked.target == "/strong" { NEXT } else { MADE };
        let fresh = "Cache-Control: max-age=2147483647\r\n";
        Answer::new(200, &format!("{fresh}Last-Modified: {MADE}\r\nDate: {date}\r\n"), "hello")
    });
    let skep = origin.node("");
    let mut client = skep.connect();
    for (target, status) in [("/strong", 206), ("/weak", 200)] {
        for _ in 0..2 {
            let fields = [("Range", "bytes=0-1"), ("If-Range", MADE)];
            client.request("GET", target, &fields).assert_status(status);
        }
    }
    assert_eq!(origin.asked().len(), 2);
}
