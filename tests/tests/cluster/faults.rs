//! Other machines of the cluster that lie, stall or die: clients receive correct bytes, a counter increases,
//! and the cluster continues to work.

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use skep_tests::cache::{CacheCluster, SEGMENT, wait_count};
use skep_tests::content::{assert_same, version};
use skep_tests::fake::{FakeNode, Greeting, Said};
use skep_tests::origin::{Answer, FRESH, HEAD_RANGE, Origin};
use skep_tests::sought::{
    DIRECTORY_ERROR, LOST, ORIGIN, ORIGIN_BYTES, OWNER, PEER, PEER_BYTES, REFUSED, REMOTE_FILLS,
};
use skep_tests::{PATIENCE, RawClient, Site, poll_until};
use skep_wire::cache::{
    CoordinatorAnswer, ObjectName, PeerRefusal, PeerReply, PeerRequest, PurgeStamp, SegmentName,
    ToCoordinator,
};

/// Size of a chunk transferred between nodes.
const CHUNK: usize = 256 << 10;

/// Two full chunks and a partial one.
const LEN: usize = 2 * CHUNK + 7_777;

/// The outcome of a fetch from a node, as a metric.
type Outcome = &'static str;

/// Ways of a node to fail to send a file of three chunks, with the counted outcome.
fn faults(bytes: &[u8]) -> Vec<(&'static str, Outcome, Said)> {
    let [first, second, third] =
        [0, 1, 2].map(|n| &bytes[n * CHUNK..bytes.len().min((n + 1) * CHUNK)]);
    let whole = || Said::whole(bytes, 0);
    let part = || Said::chunks(bytes, 0, 1);
    let while_ms = Duration::from_millis;
    vec![
        ("garbage", LOST, Said::bytes([0xff; 4096])),
        ("http", LOST, Said::bytes("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")),
        ("nothing", LOST, Said::default().hang()),
        ("close", LOST, Said::default().close()),
        ("other-reply", LOST, Said::reply(&PeerReply::Taken)),
        ("garbage-later", LOST, part().then(Said::bytes([0x5a; CHUNK]))),
        ("changed", LOST, part().changed_chunk(second)),
        ("changed-at-once", LOST, Said::chunks(bytes, 0, 0).changed_chunk(first)),
        ("another-chunk", LOST, part().chunk(third)),
        ("long-chunk", LOST, Said::chunks(bytes, 0, 0).chunk(&bytes[..CHUNK + 1])),
        ("short", LOST, whole().cut(CHUNK + 1_000).close()),
        ("short-by-a-byte", LOST, whole().cut(whole().len() - 1).close()),
        ("never-more", LOST, part().hang()),
        ("half-a-chunk", LOST, whole().cut(CHUNK / 2).hang()),
        ("half-a-head", LOST, whole().cut(5).hang()),
        ("late-for-good", LOST, Said::default().pause(while_ms(5_000)).then(whole())),
        ("late", PEER, part().alive(8, while_ms(300)).then(whole_after(bytes, 1))),
        ("surplus", PEER, whole().then(Said::bytes([1; 100]))),
        ("not-there", DIRECTORY_ERROR, Said::refusal(PeerRefusal::NotThere)),
        ("mismatch", DIRECTORY_ERROR, Said::refusal(PeerRefusal::Mismatch)),
        ("overloaded", REFUSED, Said::refusal(PeerRefusal::Overloaded)),
    ]
}

/// Sends the chunks after the first `chunks` ones, without a reply before them.
fn whole_after(bytes: &[u8], chunks: usize) -> Said {
    bytes[chunks * CHUNK..].chunks(CHUNK).fold(Said::default(), Said::chunk)
}

/// A fake node of `cluster` that the coordinator prefers for the segments of `scripts`.
fn fake_holder(
    cluster: &CacheCluster,
    name: &str,
    greeting: Greeting,
    scripts: HashMap<SegmentName, Said>,
) -> FakeNode {
    let claims: Vec<_> = scripts.keys().map(|&name| (name, LEN as u32)).collect();
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let fake =
        FakeNode::join(name, coordinator, greeting, move |name, _| scripts.get(&name).cloned());
    fake.claim(claims);
    fake
}

/// Returns the segment of a fetch by another node.
fn fetched(request: &PeerRequest) -> Option<SegmentName> {
    if let PeerRequest::Fetch { name, .. } = request { Some(*name) } else { None }
}

/// Waits until the coordinator's directory has this number of segments.
fn wait_known(cluster: &CacheCluster, segments: u64) {
    poll_until(PATIENCE, &format!("{segments} segments are known"), || {
        cluster.coordinator("dispatcher-1")["segments"].as_u64() == Some(segments)
    });
}

/// Requests all files at once at a node; all bytes must be correct.
fn get_all(cluster: &CacheCluster, node: &str, names: &[&str], body: &[u8]) {
    thread::scope(|scope| {
        for name in names {
            scope.spawn(move || {
                let response = cluster.get(node, &format!("/{name}"));
                assert_eq!(response.status, 200, "{name}");
                assert_same(&response.body, body);
            });
        }
    });
}

#[test]
fn a_node_that_lies_or_stalls_costs_a_detour() {
    let body = version(1, LEN);
    let faults = faults(&body);
    let site = faults.iter().fold(Site::new(), |site, (name, ..)| site.with(name, &body));
    let cluster = CacheCluster::start(1, 2, site, "");
    let scripts =
        faults.iter().map(|(name, _, said)| (cluster.segment_name(name, 0), said.clone()));
    let fake = fake_holder(&cluster, "node-9", Greeting::Right, scripts.collect());
    wait_known(&cluster, faults.len() as u64);
    let names: Vec<_> = faults.iter().map(|(name, ..)| *name).collect();
    get_all(&cluster, "node-1", &names, &body);
    let wanted = |outcome| faults.iter().filter(|(_, it, _)| *it == outcome).count() as u64;
    let [lost, got, wrong] = [LOST, PEER, DIRECTORY_ERROR].map(wanted);
    // A directory error is counted as a refusal too.
    let refused = wanted(REFUSED) + wrong;
    let ended = || [LOST, PEER, REFUSED].iter().map(|it| cluster.sum(it)).sum();
    wait_count("ends of fetches", faults.len() as u64, ended);
    // Segments that the peer did not deliver were read from the disk.
    let from_disk = faults.len() as u64 - got;
    let planned = lost + refused + wrong;
    let had = || cluster.sum(PEER) + cluster.sum(ORIGIN);
    wait_count("files from anywhere", faults.len() as u64, had);
    cluster.assert_asked_beside(cluster.sum(ORIGIN), from_disk, planned);
    // A fake node that is not scheduled in time is counted as lost, whatever its script.
    assert!(cluster.sum(LOST) >= lost && cluster.sum(PEER) > 0);
    if cluster.sum(LOST) == lost {
        let counts = [PEER, REFUSED, DIRECTORY_ERROR].map(|it| cluster.sum(it));
        assert_eq!(counts, [got, refused, wrong]);
    }
    // Correct bytes received before the fault were not read again.
    let bytes = || cluster.sum(ORIGIN_BYTES) + cluster.sum(PEER_BYTES);
    wait_count("bytes from anywhere", (faults.len() * LEN) as u64, bytes);
    assert!(cluster.sum(PEER_BYTES) > 2 * LEN as u64, "some chunks were right");
    // Each segment was requested once; a closed connection allows one retry.
    assert!(fake.asked().len() <= 2 * faults.len(), "{} fetches", fake.asked().len());
    drop(fake);
    cluster.wait_linked(2);
    get_all(&cluster, "node-2", &names, &body);
    // Node-1 has all of them.
    cluster.assert_asked_beside(cluster.sum(ORIGIN), from_disk, planned);
}

#[test]
fn a_node_with_room_that_does_not_fill_costs_a_detour() {
    /// Number of segments: more than fit into a node's memory.
    const SEGMENTS: usize = 20;
    let body = version(1, SEGMENTS * SEGMENT);
    let segment = |index: usize| &body[index * SEGMENT..(index + 1) * SEGMENT];
    let stories: [fn(&[u8]) -> Said; 6] = [
        |bytes| Said::whole(bytes, 0),
        |_| Said::refusal(PeerRefusal::NotWanted),
        |_| Said::refusal(PeerRefusal::Overloaded),
        |bytes| Said::chunks(bytes, 0, 3).close(),
        |bytes| Said::chunks(bytes, 0, 1).changed_chunk(&bytes[CHUNK..2 * CHUNK]),
        |bytes| Said::chunks(bytes, 0, 2).hang(),
    ];
    let site = Site::new().with("film", &body);
    let cluster = CacheCluster::start(1, 1, site, "size_bytes_max = \"32MiB\"");
    let named = |index: usize| {
        let said = stories[index % stories.len()](segment(index));
        (cluster.segment_name("film", index as u32), said)
    };
    let scripts: HashMap<_, _> = (0..SEGMENTS).map(named).collect();
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let fake = FakeNode::join("node-9", coordinator, Greeting::Right, move |name, _| {
        scripts.get(&name).cloned()
    });
    cluster.wait_linked(2);
    for index in 0..SEGMENTS {
        let range = format!("bytes={}-{}", index * SEGMENT, (index + 1) * SEGMENT - 1);
        let mut client = RawClient::connect(cluster.outer("node-1"));
        let reply = client.request("GET", "/film", &[("Range", &range)]);
        assert_same(&reply.body, segment(index));
    }
    let leased = |request: &PeerRequest| match request {
        PeerRequest::Fetch { origin, .. } => origin.as_ref().is_some_and(|it| it.has_lease),
        _ => false,
    };
    let asked = fake.asked().iter().filter(|request| leased(request)).count();
    assert!(asked >= stories.len(), "each story was told: {asked}");
    let remote_fills = cluster.sum(REMOTE_FILLS);
    assert!(remote_fills > 0 && remote_fills < SEGMENTS as u64 / 2, "{remote_fills}");
    // Or more: a segment evicted from so small a memory before it is requested is read again.
    let from_disk = || cluster.sum(ORIGIN) >= SEGMENTS as u64 - remote_fills;
    poll_until(PATIENCE, "what the other did not give is read", from_disk);
}

#[test]
fn who_does_not_show_the_key_is_not_fetched_from() {
    let body = version(1, LEN);
    let greetings = [Greeting::OtherKey, Greeting::Silence, Greeting::Rubbish, Greeting::Full];
    let names = ["other-key", "silence", "rubbish", "full"];
    let site = names.iter().fold(Site::new(), |site, name| site.with(name, &body));
    let cluster = CacheCluster::start(1, 2, site, "");
    let mut fakes = Vec::new();
    for (at, (greeting, name)) in greetings.into_iter().zip(names).enumerate() {
        let script = HashMap::from([(cluster.segment_name(name, 0), Said::whole(&body, 0))]);
        fakes.push(fake_holder(&cluster, &format!("fake-{at}"), greeting, script));
    }
    wait_known(&cluster, 4);
    get_all(&cluster, "node-1", &names, &body);
    [LOST, ORIGIN].iter().for_each(|metric| cluster.wait_sum(metric, 4));
    let refused = |by, reason| {
        cluster.sum(&format!("skep_streams_refused_total{{by=\"{by}\",reason=\"{reason}\"}}"))
    };
    assert_eq!(refused("here", "proof"), 1);
    assert_eq!(refused("here", "version"), 1);
    assert_eq!(refused("there", "full"), 1);
    assert_eq!(cluster.sum("skep_stream_events_total{kind=\"ungreeted\"}"), 1);
    assert!(fakes.iter().all(|fake| fake.asked().is_empty()));
}

#[test]
fn where_one_of_two_holders_fails_the_other_is_asked_and_no_disk() {
    let body = version(1, LEN);
    let names: Vec<String> = (0..24).map(|number| format!("f{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let site = names.iter().fold(Site::new(), |site, name| site.with(name, &body));
    let cluster = CacheCluster::start(1, 2, site, "");
    get_all(&cluster, "node-1", &names, &body);
    wait_known(&cluster, 24);
    let faults = faults(&body);
    let named = names.iter().map(|name| cluster.segment_name(name, 0));
    let stories: HashMap<_, _> = named.zip(faults.iter().cycle()).collect();
    let scripts = stories.iter().map(|(name, (.., said))| (*name, said.clone()));
    let fake = fake_holder(&cluster, "node-9", Greeting::Right, scripts.collect());
    poll_until(PATIENCE, "both are holders", || {
        let nodes = cluster.coordinator("dispatcher-1")["nodes"].clone();
        nodes
            .as_array()
            .unwrap()
            .iter()
            .filter(|node| node["held_bytes"] == (24 * LEN) as u64)
            .count()
            == 2
    });
    get_all(&cluster, "node-2", &names, &body);
    // Which of two holders is listed first is random; that it is never this one is too unlikely to occur.
    let asked: HashSet<SegmentName> = fake.asked().iter().filter_map(fetched).collect();
    assert!(!asked.is_empty());
    let in_vain = |name| match stories[name].1 {
        PEER => 0,
        // Counted as a refusal and as a directory error.
        DIRECTORY_ERROR => 2,
        _ => 1,
    };
    let planned = asked.iter().map(in_vain).sum();
    // Each was read once, by node-1.
    cluster.assert_asked_beside(cluster.sum(ORIGIN), 24, planned);
}

#[test]
fn a_leader_that_lies_or_falls_silent_is_followed_by_the_next_one_at_the_offset() {
    let body = version(1, LEN);
    let stories = [
        ("dies", Said::chunks(&body, 0, 1).close()),
        ("stalls", Said::chunks(&body, 0, 1).hang()),
        ("lies", Said::chunks(&body, 0, 1).changed_chunk(&body[CHUNK..2 * CHUNK])),
        ("knows-nothing", Said::refusal(PeerRefusal::NotThere)),
    ];
    let site = stories.iter().fold(Site::new(), |site, (name, _)| site.with(name, &body));
    let cluster = CacheCluster::start(1, 2, site, "");
    let named = |(name, said): &(&str, Said)| (cluster.segment_name(name, 0), said.clone());
    let scripts: HashMap<_, _> = stories.iter().map(named).collect();
    let segments: Vec<SegmentName> = scripts.keys().copied().collect();
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let fake = FakeNode::join("node-9", coordinator, Greeting::Right, move |name, _| {
        scripts.get(&name).cloned()
    });
    // It gets the leases, and renews them without filling anything.
    let mut leases = Vec::new();
    for segment in segments {
        let CoordinatorAnswer::Grant { lease } = fake.ask(segment, LEN as u32) else {
            panic!("a lease")
        };
        leases.push(lease);
    }
    for &lease in &leases {
        fake.tell(&ToCoordinator::Renew { lease });
    }
    let names = stories.map(|(name, _)| name);
    get_all(&cluster, "node-1", &names, &body);
    // Node-1 became the leader of each segment, and reported why.
    cluster.wait_sum(ORIGIN, 4);
    cluster.wait_sum(DIRECTORY_ERROR, 4);
    cluster.wait_sum(PEER_BYTES, 3 * CHUNK as u64);
    cluster.wait_sum(ORIGIN_BYTES, (4 * LEN - 3 * CHUNK) as u64);
    // Its reports about its leases are ignored now.
    leases.iter().for_each(|&lease| fake.tell(&ToCoordinator::Ended { lease, is_held: true }));
    wait_known(&cluster, 4);
    // Counted by node-1 for each file as a refusal and as a directory error.
    let planned = 2 * names.len() as u64;
    get_all(&cluster, "node-2", &names, &body);
    cluster.assert_asked_beside(cluster.sum(ORIGIN), 4, planned);
}

/// Returns the name that all nodes use for the head of a target of `origin`'s site.
fn head_name(origin: &Origin, target: &str) -> SegmentName {
    let site = format!("origins {} as None", origin.url());
    let (site, target) = (site.as_bytes(), target.as_bytes());
    // Includes a hash of how the route requests it.
    let kind = ObjectName::head(b"", b"", b"head of *, fresh for 1000 ms", PurgeStamp::NONE).0;
    ObjectName::head(site, target, &kind, PurgeStamp::NONE)
}

#[test]
fn who_does_not_answer_for_a_head_is_told_of_only_if_it_leads() {
    let late = || Said::default().hang();
    // Behaviour of a holder, behaviour of a leader, and the number of directory errors.
    let stories = [
        ("/late", Some(late()), None, 0),
        ("/garbage", Some(Said::bytes([0xff; 4096])), None, 0),
        ("/absent", Some(Said::refusal(PeerRefusal::NotThere)), None, 1),
        ("/late-leader", None, Some(late()), 1),
    ];
    let origin = Origin::of(version(1, 1_000), "\"v1\"", FRESH);
    let cluster = CacheCluster::start_of(1, 1, Site::new(), &origin.line(), "");
    let said = stories.iter().map(|(target, holder, leader, _)| {
        (head_name(&origin, target), holder.clone().or(leader.clone()).unwrap())
    });
    let said: HashMap<_, _> = said.collect();
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let fake = FakeNode::join("node-9", coordinator, Greeting::Right, move |name, _| {
        said.get(&name).cloned()
    });
    let holders = stories.iter().filter(|(_, holder, ..)| holder.is_some());
    fake.claim(holders.map(|(target, ..)| (head_name(&origin, target), 0)));
    wait_known(&cluster, 3);
    for (target, _, leader, wrong) in stories {
        let before = cluster.sum(DIRECTORY_ERROR);
        if leader.is_some() {
            // The lease lasts for some seconds.
            assert!(matches!(
                fake.ask(head_name(&origin, target), 0),
                CoordinatorAnswer::Grant { .. }
            ));
        }
        cluster.get("node-1", target).assert_status(200);
        assert_eq!(cluster.sum(DIRECTORY_ERROR) - before, wrong, "{target}");
        let head = PeerRequest::Head { name: head_name(&origin, target), place: None };
        assert!(fake.asked().contains(&head), "{target}");
    }
    assert_eq!(origin.asked().len(), 4);
}

#[test]
fn who_offers_a_sole_replica_and_does_not_give_it_keeps_nobody_waiting() {
    let body = version(1, LEN);
    let site = Site::new().with("a", &body).with("b", &body);
    let cluster = CacheCluster::start(1, 1, site, "");
    let [a, b] = ["a", "b"].map(|name| cluster.segment_name(name, 0));
    let said = [(a, Said::chunks(&body, 0, 1).hang()), (b, Said::whole(&body, 0))];
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let said = HashMap::from(said);
    let fake = FakeNode::join("node-9", coordinator, Greeting::Right, move |name, _| {
        said.get(&name).cloned()
    });
    cluster.wait_linked(2);
    let offer = |name| fake.offer(cluster.inner("node-1"), name, LEN as u32).unwrap();
    thread::scope(|scope| {
        let offered = scope.spawn(|| offer(a));
        poll_until(PATIENCE, "it is being taken over", || !fake.asked().is_empty());
        get_all(&cluster, "node-1", &["a"], &body);
        // Meanwhile, the segment was read from the disk.
        cluster.wait_sum(ORIGIN, 1);
        assert_eq!(offered.join().unwrap(), PeerReply::Refused(PeerRefusal::NotWanted));
    });
    // An offer in time is accepted, and the segment is served from memory.
    assert_eq!(offer(b), PeerReply::Taken);
    get_all(&cluster, "node-1", &["a", "b"], &body);
    assert_eq!((cluster.sum(ORIGIN), cluster.sum(PEER)), (1, 0));
}

/// Requests `/a` without reading the answer.
fn begin(cluster: &CacheCluster, node: &str) -> RawClient {
    let mut client = RawClient::connect(cluster.outer(node));
    client.ask("/a");
    client
}

/// Reads this number of bytes of a body whose head was received.
fn read(client: &mut RawClient, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < bytes {
        let read = client.try_read_some().unwrap();
        assert!(!read.is_empty(), "closed after {} bytes", body.len());
        body.extend(read);
    }
    body
}

/// An origin with one object whose first answer halts within its body.
fn halting(body: &[u8], bytes: usize) -> Origin {
    let (body, is_first) = (body.to_vec(), std::sync::atomic::AtomicBool::new(true));
    Origin::start(move |asked| {
        let answer = Answer::of(asked, &body, "\"v1\"", FRESH);
        match is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => answer.halt(bytes),
            false => answer,
        }
    })
}

#[test]
fn when_the_leader_of_a_fill_dies_the_next_one_goes_on_where_it_was() {
    let body = version(1, SEGMENT);
    let origin = halting(&body, SEGMENT / 2 + 77);
    let mut cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    let mut clients = ["node-1", "node-2", "node-3"].map(|node| {
        let mut client = begin(&cluster, node);
        client.try_head().unwrap();
        let start = read(&mut client, SEGMENT / 2);
        (client, start)
    });
    cluster.assert_asked(origin.asked().len() as u64, 1);
    if cluster.has_doubts(0) {
        return;
    }
    cluster.kill("node-1");
    let [(dead, dead_start), others @ ..] = &mut clients;
    dead_start.extend(dead.read_to_close());
    assert_same(dead_start, &body[..dead_start.len()]);
    for (client, start) in others {
        let missing = SEGMENT - start.len();
        start.extend(read(client, missing));
        assert_same(start, &body);
    }
    let rest = format!("bytes={}-{}", SEGMENT / 2, SEGMENT - 1);
    let ranges = origin.ranges();
    assert!(ranges[0] == HEAD_RANGE && ranges.contains(&rest), "{ranges:?}");
    // Both of them lost the leader, and reported it.
    cluster.assert_asked_beside(ranges.len() as u64, 2, 4);
    poll_until(PATIENCE, "both copies are known", || {
        cluster.coordinator("dispatcher-1")["copies"].as_u64() == Some(2)
    });
    cluster.run("node-1");
    cluster.wait_linked(3);
    assert_same(&cluster.get("node-1", "/a").body, &body);
    if cluster.has_doubts(4) {
        return;
    }
    // The head was to come from node-1, and is requested again; the bytes are not.
    let is_head = |range: &&String| **range == HEAD_RANGE;
    assert_eq!(origin.ranges().iter().filter(|range| !is_head(range)).count(), 1);
    assert!(origin.asked().len() <= 3);
    assert_eq!(cluster.metric("node-1", ORIGIN), 0);
}

#[test]
fn a_fill_keeps_its_lease_however_slow_the_origin_is() {
    let body = version(1, SEGMENT);
    let origin = halting(&body, SEGMENT / 2 + 77);
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    let begun = |node| {
        let mut client = begin(&cluster, node);
        client.try_head().unwrap();
        let start = read(&mut client, SEGMENT / 2);
        (client, start)
    };
    let first = begun("node-1");
    // Longer than a lease lasts without renewal.
    let began = Instant::now();
    poll_until(PATIENCE, "the lease would be over", || {
        began.elapsed() > Duration::from_millis(2_500)
    });
    let second = begun("node-2");
    origin.go_on();
    for (mut client, mut start) in [first, second] {
        let missing = SEGMENT - start.len();
        start.extend(read(&mut client, missing));
        assert_same(&start, &body);
    }
    cluster.assert_asked(origin.asked().len() as u64, 1);
}

#[test]
fn when_the_coordinator_dies_within_a_lease_the_fill_goes_on() {
    for dispatchers in [1, 2] {
        let body = version(1, SEGMENT);
        let origin = halting(&body, SEGMENT / 2 + 77);
        let mut cluster = CacheCluster::start_of(dispatchers, 3, Site::new(), &origin.line(), "");
        let mut clients = ["node-1", "node-2"].map(|node| {
            let mut client = begin(&cluster, node);
            client.try_head().unwrap();
            let start = read(&mut client, SEGMENT / 2);
            (client, start)
        });
        cluster.kill("dispatcher-1");
        origin.go_on();
        for (client, start) in &mut clients {
            let missing = SEGMENT - start.len();
            start.extend(read(client, missing));
            assert_same(start, &body);
        }
        cluster.assert_asked(origin.asked().len() as u64, 1);
        assert_same(&cluster.get("node-3", "/a").body, &body);
        cluster.run("dispatcher-1");
        cluster.wait_linked(3);
        for node in ["node-1", "node-2", "node-3"] {
            assert_same(&cluster.get(node, "/a").body, &body);
        }
    }
}

#[test]
fn without_any_dispatcher_each_segment_is_filled_once_by_its_owner() {
    let body = version(1, 6 * SEGMENT + 4_321);
    let site = Site::new().with("a", &body);
    let mut cluster = CacheCluster::start(2, 3, site, "");
    cluster.kill("dispatcher-1");
    cluster.kill("dispatcher-2");
    thread::scope(|scope| {
        for client in 0..9 {
            let (cluster, body) = (&cluster, &body);
            let node = format!("node-{}", 1 + client % 3);
            scope.spawn(move || assert_same(&cluster.get(&node, "/a").body, body));
        }
    });
    // Each of two nodes reads from the owner.
    let got = || cluster.sum(OWNER) + cluster.sum(ORIGIN);
    wait_count("segments that each node has got", 21, got);
    // A node that is not scheduled in time is counted as lost, and other nodes take over its segments.
    let (filled, lost) = (cluster.sum(ORIGIN), cluster.sum(LOST) + cluster.sum(REFUSED));
    assert!((7..=7 * (1 + lost)).contains(&filled), "{filled} fills of 7 segments, {lost} lost");
}
