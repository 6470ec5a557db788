//! Both ends of the socket, over real sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
use skep_guard::{Guard, GuardError, Listener, Serve};
use skep_wire::guard::{
    GREETING, MESSAGE_BYTES_MAX, MachineState, Order, OrderReply, Side, VipHolder,
};

fn me() -> u32 {
    rustix::process::getuid().as_raw()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guard.sock");
    (folder, path)
}

/// A timeout that only a failing test reaches.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Answers {
    silences: Arc<AtomicUsize>,
}

impl Serve for Answers {
    fn perform(&mut self, order: Order) -> OrderReply {
        answer(order)
    }

    fn silent(&mut self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }
}

fn answer(order: Order) -> OrderReply {
    match order {
        Order::Claim => OrderReply::Done,
        Order::Look { .. } => {
            let vip = "10.0.0.1".parse().unwrap();
            let owners = vec![VipHolder { vip, mac: [1; 6] }];
            OrderReply::Machine(MachineState {
                owners,
                messages_dropped: 7,
                ..MachineState::default()
            })
        }
        Order::Abort => OrderReply::Refused("x".repeat(MESSAGE_BYTES_MAX)),
        _ => OrderReply::Refused("not here".to_owned()),
    }
}

#[test]
fn orders_are_answered_until_the_peer_is_gone() {
    let (_folder, path) = place();
    let listener = Listener::bind(&path, vec![me()], None).unwrap();
    let guard = thread::spawn(move || {
        listener.accept(SILENCE).unwrap().unwrap().serve(SILENCE, &mut Answers::default())
    });
    let client = Guard::connect(&path).unwrap();
    assert_eq!(client.ask(&Order::Claim).unwrap(), OrderReply::Done);
    assert_eq!(client.messages_dropped(), 0, "not known yet");
    let looked = client.ask(&Order::Look { side: Side::Dispatch, probe: false }).unwrap();
    assert!(matches!(looked, OrderReply::Machine(looked) if looked.owners[0].mac == [1; 6]));
    assert_eq!(client.messages_dropped(), 7);
    let refused = client.ask(&Order::Hold).unwrap_err();
    assert!(matches!(refused, GuardError::Refused(why) if why == "not here"));
    let long = client.ask(&Order::Abort).unwrap_err();
    assert!(matches!(long, GuardError::Refused(why) if why.contains("too long")));
    drop(client);
    guard.join().unwrap().unwrap();
    assert!(!path.exists(), "the socket goes with its listener");
}

#[test]
fn what_is_no_order_is_refused_and_the_next_is_heard() {
    let (_folder, path) = place();
    let listener = Listener::bind(&path, vec![me()], None).unwrap();
    let guard = thread::spawn(move || {
        listener.accept(SILENCE).unwrap().unwrap().serve(SILENCE, &mut Answers::default())
    });
    let raw = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&raw, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let ask = |message: &[u8]| {
        rustix::net::send(&raw, message, SendFlags::empty()).unwrap();
        let mut buffer = [0; 256];
        let (len, _) =
            rustix::net::recv(&raw, &mut buffer, rustix::net::RecvFlags::empty()).unwrap();
        postcard::from_bytes::<OrderReply>(&buffer[..len]).unwrap()
    };
    let claim = postcard::to_allocvec(&Order::Claim).unwrap();
    // As from a process of a build without a greeting, or of another build.
    for message in [&claim[..], b"\xffskep netguard 0", &claim] {
        let OrderReply::Refused(why) = ask(message) else { panic!("{message:?}") };
        assert!(why.contains("are of different builds: install both"), "{why}");
    }
    assert_eq!((ask(GREETING), ask(&claim)), (OrderReply::Done, OrderReply::Done));
    let longer = [&claim[..], &[0]].concat();
    for message in [vec![0xff; 100], vec![0; MESSAGE_BYTES_MAX + 7], vec![250], longer] {
        let told = ask(&message);
        assert!(matches!(told, OrderReply::Refused(_)), "{told:?}");
    }
    assert_eq!(ask(&claim), OrderReply::Done);
    drop(raw);
    guard.join().unwrap().unwrap();
}

#[test]
fn strangers_are_sent_away_and_a_living_guard_is_not_replaced() {
    let (_folder, path) = place();
    let listener = Listener::bind(&path, vec![me() + 1], None).unwrap();
    assert_eq!(
        Listener::bind(&path, vec![], None).unwrap_err().kind(),
        std::io::ErrorKind::AddrInUse
    );
    // The probe of the path by `bind` is the first stranger, this client the second.
    let guard = thread::spawn(move || listener.accept(SILENCE).map(drop));
    assert!(matches!(Guard::connect(&path), Err(GuardError::Gone(_))));
    drop(guard);
}

#[test]
fn nobody_there_is_said_with_the_path() {
    let (_folder, path) = place();
    let error = Guard::connect(&path).unwrap_err();
    assert!(error.to_string().contains("guard.sock"), "{error}");
    // The socket of a dead netguard is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    Listener::bind(&path, vec![me()], None).unwrap();
}

#[test]
fn a_peer_that_is_silent_is_noticed_and_still_served() {
    let (_folder, path) = place();
    let listener = Listener::bind(&path, vec![me()], None).unwrap();
    let brief = Duration::from_millis(10);
    assert!(listener.accept(brief).unwrap().is_none(), "nobody came");
    let mut answers = Answers::default();
    let silences = Arc::clone(&answers.silences);
    let guard = thread::spawn(move || {
        let visit = listener.accept(SILENCE).unwrap().unwrap();
        visit.serve(brief, &mut answers)
    });
    let client = Guard::connect(&path).unwrap();
    while silences.load(Ordering::Relaxed) < 2 {
        thread::yield_now();
    }
    assert_eq!(client.ask(&Order::Claim).unwrap(), OrderReply::Done);
    drop(client);
    guard.join().unwrap().unwrap();
}
