//! The targets for the streams of the cluster cache, and their seeds: handshakes, frames, and the messages in
//! them.

use std::sync::LazyLock;

use skep_units::{SEGMENT_BYTES, stable_hash};
use skep_wire::cache::frame::{FRAME_HEAD_BYTES, PING, write_frame};
use skep_wire::cache::hello::HELLO_BYTES_MAX;
use skep_wire::cache::part::{FileHead, FileVersion, Versions};
use skep_wire::cache::{
    CacheMember, CoordinatorAnswer, ExplainRequest, FileAnswer, FilePlace, FrameDecoder,
    FrameError, Handshake, Held, Identity, LeaseId, NodeFeatures, NodeQuestion, OrderStamp,
    OriginRef, PeerRefusal, PeerReply, PeerRequest, PossibleHolder, PurgeNews, PurgePlace,
    PurgeStamp, PurgeWhat, Purpose, SegmentName, ServerChange, ServerKey, ServerLoad, ServerOrder,
    SlotGrant, SlotReport, SlotUse, ToCoordinator, ToNode, link::ReplicaStatus,
};
use skep_wire::limits::{
    EXPLAIN_HEAD_BYTES_MAX, EXPLAIN_VARIANTS_MAX, HELD_PER_MESSAGE_MAX, HOLDERS_TOLD_MAX,
    MEMBERS_MAX, OBJECT_BYTES_MAX, ORIGIN_BYTES_MAX, PEER_HEAD_BYTES_MAX, POSSIBLE_HOLDERS_MAX,
    PURGE_CELLS_PER_MESSAGE_MAX, PURGES_PER_MESSAGE_MAX, SERVER_ORDERS_MAX, SLOT_SERVERS_MAX,
    TAIL_MAX,
};
use skep_wire::message::Name;
use skep_wire::seal::Key;

/// The number of authentic handshakes for each side; all others must be refused.
const AUTHENTIC: u8 = 30;

/// Maximum payload of the fuzzed frames, in bytes: so low that the limit is reached.
const PAYLOAD_BYTES_MAX: usize = 200;

/// The beginning of a stream, preceded by a byte that selects the receiving side. A peer without the proof
/// that requires the key is refused.
pub fn handshake(data: &[u8]) {
    static AUTHENTIC: LazyLock<Vec<Vec<u8>>> = LazyLock::new(handshakes);
    let Some((&side, said)) = data.split_first() else { return };
    let mut hearing = if is_server(side) { server() } else { client("client-0", 0) };
    let mut at = 0;
    let verdict = loop {
        assert!(hearing.output().len() <= 2 * HELLO_BYTES_MAX, "it says more than it may");
        let wants = hearing.wants();
        assert!(wants <= HELLO_BYTES_MAX);
        if wants == 0 {
            break Some(Ok(()));
        }
        assert_eq!(hearing.other(), None, "known before it has proved anything");
        let Some(next) = said.get(at..at + wants) else { break None };
        at += wants;
        if let Err(error) = hearing.take(next) {
            break Some(Err(error));
        }
    };
    let is_authentic = |it: &&Vec<u8>| is_server(it[0]) == is_server(side) && it[1..] == said[..at];
    let is_accepted = matches!(verdict, Some(Ok(())));
    assert_eq!(is_accepted, AUTHENTIC.iter().any(|it| is_authentic(&it)), "{verdict:?}");
    assert_eq!(is_accepted, hearing.other().is_some());
}

/// A stream of frames: the same payloads however it is split, and the same stream when they are framed again.
pub fn frames(data: &[u8]) {
    let whole = unframe(data, |_| data.len());
    assert_eq!(unframe(data, |_| 1), whole, "byte by byte");
    let key = stable_hash(data, 0);
    let piece = |at: usize| 1 + (stable_hash(&at.to_le_bytes(), key) % 64) as usize;
    assert_eq!(unframe(data, piece), whole, "in pieces");
    let (payloads, error) = whole;
    let mut again = Vec::new();
    for payload in &payloads {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX);
        write_frame(&mut again, payload);
    }
    assert!(data.starts_with(&again));
    // Without an error the rest is the beginning of one more frame.
    let rest = data.len() - again.len();
    assert!(error.is_some() || rest < FRAME_HEAD_BYTES + PAYLOAD_BYTES_MAX);
}

/// A message between machines of the cluster cache: whatever its kind, it keeps to its bounds, and stays the
/// same when it is encoded again.
pub fn message(data: &[u8]) {
    if let Ok(message) = ToCoordinator::decode(data) {
        assert_eq!(ToCoordinator::decode(&message.encode()).as_ref(), Ok(&message));
        match message {
            ToCoordinator::Inventory { held, .. } => assert!(held.len() <= HELD_PER_MESSAGE_MAX),
            ToCoordinator::Delta { added, removed } => {
                assert!(added.len().max(removed.len()) <= HELD_PER_MESSAGE_MAX);
            }
            ToCoordinator::Announce { added, removed, .. } => {
                assert!(added.len().max(removed.len()) <= HELD_PER_MESSAGE_MAX);
            }
            ToCoordinator::Tail { names } => assert!(names.len() <= TAIL_MAX),
            ToCoordinator::Purges(news) | ToCoordinator::SoftPurges(news) => is_sound(&news),
            ToCoordinator::Explained { explanation: Some(it), .. } => {
                assert!(it.variants.len() <= EXPLAIN_VARIANTS_MAX);
            }
            ToCoordinator::Slots(SlotReport { servers, .. }) => {
                assert!(servers.len() <= SLOT_SERVERS_MAX);
                assert!(servers.is_sorted_by(|a, b| a.server < b.server));
            }
            ToCoordinator::ServerOrders(orders) => assert!(orders.len() <= SERVER_ORDERS_MAX),
            _ => {}
        }
    }
    if let Ok(message) = ToNode::decode(data) {
        assert_eq!(ToNode::decode(&message.encode()).as_ref(), Ok(&message));
        match message {
            ToNode::Welcome { members, .. } => assert!(members.len() <= MEMBERS_MAX),
            ToNode::Answer { answer: CoordinatorAnswer::Have { holders }, .. } => {
                assert!((1..=HOLDERS_TOLD_MAX).contains(&holders.len()));
            }
            ToNode::Tail { names, replica_statuses, .. } => {
                assert_eq!(names.len(), replica_statuses.len())
            }
            ToNode::Purges(news) | ToNode::SoftPurges(news) => is_sound(&news),
            ToNode::FileAnswer { answer: FileAnswer::Unsure { nodes, .. }, .. } => {
                assert!(nodes.len() <= POSSIBLE_HOLDERS_MAX);
            }
            ToNode::FileAnswer { answer: FileAnswer::Have { holders }, .. } => {
                assert!((1..=HOLDERS_TOLD_MAX).contains(&holders.len()));
            }
            ToNode::Slots { grants, .. } => assert!(grants.len() <= SLOT_SERVERS_MAX),
            ToNode::Explain { request, .. } => {
                assert!(request.head.len() <= EXPLAIN_HEAD_BYTES_MAX);
            }
            ToNode::ServerOrders(orders) => assert!(orders.len() <= SERVER_ORDERS_MAX),
            ToNode::ServerLoads(loads) => assert!(loads.len() <= SLOT_SERVERS_MAX),
            _ => {}
        }
    }
    if let Ok(request) = PeerRequest::decode(data) {
        assert_eq!(PeerRequest::decode(&request.encode()).as_ref(), Ok(&request));
        if let PeerRequest::Fetch { bytes, from, origin, .. } = request {
            assert!(from < bytes && u64::from(bytes) <= SEGMENT_BYTES);
            let fits = |it: OriginRef| it.path.len() + it.version.len() <= ORIGIN_BYTES_MAX;
            assert!(origin.is_none_or(fits));
        }
    }
    if let Ok(reply) = PeerReply::decode(data) {
        assert_eq!(PeerReply::decode(&reply.encode()).as_ref(), Ok(&reply));
        if let PeerReply::Head { head, .. } | PeerReply::HeadAfter { head, .. } = reply {
            assert!(head.len() <= PEER_HEAD_BYTES_MAX);
        }
    }
}

/// A node's report of what it has at a path: accepted values are bounded, and are encoded again as the same.
pub fn part_head(data: &[u8]) {
    let Some(head) = FileHead::read(data) else { return };
    assert_eq!(FileHead::read(&head.to_bytes()), Some(head));
    let FileHead::File(Versions { plain, encoded }) = head else {
        return assert_eq!(head.to_bytes(), data, "there is one way to say it");
    };
    let all = encoded.iter().flatten().chain([&plain]);
    all.for_each(|version| assert!(version.bytes <= OBJECT_BYTES_MAX));
}

fn is_sound(news: &PurgeNews) {
    assert!(news.cells.len() <= PURGE_CELLS_PER_MESSAGE_MAX);
    assert!(news.purges.len() <= PURGES_PER_MESSAGE_MAX);
    assert!(news.purges.iter().all(|(what, _)| what.is_sound()));
    // There is always a next stamp.
    assert!(PurgeStamp::after(news.newest(), 0, 0) > news.newest());
}

fn unframe(data: &[u8], piece_at: impl Fn(usize) -> usize) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut frames = FrameDecoder::new(PAYLOAD_BYTES_MAX);
    let (mut payloads, mut arrived) = (Vec::new(), 0);
    while arrived < data.len() {
        let end = (arrived + piece_at(arrived)).min(data.len());
        frames.push(&data[arrived..end]);
        arrived = end;
        loop {
            match frames.next_payload().map(|payload| payload.map(<[u8]>::to_vec)) {
                Ok(Some(payload)) => payloads.push(payload),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(frames.next_payload(), Err(error), "an error must stay");
                    return (payloads, Some(error));
                }
            }
        }
    }
    (payloads, None)
}

/// What the two sides of authentic handshakes receive, preceded by the byte that selects the side.
pub fn handshakes() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for number in 0..AUTHENTIC {
        // A server accepts any client; a client always has the same nonce.
        let (_, to_server) = talk(&mut client(&format!("client-{number}"), number), &mut server());
        let mut other = Handshake::server(&identity(&format!("s-{number}")), PURPOSE, [number; 32]);
        let (to_client, _) = talk(&mut client("client-0", 0), &mut other);
        seeds.push([&[1][..], &to_server].concat());
        seeds.push([&[0][..], &to_client].concat());
    }
    seeds
}

/// Streams of frames: with messages, keepalives, and chunks.
pub fn framed() -> Vec<Vec<u8>> {
    let mut stream = Vec::new();
    let mut streams = Vec::new();
    for (at, message) in messages().iter().enumerate() {
        write_frame(&mut stream, &message[..message.len().min(PAYLOAD_BYTES_MAX)]);
        stream.extend(PING);
        if at % 4 == 3 {
            streams.push(std::mem::take(&mut stream));
        }
    }
    let chunk = |bytes: usize| {
        let mut stream = Vec::new();
        write_frame(&mut stream, &vec![bytes as u8; bytes]);
        stream
    };
    streams.extend((0..=PAYLOAD_BYTES_MAX + 1).step_by(3).map(chunk));
    streams
}

/// Messages of all kinds.
pub fn messages() -> Vec<Vec<u8>> {
    (0..12)
        .flat_map(|number| [kinds(number), of_files(number), of_purges(number)].concat())
        .collect()
}

/// One message of each kind, except those about files of partitioned folders and about purges.
fn kinds(number: u8) -> Vec<Vec<u8>> {
    let names = |count: u8| (0..count).map(|at| SegmentName([at; 16])).collect::<Vec<_>>();
    let held = |name: SegmentName| Held { name, bytes: 4096 };
    let machine = Name::new("node-1").unwrap_or_default();
    let address = ([10, 0, 0, number], 7071).into();
    let member = |id: u8| CacheMember { id: id.into(), name: machine.clone(), address };
    let (name, bytes) = (SegmentName([number; 16]), SEGMENT_BYTES as u32 >> number);
    let origin = OriginRef {
        site: u64::MAX,
        path: vec![b'a'; usize::from(number) * 9],
        version: b"\"17a-3\"".to_vec(),
        purged: PurgeStamp(number.into()),
        object_bytes: SEGMENT_BYTES + u64::from(bytes),
        index: 1,
        has_lease: number.is_multiple_of(2),
    };
    let tail = names(number * 6);
    let replica_statuses = vec![ReplicaStatus::Redundant; tail.len()];
    let said = [
        ToCoordinator::Hello { name: machine.clone(), address, capacity_bytes: u64::MAX },
        ToCoordinator::Inventory {
            is_first: number.is_multiple_of(2),
            is_last: number.is_multiple_of(3),
            held: names(number * 5).into_iter().map(held).collect(),
        },
        ToCoordinator::Delta {
            added: names(number).into_iter().map(held).collect(),
            removed: names(number * 2),
        },
        ToCoordinator::Ask { ask: u64::from(number) << 30, name, bytes },
        ToCoordinator::Renew { lease: LeaseId(u64::MAX) },
        ToCoordinator::Ended { lease: LeaseId(number.into()), is_held: true },
        ToCoordinator::NotThere { name, holder: number.into() },
        ToCoordinator::Tail { names: tail.clone() },
    ];
    let answers = [
        CoordinatorAnswer::Have { holders: vec![number.into(), 0] },
        CoordinatorAnswer::Busy { leader: number.into() },
        CoordinatorAnswer::Grant { lease: LeaseId(number.into()) },
        CoordinatorAnswer::Later,
        CoordinatorAnswer::Refused,
    ];
    let told = [
        ToNode::Welcome {
            is_active: true,
            epoch: 1 << number,
            members: (0..number).map(member).collect(),
        },
        ToNode::Tail { names: tail, replica_statuses, roomiest: Some(number.into()) },
    ];
    let told = told.into_iter().chain(answers.map(|answer| ToNode::Answer { ask: 7, answer }));
    let asked = [
        PeerRequest::Fetch { name, bytes, from: 0, origin: None },
        PeerRequest::Fetch { name, bytes, from: bytes / 2, origin: Some(origin) },
        PeerRequest::Head { name, place: None },
        PeerRequest::Offer { name, bytes, chances: 2 },
    ];
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"v1\"\r\n\r\n".to_vec();
    let replied = [
        PeerReply::Coming,
        PeerReply::Head { fresh_ms: 60_000, head: head.clone() },
        PeerReply::HeadAfter { fresh_ms: 60_000, softly_purged: PurgeStamp(7), head },
        PeerReply::Taken,
        PeerReply::Refused(PeerRefusal::NotThere),
    ];
    let said = said.iter().map(ToCoordinator::encode);
    let messages = said.chain(told.map(|it| it.encode()));
    let messages = messages.chain(asked.iter().map(PeerRequest::encode));
    messages.chain(replied.iter().map(PeerReply::encode)).collect()
}

/// One message of each kind that concerns files of partitioned folders.
fn of_files(number: u8) -> Vec<Vec<u8>> {
    let names = |count: u8| (0..count).map(|at| SegmentName([at; 16])).collect::<Vec<_>>();
    let (name, ask) = (SegmentName([number; 16]), u64::from(number) << 30);
    let is_complete = number.is_multiple_of(2);
    let possible = PossibleHolder {
        name: Name::new("node-1").unwrap_or_default(),
        address: ([10, 0, 0, number], 7071).into(),
    };
    let answers = [
        FileAnswer::Have { holders: vec![number.into(), 0] },
        FileAnswer::Nobody,
        FileAnswer::Unsure { nodes: vec![possible; usize::from(number)], are_all: is_complete },
        FileAnswer::Refused,
    ];
    let place = FilePlace { route: u64::MAX, path: vec![b'a'; usize::from(number) * 9] };
    let (added, removed) = (names(number), names(number * 2));
    let mut messages = vec![
        ToCoordinator::Announce { added, removed, is_complete }.encode(),
        ToCoordinator::FindFile { ask, name }.encode(),
        PeerRequest::Head { name, place: Some(place) }.encode(),
    ];
    messages.extend(answers.map(|answer| ToNode::FileAnswer { ask, answer }.encode()));
    messages
}

/// An order about a server, with this stamp.
fn order(number: u8) -> ServerOrder {
    let change = ServerChange::Weight { weight: number.into(), filed: Some(1) };
    let stamp = OrderStamp(number.into());
    ServerOrder { pool: Name::default(), server: Name::default(), change, stamp }
}

/// One message of each kind that concerns purges.
fn of_purges(number: u8) -> Vec<Vec<u8>> {
    let place = |host| PurgePlace { target: "/a?b".to_owned(), host };
    let stamp = PurgeStamp(1 << (number + 40));
    let purges = [
        PurgeWhat::Url(place(None)),
        PurgeWhat::Prefix(place(Some("host".to_owned()))),
        PurgeWhat::Tag("tag".to_owned()),
    ];
    let news = PurgeNews {
        floor: PurgeStamp(number.into()),
        cells: (0..number).map(|cell| (cell.into(), stamp)).collect(),
        purges: purges.map(|what| (what, stamp)).to_vec(),
    };
    vec![
        ToCoordinator::Features(NodeFeatures::OWN).encode(),
        ToNode::Explain {
            question: 7,
            request: ExplainRequest { head: vec![b'a'; number.into()], is_forwarded: false },
        }
        .encode(),
        ToCoordinator::Explained { question: 7, explanation: Some(Box::default()) }.encode(),
        ToCoordinator::Purges(news.clone()).encode(),
        ToCoordinator::SoftPurges(news.clone()).encode(),
        ToNode::SoftPurges(news.clone()).encode(),
        ToCoordinator::Purged { stamp, newest: stamp }.encode(),
        ToCoordinator::AmInStep { question: number.into() }.encode(),
        ToNode::Purges(news).encode(),
        ToNode::InStep { question: number.into() }.encode(),
        ToNode::AskStatus { question: number.into() }.encode(),
        ToCoordinator::Status { question: number.into(), json: b"{}".to_vec() }.encode(),
        ToNode::Ask { question: number.into(), what: NodeQuestion::Order(Box::new(order(number))) }
            .encode(),
        ToNode::ServerOrders(vec![order(number)]).encode(),
        ToCoordinator::ServerLoads(vec![ServerLoad { server: ServerKey(7), requests: 3 }]).encode(),
        ToNode::RelayEnd { ask: number.into() }.encode(),
        ToCoordinator::Slots(SlotReport {
            acknowledged: number.into(),
            is_followed: number.is_multiple_of(2),
            servers: vec![SlotUse {
                server: ServerKey(7),
                slots_max: 5,
                held: number.into(),
                wanted: 9,
            }],
        })
        .encode(),
        ToNode::Slots {
            number: 1,
            grants: vec![SlotGrant { server: ServerKey(7), slots: number.into() }],
        }
        .encode(),
    ]
}

const PURPOSE: Purpose = Purpose::Fetch;

fn is_server(side: u8) -> bool {
    side & 1 == 1
}

fn client(name: &str, nonce: u8) -> Handshake {
    Handshake::client(&identity(name), PURPOSE, None, [nonce; 32])
}

fn server() -> Handshake {
    Handshake::server(&identity("server"), PURPOSE, [77; 32])
}

/// The bytes that each side of a handshake receives: the client, the server.
fn talk(client: &mut Handshake, server: &mut Handshake) -> (Vec<u8>, Vec<u8>) {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let (mut client_at, mut server_at) = (0, 0);
    while client.wants() > 0 {
        to_server.extend(client.output());
        feed(server, &to_server, &mut server_at);
        to_client.extend(server.output());
        if server.wants() == 0 {
            to_client.extend(Handshake::welcome());
        }
        feed(client, &to_client, &mut client_at);
    }
    (to_client, to_server)
}

#[expect(clippy::expect_used, reason = "both have the key")]
fn feed(side: &mut Handshake, heard: &[u8], at: &mut usize) {
    while side.wants() > 0 && heard.len() >= *at + side.wants() {
        let next = &heard[*at..*at + side.wants()];
        *at += next.len();
        side.take(next).expect("an authentic handshake");
    }
}

#[expect(clippy::expect_used, reason = "text and names are as long as they may be")]
fn identity(name: &str) -> Identity {
    let key = Key::from_text("a secret for fuzzing, long enough").expect("32 characters");
    Identity::new(&key, "hive", &Name::new(name).expect("a short name"))
}

/// Seeds of [`part_head`].
pub fn part_heads() -> Vec<Vec<u8>> {
    let version = |number: u64| FileVersion {
        mtime_ns: i128::from(number) * 1_000_000_007 - 500_000_000,
        bytes: number.pow(7).min(OBJECT_BYTES_MAX),
    };
    let file = |number: u64| {
        let sibling = |slot: u64| (number >> slot & 1 == 1).then(|| version(number + slot));
        let encoded = [sibling(0), sibling(1), sibling(2)];
        FileHead::File(Versions { plain: version(number), encoded })
    };
    let heads = (0..64).map(file).chain([FileHead::Folder, FileHead::Forbidden]);
    heads.map(FileHead::to_bytes).collect()
}
