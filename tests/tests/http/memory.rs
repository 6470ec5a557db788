//! Memory of a node: whatever clients request, it stays within the documented limits
//! (`docs/operate/memory.md`).

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use skep_tests::content::{self, assert_same};
use skep_tests::flood::{TinyOrigin, get_all};
use skep_tests::origin::{Answer, FRESH, Origin};
use skep_tests::{
    Crowd, End, FreePort, Load, MemoryGroup, PATIENCE, RawClient, Skep, SourceAddress, poll_until,
};
use socket2::SockRef;

const MIB: u64 = 1024 * 1024;

/// Memory of a node in addition to `cache.size_bytes_max`, in bytes, without large replies.
const FIXED: u64 = 64 * MIB;

/// A query that makes the target nearly as long as allowed.
fn long_query(number: u64) -> String {
    format!("/q?{number}&{}", "x".repeat(7_900))
}

fn tiny_url(number: u64) -> String {
    format!("/{number}")
}

/// Starts a node with a cache of `size_mib` MiB.
fn node(origin: &TinyOrigin, size_mib: u64) -> Skep {
    Skep::node_of(&format!("{}[cache]\nsize_bytes_max = \"{size_mib}MiB\"\n", origin.line()))
}

/// Requests these numbers of each kind at a node with a cache of `size_mib` MiB; returns the maximum memory,
/// measured after each tenth.
fn flood(size_mib: u64, tiny_urls: u64, long_queries: u64) -> u64 {
    let origin = TinyOrigin::new();
    let skep = node(&origin, size_mib);
    let (at_first, mut most) = (skep.memory_bytes(), 0);
    let mut run = |count: u64, target: fn(u64) -> String| {
        for part in 0..10 {
            let (from, to) = (part * count / 10, (part + 1) * count / 10);
            get_all(skep.address(), 16, from..to, target);
            most = skep.memory_bytes().max(most);
            println!("FIGURE {to} of {count} like {:.9}: {} MiB at most", target(1), most / MIB);
        }
    };
    println!("FIGURE {size_mib} MiB for the cache; at first {} MiB in all", at_first / MIB);
    run(tiny_urls, tiny_url);
    run(long_queries, long_query);
    // In reverse order: evicted entries must not have left their tables.
    run(tiny_urls / 4, |number| format!("/again/{number}"));
    most
}

#[test]
fn objects_that_are_hardly_more_than_their_names_stay_within_the_cache() {
    let most = flood(8, 8_000, 6_000);
    assert!(most <= 8 * MIB + FIXED, "{} MiB", most / MIB);
}

#[test]
fn there_are_no_more_segments_than_entries_whatever_their_size() {
    const ENTRIES_MAX: u64 = 1_024;
    let (origin, metrics) = (TinyOrigin::new(), FreePort::claim());
    let skep = Skep::node_of(&format!(
        "{}[cache]\nentries_max = {ENTRIES_MAX}\n[metrics]\nlisten = \"{}\"\n",
        origin.line(),
        metrics.address()
    ));
    get_all(skep.address(), 16, 0..3 * ENTRIES_MAX, tiny_url);
    let text = RawClient::connect(metrics.address()).get("/metrics").text();
    let of = |sample: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(sample));
        line.and_then(|value| value.trim().parse::<u64>().ok()).expect("a number")
    };
    let segments = of("skep_cache_segments ");
    assert!((ENTRIES_MAX / 2..=ENTRIES_MAX).contains(&segments), "{segments}");
    let evicted = of("skep_cache_removals_total{kind=\"evicted\"} ");
    assert!(evicted >= 2 * ENTRIES_MAX, "{evicted} evicted");
}

/// `cargo build --release -p skep && cargo test --release -p skep-tests --test http -- --ignored --nocapture
/// memory::ten_million`; takes half an hour.
#[test]
#[ignore = "takes half an hour"]
fn ten_million_tiny_urls_and_a_million_long_queries_stay_within_the_cache() {
    let most = flood(64, 10_000_000, 1_000_000);
    assert!(most <= 64 * MIB + FIXED, "{} MiB", most / MIB);
}

/// Size of an object of an origin: one segment with its own memory, entirely in large folios.
const LARGE: usize = 4 * MIB as usize;

/// Bytes that a connection may occupy in the kernel: 128 KiB unsent, 128 KiB that a client on the same
/// machine has not read, and the folios of 64 KiB around both.
const QUEUED: u64 = (128 + 128 + 2 * 64) * 1024;

/// The documented limit in addition to the cache: segments held by replies and fills, the process itself, and
/// 64 KiB per reply.
fn bound(size_mib: u64, replies: u64) -> u64 {
    (size_mib + 64) * MIB + FIXED + replies * 64 * 1024
}

#[test]
fn slow_readers_hold_no_memory_and_keep_nobody_from_the_cache() {
    const READERS: u64 = 128;
    let group = MemoryGroup::new();
    let body = content::version(1, LARGE);
    let origin = Origin::of(body.clone(), "\"v\"", FRESH);
    // They stall for as long as a busy machine takes for the rest of this test.
    let patient = "[timeouts]\nwrite_stall_ms = \"10m\"\n";
    let skep = origin.node(&format!("[cache]\nsize_bytes_max = \"64MiB\"\n{patient}"));
    if let Some(group) = &group {
        group.add(skep.pid());
    }
    let sources = [(); 4].map(|()| SourceAddress::new());
    let readers = (0..READERS).map(|number| {
        let mut client =
            sources[number as usize % 4].ask(skep.address(), "test", &format!("/slow/{number}"));
        client.try_head().unwrap().assert_status(200);
        client
    });
    let mut readers: Vec<_> = readers.collect();
    let most = bound(64, READERS);
    poll_until(PATIENCE, "what slow readers were sent is let go", || skep.memory_bytes() <= most);
    // Including memory that sockets keep and that no other statistic counts.
    let costs = group.as_ref().map_or(0, MemoryGroup::bytes);
    let queued = READERS * QUEUED;
    assert!(costs <= most + queued, "{} of {} MiB", costs / MIB, (most + queued) / MIB);
    // All of them are stalled: misses of other clients are stored, and hit.
    let mut other = SourceAddress::new().connect(skep.address());
    for target in ["/other/1", "/other/2"] {
        for word in ["skep; fwd=uri-miss; stored", "skep; hit"] {
            let response = other.get(target);
            assert_eq!(response.cache_status(), word);
            assert_same(&response.body, &body);
        }
    }
    poll_until(PATIENCE, "others' replies are let go", || skep.memory_bytes() <= most);
    // The slow readers get the correct bytes, whatever was evicted meanwhile.
    for reader in readers.iter_mut().step_by(25) {
        let mut read = Vec::new();
        while read.len() < LARGE {
            let some = reader.try_read_some().unwrap();
            assert!(!some.is_empty(), "closed after {} bytes", read.len());
            read.extend(some);
        }
        assert_same(&read, &body);
    }
}

/// `cargo build --release -p skep && cargo test --release -p skep-tests --test http -- --ignored --nocapture
/// memory::four_thousand`; takes seven minutes.
#[test]
#[ignore = "takes seven minutes, and is about rates"]
fn four_thousand_slow_readers_of_a_hundred_addresses_leave_others_their_rate() {
    const READERS: usize = 4_000;
    /// Pairs of windows, with and without slow readers, as the machine's other load changes meanwhile.
    const ROUNDS: usize = 7;
    /// Bytes that the node keeps for each in its socket, and bytes that each reads per second.
    const UNSENT: u64 = 128 * 1024;
    const READ_BYTES_S: u64 = 4 * 1024;
    let Some(_crowd) = Crowd::of(2 * READERS as u64) else { return };
    let large = content::version(1, LARGE);
    let body = large.clone();
    let origin = Origin::start(move |asked| match asked.target.starts_with("/hot") {
        true => Answer::of(asked, &HOT, "\"h\"", FRESH),
        false => Answer::of(asked, &body, "\"v\"", FRESH),
    });
    let skep = origin.node("[cache]\nsize_bytes_max = \"64MiB\"\n");
    let (others, sources) = (SourceAddress::new(), [(); 100].map(|()| SourceAddress::new()));
    let (mut kept, mut most) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let readers = (0..READERS).map(|number| {
            let source = &sources[number % sources.len()];
            let client = source.ask(skep.address(), "test", &format!("/slow/{number}"));
            SockRef::from(client.stream()).set_recv_buffer_size(8_192).expect("a small buffer");
            client.stream().set_nonblocking(true).expect("a socket");
            client
        });
        let readers: Vec<_> = readers.collect();
        let (end, begun) = (End::default(), AtomicUsize::new(0));
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| read_slowly(&readers, &begun, &end));
            let _end = end.with_this();
            poll_until(2 * PATIENCE, "all have begun to read", || {
                most = skep.memory_bytes().max(most);
                begun.load(Ordering::Relaxed) == READERS
            });
            // Until they have read the bytes sent first, and are sent more.
            for _ in 0..UNSENT / READ_BYTES_S {
                std::thread::sleep(Duration::from_secs(1));
                most = skep.memory_bytes().max(most);
            }
            let beside = hits(&skep, &others, "beside 4,000 slow readers");
            let mut other = others.connect(skep.address());
            for number in 0..5 {
                let response = other.get(&format!("/other/{round}/{number}"));
                assert_eq!(response.cache_status(), "skep; fwd=uri-miss; stored");
                assert_same(&response.body, &large);
            }
            most = skep.memory_bytes().max(most);
            beside
        });
        drop(readers);
        poll_until(PATIENCE, "they are gone", || skep.connections() == 0);
        kept.push(beside / hits(&skep, &others, "alone"));
    }
    kept.sort_by(f64::total_cmp);
    let kept = 100.0 * kept[ROUNDS / 2];
    println!("FIGURE others keep {kept:.1} % of their rate (median of {ROUNDS} pairs)");
    println!("FIGURE at most {} MiB, of {} MiB", most / MIB, bound(64, READERS as u64) / MIB);
    assert!(kept >= 95.0, "others keep {kept:.1} % of their rate");
    assert!(most <= bound(64, READERS as u64));
}

/// The object that other clients hit.
const HOT: [u8; 1024] = [b'h'; 1024];

/// Returns the hits per second of sixteen connections of `others`: enough that all workers have some, equally
/// many in each window.
fn hits(skep: &Skep, others: &SourceAddress, what: &str) -> f64 {
    let load = Load::on(skep.address()).get("/hot", HOT).from(others.clone());
    let (cpu, report) = (skep.cpu_time(), load.threads(16).run(250_000));
    report.assert_clean();
    let cpu_us = (skep.cpu_time() - cpu).as_secs_f64() * 1e6 / report.ok as f64;
    let rate = report.rate();
    println!("FIGURE hits {what}: {rate:.0} per second, {cpu_us:.1} us of the node's time each");
    rate
}

/// Reads 8 KiB from each every two seconds, and counts those that have received data.
fn read_slowly(readers: &[RawClient], begun: &AtomicUsize, end: &End) {
    let mut buffer = [0; 8 * 1024];
    let mut has_begun = vec![false; readers.len()];
    while !end.has_come() {
        let round = Instant::now();
        for (number, reader) in readers.iter().enumerate() {
            // Receiving nothing is as good as little.
            has_begun[number] |= reader.stream().read(&mut buffer).is_ok_and(|read| read > 0);
            if number % 100 == 99 {
                std::thread::sleep(Duration::from_millis(40));
            }
        }
        begun.store(has_begun.iter().filter(|it| **it).count(), Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(2).saturating_sub(round.elapsed()));
    }
}
