//! Soft purges: cached objects become stale instead of being removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use skep_tests::app::{App, AppRequest, response};
use skep_tests::cache::{CacheCluster, OWN_NAME};
use skep_tests::content::{version, version_of};
use skep_tests::fake::{FakeNode, Greeting};
use skep_tests::origin::{Answer, Origin};
use skep_tests::{PATIENCE, Response, Site, poll_until};
use skep_wire::cache::{SegmentName, ToCoordinator, ToNode};

use super::pool_cache::{NODES, app, asking, cluster, is_hit, node};

fn softly(cluster: &CacheCluster, what: &[&str]) -> Value {
    let purged = cluster.order_purge("dispatcher-1", &json!({ "what": what, "soft": true }));
    assert_eq!(purged["complete"], true, "{purged}");
    purged
}

/// Purges softly, whichever nodes acknowledge.
fn softly_of(cluster: &CacheCluster, what: &str) {
    let order = json!({ "what": [what], "soft": true, "timeout_ms": 200 });
    cluster.order_purge("dispatcher-1", &order);
}

fn get(cluster: &CacheCluster, number: usize, path: &str) -> Response {
    let reply = cluster.get(&node(number), path);
    reply.assert_status(200);
    reply
}

/// Answers 304 to a request with the page's tag, otherwise the page.
fn tagged(fields: &str, request: &AppRequest, count: usize) -> Vec<u8> {
    match request.field("if-none-match") {
        Some("\"v\"") => b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\n\r\n".to_vec(),
        _ => response(200, &format!("{fields}ETag: \"v\"\r\n"), format!("answer {count}")),
    }
}

fn everywhere(cluster: &CacheCluster, path: &str, text: &str) {
    for number in 1..=NODES {
        let reply = get(cluster, number, path);
        assert_eq!(reply.text(), text, "node {number}: {}", reply.head_text());
    }
}

#[test]
fn what_was_softly_purged_is_validated_once_for_all_nodes() {
    let (app, received) =
        app(|request, count| tagged("Cache-Control: max-age=600\r\n", request, count));
    let cluster = cluster(&app, "");
    everywhere(&cluster, "/page", "answer 1");
    assert_eq!(received.try_iter().count(), 1);
    for what in ["/page", "/p*", "http://test/*", "/*"] {
        softly(&cluster, &[what]);
        let first = get(&cluster, 2, "/page");
        let status = first.cache_status();
        assert!(status.starts_with("skep; fwd=stale; fwd-status=304; ttl="), "{what}: {status}");
        everywhere(&cluster, "/page", "answer 1");
        let asked: Vec<_> = received.try_iter().collect();
        let conditions: Vec<_> = asked.iter().map(|it| it.field("if-none-match")).collect();
        assert_eq!(conditions, [Some("\"v\"")], "{what}");
        (1..=NODES).for_each(|number| assert!(is_hit(&get(&cluster, number, "/page")), "{what}"));
    }
    softly(&cluster, &["/other", "tag:other"]);
    (1..=NODES).for_each(|number| assert!(is_hit(&get(&cluster, number, "/page"))));
    assert_eq!(received.try_iter().count(), 0);
    let stale: u64 =
        (1..=NODES).map(|it| cluster.metric(&node(it), "skep_softly_purged_objects_total")).sum();
    assert!(stale >= 4, "{stale}");
}

#[test]
fn what_was_softly_purged_is_used_stale_where_that_is_allowed() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let (app, received) = app(move |request, count| {
        let fields = match request.line().contains("/refreshed") {
            _ if failing.load(Ordering::SeqCst) => return response(503, "", "failed"),
            true => "Cache-Control: max-age=600, stale-while-revalidate=600\r\nCache-Tag: t\r\n",
            false => "Cache-Control: max-age=600, stale-if-error=600\r\nCache-Tag: t\r\n",
        };
        response(200, fields, format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    everywhere(&cluster, "/refreshed", "answer 1");
    everywhere(&cluster, "/errors", "answer 1");
    received.try_iter().for_each(drop);
    softly(&cluster, &["tag:t"]);
    // The stale page is returned at once, while one node revalidates.
    let stale = get(&cluster, 1, "/refreshed");
    assert_eq!(stale.text(), "answer 1");
    let status = stale.cache_status();
    assert!(status.starts_with("skep; hit; ttl="), "{status}");
    received.recv_timeout(PATIENCE).expect("it is refreshed");
    for number in 1..=NODES {
        poll_until(PATIENCE, "it is new", || {
            get(&cluster, number, "/refreshed").text() == "answer 2"
        });
    }
    fails.store(true, Ordering::SeqCst);
    let stale = get(&cluster, 3, "/errors");
    assert_eq!(stale.text(), "answer 1");
    assert!(stale.cache_status().ends_with("; detail=stale-if-error"), "{}", stale.head_text());
    fails.store(false, Ordering::SeqCst);
    poll_until(PATIENCE, "it is asked again", || get(&cluster, 3, "/errors").text() != "answer 1");
}

#[test]
fn a_hard_purge_wins() {
    let (app, received) =
        app(|request, count| tagged("Cache-Control: max-age=600\r\n", request, count));
    let cluster = cluster(&app, "");
    everywhere(&cluster, "/page", "answer 1");
    softly(&cluster, &["/page"]);
    assert_eq!(cluster.purge("dispatcher-1", &["/page"])["complete"], true);
    received.try_iter().for_each(drop);
    let reply = get(&cluster, 1, "/page");
    assert_eq!(reply.text(), "answer 2", "{}", reply.head_text());
    assert_eq!(received.recv_timeout(PATIENCE).unwrap().field("if-none-match"), None);
    // The hard purge is also newer than the soft one.
    everywhere(&cluster, "/page", "answer 2");
    assert_eq!(received.try_iter().count(), 0);
}

#[test]
fn what_was_asked_for_before_a_soft_purge_is_stale_when_it_comes() {
    let (gate, shut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let (open, is_shut) = (Arc::clone(&gate), Arc::clone(&shut));
    let (app, received) = app(move |_, count| {
        if is_shut.load(Ordering::SeqCst) {
            poll_until(PATIENCE, "the purge is over", || open.load(Ordering::SeqCst));
        }
        response(200, "Cache-Control: max-age=600\r\n", format!("answer {count}"))
    });
    let cluster = cluster(&app, "");
    let mut leader = asking(&cluster, 1, "/page");
    received.recv_timeout(PATIENCE).expect("it is asked for");
    softly(&cluster, &["/page"]);
    // They wait for the request that is already in progress.
    let late: Vec<_> = (1..=NODES).map(|number| asking(&cluster, number, "/page")).collect();
    shut.store(false, Ordering::SeqCst);
    gate.store(true, Ordering::SeqCst);
    leader.response().assert_status(200);
    for mut client in late {
        let reply = client.response();
        assert_eq!(reply.text(), "answer 2", "{}", reply.head_text());
    }
    assert_eq!(received.try_iter().count(), 1, "once for all who came later");
}

#[test]
fn what_an_origin_has_is_validated_and_its_bytes_stay() {
    let fresh = "Cache-Control: max-age=600\r\nCache-Tag: t\r\n";
    let bytes = version(1, 100_000);
    let first = bytes.clone();
    let origin = Origin::start(move |asked| Answer::of(asked, &first, "\"v1\"", fresh));
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    let seen = |number: u32| {
        for it in 1..=3 {
            let reply = get(&cluster, it, "/a");
            assert_eq!(version_of(&reply.body), Ok(number), "node {it}: {}", reply.head_text());
        }
    };
    seen(1);
    let received =
        || (1..=3).map(|it| cluster.metric(&node(it), "skep_origin_bytes_total")).sum::<u64>();
    let before = received();
    for what in ["/a", "tag:t"] {
        softly(&cluster, &[what]);
        seen(1);
    }
    assert_eq!(received(), before, "it was only validated");
    assert_eq!(origin.asked().len(), 3, "once for each purge");
    origin.follow(move |asked| Answer::of(asked, &version(2, 100_000), "\"v2\"", fresh));
    seen(1);
    softly(&cluster, &["/*"]);
    seen(2);
}

#[test]
fn a_file_is_looked_at_again() {
    let site = Site::new().with("a", version(1, 500)).with("node-1/part/one", version(1, 700));
    let site = site.with("node-2/part/two", "").with("node-3/part/x", "");
    let lines = format!(
        "root = \"{0}\"\ncontent = \"shared\"\n[[site.route]]\npath = \"/part/*\"\nroot = \"{0}/{1}\"\n\
         content = \"partition\"\n",
        site.root().display(),
        OWN_NAME
    );
    let cluster = CacheCluster::start_of(1, 3, site, &lines, "check_interval_ms = \"60s\"");
    // Changes through the other hard link cause no notification.
    let elsewhere = Site::new();
    std::fs::hard_link(cluster.site.path("a"), elsewhere.path("a")).unwrap();
    for it in 1..=3 {
        assert_eq!(version_of(&get(&cluster, it, "/a").body), Ok(1));
        poll_until(PATIENCE, "it is known who has it", || {
            cluster.get(&node(it), "/part/one").status == 200
        });
    }
    for number in 2..4 {
        softly(&cluster, &["/*"]);
        for it in 1..=3 {
            let unchanged = get(&cluster, it, "/a");
            assert_eq!(version_of(&unchanged.body), Ok(number - 1));
            assert!(is_hit(&unchanged), "its bytes stay: {}", unchanged.head_text());
        }
        elsewhere.write("a", version(number, 500 + number as usize));
        cluster.site.write("node-1/part/one", version(number, 700 + number as usize));
        softly(&cluster, &["/*"]);
        for it in 1..=3 {
            assert_eq!(version_of(&get(&cluster, it, "/a").body), Ok(number), "node {it}");
            assert_eq!(version_of(&get(&cluster, it, "/part/one").body), Ok(number), "node {it}");
        }
    }
}

#[test]
fn a_node_of_an_earlier_build_takes_a_soft_purge_for_a_hard_one() {
    let site = Site::new().with("a", "a");
    let mut cluster = CacheCluster::start(1, 2, site, "");
    // It does not announce support for soft purges.
    cluster.kill("node-1");
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let earlier = FakeNode::join("node-1", coordinator, Greeting::Right, |_, _| None);
    cluster.wait_linked(2);
    let order = json!({ "what": ["/a"], "soft": true, "timeout_ms": 200 });
    let purged = cluster.order_purge("dispatcher-1", &order);
    let news = earlier.wait_for(|message| match message {
        ToNode::Purges(news) => Some(news),
        ToNode::SoftPurges(news) => panic!("it closes the link: {news:?}"),
        _ => None,
    });
    assert_eq!(Some(news.newest().0), purged["stamp"].as_u64(), "{purged}");
    // For the other node the purge stays soft, even when the first node reports it.
    earlier.tell(&ToCoordinator::Purges(news));
    // After that message.
    earlier.ask(SegmentName([7; 16]), 1);
    let is_soft = || cluster.metric("node-2", "skep_softly_purged_objects_total");
    cluster.get("node-2", "/a").assert_status(200);
    softly_of(&cluster, "/a");
    cluster.get("node-2", "/a").assert_status(200);
    assert_eq!((is_soft(), cluster.metric("node-2", "skep_purged_objects_total")), (1, 0));
}

#[test]
fn the_command_says_that_it_was_soft() {
    let app = App::answering(|_| response(200, "Cache-Control: max-age=600\r\n", "a"));
    let cluster = cluster(&app, "");
    let purged = cluster.skep("dispatcher-1", &["purge", "--soft", "/a"]);
    assert_eq!(purged.code, Some(0), "{}", purged.stderr);
    assert!(purged.stdout.contains("node-4  made stale in"), "{}", purged.stdout);
}
