//! A node that is short of memory: no client keeps all of it from others for long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use skep_tests::content::{self, assert_same};
use skep_tests::origin::{Answer, Asked, FRESH, Origin, Then};
use skep_tests::{End, PATIENCE, RawClient, Site, Skep, SourceAddress, Steady, poll_until};

const MIB: u64 = 1024 * 1024;
const KIB: usize = 1024;

/// A body that fits into one segment.
const LARGE: usize = 3_500_000;

const STORED: &str = "skep; fwd=uri-miss; stored";

/// Clients that do not read, but are not disconnected for that.
const PATIENT: &str = "[timeouts]\nwrite_stall_ms = \"10m\"\n";

/// The memory limit of a node with a cache of `size_mib` MiB, without its clients' socket buffers.
fn bound(size_mib: u64) -> u64 {
    (size_mib + 64 + 64) * MIB
}

/// Without a validator it cannot be fetched in ranges: all of it is held.
#[test]
fn slow_readers_of_what_comes_whole_or_not_at_all_leave_room_for_others() {
    const READERS: usize = 40;
    let body = content::version(1, LARGE);
    let bytes = body.clone();
    let origin = Origin::start(move |asked| match asked.target.starts_with("/slow") {
        true => Answer::new(200, FRESH, &bytes),
        false => Answer::of(asked, &bytes, "\"v\"", FRESH),
    });
    let skep = origin.node(&format!("[cache]\nsize_bytes_max = \"16MiB\"\n{PATIENT}"));
    let sources = [(); 10].map(|()| SourceAddress::new());
    let readers = (0..READERS).map(|number| {
        let source = &sources[number % sources.len()];
        let mut reader = source.ask(skep.address(), "test", &format!("/slow/{number}"));
        // Clients for which there is no memory get a 503.
        let status = reader.try_head().unwrap().status;
        assert!([200, 503].contains(&status), "{status}");
        reader
    });
    let _readers: Vec<_> = readers.collect();
    let (mut other, mut number) = (SourceAddress::new().connect(skep.address()), 0);
    poll_until(PATIENCE, "others' misses are kept", || {
        number += 1;
        let response = other.get(&format!("/other/{number}"));
        assert_same(&response.body, &body);
        response.cache_status() == STORED
    });
    poll_until(PATIENCE, "it takes no more memory", || skep.memory_bytes() <= bound(16));
}

/// The origin sends a little of each object, and then stalls.
#[test]
fn an_origin_that_is_slow_leaves_room_for_other_sites() {
    const STUCK: usize = 40;
    let body = content::version(1, LARGE);
    let (bytes, others) = (body.clone(), body.clone());
    let slow = Origin::start(move |asked| {
        let well = Answer::of(asked, &bytes, "\"s\"", FRESH);
        let begin = well.body.len().min(300 * KIB);
        well.halt(begin)
    });
    let well = Origin::of(others, "\"w\"", FRESH);
    let patient = "stall_timeout_ms = \"10m\"\nconnections_max = 512\n";
    let skep = Skep::node_of(&format!(
        "{}hosts = [\"slow\"]\n[site.fetch]\n{patient}[[site]]\n{}hosts = [\"well\"]\n\
         [cache]\nsize_bytes_max = \"16MiB\"\n{PATIENT}",
        slow.line(),
        well.line()
    ));
    let source = SourceAddress::new();
    let ask_slow = |number| source.ask(skep.address(), "slow", &format!("/{number}"));
    let mut stuck: Vec<_> = (0..STUCK).map(ask_slow).collect();
    for client in &mut stuck {
        client.try_head().unwrap().assert_status(200);
    }
    for number in 0..3 {
        let mut other = source.ask(skep.address(), "well", &format!("/{number}"));
        let response = other.response();
        assert_eq!(response.cache_status(), STORED);
        assert_same(&response.body, &body);
    }
    poll_until(PATIENCE, "it takes no more memory", || skep.memory_bytes() <= bound(16));
    slow.go_on();
    for client in stuck {
        assert_same(&Steady::fast(client).read(LARGE), &body);
    }
}

/// The slow client's data has been evicted, so the origin receives range after range; every second request
/// fails, or is truncated.
#[test]
fn a_slow_reader_gets_every_byte_of_an_origin_that_fails_now_and_then() {
    const SIZE: usize = 2_000_000;
    let body = content::version(1, SIZE);
    let (bytes, pieces) = (body.clone(), AtomicUsize::new(0));
    let origin = Origin::start(move |asked: &Asked| {
        let well = Answer::of(asked, &bytes, "\"v\"", FRESH);
        let is_piece = asked.target == "/slow" && well.body.len() < SIZE;
        match pieces.fetch_add(usize::from(is_piece), Ordering::SeqCst) % 4 {
            1 if is_piece => Answer::new(503, "", "no"),
            3 if is_piece => well.cut(1_000, Then::Close),
            _ => well,
        }
    });
    let skep = origin.node("[cache]\nsize_bytes_max = \"4MiB\"\n");
    let end = End::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut evicting = RawClient::connect(skep.address());
            for number in 0.. {
                if end.has_come() {
                    return;
                }
                evicting.get(&format!("/other/{number}"));
            }
        });
        let _end = end.with_this();
        let (mut slow, _) = Steady::get(skep.address(), "/slow", 400 * KIB as u64);
        assert_same(&slow.read(SIZE), &body);
    });
    let asked = origin.asked().into_iter().filter(|asked| asked.target == "/slow").count();
    assert!(asked > 4, "pieces were asked for: {asked}");
}

/// Pages generated for one client count too.
#[test]
fn slow_readers_of_listings_have_a_share_of_memory_for_each_address() {
    const FILES: usize = 3_000;
    const READERS: usize = 20;
    let name = |number: usize| format!("{number:05}-{}", "x".repeat(200));
    let site = (0..FILES).fold(Site::new(), |site, number| site.with(&name(number), "x"));
    let settings = format!(
        "listing = true\n[cache]\nsize_bytes_max = \"16MiB\"\n{PATIENT}\
         [limits]\npinned_per_address_bytes_max = \"8MiB\"\n"
    );
    let skep = Skep::node(site.root(), &settings);
    let (greedy, other) = (SourceAddress::new(), SourceAddress::new());
    let statuses = |source: &SourceAddress, readers: usize| {
        let mut readers: Vec<_> =
            (0..readers).map(|_| source.ask(skep.address(), "test", "/")).collect();
        let statuses: Vec<_> =
            readers.iter_mut().map(|reader| reader.try_head().unwrap().status).collect();
        (readers, statuses)
    };
    let (_readers, found) = statuses(&greedy, READERS);
    assert!(found.contains(&200) && found.contains(&503), "{found:?}");
    assert_eq!(statuses(&other, 1).1, [200]);
}
