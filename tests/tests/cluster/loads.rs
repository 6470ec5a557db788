//! Load reports of nodes: displayed, used by policies, and ignored when they are stale.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until};

const NODES: [&str; 2] = ["node-1", "node-2"];
const SMALL: &[u8] = b"small";
const BIG_BYTES: usize = 64 << 20;
const READERS: usize = 3;
const PAGE_BYTES: usize = 10_000;

/// A dispatcher and two nodes, each of which has its own copy of the site.
struct Cluster {
    daemons: BTreeMap<String, Skep>,
    /// The ports at which each process serves clients and machines of the cluster.
    ports: BTreeMap<String, [FreePort; 2]>,
    folder: Site,
}

impl Cluster {
    /// `lines` are further settings of `[[service]]`.
    #[track_caller]
    fn start(policy: &str, report: &str, lines: &str) -> Self {
        Self::start_told_at(None, policy, report, lines, |_| ())
    }

    /// Like [`Self::start`]; `told_at` is the dispatcher's address in the config of the nodes, if it differs
    /// from the real one. `before` runs before any process starts.
    #[track_caller]
    fn start_told_at(
        told_at: Option<SocketAddr>,
        policy: &str,
        report: &str,
        lines: &str,
        before: impl FnOnce(&Self),
    ) -> Self {
        let folder = Site::new()
            .with("key", [b'k'; 32])
            .with("site/small", SMALL)
            .with("site/page", vec![b'p'; PAGE_BYTES])
            .with("site/image", vec![b'i'; 2 * PAGE_BYTES])
            .with_large("site/film", BIG_BYTES / 16)
            .with_large("site/big", BIG_BYTES);
        let only_ours = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.path("key"), only_ours).unwrap();
        let names = ["gate"].into_iter().chain(NODES);
        let port = |name: &str| (name.to_owned(), [FreePort::claim(), FreePort::claim()]);
        let ports = names.clone().map(port).collect();
        let mut cluster = Self { daemons: BTreeMap::new(), ports, folder };
        before(&cluster);
        for name in names {
            let heard_at = told_at.filter(|_| name != "gate");
            let config = cluster.config(policy, report, lines, heard_at);
            cluster.folder.write(&format!("{name}.toml"), config);
            let file = cluster.folder.path(&format!("{name}.toml"));
            let daemon = Skep::run(&file, &["--as", name], cluster.outer(name));
            cluster.daemons.insert(name.to_owned(), daemon);
        }
        poll_until(PATIENCE, "both nodes are up and have told of their load", || {
            let status = cluster.status();
            let nodes = status["services"][0]["nodes"].as_array().unwrap();
            let loads = status["loads"].as_array().unwrap();
            nodes.iter().all(|node| node["state"] == "up") && loads.len() == 2
        });
        cluster
    }

    fn config(&self, policy: &str, report: &str, lines: &str, at: Option<SocketAddr>) -> String {
        let root = self.folder.root().display();
        let mut text = format!(
            "state_dir = \"{root}/state\"\nkey_file = \"{root}/key\"\n[admin]\nlisten = \"off\"\n\
             [machine]\nthreads = 1\n[agent]\nreport_ms = \"{report}\"\n\
             [timeouts]\nwrite_stall_ms = \"1h\"\n\
             [[dispatcher]]\nname = \"gate\"\naddress = \"{}\"\n\
             [[site]]\nroot = \"{root}/site\"\n",
            at.unwrap_or_else(|| self.inner("gate"))
        );
        for name in NODES {
            text += &format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{}\"\nagent = \"{}\"\n",
                self.outer(name),
                self.inner(name)
            );
        }
        let listen = self.outer("gate");
        let service = format!("name = \"web\"\nlisten = \"{listen}\"\npolicy = \"{policy}\"\n");
        text + &format!("[[service]]\n{service}{lines}\n")
    }

    fn outer(&self, name: &str) -> SocketAddr {
        self.ports[name][0].address()
    }

    fn inner(&self, name: &str) -> SocketAddr {
        self.ports[name][1].address()
    }

    /// Returns the output of a command at the dispatcher.
    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> String {
        let socket = self.folder.path("state").join("gate.sock");
        let mut command = Command::new(Skep::binary());
        command.args(arguments).args(["--socket", socket.to_str().unwrap()]);
        let finished = Skep::start_command(&mut command).finish();
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
        finished.stdout
    }

    #[track_caller]
    fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).unwrap()
    }

    /// Returns the last load report of a node.
    #[track_caller]
    fn load(&self, name: &str) -> Value {
        let status = self.status();
        let loads = status["loads"].as_array().unwrap();
        loads.iter().find(|load| load["name"] == name).unwrap().clone()
    }

    #[track_caller]
    fn bytes_outstanding(&self, name: &str) -> u64 {
        self.load(name)["bytes_outstanding"].as_u64().unwrap()
    }

    /// Returns a field of a node from the dispatcher's status.
    #[track_caller]
    fn seen(&self, name: &str, what: &str) -> u64 {
        let status = self.status();
        let nodes = status["services"][0]["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == name).unwrap()[what].as_u64().unwrap()
    }

    #[track_caller]
    fn metric(&self, sample: &str) -> u64 {
        let socket = self.folder.path("state").join("gate.sock");
        let text = metrics(&socket);
        let of = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse::<f64>().ok();
        text.lines().find_map(of).unwrap_or_else(|| panic!("no {sample} in:\n{text}")) as u64
    }

    fn refused(&self, reason: &str) -> u64 {
        self.metric(&format!("skep_datagrams_refused_total{{reason=\"{reason}\"}}"))
    }

    /// Clients of a node, bypassing the dispatcher, that request the large file and read only the head.
    fn slow_readers(&self, name: &str) -> Vec<RawClient> {
        let reader = |_| {
            let mut client = RawClient::connect(self.outer(name));
            client.ask("/big");
            client.try_head().unwrap().assert_status(200);
            client
        };
        (0..READERS).map(reader).collect()
    }
}

/// Returns the node that answers a path at the dispatcher.
fn answerer(cluster: &Cluster, path: &str) -> String {
    let response = RawClient::connect(cluster.outer("gate")).get(path);
    response.header("x-skep-node").unwrap().to_owned()
}

fn metrics(socket: &std::path::Path) -> String {
    RawClient::try_connect_local(socket).unwrap().get("/api/v1/metrics").text()
}

#[test]
fn a_node_with_slow_readers_shows_it_and_gets_fewer_requests() {
    // So rarely that a busy machine makes no report stale.
    let cluster = Cluster::start("least-bytes", "1s", "");
    let readers = cluster.slow_readers("node-1");
    poll_until(PATIENCE, "node-1 has bytes to send", || {
        let load = cluster.load("node-1");
        load["bytes_outstanding"].as_u64().unwrap() > 1 << 20
            && load["requests_in_flight"] == READERS
            && load["connections"].as_u64().unwrap() >= READERS as u64
    });
    assert_eq!(cluster.bytes_outstanding("node-2"), 0);
    assert!(cluster.load("node-1")["memory_bytes"].as_u64().unwrap() > 1 << 20);
    for policy in ["least-bytes", "least-outstanding", "power-of-two"] {
        cluster.ask(&["policy", "set", "web", policy]);
        let before = NODES.map(|name| cluster.seen(name, "requests_total"));
        for _ in 0..40 {
            assert_eq!(RawClient::connect(cluster.outer("gate")).get("/small").body, SMALL);
        }
        let after = NODES.map(|name| cluster.seen(name, "requests_total"));
        let (busy, idle) = (after[0] - before[0], after[1] - before[1]);
        assert_eq!(busy + idle, 40);
        assert!(busy <= 4, "{policy}: {busy} at the busy node, {idle} at the idle one");
    }
    let text = cluster.ask(&["status"]);
    assert!(text.contains("LOAD OF") && text.contains("TO SEND"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    drop(readers);
    poll_until(PATIENCE, "node-1 has nothing to send", || {
        cluster.bytes_outstanding("node-1") == 0
            && cluster.load("node-1")["requests_in_flight"] == 0
    });
    assert!(cluster.metric("skep_report_bytes_outstanding{node=\"node-1\"}") == 0);
    assert!(cluster.metric("skep_load_reports_total{outcome=\"taken\"}") > 0);
}

#[test]
fn of_a_node_that_tells_no_more_the_dispatcher_goes_by_its_own_count() {
    // Health checks must not detect that it hangs.
    let health = "[service.health]\nfall = 100\ninterval_ms = \"5s\"\ntimeout_ms = \"5s\"\n";
    let cluster = Cluster::start("least-bytes", "100ms", health);
    let _readers = cluster.slow_readers("node-1");
    poll_until(PATIENCE, "node-1 has bytes to send", || {
        cluster.bytes_outstanding("node-1") > 1 << 20
    });
    let node = &cluster.daemons["node-1"];
    node.pause();
    poll_until(PATIENCE, "it is stale", || cluster.load("node-1")["is_stale"] == true);
    let text = cluster.ask(&["status"]);
    assert!(text.contains("no load report of node-1 for"), "{text}");
    poll_until(PATIENCE, "node-2 tells", || cluster.load("node-2")["is_stale"] == false);
    // Its last report no longer counts: it receives requests like any idle node.
    let mut asked = Vec::new();
    poll_until(PATIENCE, "node-1 gets a request", || {
        let mut client = RawClient::connect(cluster.outer("gate"));
        client.ask("/small");
        asked.push(client);
        cluster.seen("node-1", "outstanding_requests") > 0
    });
    node.resume();
    for mut client in asked {
        assert_eq!(client.response().body, SMALL);
    }
    poll_until(PATIENCE, "it tells again", || cluster.load("node-1")["is_stale"] == false);
}

/// Sizes are learned from the Content-Length of responses; until then, only load decides.
#[test]
fn policies_learn_sizes_from_responses() {
    let cluster = Cluster::start("equiload", "100ms", "node_header = true");
    for _ in 0..100 {
        for path in ["/page", "/page", "/image"] {
            answerer(&cluster, path);
        }
    }
    // Pages and images each account for half of the bytes.
    for _ in 0..20 {
        assert_eq!(["/page", "/image"].map(|path| answerer(&cluster, path)), NODES);
    }
    cluster.ask(&["policy", "set", "web", "transfer-time"]);
    let owner = answerer(&cluster, "/image");
    (0..20).for_each(|_| assert_eq!(answerer(&cluster, "/image"), owner));
    // Data not yet read by clients is ahead of it in the queue, and exceeds what another node would have to
    // fetch.
    let owner = answerer(&cluster, "/film");
    let readers = [(); 4].map(|()| cluster.slow_readers(&owner));
    poll_until(PATIENCE, "another node sends it", || answerer(&cluster, "/film") != owner);
    drop(readers);
}

/// Under redirects, where clients connect to nodes directly, nodes report the sizes of objects.
#[test]
fn policies_learn_sizes_from_nodes_where_the_dispatcher_sees_no_responses() {
    let lines = "dispatch = \"redirect\"\nnode_header = true";
    let cluster = Cluster::start("equiload", "100ms", lines);
    for path in ["/page", "/image"] {
        let node = answerer(&cluster, path);
        RawClient::connect(cluster.outer(&node)).get(path).assert_status(200);
    }
    // By load alone they would alternate.
    poll_until(PATIENCE, "pages and images have a node each", || {
        for path in ["/page", "/page", "/image"] {
            answerer(&cluster, path);
        }
        (0..10).all(|_| ["/page", "/image"].map(|path| answerer(&cluster, path)) == NODES)
    });
}

#[test]
fn garbage_and_replays_are_counted_and_change_nothing() {
    // A proxy between the nodes and the dispatcher records all datagrams.
    let between = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tap = between.try_clone().unwrap();
    let recorded = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let told_at = Some(between.local_addr().unwrap());
    let cluster = Cluster::start_told_at(told_at, "random", "100ms", "", |cluster| {
        let (to, record) = (cluster.inner("gate"), Arc::clone(&recorded));
        std::thread::spawn(move || {
            let mut buffer = [0; 2_000];
            while let Ok(bytes) = tap.recv(&mut buffer) {
                if bytes == 0 {
                    return;
                }
                record.lock().unwrap().push(buffer[..bytes].to_vec());
                let _ = tap.send_to(&buffer[..bytes], to);
            }
        });
    });
    let _readers = cluster.slow_readers("node-1");
    poll_until(PATIENCE, "node-1 has bytes to send", || {
        cluster.bytes_outstanding("node-1") > 1 << 20
    });
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    poll_until(PATIENCE, "some are recorded", || recorded.lock().unwrap().len() > 20);
    let recording = recorded.lock().unwrap().clone();
    assert!(recording.iter().all(|datagram| datagram.len() < 200), "small datagrams");
    let count = recording.len() as u64;
    for datagram in &recording {
        let mut forged = datagram.clone();
        *forged.last_mut().unwrap() ^= 1;
        for wrong in [datagram.as_slice(), &forged, b"garbage"] {
            attacker.send_to(wrong, cluster.inner("gate")).unwrap();
            // Datagrams at the node's port that are not addressed to it.
            attacker.send_to(wrong, cluster.inner("node-1")).unwrap();
        }
        std::thread::yield_now();
    }
    poll_until(PATIENCE, "all are refused", || {
        cluster.refused("replayed") >= count
            && cluster.refused("bad_tag") >= count
            && cluster.refused("version") + cluster.refused("too_short") >= count
    });
    assert!(cluster.bytes_outstanding("node-1") > 1 << 20);
    assert_eq!(cluster.bytes_outstanding("node-2"), 0);
    let taken = || cluster.metric("skep_load_reports_total{outcome=\"taken\"}");
    let before = taken();
    poll_until(PATIENCE, "loads are heard as ever", || taken() > before + 4);
    assert_eq!(cluster.metric("skep_load_reports_total{outcome=\"unknown_node\"}"), 0);
    drop(cluster);
    // Ends the proxy.
    attacker.send_to(&[], between.local_addr().unwrap()).unwrap();
}
