//! The messages of `CoordinatorLinks`, as a coordinator at the other end of a link receives
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use skep_config::SpoolConfig;
use skep_directory::{Coordinator, CoordinatorSettings, FetchOutcome, Hello};
use skep_peer::stream::{
    LinkEvent, LinkServer, LinkSettings, LinkTarget, Lost, NodeLinks, Outbox, PeerError,
    StreamCount,
};
use skep_segments::{FetchError, SegmentStore};
use skep_units::Now;
use skep_upstream::UpstreamError;
use skep_wire::cache::{
    Identity, PeerRefusal, PurgeNews, PurgeStamp, PurgeWhat, SegmentName, ToCoordinator, ToNode,
};
use skep_wire::message::Name;
use skep_wire::seal::Key;

use tokio::sync::{Notify, oneshot};

use super::client::{counter_of, end_of, error_of};
use super::part::error_of_home;
use super::{ClusterParts, Command, SharedParts, renewing};
use crate::limits::LINK_TICK_MS;
use crate::model::announced::{Announced, AnnouncedPath};
use crate::model::pools::Pools;
use crate::model::purges::Purges;
use crate::peers::coordinator_links::CoordinatorLinks;

/// How long a wait that must end well may take: far more than it does.
const PATIENCE: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A machine that is held up loses no link.
fn settings(own: &str) -> LinkSettings {
    let key = Key::from_text("a secret of thirty-two characters").unwrap();
    let usual = LinkSettings::new(Identity::new(&key, "hive", &name(own)), LINK_TICK_MS);
    LinkSettings { silence_ms: 20_000, ..usual }
}

fn place(number: u32) -> (SegmentName, AnnouncedPath) {
    let mut name = [0; 16];
    name[..4].copy_from_slice(&number.to_le_bytes());
    // The directory takes them for random.
    name[8..]
        .copy_from_slice(&(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    (SegmentName(name), AnnouncedPath { route: 1, relative: Box::default() })
}

/// A coordinator that nodes link with.
struct Gate {
    server: LinkServer<ToNode>,
    heard: Receiver<Heard>,
}

/// What a coordinator reports of its only node.
#[derive(Debug, PartialEq)]
enum Heard {
    Linked,
    /// It has announced so many files, and whether these are all.
    Announces(u64, bool),
    Purged(PurgeStamp),
    Lost(Lost),
}

impl Gate {
    fn start() -> Self {
        let (tell, heard) = sync_channel(100_000);
        let mut core = Coordinator::new(CoordinatorSettings::default(), 1);
        core.set_stage(Some(1));
        let mut member = None;
        let handle = move |event, outbox: &mut Outbox<ToNode>| {
            let news = match event {
                LinkEvent::Up { .. } => Heard::Linked,
                LinkEvent::Down { why, .. } => Heard::Lost(why),
                LinkEvent::Told(message) => return outbox.send_all(&message),
                LinkEvent::Received { message: ToCoordinator::Purged { stamp, .. }, .. } => {
                    Heard::Purged(stamp)
                }
                LinkEvent::Received { message: ToCoordinator::Features(_), .. } => return,
                LinkEvent::Received { message, .. } => {
                    if let ToCoordinator::Hello { name, address, capacity_bytes } = message {
                        let joined = core.joined(Hello { name, address, capacity_bytes });
                        member = joined.map(|it| it.link);
                    } else {
                        core.heard(Now(0), member.unwrap(), message);
                    }
                    let known = core.counters();
                    Heard::Announces(known.files, known.nodes_unsure == 0)
                }
                _ => return,
            };
            tell.send(news).unwrap();
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = LinkServer::start(&settings("gate"), listener, handle).unwrap();
        Self { server, heard }
    }

    /// Waits for all of these, in any order.
    fn wait_for(&self, mut wanted: Vec<Heard>) {
        while !wanted.is_empty() {
            let heard = self.heard.recv_timeout(PATIENCE);
            let heard = heard.unwrap_or_else(|_| panic!("waits for {wanted:?}"));
            assert!(!matches!(heard, Heard::Lost(_)), "{heard:?}");
            wanted.retain(|it| *it != heard);
        }
    }
}

/// A node that announces places, linked with `gate`.
struct Linked {
    announced: Arc<Announced>,
    purges: Arc<Purges>,
    links: NodeLinks<Command>,
}

/// The pools of a node that has none.
fn no_pools() -> Arc<Pools> {
    let buffers = crate::body_buffers(&SpoolConfig::default()).unwrap();
    Arc::new(Pools::new(1, None, buffers))
}

impl Linked {
    fn start(gate: &Gate, settings: &LinkSettings, places: u32) -> Self {
        let (announced, purges) = (Arc::<Announced>::default(), Arc::<Purges>::default());
        announced.add(announced.begin(), (0..places).map(place));
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let parts = ClusterParts { identity: settings.identity.clone(), address };
        let (view, roomiest) = (Arc::default(), Arc::default());
        let shared = SharedParts {
            store: SegmentStore::new(1 << 20, usize::MAX, true),
            announced: Arc::clone(&announced),
            purges: Arc::clone(&purges),
            orders: Arc::default(),
            explain: Box::new(|_| None),
            power: Arc::default(),
            release: Arc::new(|| ()),
            pools: no_pools(),
        };
        let mut coordinators =
            CoordinatorLinks::new(parts, shared, &view, &roomiest, &Arc::default());
        let targets = vec![LinkTarget { name: name("gate"), address: gate.server.address() }];
        let handle = move |event, outbox: &mut _| coordinators.handle(event, outbox);
        let links = NodeLinks::start(settings, targets, handle).unwrap();
        Self { announced, purges, links }
    }
}

#[test]
fn an_inventory_beyond_the_queue_of_a_link_is_told_and_purges_are_heard() {
    const PLACES: u32 = 200_000;
    let gate = Gate::start();
    let small = LinkSettings { queue_bytes_max: 1024 * 1024, ..settings("node") };
    let node = Linked::start(&gate, &small, PLACES);
    gate.wait_for(vec![Heard::Linked]);
    // Of the same inventory, before or behind it.
    let term = node.announced.begin();
    let is_gone = |number: &u32| number.is_multiple_of(100) && *number < 100_000;
    node.announced.remove(term, (0..PLACES).filter(is_gone).map(|number| place(number).0));
    node.announced.add(term, (0..PLACES + 5_000).filter(|it| !is_gone(it)).map(place));
    let stamp = PurgeStamp(7);
    let purges = vec![(PurgeWhat::Tag("shop".into()), stamp)];
    let news = PurgeNews { purges, ..PurgeNews::default() };
    gate.server.teller().tell(ToNode::Purges(news)).unwrap();
    let places = u64::from(PLACES) - 1_000 + 5_000;
    node.announced.settle(term, true);
    gate.wait_for(vec![Heard::Purged(stamp), Heard::Announces(places, true)]);
    assert_eq!(node.purges.newest(), stamp);
    assert_eq!(node.links.counts().of(StreamCount::Overflowed), 0);
}

#[test]
fn what_was_taken_over_can_be_told_at_once() {
    let gate = Gate::start();
    let node = Linked::start(&gate, &LinkSettings { tick_ms: 3_600_000, ..settings("node") }, 1);
    gate.wait_for(vec![Heard::Announces(1, false)]);
    node.announced.add(node.announced.begin(), (1..2).map(place));
    let (told, is_told) = oneshot::channel();
    assert!(node.links.teller().tell(Command::Changes { told }).is_ok());
    is_told.blocking_recv().unwrap();
    gate.wait_for(vec![Heard::Announces(2, false)]);
}

#[test]
fn all_is_announced_when_it_was_walked_and_told_and_until_it_is_walked_anew() {
    let gate = Gate::start();
    let node = Linked::start(&gate, &settings("node"), 10_000);
    gate.wait_for(vec![Heard::Announces(10_000, false)]);
    let term = node.announced.begin();
    node.announced.add(term, (5_000..10_001).map(place));
    node.announced.settle(term, true);
    gate.wait_for(vec![Heard::Announces(5_001, true)]);
    node.announced.has_more(term);
    gate.wait_for(vec![Heard::Announces(5_001, false)]);
}

/// The origin is slower than a lease lasts without a word.
#[test]
fn a_lease_is_renewed_as_long_as_its_fill_takes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (renewed, enough) = (Cell::new(0), Notify::new());
    let renew = || {
        renewed.set(renewed.get() + 1);
        if renewed.get() == 3 {
            enough.notify_one();
        }
    };
    runtime.block_on(renewing(enough.notified(), renew));
    assert_eq!(renewed.get(), 3);
}

#[test]
fn no_memory_here_is_no_fault_of_the_other_node() {
    let error = PeerError::NotKept(io::ErrorKind::OutOfMemory.into());
    assert!(!error.blames_node());
    assert_eq!((end_of(&error), counter_of(end_of(&error))), (FetchOutcome::Crowded, None));
    assert_eq!(error_of(&error), FetchError::NoMemory);
    assert_eq!(error_of_home(&error), Some(FetchError::NoMemory));
}

#[test]
fn a_reply_says_whether_the_other_node_its_source_or_this_machine_failed() {
    let late = FetchError::Origin { fault: "late", status: 504 };
    let busy = || PeerError::Connect(UpstreamError::PoolFull);
    let away = || PeerError::Connect(UpstreamError::ConnectTimeout);
    for (error, of_segment, of_home) in [
        (PeerError::SourceLate, late, Some(FetchError::Peer)),
        (busy(), FetchError::NoConnection, Some(FetchError::NoConnection)),
        (away(), FetchError::Peer, None),
        (PeerError::Late, FetchError::Peer, None),
        (PeerError::Closed, FetchError::Peer, None),
        (PeerError::Unexpected, FetchError::Peer, Some(FetchError::Peer)),
        (PeerError::Refused(PeerRefusal::NotThere), FetchError::Peer, Some(FetchError::Peer)),
    ] {
        assert_eq!((error_of(&error), error_of_home(&error)), (of_segment, of_home), "{error}");
    }
}

/// Not a test: how long the largest inventory takes. `--ignored --nocapture`, in release.
#[test]
#[ignore = "prints figures"]
fn figures() {
    const PLACES: u32 = 4_000_000;
    let gate = Gate::start();
    let _node = Linked::start(&gate, &settings("node"), PLACES);
    gate.wait_for(vec![Heard::Linked]);
    let began = Instant::now();
    gate.wait_for(vec![Heard::Announces(u64::from(PLACES), false)]);
    println!("{PLACES} names told in {:?}", began.elapsed());
}
