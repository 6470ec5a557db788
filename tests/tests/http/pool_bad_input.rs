//! Invalid responses and faulty servers of pools, on one node that stores responses: the client's status
//! follows the table in docs/operate/applications.md, the log names server and cause, a counter increases;
//! nothing of it is stored, and no other client is affected.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use skep_tests::app::{App, AppConn, response};
use skep_tests::gateways::secret_file;
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until};

/// What a client receives.
#[derive(Clone, Copy)]
enum Got {
    Status(u16),
    /// A response that begins, but is truncated.
    Cut,
}

/// Pool and path, what the client receives, `cause` in the metrics, and the reason in the log.
const FAULTS: &[(&str, Got, &str, &str)] = &[
    ("two-lengths", Got::Status(502), "malformed", "content-length-repeated"),
    ("splits", Got::Status(502), "malformed", "bare-cr"),
    ("splits-by-lf", Got::Status(502), "malformed", "bare-lf"),
    ("endless-head", Got::Status(502), "malformed", "head-too-large"),
    ("ends", Got::Status(502), "broken", "the connection ended before a response"),
    ("silent", Got::Status(504), "late", "no response in time"),
    // No client has seen any of it: it was to be stored first.
    ("short", Got::Status(502), "cut_short", "the connection ended inside the response"),
    ("stalls", Got::Status(502), "stalled", "it stalled"),
    ("short-chunks", Got::Cut, "cut_short", "the connection ended inside the response"),
];

/// Makes a response storable.
const FRESH: &str = "Cache-Control: public, max-age=60\r\n";

fn serve(conn: &mut AppConn, count: &AtomicUsize) {
    while let Some(request) = conn.request() {
        let path = request.line().split(' ').nth(1).unwrap().to_owned();
        let name = path.trim_start_matches('/');
        let ok = format!("HTTP/1.1 200 OK\r\n{FRESH}");
        let text = match name {
            "two-lengths" => format!("{ok}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            "splits" => format!("{ok}X: a\rSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n"),
            "splits-by-lf" => format!("{ok}X: a\nSet-Cookie: evil=1\nContent-Length: 0\r\n\r\n"),
            "endless-head" => return send_head_without_end(conn),
            "ends" => return,
            "silent" => return conn.wait_for_end(),
            "short" => format!("{ok}Content-Length: 9\r\n\r\nhello"),
            "stalls" => {
                conn.send(format!("{ok}Content-Length: 9\r\n\r\nhello"));
                return conn.wait_for_end();
            }
            "short-chunks" => {
                format!("{ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwo")
            }
            _ => {
                let count = count.fetch_add(1, Ordering::SeqCst);
                let cookie = format!("{FRESH}Set-Cookie: session={count}\r\n");
                let fields = if name == "sets-cookie" { &*cookie } else { "" };
                if !conn.send(response(200, fields, format!("answer {count}"))) {
                    return;
                }
                continue;
            }
        };
        conn.send(text);
        return;
    }
}

/// Sends 100 MB, unless the peer stops reading.
fn send_head_without_end(conn: &mut AppConn) {
    conn.send("HTTP/1.1 200 OK\r\n");
    let lines = format!("X-Filler: {}\r\n", "x".repeat(1000)).repeat(100);
    let _ = (0..1000).all(|_| conn.send(&lines));
}

/// An AJP server that answers CPING, and everything else with 403, as Tomcat does without the secret.
fn ajp_that_wants_another_secret() -> App {
    App::start(|conn| {
        while let Some(head) = conn.exactly(4) {
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let Some(packet) = conn.exactly(length) else { return };
            let answer: &[u8] = match packet.first() {
                Some(10) => b"AB\0\x01\x09",
                _ => b"AB\0\x09\x04\x01\x93\0\x01x\0\0\0AB\0\x02\x05\x01",
            };
            conn.send(answer);
        }
    })
}

struct Rig {
    skep: Skep,
    metrics: FreePort,
    /// The folder with the config.
    folder: Site,
}

/// Returns a pool and the route to it, both with this name.
fn pool(name: &str, settings: &str, address: Option<&str>) -> String {
    let route = format!(
        "[[site.route]]\npath = \"/{name}\"\npool = \"{name}\"\n[site.route.cache]\nenabled = true\n"
    );
    let server =
        address.map(|it| format!("[[pool.server]]\nname = \"s-{name}\"\naddress = \"{it}\"\n"));
    format!("{route}\n[[pool]]\nname = \"{name}\"\n{settings}\n{}", server.unwrap_or_default())
}

impl Rig {
    fn new(app: SocketAddr, ajp: SocketAddr, socket: &str) -> Self {
        let (folder, metrics) = (Site::new(), FreePort::claim());
        let http = "health.interval_ms = 3600000\nhealth.timeout_ms = 5000\nhealth.rise = 1\n\
                    retries_max = 0\nresponse_timeout_ms = 300\nstall_timeout_ms = 300\n";
        let often = "health.interval_ms = 50\nhealth.timeout_ms = 50\nqueue_timeout_ms = 100\n";
        let secret = secret_file(&folder, "not-the-secret");
        let ajp_settings = format!(
            "protocol = \"ajp\"\n{often}[pool.ajp]\nsecret_file = \"{}\"\n",
            secret.display()
        );
        let app = app.to_string();
        let mut parts: Vec<String> =
            FAULTS.iter().map(|(name, ..)| pool(name, http, Some(&app))).collect();
        parts.push(pool("sets-cookie", http, Some(&app)));
        parts.push(pool("healthy", http, Some(&app)));
        parts.push(pool("wrong-secret", &ajp_settings, Some(&ajp.to_string())));
        parts.push(pool("no-permission", often, Some(&format!("unix:{socket}"))));
        parts.push(pool("no-servers", "", None));
        // Tables of a site must precede those after it.
        let (routes, pools): (Vec<_>, Vec<_>) =
            parts.iter().map(|part| part.split_once("\n[[pool]]").unwrap()).unzip();
        let pools: Vec<_> = pools.iter().map(|pool| format!("[[pool]]{pool}")).collect();
        let listen = metrics.address();
        let skep = Skep::node_of(&format!(
            "pool = \"healthy\"\n{}\n[metrics]\nlisten = \"{listen}\"\n{}",
            routes.join("\n"),
            pools.join("\n")
        ));
        Self { skep, metrics, folder }
    }

    fn metric(&self, line: &str) -> u64 {
        let text = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let found = text.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{line} in {text}")).parse().unwrap()
    }

    fn until_logged(&self, parts: &[&str]) {
        poll_until(PATIENCE, &format!("{parts:?} in the log"), || {
            let log = self.skep.stderr_text();
            log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
        });
    }

    fn assert_others_are_served(&self) {
        self.skep.connect().get("/healthy").assert_status(200);
    }
}

#[test]
fn what_servers_may_not_send_or_be_is_told_by_status_log_and_counter() {
    let count = AtomicUsize::new(0);
    let app = App::start(move |conn| serve(conn, &count));
    let ajp = ajp_that_wants_another_secret();
    let sockets = Site::new();
    let socket = sockets.path("closed.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o000)).unwrap();
    let rig = Rig::new(app.address(), ajp.address(), socket.to_str().unwrap());
    let before = rig.skep.rss_bytes();
    for (name, got, cause, told) in FAULTS {
        let path = format!("/{name}");
        let mut client = rig.skep.connect();
        client.ask(&path);
        match (got, client.try_response()) {
            (Got::Status(status), Ok(reply)) => {
                assert_eq!((reply.status, reply.header("set-cookie")), (*status, None), "{name}");
                assert!(!reply.cache_status().contains("stored"), "{name} {}", reply.head_text());
            }
            (Got::Cut, Err(_)) => {}
            (_, reply) => panic!("{name}: {:?}", reply.map(|it| it.head_text().to_owned())),
        }
        let pool = format!("pool=\"{name}\",server=\"s-{name}\",cause=\"{cause}\"");
        assert_eq!(rig.metric(&format!("skep_pool_server_failures_total{{{pool}}}")), 1, "{name}");
        let server = format!("pool {name}: server s-{name} ({})", app.address());
        rig.until_logged(&[&server, &format!(": {told}: GET {path}")]);
        rig.assert_others_are_served();
    }
    let grown = rig.skep.rss_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    a_cookie_is_its_clients_whatever_the_response_says(&rig.skep);
    servers_that_are_not_there_are_named(&rig);
    assert!(rig.folder.path("secret").exists());
}

fn a_cookie_is_its_clients_whatever_the_response_says(skep: &Skep) {
    let [first, second] = [(); 2].map(|()| skep.connect().get("/sets-cookie"));
    for reply in [&first, &second] {
        reply.assert_status(200);
        assert_eq!(reply.cache_status(), "skep; fwd=uri-miss; detail=set-cookie");
    }
    assert_ne!(first.header("set-cookie"), second.header("set-cookie"));
    assert_ne!(first.text(), second.text());
}

fn servers_that_are_not_there_are_named(rig: &Rig) {
    for (name, why) in [
        ("wrong-secret", "the secret is wrong"),
        ("no-permission", "permission denied"),
        ("no-servers", "no server took the request, 0 of 0 are up: GET /no-servers"),
    ] {
        let reply = rig.skep.connect().get(&format!("/{name}"));
        reply.assert_status(503).assert_header("retry-after", "1");
        assert_eq!(reply.cache_status(), "skep; fwd=miss; detail=no-answer", "{name}");
        rig.until_logged(&[&format!("pool {name}: "), why]);
        let refused = format!("skep_pool_refused_total{{pool=\"{name}\"}}");
        assert!(rig.metric(&refused) >= 1, "{name}");
        rig.until_logged(&[&format!("pool {name}: no server took the request"), "GET /"]);
        rig.assert_others_are_served();
    }
    let log = rig.skep.stderr_text();
    for name in ["wrong-secret", "no-permission"] {
        let is_told = |line: &str| line.contains(&format!("server s-{name}: "));
        assert!(log.lines().any(|line| is_told(line) && line.contains("down")), "{name}: {log}");
    }
    assert!(!log.contains("not-the-secret"), "{log}");
}
