//! Nodes that share their caches: one fill for all, and correct bytes whichever process dies.

use std::io::Write;
use std::net::TcpStream;

use skep_tests::cache::{CacheCluster, SEGMENT, wait_count};
use skep_tests::content::{assert_same, version, version_of};
use skep_tests::sought::{ORIGIN, OWNER, PEER};
use skep_tests::{Load, PATIENCE, RawClient, Site, poll_until, promtool};

fn cache_status(cluster: &CacheCluster, node: &str, path: &str) -> String {
    let response = cluster.get(node, path);
    assert_eq!(response.status, 200);
    response.header("cache-status").unwrap_or_default().to_owned()
}

#[test]
fn what_one_node_has_read_the_others_get_from_it() {
    let large = version(1, 3 * SEGMENT + 12_345);
    let site = Site::new().with("small", "small").with("large", &large);
    let cluster = CacheCluster::start(1, 3, site, "");
    let mut statuses = Vec::new();
    for path in ["/small", "/large"] {
        assert_eq!(cache_status(&cluster, "node-1", path), "skep; fwd=uri-miss; stored");
        poll_until(PATIENCE, "the coordinator knows", || {
            cluster.coordinator("dispatcher-1")["segments"].as_u64() >= Some(1)
        });
        for node in ["node-2", "node-3"] {
            let response = cluster.get(node, path);
            statuses.push(response.cache_status().to_owned());
            let expected = if path == "/small" { b"small".as_slice() } else { &large };
            assert_same(&response.body, expected);
            assert_eq!(cache_status(&cluster, node, path), "skep; hit");
        }
    }
    let got = || [ORIGIN, OWNER, PEER].iter().map(|it| cluster.sum(it)).sum();
    wait_count("segments that each node has got", 15, got);
    cluster.assert_asked(cluster.sum(ORIGIN), 5);
    if cluster.has_doubts(0) {
        return;
    }
    assert!(statuses.iter().all(|it| it == "skep; hit; detail=peer"), "{statuses:?}");
    // Segments with a copy on another node are evicted first.
    let redundant = |node| cluster.metric(node, "skep_cache_redundant_bytes");
    let all = 5 + large.len() as u64;
    // Each of five segments has a small overhead.
    let is_all = |bytes: u64| (all..all + 5 * 1024).contains(&bytes);
    let redundant = ["node-1", "node-2", "node-3"].map(redundant);
    assert!(redundant[0] == 0 && is_all(redundant[1]) && is_all(redundant[2]), "{redundant:?}");
}

#[test]
fn prometheus_finds_no_fault_with_the_metrics() {
    let site = Site::new().with("small", "small");
    let cluster = CacheCluster::start(1, 2, site, "");
    assert_eq!(cache_status(&cluster, "node-1", "/small"), "skep; fwd=uri-miss; stored");
    for process in ["node-1", "dispatcher-1"] {
        promtool::assert_clean(&cluster.metrics(process));
    }
}

#[test]
fn many_clients_of_a_cold_object_at_all_nodes_cause_one_fill() {
    let body = version(3, SEGMENT - 1);
    let site = Site::new().with("cold", &body);
    let cluster = CacheCluster::start(1, 3, site, "");
    std::thread::scope(|scope| {
        for client in 0..300 {
            let node = format!("node-{}", 1 + client % 3);
            let (cluster, body) = (&cluster, &body);
            scope.spawn(move || assert_same(&cluster.get(&node, "/cold").body, body));
        }
    });
    cluster.wait_asked(1);
}

#[test]
fn a_changed_file_is_new_everywhere_and_versions_never_mix() {
    let site = Site::new().with("file", version(1, 2 * SEGMENT));
    let cluster = CacheCluster::start(1, 3, site, "check_interval_ms = \"100ms\"");
    for number in 2..12 {
        cluster.site.replace("file", version(number, 2 * SEGMENT + number as usize));
        for node in ["node-1", "node-2", "node-3"] {
            poll_until(PATIENCE, &format!("version {number} at {node}"), || {
                let seen = version_of(&cluster.get(node, "/file").body);
                seen.expect("one version") == number
            });
        }
    }
}

#[test]
fn a_change_that_the_kernel_does_not_tell_of_is_seen_by_default_too() {
    // The watched folder is that of the link, where nothing changes.
    let site = Site::new().with("elsewhere/file", version(1, 20_000));
    site.link("shown", "elsewhere/file");
    let cluster = CacheCluster::start(1, 2, site, "");
    for number in 1..4 {
        cluster.site.replace("elsewhere/file", version(number, 20_000));
        for node in ["node-1", "node-2"] {
            poll_until(PATIENCE, &format!("version {number} at {node}"), || {
                version_of(&cluster.get(node, "/shown").body).expect("one version") == number
            });
        }
    }
}

#[test]
fn without_a_coordinator_the_owner_fills_and_all_goes_on() {
    let mut site = Site::new();
    for number in 0..40 {
        site = site.with(&format!("f{number}"), version(number, 50_000));
    }
    let mut cluster = CacheCluster::start(2, 3, site, "");
    let all = |cluster: &CacheCluster, numbers: std::ops::Range<u32>| {
        for number in numbers {
            for node in ["node-1", "node-2", "node-3"] {
                let body = cluster.get(node, &format!("/f{number}")).body;
                assert_same(&body, &version(number, 50_000));
            }
        }
    };
    all(&cluster, 0..10);
    cluster.kill("dispatcher-1");
    all(&cluster, 10..20);
    cluster.kill("dispatcher-2");
    all(&cluster, 20..40);
    assert!(cluster.sum(OWNER) > 0, "owners were asked");
    let fills = cluster.sum(ORIGIN);
    assert!(fills <= 50, "{fills} fills of 40 files");
    cluster.run("dispatcher-1");
    cluster.wait_linked(3);
    let known = || cluster.coordinator("dispatcher-1")["segments"].as_u64();
    poll_until(PATIENCE, "inventories are told anew", || known() == Some(40));
}

#[test]
fn nodes_die_under_load_and_every_byte_is_right() {
    let mut site = Site::new();
    for number in 0..60 {
        site = site.with(&format!("f{number}"), version(number, 1_000 + 9_973 * number as usize));
    }
    // Less than the total, so that nodes evict and fetch all the time.
    let mut cluster = CacheCluster::start(2, 4, site, "size_bytes_max = \"4MiB\"");
    let load = |node: &str| {
        let mut load = Load::on(cluster.outer(node)).threads(2);
        for number in 0..60 {
            let body = version(number, 1_000 + 9_973 * number as usize);
            load = load.get(&format!("/f{number}"), body);
        }
        load.start()
    };
    let loads: Vec<_> = ["node-1", "node-2"].map(load).into();
    for round in 0..6 {
        let victim = ["node-3", "node-4", "dispatcher-1"][round % 3];
        cluster.kill(victim);
        loads.iter().for_each(|load| load.wait_for_more(500));
        cluster.run(victim);
        loads.iter().for_each(|load| load.wait_for_more(500));
        // The surviving nodes have peers to fetch from.
        for number in 0..60 {
            let body = cluster.get("node-3", &format!("/f{number}")).body;
            assert_same(&body, &version(number, 1_000 + 9_973 * number as usize));
        }
    }
    for load in loads {
        load.stop().assert_clean();
    }
    assert!(cluster.sum(PEER) > 0);
}

#[test]
fn garbage_and_strangers_get_nothing_and_harm_nobody() {
    let site = Site::new().with("file", version(1, 100_000));
    let cluster = CacheCluster::start(1, 2, site, "");
    for name in ["node-1", "node-2", "dispatcher-1"] {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 64], b"x"] {
            let mut stream = TcpStream::connect(cluster.inner(name)).unwrap();
            // The connection may be closed before all is written.
            let _ = stream.write_all(garbage);
        }
    }
    for node in ["node-1", "node-2"] {
        assert_same(&cluster.get(node, "/file").body, &version(1, 100_000));
    }
    cluster.wait_asked(1);
    // Links may have been re-established: a link ends if a machine is too busy to send keepalives.
    cluster.wait_linked(2);
}

#[test]
fn a_large_file_streams_through_small_memories_and_seeks_start_at_once() {
    let len = 20 * SEGMENT;
    let body = version(7, len);
    let site = Site::new().with("film", &body);
    let cluster = CacheCluster::start(1, 4, site, "size_bytes_max = \"32MiB\"");
    let part = |node: &str, at: usize| {
        let mut client = RawClient::connect(cluster.outer(node));
        let range = format!("bytes={at}-{}", at + 999);
        let response = client.request("GET", "/film", &[("Range", &range)]);
        assert_eq!(response.status, 206);
        assert_same(&response.body, &body[at..at + 1000]);
    };
    part("node-1", 19 * SEGMENT + 5);
    // Only the requested segment.
    cluster.wait_sum(ORIGIN, 1);
    assert_same(&cluster.get("node-2", "/film").body, &body);
    for at in 0..20 {
        part(["node-1", "node-3", "node-4"][at % 3], at * SEGMENT + 77);
    }
    // Nodes that read all of it have evicted parts of it again.
    let fills = cluster.sum(ORIGIN);
    assert!(fills <= 40, "{fills} fills of 20 segments");
}
