//! Both ends of the socket for handoffs, over real sockets and with real descriptors.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, recv, send, sendmsg,
};
use skep_guard::{ClientNumber, GuardError, HandoffGuard, HandoffListener, ServeHandoffs};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::{
    BATCH_MAX, GREETING, HandoffOrder, HandoffResult, MESSAGE_BYTES_MAX,
};

/// A timeout that only a failing test reaches.
const PATIENCE: Duration = Duration::from_secs(20);

fn me() -> u32 {
    rustix::process::getuid().as_raw()
}

fn id(port: u16) -> SocketId {
    let end = |port| SocketAddr::from(([192, 0, 2, 1], port));
    SocketId { client: end(port), server: end(80) }
}

/// What the server has received.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Order(ClientNumber, HandoffOrder, bool),
    Gone(ClientNumber),
}

/// Writes a byte to each received descriptor, and answers `Create` with the reading end of a pipe.
struct Server {
    seen: SyncSender<Seen>,
    ends: Receiver<()>,
}

impl ServeHandoffs for Server {
    fn perform(
        &mut self,
        client: ClientNumber,
        order: HandoffOrder,
        descriptor: Option<OwnedFd>,
    ) -> (HandoffResult, Option<OwnedFd>) {
        let has_descriptor = descriptor.is_some();
        if let Some(descriptor) = descriptor {
            File::from(descriptor).write_all(b"x").unwrap();
        }
        let answer = match &order {
            HandoffOrder::Create(id) => {
                let (reader, mut writer) = io::pipe().unwrap();
                writer.write_all(&id.client.port().to_be_bytes()).unwrap();
                (HandoffResult::Created, Some(reader.into()))
            }
            HandoffOrder::Forget(_) => (HandoffResult::Refused("é".repeat(10_000)), None),
            _ => (HandoffResult::Done, None),
        };
        // It is no error if the test no longer reads.
        let _ = self.seen.try_send(Seen::Order(client, order, has_descriptor));
        answer
    }

    fn gone(&mut self, client: ClientNumber) {
        let _ = self.seen.try_send(Seen::Gone(client));
    }

    fn tick(&mut self) -> Option<Duration> {
        self.ends.try_recv().is_err().then_some(Duration::from_millis(1))
    }
}

struct Bed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    seen: Receiver<Seen>,
    end: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Bed {
    fn new() -> Self {
        Self::for_users(vec![me()])
    }

    fn for_users(users: Vec<u32>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard.handoff.sock");
        let listener = HandoffListener::bind(&path, users, None).unwrap();
        assert_eq!(listener.path(), path);
        let (seen_by, seen) = sync_channel(4096);
        let (end, ends) = sync_channel(1);
        let mut server = Server { seen: seen_by, ends };
        let thread = thread::spawn(move || listener.serve(&mut server));
        Self { _folder: folder, path, seen, end, thread }
    }

    fn seen(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).unwrap()
    }

    fn end(self) {
        self.end.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
        assert!(!self.path.exists(), "the socket goes with its listener");
    }
}

/// A client that follows no rules.
fn raw(path: &Path) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

fn raw_ask(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Vec<HandoffResult> {
    let mut room = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let parts = [IoSlice::new(message)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
    raw_answer(socket)
}

fn raw_answer(socket: &OwnedFd) -> Vec<HandoffResult> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    match recv(socket, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, 0)) | Err(_) => Vec::new(),
        Ok((_, len)) => postcard::from_bytes(&buffer[..len]).unwrap(),
    }
}

fn encoded(orders: &[HandoffOrder]) -> Vec<u8> {
    postcard::to_allocvec(&orders).unwrap()
}

#[test]
fn a_batch_is_answered_in_its_order_with_the_descriptors_of_each() {
    let bed = Bed::new();
    let mut guard = HandoffGuard::connect(&bed.path).unwrap();
    let (mut readers, writers): (Vec<_>, Vec<_>) = (0..3).map(|_| io::pipe().unwrap()).unzip();
    let own = |at: usize| Some(writers[at].as_fd());
    let orders = [
        (HandoffOrder::Freeze(id(1)), own(0)),
        (HandoffOrder::Create(id(2)), None),
        (HandoffOrder::Forget(id(3)), None),
        (HandoffOrder::Start(id(4)), own(1)),
        (HandoffOrder::Create(id(5)), None),
        (HandoffOrder::Reset(id(6)), own(2)),
    ];
    let answers = guard.ask(&orders).unwrap();
    for (order, own) in orders {
        assert_eq!(bed.seen(), Seen::Order(0, order, own.is_some()));
    }
    let created: Vec<Option<u16>> = answers
        .iter()
        .map(|answer| {
            let mut port = [0; 2];
            let socket = answer.socket.as_ref()?.try_clone().unwrap();
            File::from(socket).read_exact(&mut port).unwrap();
            Some(u16::from_be_bytes(port))
        })
        .collect();
    assert_eq!(created, [None, Some(2), None, None, Some(5), None]);
    let HandoffResult::Refused(why) = &answers[2].result else { panic!("{answers:?}") };
    assert!(why.len() <= 256 && why.starts_with('é'), "cut between letters");
    drop(writers);
    for reader in &mut readers {
        let mut written = Vec::new();
        // Up to the end of file: netguard has kept no copy.
        reader.read_to_end(&mut written).unwrap();
        assert_eq!(written, b"x");
    }
    drop(guard);
    assert_eq!(bed.seen(), Seen::Gone(0));
    bed.end();
}

#[test]
fn clients_are_served_at_once_and_batches_wait_for_no_answers() {
    let bed = Bed::new();
    let mut guards: Vec<_> = (0..20).map(|_| HandoffGuard::connect(&bed.path).unwrap()).collect();
    let order = |port| (HandoffOrder::Create(id(port)), None);
    let batch = |port| vec![order(port); BATCH_MAX];
    for guard in &mut guards {
        for port in 1..=4 {
            assert!(guard.try_send(&batch(port)).unwrap());
        }
        assert!(!guard.try_send(&batch(5)).unwrap(), "so many answers have room");
    }
    for guard in &mut guards {
        for port in 1..=4_u16 {
            let answers = loop {
                match guard.try_receive().unwrap() {
                    Some(answers) => break answers,
                    None => drop(bed.seen()),
                }
            };
            assert_eq!(answers.len(), BATCH_MAX);
            let mut told = [0; 2];
            let socket = answers.into_iter().last().unwrap().socket.unwrap();
            File::from(socket).read_exact(&mut told).unwrap();
            assert_eq!(u16::from_be_bytes(told), port);
        }
        assert!(guard.try_receive().unwrap().is_none());
        assert!(guard.try_send(&batch(5)).unwrap());
    }
    bed.end();
    let gone = loop {
        match guards[0].try_receive() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, GuardError::Gone(_)), "{gone}");
}

/// A batch of one order without a descriptor.
const FORGET: fn() -> [(HandoffOrder, Option<BorrowedFd<'static>>); 1] =
    || [(HandoffOrder::Forget(id(1)), None)];

#[test]
fn a_client_of_another_build_gives_no_orders() {
    let bed = Bed::new();
    let socket = raw(&bed.path);
    let create = encoded(&[HandoffOrder::Create(id(1))]);
    for message in [&create[..], b"\xffskep handoff 0", skep_wire::guard::GREETING, &create] {
        let [HandoffResult::Refused(why)] = &raw_ask(&socket, message, &[])[..] else {
            panic!("{message:?}")
        };
        assert!(why.contains("are of different builds: install both"), "{why}");
    }
    assert_eq!(raw_ask(&socket, GREETING, &[]), [HandoffResult::Done]);
    assert_eq!(raw_ask(&socket, &create, &[]), [HandoffResult::Created]);
    assert_eq!(bed.seen(), Seen::Order(0, HandoffOrder::Create(id(1)), false));
    bed.end();
}

#[test]
fn who_sends_what_is_no_batch_is_disconnected_and_others_are_not() {
    let bed = Bed::new();
    let file = File::open("/dev/null").unwrap();
    let fd = file.as_fd();
    let freeze = encoded(&[HandoffOrder::Freeze(id(1))]);
    let create = encoded(&[HandoffOrder::Create(id(1))]);
    let many = encoded(&vec![HandoffOrder::Create(id(1)); BATCH_MAX + 1]);
    let longer = [&create[..], &[0]].concat();
    let cases: [(&[u8], Vec<BorrowedFd<'_>>); 9] = [
        (&freeze, vec![]),
        (&freeze, vec![fd; 2]),
        (&create, vec![fd]),
        (&create, vec![fd; BATCH_MAX + 1]),
        (&create, vec![fd; 253]),
        (&many, vec![]),
        (&longer, vec![]),
        (&encoded(&[]), vec![]),
        (&[0xff; MESSAGE_BYTES_MAX + 1], vec![]),
    ];
    let mut other = HandoffGuard::connect(&bed.path).unwrap();
    for (number, (message, descriptors)) in (1..).zip(&cases) {
        let socket = raw(&bed.path);
        assert_eq!(raw_ask(&socket, GREETING, &[]), [HandoffResult::Done]);
        let told = raw_ask(&socket, message, descriptors);
        assert!(matches!(&told[..], [] | [HandoffResult::Refused(_)]), "{number}: {told:?}");
        assert_eq!(raw_answer(&socket), [], "{number}: disconnected");
        assert_eq!(bed.seen(), Seen::Gone(number), "and no order was executed");
    }
    other.ask(&FORGET()).unwrap();
    bed.end();
}

#[test]
fn who_takes_no_answers_is_disconnected() {
    let bed = Bed::new();
    let socket = raw(&bed.path);
    send(&socket, GREETING, SendFlags::NOSIGNAL).unwrap();
    let orders = encoded(&vec![HandoffOrder::Forget(id(1)); BATCH_MAX]);
    // Blocks for lack of room until netguard has closed its end.
    while send(&socket, &orders, SendFlags::NOSIGNAL).is_ok() {}
    while bed.seen() != Seen::Gone(0) {}
    HandoffGuard::connect(&bed.path).unwrap().ask(&FORGET()).unwrap();
    bed.end();
}

#[test]
fn strangers_are_sent_away_and_an_older_socket_is_replaced() {
    let bed = Bed::for_users(vec![me() + 1]);
    assert!(matches!(HandoffGuard::connect(&bed.path), Err(GuardError::Gone(_))));
    let replaced = HandoffListener::bind(&bed.path, vec![me()], None).unwrap();
    bed.end.send(()).unwrap();
    bed.thread.join().unwrap().unwrap();
    assert!(bed.path.exists(), "it is another's");
    drop(replaced);
    assert!(!bed.path.exists());
    let missing = HandoffGuard::connect(&bed.path).unwrap_err();
    assert!(missing.to_string().contains("guard.handoff.sock"), "{missing}");
}
