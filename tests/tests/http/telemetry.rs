//! A node's telemetry: metrics and the JSON log.

use std::fs;

use skep_tests::origin::{Answer, Origin, Then};
use skep_tests::{FreePort, Load, PATIENCE, RawClient, Site, Skep, poll_until};

/// Size of an object of several segments.
const LARGE: usize = 40 * 1024 * 1024;

/// A node with metrics, and its metrics port.
fn server(site: &Site, settings: &str) -> (FreePort, Skep) {
    let port = FreePort::claim();
    let settings = format!("[metrics]\nlisten = \"{}\"\n{settings}", port.address());
    let skep = Skep::node(site.root(), &settings);
    (port, skep)
}

fn metrics(port: &FreePort) -> String {
    let response = RawClient::connect(port.address()).get("/metrics");
    response.assert_status(200);
    let content_type = response.header("content-type").unwrap();
    assert!(content_type.starts_with("text/plain; version=0.0.4"), "{content_type}");
    response.text()
}

/// Returns the value of one sample; `name` includes its labels.
fn value(text: &str, name: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

#[test]
fn every_line_is_a_comment_or_a_sample_of_the_family_before_it() {
    let site = Site::new().with("a.txt", "aaa");
    let (port, _skep) = server(&site, "");
    let text = metrics(&port);
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(family.starts_with("skep_"), "{line}");
        } else if !line.starts_with("# TYPE ") {
            assert!(line.starts_with(&family), "{line}");
            let (_, number) = line.rsplit_once(' ').unwrap();
            assert!(number.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.ends_with('\n'));
}

#[test]
fn counters_count_what_happened() {
    let site = Site::new().with("a.txt", "aaa");
    let (port, skep) = server(&site, "[machine]\nthreads = 2");
    Load::on(skep.address()).get("/a.txt", "aaa").run(300).assert_clean();
    for _ in 0..5 {
        skep.connect().get("/none").assert_status(404);
    }
    for _ in 0..7 {
        skep.connect().send("nonsense\r\n\r\n").response().assert_status(400);
    }
    poll_until(PATIENCE, "all connections are closed", || skep.connections() == 0);
    let text = metrics(&port);
    assert_eq!(value(&text, "skep_requests_total"), 305.0);
    assert_eq!(value(&text, "skep_responses_total{class=\"2xx\"}"), 300.0);
    assert!(value(&text, "skep_responses_total{class=\"4xx\"}") >= 5.0);
    assert_eq!(value(&text, "skep_rejects_total{status=\"400\"}"), 7.0);
    assert_eq!(value(&text, "skep_requests_in_flight"), 0.0);
    assert_eq!(value(&text, "skep_connections_open"), 0.0);
    assert!(value(&text, "skep_cache_requests_total{result=\"hit\"}") >= 290.0);
    assert!(value(&text, "skep_sent_bytes_total") > 300.0 * 100.0);
    let accepted = value(&text, "skep_connections_accepted_total");
    assert!((13.0..=20.0).contains(&accepted), "{accepted}");
    let closed = text.lines().filter(|line| line.starts_with("skep_connections_closed_total{"));
    let closed: f64 =
        closed.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(closed, accepted, "each accepted one is closed once");
    assert_eq!(value(&text, "skep_request_duration_seconds_count"), 305.0);
    assert_eq!(value(&text, "skep_request_duration_seconds_bucket{le=\"+Inf\"}"), 305.0);
}

#[test]
fn open_connections_and_timeouts_are_counted() {
    let site = Site::new().with("a.txt", "aaa");
    let (port, skep) = server(&site, "[timeouts]\nhead_ms = \"2s\"");
    let mut idle: Vec<_> = (0..3).map(|_| skep.connect()).collect();
    for client in &mut idle {
        client.get("/a.txt").assert_status(200);
    }
    assert_eq!(value(&metrics(&port), "skep_connections_open"), 3.0);
    skep.connect().send("GET / HT").response().assert_status(408);
    poll_until(PATIENCE, "the slow head is counted", || {
        let text = metrics(&port);
        value(&text, "skep_connections_closed_total{reason=\"head_timeout\"}") == 1.0
            && value(&text, "skep_rejects_total{status=\"408\"}") == 1.0
    });
}

/// Failures of a file, an origin or another node are never attributed to another cause.
#[test]
fn a_reply_that_cannot_be_had_says_where_that_failed() {
    let origin = Origin::start(|asked| match asked.target.as_str() {
        "/late" => Answer::default().halt(0),
        "/garbled" => Answer { head: "HTTP/1.1 206 Hm\r\n\n\r\r\n".into(), ..Answer::default() },
        _ => Answer::of(asked, &[b'a'; LARGE], "\"v\"", "").cut(LARGE / 2, Then::Close),
    });
    let port = FreePort::claim();
    let settings = format!(
        "[metrics]\nlisten = \"{}\"\n[site.fetch]\nresponse_timeout_ms = \"2s\"",
        port.address()
    );
    let skep = origin.node(&settings);
    let failed = |cause: &str| {
        value(&metrics(&port), &format!("skep_fetch_errors_total{{cause=\"{cause}\"}}"))
    };
    let get = |target: &str| {
        let reply = skep.connect().get(target);
        (reply.status, reply.cache_status().to_owned())
    };
    assert_eq!(get("/late"), (504, "skep; fwd=miss; detail=origin-late".into()));
    assert_eq!(get("/garbled"), (502, "skep; fwd=miss; detail=origin-malformed".into()));
    drop(origin);
    assert_eq!(get("/unseen"), (502, "skep; fwd=miss; detail=origin-connect".into()));
    assert_eq!((failed("origin"), failed("file"), failed("memory")), (3.0, 0.0, 0.0));
}

#[test]
fn a_reply_cut_short_is_counted_by_what_cut_it() {
    const MIB: usize = 1024 * 1024;
    let cut = |port: &FreePort, cause: &str| {
        value(&metrics(port), &format!("skep_replies_cut_total{{cause=\"{cause}\"}}"))
    };
    let begin = |skep: &Skep| {
        let mut client = skep.connect();
        client.ask("/large");
        client.try_head().unwrap().assert_status(200);
        client
    };
    let read_on = |mut client: RawClient| {
        while client.try_read_some().is_ok_and(|piece| !piece.is_empty()) {}
    };

    let site = Site::new().with_large("large", LARGE);
    let (port, skep) = server(&site, "[cache]\nsize_bytes_max = \"8MiB\"");
    let client = begin(&skep);
    site.truncate("large", MIB as u64);
    read_on(client);
    poll_until(PATIENCE, "a cut is counted", || cut(&port, "file") == 1.0);
    assert_eq!(cut(&port, "origin"), 0.0);

    let origin = Origin::start(|asked| {
        let answer = Answer::of(asked, &[b'a'; LARGE], "\"v\"", "Cache-Control: max-age=60\r\n");
        let is_first = asked.range(LARGE).is_some_and(|range| range.start == 0);
        if is_first { answer } else { answer.cut(0, Then::Close) }
    });
    let port = FreePort::claim();
    let skep = origin.node(&format!("[metrics]\nlisten = \"{}\"", port.address()));
    read_on(begin(&skep));
    poll_until(PATIENCE, "a cut is counted", || cut(&port, "origin") == 1.0);
    assert_eq!(cut(&port, "file"), 0.0);
}

#[test]
fn the_clients_listener_shows_no_metrics() {
    let site = Site::new().with("a.txt", "aaa");
    let (_port, skep) = server(&site, "");
    skep.connect().get("/metrics").assert_status(404);
}

#[test]
fn the_log_in_json_has_times_and_the_cache() {
    let (site, logs) = (Site::new().with("a.txt", "aaa"), Site::new());
    let path = logs.path("access.log");
    let settings = format!("[log]\naccess = \"{}\"\nformat = \"json\"", path.display());
    let skep = Skep::node(site.root(), &settings);
    let mut client = skep.connect();
    client.request("GET", "/a.txt", &[("User-Agent", "p\"\\\u{e9}")]).assert_status(200);
    poll_until(PATIENCE, "a.txt is a hit", || {
        client.get("/a.txt").header("cache-status").unwrap().contains("; hit")
    });
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    poll_until(PATIENCE, "the hit is logged", || {
        lines().last().is_some_and(|line| line["cache"] == "hit")
    });
    let first = &lines()[0];
    assert_eq!(first["user_agent"], "p\"\\\u{e9}");
    assert_eq!((&first["status"], &first["host"]), (&200.into(), &"test".into()));
    assert_eq!(first["bytes_sent"], 3);
    assert!(first["total_us"].is_u64() && first["cache"] != "hit", "{first}");
}
