//! Background refreshes before a response becomes stale, once per cluster.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skep_tests::app::response;
use skep_tests::{PATIENCE, poll_until};

use super::pool_cache::{NODES, app, cluster, is_hit, node};

/// Lifetime of the response, in seconds.
const LIFETIME_S: u64 = 3;
const SETTINGS: &str = "refresh_ahead_percent = 90\nrefresh_hits_min = 2";

#[test]
fn what_is_asked_for_often_is_refreshed_once_before_it_is_stale() {
    let times = Arc::<Mutex<Vec<Instant>>>::default();
    let seen = Arc::clone(&times);
    let (app, received) = app(move |request, count| {
        if request.line().contains("/often") {
            seen.lock().unwrap().push(Instant::now());
        }
        let fields = format!("Cache-Control: max-age={LIFETIME_S}\r\n");
        response(200, &fields, format!("answer {count}"))
    });
    let cluster = cluster(&app, SETTINGS);
    let asked = |path: &str| {
        let lines = received.try_iter().map(|it| it.line().to_owned());
        lines.filter(|line| line.contains(path)).count()
    };
    assert_eq!(cluster.get(&node(1), "/seldom").text(), "answer 1");
    assert_eq!(cluster.get(&node(1), "/often").text(), "answer 1");
    assert_eq!(received.try_iter().count(), 2);
    // All nodes are queried continuously; no request waits, and new versions reach all of them.
    let mut computed = 0;
    let began = Instant::now();
    let mut last = [1; NODES];
    while began.elapsed() < Duration::from_secs(2 * LIFETIME_S) {
        for number in 1..=NODES {
            let reply = cluster.get(&node(number), "/often");
            let text = reply.text();
            let version: usize = text.strip_prefix("answer ").unwrap().parse().unwrap();
            assert!(
                version >= last[number - 1],
                "node {number}: {text} after {}",
                last[number - 1]
            );
            let is_first = last[number - 1] == 1 && !is_hit(&reply);
            last[number - 1] = version;
            let status = reply.cache_status();
            assert!(is_hit(&reply) || is_first, "node {number} waited: {status}");
        }
        computed += asked("/often");
    }
    assert!(computed >= 2, "{computed}");
    // The next refresh is due after a tenth of the lifetime at the earliest, minus the latency of the
    // request: a duplicate for the same response would follow at once.
    let times = times.lock().unwrap().clone();
    let gaps: Vec<_> = times.windows(2).map(|it| it[1] - it[0]).collect();
    let least = Duration::from_secs(LIFETIME_S) / 20;
    assert!(gaps.iter().all(|gap| *gap >= least), "once in the cluster: {gaps:?}");
    assert_eq!(asked("/seldom"), 0, "nobody asks for it");
    let counted: u64 = (1..=NODES)
        .map(|it| cluster.metric(&node(it), "skep_cache_refreshes_total{why=\"ahead\"}"))
        .sum();
    assert!(counted >= computed as u64, "{counted}");
}

#[test]
fn what_is_fresh_for_long_is_not_refreshed() {
    let (app, received) =
        app(|_, count| response(200, "Cache-Control: max-age=600\r\n", format!("answer {count}")));
    let cluster = cluster(&app, "refresh_ahead_percent = 90\nrefresh_hits_min = 1");
    for _ in 0..5 {
        assert_eq!(cluster.get(&node(1), "/page").text(), "answer 1");
    }
    assert_eq!(received.try_iter().count(), 1);
    assert_eq!(cluster.metric(&node(1), "skep_cache_refreshes_total{why=\"ahead\"}"), 0);
}

#[test]
fn a_refresh_that_finds_an_error_or_a_private_page_changes_nothing_for_clients() {
    let (app, received) = app(|_, count| match count {
        1 => response(200, "Cache-Control: max-age=4\r\n", "answer 1"),
        2 => response(503, "", "failed"),
        _ => response(200, "Cache-Control: private\r\n", "private"),
    });
    let cluster = cluster(&app, "refresh_ahead_percent = 90\nrefresh_hits_min = 1");
    let get = || cluster.get(&node(1), "/page");
    assert_eq!(get().text(), "answer 1");
    let began = Instant::now();
    let mut asked = 0;
    poll_until(PATIENCE, "it is refreshed, fails, and is refreshed again", || {
        let is_early = began.elapsed() < Duration::from_millis(3_900);
        let reply = get();
        assert!(!is_early || reply.text() == "answer 1", "{}", reply.head_text());
        asked += received.try_iter().count();
        asked >= 3
    });
}
