//! `skep cache explain`: why each node caches the object of a URL, or does not.

use serde_json::Value;
use skep_tests::app::{AppRequest, response};
use skep_tests::cache::CacheCluster;
use skep_tests::fake::{FakeNode, Greeting};
use skep_tests::origin::{Answer, FRESH, Origin};
use skep_tests::{PATIENCE, RawClient, Site, poll_until};

use super::pool_cache::{NODES, app, cluster, node};

/// Returns the report of each node for a URL, in the order of their numbers.
fn explain(cluster: &CacheCluster, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["cache", "explain", "--json", "--direct"], arguments].concat();
    let done = cluster.skep("dispatcher-1", &arguments);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    let explained: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(explained["complete"], true);
    let nodes = explained["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["cache"].clone()).collect()
}

fn of(cluster: &CacheCluster, number: usize, path: &str) -> Value {
    let url = format!("http://test{path}");
    explain(cluster, &[&url]).swap_remove(number - 1)
}

/// Returns the verdict, the rule's token and section.
fn verdict(cache: &Value) -> [&str; 3] {
    let text = |value: &'_ Value| -> &'static str {
        Box::leak(value.as_str().unwrap_or_default().to_owned().into_boxed_str())
    };
    [&cache["verdict"], &cache["reason"]["token"], &cache["reason"]["section"]].map(text)
}

fn ask(cluster: &CacheCluster, number: usize, path: &str, fields: &[(&str, &str)]) {
    let mut client = RawClient::connect(cluster.outer(&node(number)));
    client.request("GET", path, fields).assert_status(200);
}

/// A page whose path determines whether it may be stored.
fn by_path(request: &AppRequest) -> Vec<u8> {
    let fields = match request.line().split(' ').nth(1).unwrap() {
        "/fresh" => "Cache-Control: max-age=600\r\n",
        "/private" => "Cache-Control: private\r\n",
        "/no-store" => "Cache-Control: no-store\r\n",
        "/silent" => "",
        "/cookie" => "Cache-Control: max-age=600\r\nSet-Cookie: a=b\r\n",
        "/vary" => "Cache-Control: max-age=600\r\nVary: Cookie\r\n",
        path => panic!("{path}"),
    };
    response(200, fields, "answer")
}

#[test]
fn each_rule_is_told_by_its_section_from_the_live_path() {
    let (app, received) = app(|request, _| by_path(request));
    let cluster = cluster(&app, "key_cookies = [\"c\"]\nquery_ignored = [\"utm_*\"]");
    let first = of(&cluster, 1, "/fresh?utm_source=x");
    assert_eq!(verdict(&first), ["fetched", "uri-miss", "RFC 9211 2.2"]);
    assert_eq!(
        (&first["site"], &first["route"], &first["backend"], &first["target"], &first["key"]),
        (
            &"*".into(),
            &"*".into(),
            &"pool app".into(),
            &"/fresh".into(),
            &"http://test/fresh\ncookie c".into()
        )
    );
    assert_eq!(first["variants"].as_array().unwrap().len(), 0);
    ask(&cluster, 1, "/fresh", &[]);
    let here = of(&cluster, 1, "/fresh");
    assert_eq!(verdict(&here), ["hit", "fresh", "RFC 9111 4.2"]);
    let stored = &here["variants"][0];
    assert_eq!(
        (&stored["status"], &stored["bytes"], &stored["lifetime"]["token"], &stored["for_request"]),
        (&200.into(), &6.into(), &"max-age".into(), &true.into())
    );
    assert_eq!((&stored["segments"], &stored["segments_here"]), (&1.into(), &1.into()));
    assert!((590..=600).contains(&stored["ttl_s"].as_i64().unwrap()), "{stored}");
    assert_eq!((&stored["from_peer"], &here["judged"]["stored"]), (&false.into(), &true.into()));
    // The other nodes learn of it only with a request.
    assert_eq!(verdict(&of(&cluster, 2, "/fresh")), ["fetched", "uri-miss", "RFC 9211 2.2"]);
    ask(&cluster, 2, "/fresh", &[]);
    assert_eq!(of(&cluster, 2, "/fresh")["variants"][0]["from_peer"], true);
    for (path, token, section) in [
        ("/private", "private", "RFC 9111 5.2.2.7"),
        ("/no-store", "no-store", "RFC 9111 5.2.2.5"),
        ("/silent", "nothing-to-reuse", "RFC 9111 4.2.1"),
        ("/cookie", "set-cookie", "RFC 9111 7.3"),
        ("/vary", "vary-refused", "policy"),
    ] {
        ask(&cluster, 1, path, &[]);
        let cache = of(&cluster, 1, path);
        assert_eq!(verdict(&cache), ["passed", token, section], "{path}");
        let judged = &cache["judged"];
        assert_eq!((&judged["stored"], &judged["status"]), (&false.into(), &200.into()), "{path}");
        assert_eq!(judged["reason"]["token"], token, "{path}");
        assert!(cache["marked_ms"].as_u64().unwrap() > 60_000, "{path}: {cache}");
    }
    received.try_iter().for_each(drop);
    let with = |arguments: &[&str]| explain(&cluster, arguments).swap_remove(0);
    let posted = with(&["http://test/fresh", "--method", "POST"]);
    assert_eq!(verdict(&posted), ["passed", "method", "RFC 9111 3"]);
    let secret = with(&["http://test/fresh", "--header", "Authorization: Basic eA=="]);
    assert_eq!(verdict(&secret), ["passed", "authorization", "RFC 9111 3.5"]);
    let other = with(&["http://test/fresh", "--header", "Cookie: c=1"]);
    assert_eq!(other["key"], "http://test/fresh\ncookie c=1");
    assert_eq!(other["variants"].as_array().unwrap().len(), 0);
    assert_eq!(received.try_iter().count(), 0, "nobody is asked");
    let purged = cluster.skep("dispatcher-1", &["purge", "--soft", "/fresh"]);
    assert_eq!(purged.code, Some(0), "{}", purged.stderr);
    let stale = of(&cluster, 1, "/fresh");
    assert_eq!(verdict(&stale), ["validated", "purged", "policy"]);
    assert_eq!(stale["variants"][0]["lifetime"]["token"], "purged");
}

#[test]
fn variants_are_told_apart() {
    let (app, _received) = app(|request, _| {
        let language = request.field("accept-language").unwrap_or("none");
        let fields = "Cache-Control: max-age=600\r\nVary: Accept-Language\r\n";
        response(200, fields, language)
    });
    let cluster = cluster(&app, "");
    for language in ["de", "en"] {
        ask(&cluster, 1, "/page", &[("Accept-Language", language)]);
    }
    let arguments = ["http://test/page", "--header", "Accept-Language: de"];
    let cache = explain(&cluster, &arguments).swap_remove(0);
    assert_eq!(verdict(&cache), ["hit", "fresh", "RFC 9111 4.2"]);
    let variants = cache["variants"].as_array().unwrap();
    let seen: Vec<_> =
        variants.iter().map(|it| (&it["secondary_key"][0], &it["for_request"])).collect();
    let expected = [("accept-language=de", true), ("accept-language=en", false)];
    let expected = expected.map(|(key, is_for)| (Value::from(key), Value::from(is_for)));
    assert_eq!(seen, expected.iter().map(|(key, is_for)| (key, is_for)).collect::<Vec<_>>());
    let text = cluster.skep("dispatcher-1", &["cache", "explain", "--direct", arguments[0]]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    let expected = "node-1: fetched, once for all who wait; RFC 9211 2.2: what is stored under the \
                    key is for requests with other fields (vary-miss)\n";
    assert!(text.stdout.contains(expected), "{}", text.stdout);
}

#[test]
fn origins_and_files_are_explained_too() {
    let origin = Origin::start(|asked| match asked.target.as_str() {
        "/o/kept" => Answer::of(asked, b"bytes", "\"v\"", FRESH),
        _ => Answer::new(200, "Cache-Control: private\r\n", b"bytes"),
    });
    let site = Site::new().with("f", "file");
    let lines = format!(
        "root = \"{}\"\ncontent = \"shared\"\n[[site.route]]\npath = \"/o/*\"\n{}\n\
         [[site.route]]\npath = \"/r\"\n[site.route.reply]\nstatus = 200\nbody = \"hello\"\n",
        site.root().display(),
        origin.line()
    );
    // A large interval, so that the file counts as checked for the whole test.
    let cluster = CacheCluster::start_of(1, 2, site, &lines, "check_interval_ms = \"60s\"");
    let seen = |path: &str| verdict(&of(&cluster, 1, path)).map(str::to_owned);
    assert_eq!(seen("/f"), ["fetched", "file", "policy"]);
    assert_eq!(seen("/o/kept"), ["fetched", "uri-miss", "RFC 9211 2.2"]);
    for path in ["/f", "/o/kept", "/o/private"] {
        cluster.get("node-1", path).assert_status(200);
    }
    poll_until(PATIENCE, "the file is checked", || seen("/f")[1] == "file-checked");
    assert_eq!(seen("/f"), ["hit", "file-checked", "policy"]);
    assert_eq!(seen("/o/kept"), ["hit", "fresh", "RFC 9111 4.2"]);
    assert_eq!(seen("/o/private"), ["passed", "private", "RFC 9111 5.2.2.7"]);
    assert_eq!(seen("/r"), ["passed", "fixed-reply", "policy"]);
    assert_eq!(of(&cluster, 1, "/o/kept")["route"], "/o/*");
}

#[test]
fn who_does_not_answer_is_named() {
    let site = Site::new().with("f", "file");
    let mut cluster = CacheCluster::start(1, 2, site, "");
    cluster.kill("node-1");
    let done = cluster.skep("dispatcher-1", &["cache", "explain", "http://test/f"]);
    assert_eq!(done.code, Some(1), "{}", done.stdout);
    assert!(done.stderr.contains("node-1 is not linked"), "{}", done.stderr);
    assert!(done.stdout.contains("node-2: fetched"), "{}", done.stdout);
    // It does not advertise support of such requests.
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let _earlier = FakeNode::join("node-1", coordinator, Greeting::Right, |_, _| None);
    cluster.wait_linked(2);
    let done = cluster.skep("dispatcher-1", &["cache", "explain", "http://test/f"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("node-1 runs an earlier build"), "{}", done.stderr);
    // A node can be asked directly.
    let own = cluster.skep("node-2", &["cache", "explain", "http://test/f"]);
    assert_eq!(own.code, Some(0), "{}", own.stderr);
    let wrong = cluster.skep("dispatcher-1", &["cache", "explain", "/f"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("expected http://HOST/PATH"), "{}", wrong.stderr);
}

#[test]
fn what_comes_by_a_dispatcher_has_its_own_key() {
    let (app, _received) =
        app(|_, count| response(200, "Cache-Control: max-age=600\r\n", format!("answer {count}")));
    let cluster = cluster(&app, "");
    let mut client = RawClient::connect(cluster.outer("dispatcher-1"));
    client.get("/page").assert_status(200);
    let url = "http://test/page";
    let done = cluster.skep("dispatcher-1", &["cache", "explain", "--json", url]);
    let explained: Value = serde_json::from_str(&done.stdout).unwrap();
    let nodes = explained["nodes"].as_array().unwrap();
    let hits = nodes.iter().filter(|node| node["cache"]["verdict"] == "hit").count();
    assert_eq!((nodes.len(), hits), (NODES, 1), "the node that was chosen: {explained}");
    let direct = explain(&cluster, &[url]);
    assert!(direct.iter().all(|cache| cache["verdict"] == "fetched"), "{direct:?}");
}
