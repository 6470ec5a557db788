//! CPING before a request: a server that died or hangs silently receives no request that could be lost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use skep_tests::gateways::{ajp_lines, secret_file};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until};

const CPING: [u8; 5] = [0x12, 0x34, 0, 1, 10];
const CPONG: [u8; 5] = [b'A', b'B', 0, 1, 9];
/// Status 200 without fields, and the end of a reply with a persistent connection.
const REPLY: [u8; 18] = [b'A', b'B', 0, 8, 4, 0, 200, 0, 0, 0, 0, 0, b'A', b'B', 0, 2, 5, 1];

/// An AJP server that can be made to hang: it reads all bytes, and sends nothing.
#[derive(Default)]
struct Hanging {
    /// Hang on all connections, including new ones.
    all: AtomicBool,
    /// Hang on connections up to this number.
    up_to: AtomicUsize,
    connections: AtomicUsize,
    /// Number of clients' requests received, answered or not.
    requests: AtomicUsize,
    pings: AtomicUsize,
}

impl Hanging {
    fn start() -> (Arc<Self>, SocketAddr) {
        let server = Arc::<Self>::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let own = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = own.connections.fetch_add(1, SeqCst) + 1;
                let own = Arc::clone(&own);
                thread::spawn(move || own.serve(stream, number));
            }
        });
        (server, address)
    }

    fn serve(&self, mut stream: TcpStream, number: usize) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let bytes = &buffer[..read];
            // Health checks request `*`; the packets of a request arrive together.
            let is_clients =
                bytes.starts_with(b"\x12\x34") && bytes.windows(5).any(|it| it == b"/post");
            self.requests.fetch_add(usize::from(is_clients), SeqCst);
            self.pings.fetch_add(usize::from(bytes == CPING), SeqCst);
            if self.all.load(SeqCst) || number <= self.up_to.load(SeqCst) {
                continue;
            }
            let answer: &[u8] = if bytes == CPING { &CPONG } else { &REPLY };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

struct Rig {
    skep: Skep,
    metrics: FreePort,
    _folder: Site,
}

impl Rig {
    /// Health checks run once, at the start.
    fn new(of_ajp: &str, servers: &[SocketAddr]) -> Self {
        let folder = Site::new();
        let metrics = FreePort::claim();
        let checks = "health.interval_ms = 3600000\nhealth.timeout_ms = 5000\nhealth.rise = 1\n\
                      policy = \"round-robin\"\nidle_ms = \"10m\"";
        let secret = secret_file(&folder, "k");
        let mut lines = ajp_lines(checks, &secret, &servers[0].to_string()).replacen(
            "[pool.ajp]\n",
            &format!("[pool.ajp]\nping_timeout_ms = 300\n{of_ajp}\n"),
            1,
        );
        for (number, address) in (2..).zip(&servers[1..]) {
            lines += &format!("[[pool.server]]\nname = \"s{number}\"\naddress = \"{address}\"\n");
        }
        let listen = metrics.address();
        let skep = Skep::node_of(&format!("{lines}[metrics]\nlisten = \"{listen}\"\n"));
        poll_until(PATIENCE, "all are up", || {
            skep.stderr_text().matches("joining -> up").count() == servers.len()
        });
        Self { skep, metrics, _folder: folder }
    }

    fn metric(&self, name: &str, labels: &str) -> u64 {
        let text = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let line = format!("skep_pool_server_{name}{{pool=\"java\",server=\"s1\"{labels}}} ");
        let value = text.lines().find_map(|it| it.strip_prefix(&line).map(str::to_owned));
        value.unwrap_or_else(|| panic!("{line} in {text}")).parse().unwrap()
    }
}

/// Sends a request that must not be retried.
fn post(client: &mut RawClient) -> u16 {
    client.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    client.response().status
}

#[test]
fn a_server_that_hangs_gets_no_request_that_would_be_lost() {
    let ((one, first), (other, second)) = (Hanging::start(), Hanging::start());
    let rig = Rig::new("ping_idle_ms = 0", &[first, second]);
    let mut client = rig.skep.connect();
    for _ in 0..4 {
        assert_eq!(post(&mut client), 200);
    }
    assert_eq!((one.requests.load(SeqCst), other.requests.load(SeqCst)), (2, 2));
    assert_eq!((rig.metric("pings_total", ""), rig.metric("pings_failed_total", "")), (1, 0));
    one.all.store(true, SeqCst);
    for _ in 0..4 {
        assert_eq!(post(&mut client), 200);
    }
    // Each was sent to the other server, and only once.
    assert_eq!((one.requests.load(SeqCst), other.requests.load(SeqCst)), (2, 6));
    // The pooled connection and a new one.
    assert!(rig.metric("pings_failed_total", "") >= 3, "{}", rig.metric("pings_failed_total", ""));
    assert!(rig.metric("failures_total", ",cause=\"no_pong\"") >= 1);
    let told = "server s1 (";
    poll_until(PATIENCE, "it is named", || {
        let log = rig.skep.stderr_text();
        log.lines()
            .any(|it| it.contains(told) && it.contains("no answer to CPING in time: POST /post"))
    });
    // Without the other server, it counts as unreachable.
    other.all.store(true, SeqCst);
    client.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    client.response().assert_status(503).assert_header("retry-after", "1");
    one.all.store(false, SeqCst);
    other.all.store(false, SeqCst);
    assert_eq!(post(&mut client), 200);
}

#[test]
fn a_connection_that_died_silently_is_replaced() {
    let (server, address) = Hanging::start();
    let rig = Rig::new("ping_idle_ms = 0", &[address]);
    let mut client = rig.skep.connect();
    assert_eq!(post(&mut client), 200);
    // As behind a firewall that has dropped its state: new connections work.
    server.up_to.store(server.connections.load(SeqCst), SeqCst);
    assert_eq!(post(&mut client), 200);
    assert_eq!(server.requests.load(SeqCst), 2);
    let counts = ["pings_total", "pings_failed_total"].map(|name| rig.metric(name, ""));
    assert_eq!(counts, [2, 1], "the kept one, and the new one");
    assert_eq!(rig.metric("failures_total", ",cause=\"no_pong\""), 0);
}

#[test]
fn a_connection_that_was_just_used_is_not_asked() {
    let (server, address) = Hanging::start();
    let rig = Rig::new("ping_idle_ms = \"1h\"", &[address]);
    let before = server.pings.load(SeqCst);
    let mut client = rig.skep.connect();
    for _ in 0..3 {
        assert_eq!(post(&mut client), 200);
    }
    assert_eq!((server.pings.load(SeqCst) - before, rig.metric("pings_total", "")), (0, 0));
}
