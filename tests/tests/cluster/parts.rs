//! Sites partitioned over nodes: any node answers for any file, with correct bytes or none, whichever nodes
//! start and stop.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use skep_tests::cache::{CacheCluster, OWN_NAME, SEGMENT};
use skep_tests::content::{assert_same, version, version_of};
use skep_tests::sought::ORIGIN;
use skep_tests::{Load, PATIENCE, RawClient, Response, Site, poll_until};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Starts three nodes, each with the subfolder of `site` that has its name.
#[track_caller]
fn start(dispatchers: usize, site: Site, settings: &str) -> CacheCluster {
    NODES.iter().for_each(|node| fs::create_dir_all(site.path(node)).unwrap());
    let root = site.path(OWN_NAME);
    let lines = format!("root = \"{}\"\ncontent = \"partition\"\n", root.display());
    CacheCluster::start_of(dispatchers, NODES.len(), site, &lines, settings)
}

fn ask(cluster: &CacheCluster, node: &str, path: &str, field: (&str, &str)) -> Response {
    RawClient::connect(cluster.outer(node)).request("GET", path, &[field])
}

/// Waits until all nodes answer with `status`.
#[track_caller]
fn wait_for_status(cluster: &CacheCluster, path: &str, status: u16) {
    for node in NODES {
        poll_until(PATIENCE, &format!("{status} for {path} at {node}"), || {
            cluster.get(node, path).status == status
        });
    }
}

#[test]
fn any_node_answers_for_any_file_as_the_node_that_has_it_would() {
    let site = Site::new()
        .with("node-1/index.html", "<p>home")
        .with("node-1/one.css", version(1, 5_000))
        .with("node-1/one.css.gz", version(9, 500))
        .with("node-2/deep/er/two.js", version(2, 70_000))
        .with("node-2/deep/er/index.html", "<p>two")
        .with("node-2/a b\u{fc}%.txt", "odd")
        .with("node-3/three.bin", version(3, 1_000_000))
        .with("node-3/empty.txt", "")
        .with("node-3/.well-known/security.txt", "known")
        .with("node-3/.hidden/x", "hidden")
        .with("node-3/.env", "hidden")
        .with("outside", "outside");
    fs::create_dir(site.path("node-2/loop")).unwrap();
    site.link("node-2/loop/up", "..");
    site.link("node-2/inside.js", "deep/er/two.js");
    site.link("node-3/out", "../outside");
    let cluster = start(1, site, "");
    let files = [
        ("/", b"<p>home".to_vec()),
        ("/index.html", b"<p>home".to_vec()),
        ("/one.css", version(1, 5_000)),
        ("/deep/er/two.js", version(2, 70_000)),
        ("/deep/er/", b"<p>two".to_vec()),
        ("/inside.js", version(2, 70_000)),
        ("/a%20b%C3%BC%25.txt", b"odd".to_vec()),
        ("/three.bin", version(3, 1_000_000)),
        ("/empty.txt", Vec::new()),
        ("/.well-known/security.txt", b"known".to_vec()),
    ];
    for (path, body) in &files {
        wait_for_status(&cluster, path, 200);
        let of_version = ["content-type", "etag", "last-modified", "vary", "accept-ranges"];
        let seen =
            |response: &Response| of_version.map(|it| response.header(it).map(str::to_owned));
        let first = seen(&cluster.get("node-1", path));
        assert!(first[1].is_some() && first[2].is_some(), "{path}: {first:?}");
        for node in NODES {
            let response = cluster.get(node, path);
            assert_same(&response.body, body);
            assert_eq!(seen(&response), first, "{path} at {node}");
            let head = RawClient::connect(cluster.outer(node)).request("HEAD", path, &[]);
            assert_eq!((head.status, seen(&head)), (200, first.clone()), "{path} at {node}");
            assert_eq!(head.header("content-length"), Some(&*body.len().to_string()));
            let tag = first[1].as_deref().unwrap();
            assert_eq!(ask(&cluster, node, path, ("If-None-Match", tag)).status, 304);
            assert_eq!(ask(&cluster, node, path, ("If-Match", "\"x\"")).status, 412);
            if body.len() > 100 {
                let part = ask(&cluster, node, path, ("Range", "bytes=50-99"));
                assert_eq!(part.status, 206);
                assert_same(&part.body, &body[50..100]);
            }
        }
    }
    for node in NODES {
        let small = ask(&cluster, node, "/one.css", ("Accept-Encoding", "gzip"));
        assert_eq!(small.header("content-encoding"), Some("gzip"), "{node}");
        assert_same(&small.body, &version(9, 500));
        let moved = cluster.get(node, "/deep/er?x=1");
        assert_eq!((moved.status, moved.header("location")), (301, Some("/deep/er/?x=1")));
        for absent in ["/.hidden/x", "/.env", "/nothing", "/deep/", "/nothing/", "/one.css/"] {
            assert_eq!(cluster.get(node, absent).status, 404, "{absent} at {node}");
        }
        assert!(matches!(cluster.get(node, "/out").status, 403 | 404), "{node}");
    }
}

#[test]
fn what_comes_changes_and_goes_is_seen_by_all() {
    let site = Site::new().with("node-1/kept", "kept");
    let cluster = start(1, site, "check_interval_ms = \"200ms\"");
    wait_for_status(&cluster, "/kept", 200);
    for node in NODES {
        assert_eq!(cluster.get(node, "/new/dir/file").status, 404);
    }
    for number in 1..4 {
        let body = version(number, 2_000 + number as usize);
        cluster.site.replace("node-2/new/dir/file", &body);
        for node in NODES {
            poll_until(PATIENCE, &format!("version {number} at {node}"), || {
                let response = cluster.get(node, "/new/dir/file");
                response.status == 200 && version_of(&response.body) == Ok(number)
            });
        }
    }
    fs::rename(cluster.site.path("node-2/new"), cluster.site.path("node-2/moved")).unwrap();
    wait_for_status(&cluster, "/moved/dir/file", 200);
    wait_for_status(&cluster, "/new/dir/file", 404);
    // Another node takes the folder over, with another version.
    cluster.site.write("node-3/moved/dir/file", version(7, 300));
    fs::remove_dir_all(cluster.site.path("node-2/moved")).unwrap();
    for node in NODES {
        poll_until(PATIENCE, &format!("the new home's file at {node}"), || {
            let response = cluster.get(node, "/moved/dir/file");
            response.status == 200 && version_of(&response.body) == Ok(7)
        });
    }
    cluster.site.remove("node-3/moved/dir/file");
    wait_for_status(&cluster, "/moved/dir/file", 404);
    // A folder is replaced by another one: the paths below it have changed too.
    cluster.site.write("node-1/site/a/old", "old");
    cluster.site.write("node-1/next/a/new", "new");
    wait_for_status(&cluster, "/site/a/old", 200);
    fs::rename(cluster.site.path("node-1/site"), cluster.site.path("node-1/last")).unwrap();
    fs::rename(cluster.site.path("node-1/next"), cluster.site.path("node-1/site")).unwrap();
    wait_for_status(&cluster, "/site/a/new", 200);
    wait_for_status(&cluster, "/site/a/old", 404);
    cluster.site.write("node-1/site/a/newer", "newer");
    wait_for_status(&cluster, "/site/a/newer", 200);
    wait_for_status(&cluster, "/kept", 200);
}

#[test]
fn a_node_dies_with_its_part_and_comes_back_with_it() {
    let mut site = Site::new().with_large("node-3/large", 3 * SEGMENT);
    for number in 0..10 {
        for node in NODES {
            site = site.with(&format!("{node}/{node}-{number}"), version(number, 50_000));
        }
    }
    // The same file on two nodes, as a copy that preserves its times.
    let modified = fs::metadata(site.path("node-3/large")).unwrap().modified().unwrap();
    for node in ["node-2", "node-3"] {
        site = site.with(&format!("{node}/copy"), version(5, 2 * SEGMENT));
        let file = fs::File::options().write(true).open(site.path(&format!("{node}/copy")));
        file.unwrap().set_modified(modified).unwrap();
    }
    let mut cluster = start(1, site, "check_interval_ms = \"200ms\"\nsize_bytes_max = \"64MiB\"");
    wait_for_status(&cluster, "/node-3-9", 200);
    wait_for_status(&cluster, "/copy", 200);
    let (path, body) = ("/node-2-1", version(1, 50_000));
    let load = Load::on(cluster.outer("node-1")).threads(1).get(path, body).start();
    for _ in 0..2 {
        cluster.kill("node-3");
        for number in 0..10 {
            for node in ["node-1", "node-2"] {
                let lost = cluster.get(node, &format!("/node-3-{number}"));
                // Files found within the check interval may still be in memory.
                let is_lost = lost.status == 503;
                assert!(is_lost || version_of(&lost.body) == Ok(number), "{}", lost.status);
                for home in ["node-1", "node-2"] {
                    let there = cluster.get(node, &format!("/{home}-{number}"));
                    assert_same(&there.body, &version(number, 50_000));
                }
            }
        }
        for node in ["node-1", "node-2"] {
            poll_until(PATIENCE, "the dead node's files are unavailable", || {
                cluster.get(node, "/node-3-0").status == 503
            });
            assert_eq!(cluster.get(node, "/nothing").status, 404);
            assert_same(&cluster.get(node, "/copy").body, &version(5, 2 * SEGMENT));
        }
        cluster.run("node-3");
        wait_for_status(&cluster, "/large", 200);
        for node in NODES {
            assert_same(&cluster.get(node, "/large").body, &version(1, 3 * SEGMENT));
        }
    }
    load.stop().assert_clean();
}

#[test]
fn without_a_coordinator_nodes_ask_each_other_and_a_new_one_is_told_all() {
    let mut site = Site::new().with("node-3/unseen", "unseen");
    for number in 0..30 {
        for node in NODES {
            site = site.with(&format!("{node}/{node}-{number}"), version(number, 20_000));
        }
    }
    let mut cluster = start(1, site, "");
    wait_for_status(&cluster, "/node-3-29", 200);
    wait_for_status(&cluster, "/node-1-29", 200);
    wait_for_status(&cluster, "/node-2-29", 200);
    let all = |cluster: &CacheCluster, numbers: std::ops::Range<u32>| {
        for (number, home) in numbers.flat_map(|it| NODES.map(|home| (it, home))) {
            for node in NODES {
                let response = cluster.get(node, &format!("/{home}-{number}"));
                assert_eq!(response.status, 200, "{home}-{number} at {node}");
                assert_same(&response.body, &version(number, 20_000));
            }
        }
    };
    all(&cluster, 0..5);
    cluster.kill("dispatcher-1");
    all(&cluster, 0..10);
    assert_eq!(cluster.get("node-1", "/nothing").status, 404);
    // Absence is trusted only after the coordinator has received the lists of all nodes.
    cluster.run("dispatcher-1");
    all(&cluster, 10..20);
    cluster.wait_linked(3);
    all(&cluster, 20..30);
    let announced = || cluster.coordinator("dispatcher-1")["files"].as_u64();
    poll_until(PATIENCE, "all files are known anew", || announced() >= Some(90));
    cluster.kill("dispatcher-1");
    cluster.kill("node-3");
    assert_eq!(cluster.get("node-1", "/unseen").status, 503);
}

#[test]
fn large_files_stream_from_afar_and_seeks_start_at_once() {
    let len = 6 * SEGMENT + 12_345;
    let body = version(7, len);
    let site = Site::new().with("node-1/film.mp4", &body);
    let cluster = start(1, site, "");
    wait_for_status(&cluster, "/film.mp4", 200);
    let before = cluster.sum(ORIGIN);
    for at in [5 * SEGMENT + 99, 0, 3 * SEGMENT - 500, len - 1_000, 17] {
        for node in NODES {
            let range = format!("bytes={at}-{}", at + 999);
            let part = ask(&cluster, node, "/film.mp4", ("Range", &range));
            assert_eq!(part.status, 206);
            assert_same(&part.body, &body[at..at + 1_000]);
        }
    }
    for node in ["node-2", "node-3", "node-1"] {
        assert_same(&cluster.get(node, "/film.mp4").body, &body);
    }
    let fills = cluster.sum(ORIGIN) - before;
    assert!(fills <= 7, "{fills} fills of 7 segments");
}

#[test]
fn slow_readers_of_files_from_afar_do_not_take_all_memory() {
    const MIB: u64 = 1 << 20;
    // The node's memory plus the 64 MiB that replies may hold: reached by 20 of these readers if each held
    // its current segment.
    const FULL: u64 = (16 + 64) * MIB;
    const READERS: usize = 60;
    let len = 32 * SEGMENT;
    let body = version(7, len);
    let site = Site::new().with("node-1/film.mp4", &body).with("node-3/small", "small");
    let cluster = start(1, site, "size_bytes_max = \"16MiB\"");
    let alive = || cluster.metric("node-2", "skep_cache_alive_bytes");
    wait_for_status(&cluster, "/film.mp4", 200);
    let slow = |number: usize| {
        let begin = number % 32;
        let mut client = RawClient::connect(cluster.outer("node-2"));
        let range = format!("bytes={}-", begin * SEGMENT);
        client.send_request("GET", "/film.mp4", &[("Range", &range)]);
        client.try_head().unwrap().assert_status(206);
        (begin, client)
    };
    let mut readers: Vec<_> = (0..READERS).map(slow).collect();
    // No reader pins memory, neither for its current segment nor for the next one.
    let pinned = || cluster.metric("node-2", "skep_cache_pinned_bytes");
    poll_until(PATIENCE, "what slow readers were sent is let go", || pinned() == 0);
    for (begin, mut client) in readers.split_off(READERS - 2) {
        let mut got = Vec::new();
        while got.len() < len - begin * SEGMENT {
            let some = client.try_read_some().unwrap();
            assert!(!some.is_empty(), "closed after {} bytes", got.len());
            got.extend(some);
        }
        assert_same(&got, &body[begin * SEGMENT..]);
    }
    assert!(alive() < FULL, "{}", alive());
    cluster.get("node-2", "/small").assert_status(200);
}

#[test]
fn two_versions_of_a_path_are_never_mixed() {
    let len = |number: u32| 2 * SEGMENT + 1_000 * number as usize;
    let site = Site::new()
        .with("node-1/twin", version(1, len(1)))
        .with("node-2/twin", version(2, len(2)))
        .with("node-3/own", "own");
    let cluster = start(1, site, "check_interval_ms = \"100ms\"");
    wait_for_status(&cluster, "/own", 200);
    wait_for_status(&cluster, "/twin", 200);
    for round in 0..20 {
        let number = 3 + round;
        let home = ["node-1", "node-2"][round as usize % 2];
        cluster.site.replace(&format!("{home}/twin"), version(number, len(number)));
        for _ in 0..2 {
            let seen = version_of(&cluster.get("node-3", "/twin").body).expect("one version");
            assert!((1..=number).contains(&seen), "{seen} in round {round}");
        }
        poll_until(PATIENCE, &format!("its own version at {home}"), || {
            version_of(&cluster.get(home, "/twin").body).expect("one version") == number
        });
    }
}

#[test]
fn garbage_gets_nothing_and_harms_nobody() {
    let site = Site::new().with("node-2/file", version(1, 100_000)).with("secret", "secret");
    let cluster = start(1, site, "");
    wait_for_status(&cluster, "/file", 200);
    let long = format!("/{}", "x/".repeat(2_000));
    let paths =
        ["/..%2fsecret", "/%2e%2e/secret", "/a%00b", "/%ff%fe", "//file//", "/file/x", &long];
    for path in paths {
        for node in NODES {
            let response = cluster.get(node, path);
            assert!(matches!(response.status, 400..=499), "{path}: {}", response.status);
        }
    }
    for garbage in [&b"GET /file HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 64]] {
        for name in NODES {
            let mut stream = TcpStream::connect(cluster.inner(name)).unwrap();
            // The connection may be closed before all is written.
            let _ = stream.write_all(garbage);
        }
    }
    // A flood of requests for files that no node has.
    for number in 0..200 {
        assert_eq!(cluster.get("node-1", &format!("/no-{number}")).status, 404);
    }
    for node in NODES {
        assert_same(&cluster.get(node, "/file").body, &version(1, 100_000));
    }
}
