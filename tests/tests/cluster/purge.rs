//! Purges: all nodes fetch purged objects again at once, wherever their copies came from.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use skep_tests::cache::{CacheCluster, OWN_NAME, SEGMENT};
use skep_tests::content::{assert_same, version, version_of};
use skep_tests::fake::{FakeNode, Greeting};
use skep_tests::origin::{Answer, FRESH, Origin};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until, run_to_end};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// So that nodes learn of changes only through purges and the kernel.
const SELDOM: &str = "check_interval_ms = \"60s\"";

fn gate(cluster: &CacheCluster, what: &[&str]) -> Value {
    let purged = cluster.purge("dispatcher-1", what);
    assert_eq!(purged["complete"], true, "{purged}");
    purged
}

fn outcomes(purged: &Value) -> Vec<(&str, &str)> {
    let nodes = purged["nodes"].as_array().unwrap().iter();
    nodes.map(|it| (it["name"].as_str().unwrap(), it["outcome"].as_str().unwrap())).collect()
}

/// Overwrites a file with bytes of the same length, preserving its modification time.
fn change_in_place(site: &Site, name: &str, bytes: &[u8]) {
    let path = site.path(name);
    let before = path.metadata().unwrap();
    assert_eq!(before.len(), bytes.len() as u64);
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
}

#[test]
fn a_file_changed_in_place_is_new_at_all_nodes_when_the_purge_returns() {
    let len = 2 * SEGMENT + 4711;
    let site = Site::new().with("small", version(1, 500)).with("large", version(1, len));
    let cluster = CacheCluster::start(1, 3, site, SELDOM);
    let all = |number: u32| {
        for node in NODES {
            assert_eq!(version_of(&cluster.get(node, "/small").body), Ok(number), "{node}");
            let body = cluster.get(node, "/large").body;
            assert_eq!((version_of(&body), body.len()), (Ok(number), len), "{node}");
        }
    };
    all(1);
    for number in 2..6 {
        change_in_place(&cluster.site, "small", &version(number, 500));
        change_in_place(&cluster.site, "large", &version(number, len));
        let purged = gate(&cluster, &["/small", "/large"]);
        let expected = NODES.map(|node| (node, "acknowledged"));
        assert_eq!(outcomes(&purged), expected);
        all(number);
    }
}

#[test]
fn what_another_node_has_on_its_disk_is_new_too() {
    let len = SEGMENT + 4711;
    let site =
        Site::new().with("node-1/one", version(1, len)).with("node-2/two", "").with("node-3/x", "");
    let lines = format!("root = \"{}\"\ncontent = \"partition\"\n", site.path(OWN_NAME).display());
    let cluster = CacheCluster::start_of(1, 3, site, &lines, SELDOM);
    for node in NODES {
        poll_until(PATIENCE, "it is known who has it", || cluster.get(node, "/one").status == 200);
    }
    for number in 2..5 {
        change_in_place(&cluster.site, "node-1/one", &version(number, len));
        gate(&cluster, &["/one"]);
        for node in ["node-3", "node-1", "node-2"] {
            let body = cluster.get(node, "/one").body;
            assert_eq!((version_of(&body), body.len()), (Ok(number), len), "{node}");
        }
    }
}

#[test]
fn a_purge_hits_what_it_names_and_nothing_else() {
    let lines = |site: &Site| {
        let root = site.root().display();
        format!(
            "root = \"{root}\"\ncontent = \"shared\"\nhosts = [\"test\"]\nprecompressed = true\n\
             [[site]]\nroot = \"{root}/sub\"\nhosts = [\"other.example\"]\n"
        )
    };
    let mut site =
        Site::new().with("sub/dir/index.html", "i").with("p.js", "p").with("p.js.gz", "g");
    for name in ["a", "b", "c d", "sub/x", "sub/y", "sub/dir/z"] {
        site = site.with(name, name);
    }
    let lines = lines(&site);
    let cluster = CacheCluster::start_of(1, 2, site, &lines, "");
    let paths = ["/a", "/b", "/c%20d", "/sub/x", "/sub/y", "/sub/dir/z", "/sub/dir/", "/p.js"];
    let mut clients = ["node-1", "node-2"].map(|node| RawClient::connect(cluster.outer(node)));
    for (what, expected) in [
        (&["/a"][..], &["/a"][..]),
        (&["/%61?q", "/x/../c d".replace(' ', "%20").as_str()], &["/a", "/c%20d"]),
        (&["/sub/*"], &["/sub/x", "/sub/y", "/sub/dir/z", "/sub/dir/"]),
        (&["http://TEST:80/sub/dir*"], &["/sub/dir/z", "/sub/dir/"]),
        (&["/sub/dir/"], &["/sub/dir/"]),
        (&["/sub/dir/index.html"], &["/sub/dir/"]),
        (&["/p.js.gz"], &["/p.js"]),
        (&["/sub", "/suba*", "/A", "tag:a", "/sub/x/"], &[]),
        (&["http://other.example/*"], &[]),
        (&["/*"], &paths),
    ] {
        for client in &mut clients {
            paths.iter().for_each(|path| _ = client.get(path).assert_status(200));
        }
        gate(&cluster, what);
        for path in paths {
            // Requested at the first node, and read from it by the second.
            let seen = clients
                .each_mut()
                .map(|client| client.get(path).header("cache-status").unwrap_or("none").to_owned());
            let is_new = expected.contains(&path);
            let first = if is_new { "skep; fwd=uri-miss; stored" } else { "skep; hit" };
            assert_eq!(seen[0], first, "{path} after {what:?}");
            assert_eq!(seen[1] == "skep; hit", !is_new, "{path} after {what:?}: {}", seen[1]);
        }
    }
}

#[test]
fn what_an_origin_has_tagged_is_got_anew_though_its_validators_lie() {
    for validators in ["ETag: \"same\"\r\n", ""] {
        let answer = move |target: &str, number: u32| {
            let tags = match target {
                "/story" => "Surrogate-Key: front news\r\n",
                "/list" => "Cache-Tag: News, news\r\n",
                _ => "Surrogate-Key: new\r\n",
            };
            let bytes = version(number, 100_000);
            Answer::new(200, &format!("{validators}{FRESH}{tags}"), bytes)
        };
        let origin = Origin::start(move |asked| answer(&asked.target, 1));
        let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
        let seen = |path: &str, number: u32| {
            for node in NODES {
                let reply = cluster.get(node, path);
                assert_eq!(version_of(&reply.body), Ok(number), "{path} at {node}");
                assert_eq!(
                    (reply.header("surrogate-key"), reply.header("cache-tag")),
                    (None, None)
                );
            }
        };
        let asked = |path: &str| origin.asked().iter().filter(|it| it.target == path).count();
        let paths = ["/story", "/list", "/other"];
        paths.iter().for_each(|path| seen(path, 1));
        origin.follow(move |asked| answer(&asked.target, 2));
        paths.iter().for_each(|path| seen(path, 1));
        let before = paths.map(asked);
        gate(&cluster, &["tag:news"]);
        seen("/story", 2);
        seen("/list", 2);
        seen("/other", 1);
        gate(&cluster, &["/story", "/other?x"]);
        origin.follow(move |asked| answer(&asked.target, 3));
        seen("/story", 3);
        seen("/list", 2);
        seen("/other", 1);
        if !validators.is_empty() {
            assert_eq!(paths.map(asked), [before[0] + 2, before[1] + 1, before[2]], "once for all");
        }
    }
}

#[test]
fn a_fill_under_way_is_not_taken_for_what_comes_after_the_purge() {
    let (old, new) = (version(1, SEGMENT), version(2, SEGMENT));
    let first = old.clone();
    let origin =
        Origin::start(move |asked| Answer::of(asked, &first, "\"v1\"", FRESH).halt(SEGMENT / 2));
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    let mut waiting = RawClient::connect(cluster.outer("node-1"));
    waiting.ask("/a");
    poll_until(PATIENCE, "half of it is there", || {
        cluster.metric("node-1", "skep_origin_bytes_total") >= SEGMENT as u64 / 2
    });
    let newer = new.clone();
    origin.follow(move |asked| Answer::of(asked, &newer, "\"v2\"", FRESH));
    gate(&cluster, &["/a"]);
    for node in ["node-1", "node-2"] {
        assert_same(&cluster.get(node, "/a").body, &new);
    }
    // The fetch that started before the purge was in progress all the time; it ends with correct bytes or
    // none.
    assert_eq!(origin.asked().len(), 2, "one ask before the purge, one after it");
    origin.go_on();
    if let Ok(reply) = waiting.try_response() {
        assert_same(&reply.body, &old);
    }
}

#[test]
fn under_load_no_reply_that_begins_after_a_purge_has_old_bytes() {
    let len = SEGMENT + 300_000;
    let site = Site::new().with("film", version(1, len));
    let cluster = CacheCluster::start(1, 3, site, SELDOM);
    // The last purged version, and the one being written.
    let (purged, writing, is_over) = (AtomicU32::new(1), AtomicU32::new(1), AtomicBool::new(false));
    let good: [AtomicU32; 3] = Default::default();
    let look = |place: usize| {
        let known = purged.load(Ordering::SeqCst);
        let mut client = RawClient::connect(cluster.outer(NODES[place]));
        client.ask("/film");
        let reply = client.try_response();
        // The file changed meanwhile: the reply may be truncated or mix both versions.
        if writing.load(Ordering::SeqCst) != known {
            let body = reply.map(|reply| reply.body).unwrap_or_default();
            let begun = body.get(..16).map(|begin| version_of(begin).unwrap());
            return assert!(begun.is_none_or(|begun| begun >= known));
        }
        let found = version_of(&reply.unwrap().body);
        assert_eq!(found, Ok(known), "at {}", NODES[place]);
        good[place].fetch_add(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (look, is_over) = (&look, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    look(client);
                }
            });
        }
        let _ends = OnDrop(&is_over);
        for number in 2..7 {
            let before = good.each_ref().map(|count| count.load(Ordering::SeqCst));
            writing.store(number, Ordering::SeqCst);
            change_in_place(&cluster.site, "film", &version(number, len));
            gate(&cluster, &["/film"]);
            purged.store(number, Ordering::SeqCst);
            poll_until(PATIENCE, "good replies of all nodes", || {
                good.iter().zip(before).all(|(now, then)| now.load(Ordering::SeqCst) > then + 2)
            });
        }
    });
}

/// Ends the other threads too if a test fails.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_node_that_was_away_applies_what_it_missed() {
    let site = Site::new().with("f", version(1, 50_000)).with("g", version(1, 50_000));
    let mut cluster = CacheCluster::start(2, 3, site, SELDOM);
    let all = |cluster: &CacheCluster, path: &str, number: u32| {
        for node in NODES {
            assert_eq!(version_of(&cluster.get(node, path).body), Ok(number), "{path} at {node}");
        }
    };
    all(&cluster, "/f", 1);
    all(&cluster, "/g", 1);
    cluster.kill("node-3");
    cluster.wait_state("dispatcher-1", "node-3", "down");
    change_in_place(&cluster.site, "f", &version(2, 50_000));
    let purged = gate(&cluster, &["/f"]);
    let there = [("node-1", "acknowledged"), ("node-2", "acknowledged"), ("node-3", "away")];
    assert_eq!(outcomes(&purged), there);
    cluster.run("node-3");
    cluster.wait_linked(3);
    all(&cluster, "/f", 2);
    // A dispatcher that was down learns of purges from the nodes, and informs those that link.
    cluster.kill("dispatcher-1");
    cluster.kill("dispatcher-2");
    cluster.kill("node-3");
    cluster.run("dispatcher-1");
    cluster.wait_linked(2);
    cluster.run("node-3");
    cluster.wait_linked(3);
    poll_until(PATIENCE, "it is told", || {
        cluster.metric("node-3", "skep_purges_applied_total") > 0
    });
    all(&cluster, "/f", 2);
    all(&cluster, "/g", 1);
}

#[test]
fn a_node_that_stood_still_serves_nothing_that_was_purged_meanwhile() {
    let site = Site::new().with("f", version(1, 50_000));
    let cluster = CacheCluster::start(1, 2, site, SELDOM);
    let mut kept = RawClient::connect(cluster.outer("node-2"));
    for number in 2..5 {
        assert_eq!(version_of(&kept.get("/f").body), Ok(number - 1));
        assert_eq!(kept.get("/f").header("cache-status"), Some("skep; hit"));
        cluster.daemon("node-2").pause();
        poll_until(PATIENCE, "it counts as gone", || {
            cluster.coordinator("dispatcher-1")["nodes"].as_array().unwrap().len() == 1
        });
        cluster.wait_state("dispatcher-1", "node-2", "down");
        change_in_place(&cluster.site, "f", &version(number, 50_000));
        let purged = gate(&cluster, &["/f"]);
        assert_eq!(outcomes(&purged), [("node-1", "acknowledged"), ("node-2", "away")]);
        // The purge must wait for both: a new connection and an existing one.
        let mut new = RawClient::connect(cluster.outer("node-2"));
        for client in [&mut kept, &mut new] {
            client.ask("/f");
        }
        cluster.daemon("node-2").resume();
        for client in [&mut kept, &mut new] {
            assert_eq!(version_of(&client.response().body), Ok(number));
        }
        cluster.wait_linked(2);
    }
}

#[test]
fn any_dispatcher_takes_purges_and_the_others_know_of_them() {
    let site = Site::new().with("f", version(1, 50_000));
    let mut cluster = CacheCluster::start(2, 2, site, SELDOM);
    for (number, dispatcher) in (2..8).zip(["dispatcher-1", "dispatcher-2"].into_iter().cycle()) {
        change_in_place(&cluster.site, "f", &version(number, 50_000));
        assert_eq!(cluster.purge(dispatcher, &["/f", "tag:x"])["complete"], true);
        for node in ["node-1", "node-2"] {
            assert_eq!(version_of(&cluster.get(node, "/f").body), Ok(number));
        }
    }
    cluster.kill("dispatcher-2");
    cluster.kill("node-2");
    cluster.run("node-2");
    cluster.wait_linked(2);
    poll_until(PATIENCE, "the other one knew", || {
        cluster.metric("node-2", "skep_purges_applied_total") > 0
    });
}

#[test]
fn a_node_that_does_not_answer_is_named() {
    let site = Site::new().with("f", version(1, 50_000));
    let cluster = CacheCluster::start(1, 2, site, SELDOM);
    let done = cluster.skep("dispatcher-1", &["purge", "/f"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert!(done.stdout.contains("node-1  purged in ") && done.stdout.lines().count() == 2);
    // It is linked, but acknowledges nothing.
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let fake = FakeNode::join("node-9", coordinator, Greeting::Right, |_, _| None);
    cluster.wait_linked(3);
    let order = json!({ "what": ["/f"], "timeout_ms": 3_000 });
    let purged = cluster.order_purge("dispatcher-1", &order);
    let acknowledged = ["node-1", "node-2"].map(|node| (node, "acknowledged"));
    assert_eq!(outcomes(&purged), [&acknowledged[..], &[("node-9", "late")]].concat());
    assert_eq!(purged["complete"], false);
    drop(fake);
    cluster.wait_linked(2);
    let done = cluster.skep("dispatcher-1", &["purge", "/f", "--json"]);
    let purged: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((done.code, &purged["complete"]), (Some(0), &Value::Bool(true)));
}

#[test]
fn a_node_that_serves_without_a_link_fails_the_purge() {
    let site = Site::new().with("f", version(1, 50_000));
    let mut cluster = CacheCluster::start(1, 3, site, SELDOM);
    cluster.wait_up();
    let purge = |cluster: &CacheCluster| {
        let done = cluster.skep("dispatcher-1", &["purge", "/f", "--timeout", "1s"]);
        (done.code, done.stdout, done.stderr)
    };
    // With another config, it serves clients and health checks, but has no coordinator.
    let alone = |config: String| config.replace("[cache]\n", "[cache]\ncooperate = false\n");
    cluster.kill("node-3");
    cluster.wait_state("dispatcher-1", "node-3", "down");
    cluster.reconfigure("node-3", alone);
    cluster.run("node-3");
    cluster.wait_up();
    let (code, stdout, stderr) = purge(&cluster);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("node-1  purged in ") && stdout.contains("node-2  purged in "));
    assert!(stdout.contains("node-3  not linked, but serves clients"), "{stdout}");
    let words = "not purged everywhere: node-3 serves clients, and has not linked";
    assert!(stderr.contains(words), "{stderr}");
    let purged = cluster.purge("dispatcher-1", &["/f"]);
    let expected = [("node-1", "acknowledged"), ("node-2", "acknowledged"), ("node-3", "unlinked")];
    assert_eq!((outcomes(&purged).as_slice(), &purged["complete"]), (&expected[..], &json!(false)));

    // A node that receives no requests is not required.
    let drained = cluster.skep("dispatcher-1", &["node", "drain", "node-3"]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
    cluster.wait_state("dispatcher-1", "node-3", "drained");
    let (code, stdout, stderr) = purge(&cluster);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("node-3  away"), "{stdout}");

    // With the right config again, it has applied all purges before it takes part.
    cluster.skep("dispatcher-1", &["node", "resume", "node-3"]);
    cluster.kill("node-3");
    cluster.reconfigure("node-3", |config| config);
    cluster.run("node-3");
    cluster.wait_linked(3);
    cluster.wait_up();
    let (code, stdout, _) = purge(&cluster);
    assert!(code == Some(0) && stdout.contains("node-3  purged in "), "{stdout}");
}

/// After a node was killed, its link may be known to be lost before it is known to be down.
#[test]
fn a_purge_waits_until_it_is_known_that_a_node_is_down() {
    let site = Site::new().with("f", version(1, 50_000));
    let mut cluster = CacheCluster::start(1, 2, site, SELDOM);
    cluster.wait_up();
    cluster.kill("node-2");
    let order = json!({ "what": ["/f"], "timeout_ms": 20_000 });
    let purged = cluster.order_purge("dispatcher-1", &order);
    assert_eq!(outcomes(&purged), [("node-1", "acknowledged"), ("node-2", "away")]);
    assert_eq!(purged["complete"], true, "{purged}");
}

#[test]
fn bad_input_is_refused_with_a_word_on_what_was_expected() {
    for (arguments, word) in [
        (&["purge"][..], "WHAT"),
        (&["purge", "a"], "slash"),
        (&["purge", "/a*b"], "%2A"),
        (&["purge", "tag:"], "tag"),
        (&["purge", "http:///x"], "host"),
        (&["purge", "/a", "--timeout", "1h"], "20s"),
    ] {
        let done = run_to_end(arguments);
        assert_eq!(done.code, Some(2), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(word), "{arguments:?}: {done:?}");
    }
    let site = Site::new().with("f", "f");
    let lines =
        format!("root = \"{}\"\nhosts = [\"a.example\", \"*.b.example\"]\n", site.root().display());
    let cluster = CacheCluster::start_of(1, 1, site, &format!("{lines}content = \"shared\"\n"), "");
    let refused = |name: &str, what: &str, words: &[&str]| {
        let done = cluster.skep(name, &["purge", what]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{what}: {done:?}");
        words.iter().for_each(|word| assert!(done.stderr.contains(word), "{done:?}"));
    };
    refused("dispatcher-1", "http://c.example/", &["c.example", "no site"]);
    refused("node-1", "/f", &["dispatcher"]);
    gate(&cluster, &["http://A.example/f", "http://x.b.example/f"]);
    assert_eq!(cluster.purge("dispatcher-1", &[])["status"], 422);
    assert_eq!(cluster.purge("dispatcher-1", &["/a"; 129])["status"], 422);
    for (timeout_ms, is_taken) in [(0, false), (20_000, true), (20_001, false)] {
        let order = json!({ "what": ["/f"], "timeout_ms": timeout_ms });
        let answer = cluster.order_purge("dispatcher-1", &order);
        assert_eq!(answer["complete"] == true, is_taken, "{timeout_ms} ms: {answer}");
        assert_eq!(answer["status"] == 422, !is_taken, "{timeout_ms} ms: {answer}");
    }
}

#[test]
fn one_node_alone_purges_too_and_nodes_that_are_not_linked_say_what_it_takes() {
    let origin = Origin::of("old", "\"v\"", FRESH);
    let skep = Skep::node_of(&origin.line());
    assert_eq!(skep.connect().get("/a").text(), "old");
    origin.follow(|asked| Answer::of(asked, b"new", "\"v\"", FRESH));
    assert_eq!(skep.connect().get("/a").text(), "old");
    let done = skep.command(&["purge", "/a"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "n1  purged in < 1 ms\n"), "{done:?}");
    assert_eq!(skep.connect().get("/a").text(), "new");

    let ports = [(); 3].map(|()| FreePort::claim());
    let [gate, one, two] = ports.each_ref().map(FreePort::address);
    let site = Site::new().with("f", "f");
    let root = site.root().display();
    let config = format!(
        "state_dir = \"{root}/state\"\n[admin]\nlisten = \"off\"\n\
         [[dispatcher]]\nname = \"gate\"\n[[service]]\nname = \"web\"\nlisten = \"{gate}\"\n\
         [[node]]\nname = \"one\"\naddress = \"{one}\"\n\
         [[node]]\nname = \"two\"\naddress = \"{two}\"\n[[site]]\nroot = \"{root}\"\n"
    );
    site.write("skep.toml", config);
    let config = site.path("skep.toml");
    let _gate = Skep::run(&config, &["--as", "gate"], gate);
    let done = run_to_end(&["purge", "/f", "--config", config.to_str().unwrap()]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for word in ["key_file", "[[dispatcher]]", "cooperate", "content"] {
        assert!(done.stderr.contains(word), "{done:?}");
    }
}

/// `cargo test -p skep-tests --test cluster -- --ignored --nocapture purge`
#[test]
#[ignore = "measures; prints how long purges take"]
fn how_long_purges_take() {
    const NUMBER: usize = 200;
    let mut site = Site::new();
    for number in 0..1000 {
        site = site.with(&format!("f{number}"), version(1, 10_000));
    }
    let cluster = CacheCluster::start(1, 4, site, "");
    for number in 0..1000 {
        cluster.get(&format!("node-{}", 1 + number % 4), &format!("/f{number}"));
    }
    for kind in ["/f{}", "/f{}*", "tag:t{}"] {
        let mut times = Vec::new();
        for number in 0..NUMBER {
            let what = kind.replace("{}", &number.to_string());
            let began = Instant::now();
            gate(&cluster, &[&what]);
            times.push(began.elapsed());
        }
        times.sort();
        let at = |permille: usize| times[(NUMBER - 1) * permille / 1000];
        let [p50, p99, max] =
            [at(500), at(990), at(1000)].map(|it: Duration| it.as_secs_f64() * 1e3);
        println!(
            "{kind}: {NUMBER} purges at 4 nodes: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms"
        );
    }
}
