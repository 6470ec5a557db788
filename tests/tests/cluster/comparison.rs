//! A/B tests of policies: alternating clients, groups of nodes, counts, and
//! what the other dispatcher keeps when one dies.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use skep_tests::{Finished, FreePort, PATIENCE, RawClient, Site, Skep, poll_until};
use socket2::{Domain, Socket, Type};

const NODES: [&str; 2] = ["node-1", "node-2"];
const ARMS: [&str; 2] = ["--arm=a=round-robin:node-1", "--arm=b=least-outstanding:node-2"];

/// Two dispatchers, each at its own address, and two nodes.
struct Cluster {
    daemons: Vec<(&'static str, Skep)>,
    folder: Site,
}

impl Cluster {
    /// `lines` are further settings of `[[service]]`.
    #[track_caller]
    fn start(gates: &[&'static str], lines: &str) -> Self {
        let folder = Site::new().with("key", [b'k'; 32]).with("site/a.txt", "aaa");
        let only_ours = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.path("key"), only_ours).unwrap();
        let ports: Vec<[FreePort; 2]> =
            (0..4).map(|_| [FreePort::claim(), FreePort::claim()]).collect();
        let at = |n: usize, which: usize| ports[n][which].address();
        let root = folder.root().display();
        let mut base = format!(
            "state_dir = \"{root}/state\"\nkey_file = \"{root}/key\"\n[admin]\nlisten = \"off\"\n\
             [machine]\nthreads = 1\n[[site]]\nroot = \"{root}/site\"\n"
        );
        for (n, name) in ["gate-1", "gate-2"].iter().enumerate() {
            base += &format!("[[dispatcher]]\nname = \"{name}\"\naddress = \"{}\"\n", at(n, 1));
        }
        for (n, name) in (2..).zip(NODES) {
            let (outer, inner) = (at(n, 0), at(n, 1));
            base += &format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{outer}\"\nagent = \"{inner}\"\n"
            );
        }
        let mut daemons = Vec::new();
        for (n, name) in (0..).zip(["gate-1", "gate-2", "node-1", "node-2"]) {
            if n < 2 && !gates.contains(&name) {
                continue;
            }
            // Each dispatcher has its own address for clients: there is no failover here.
            let listen = at(n.min(1), 0);
            let service = format!(
                "[[service]]\nname = \"web\"\nlisten = \"{listen}\"\nnode_header = true\n\
                 health.interval_ms = \"100ms\"\nhealth.timeout_ms = \"100ms\"\n{lines}\n"
            );
            folder.write(&format!("{name}.toml"), format!("{base}{service}"));
            let file = folder.path(&format!("{name}.toml"));
            daemons.push((name, Skep::run(&file, &["--as", name], at(n, 0))));
        }
        let cluster = Self { daemons, folder };
        poll_until(PATIENCE, "both nodes are up", || {
            gates.iter().all(|gate| {
                let status: Value =
                    serde_json::from_str(&cluster.ok(gate, &["status", "--json"])).unwrap();
                let nodes = status["services"][0]["nodes"].as_array().unwrap();
                nodes.iter().all(|node| node["state"] == "up")
            })
        });
        cluster
    }

    fn run(&self, gate: &str, arguments: &[&str]) -> Finished {
        let socket = self.folder.path("state").join(format!("{gate}.sock"));
        let mut command = Command::new(Skep::binary());
        command.args(arguments).args(["--socket", socket.to_str().unwrap()]);
        Skep::start_command(&mut command).finish()
    }

    /// Returns the output of a command at a dispatcher.
    #[track_caller]
    fn ok(&self, gate: &str, arguments: &[&str]) -> String {
        let finished = self.run(gate, arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
        finished.stdout
    }

    #[track_caller]
    fn compare(&self, gate: &str) -> Value {
        serde_json::from_str(&self.ok(gate, &["policy", "compare", "web", "--json"])).unwrap()
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], mentions: &[&str]) {
        let arguments = [&["policy", "compare"], arguments].concat();
        let finished = self.run("gate-1", &arguments);
        assert_ne!(finished.code, Some(0), "{arguments:?}");
        for text in mentions {
            assert!(finished.stderr.contains(text), "{text:?} in:\n{}", finished.stderr);
        }
    }

    fn daemon(&self, name: &str) -> &Skep {
        &self.daemons.iter().find(|(it, _)| *it == name).unwrap().1
    }

    /// Returns the node that answers the client 127.0.1.N at a dispatcher.
    #[track_caller]
    fn node_for(&self, gate: &str, client: u8) -> String {
        let mut connection = connect_from(client, self.daemon(gate).address());
        let response = connection.get("/a.txt");
        response.assert_status(200);
        response.header("x-skep-node").unwrap().to_owned()
    }

    /// Returns the numbers of clients and requests of each arm.
    fn counts(&self, gate: &str) -> Vec<(u64, u64)> {
        let shown = self.compare(gate);
        let arms = shown["arms"].as_array().unwrap().iter();
        let number = |value: &Value| value.as_u64().unwrap();
        arms.map(|arm| (number(&arm["clients"]), number(&arm["requests"]))).collect()
    }
}

fn connect_from(client: u8, to: SocketAddr) -> RawClient {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let own = SocketAddr::new(IpAddr::from([127, 0, 1, client]), 0);
    socket.bind(&own.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    RawClient::over(TcpStream::from(socket)).unwrap()
}

#[test]
fn clients_take_turns_between_arms_and_stay_while_policies_are_switched() {
    let cluster = Cluster::start(&["gate-1"], "policy = \"round-robin\"");
    let mut kept = connect_from(1, cluster.daemon("gate-1").address());
    kept.get("/a.txt").assert_status(200);
    cluster.ok("gate-1", &["policy", "compare", "web", "start", ARMS[0], ARMS[1]]);
    let first: Vec<String> = (1..=8).map(|client| cluster.node_for("gate-1", client)).collect();
    assert_eq!(first, ["node-1", "node-2"].repeat(4));
    // The same clients in another order, and one whose connection is older than the test.
    let again: Vec<String> =
        (1..=8).rev().map(|client| cluster.node_for("gate-1", client)).collect();
    assert_eq!(again, ["node-2", "node-1"].repeat(4));
    kept.get("/a.txt").assert_status(200).assert_header("x-skep-node", "node-1");
    assert_eq!(cluster.counts("gate-1"), [(4, 9), (4, 8)]);
    let shown = cluster.compare("gate-1");
    for arm in shown["arms"].as_array().unwrap() {
        assert_eq!(arm["failures"], 0);
        assert_eq!(arm["lookups"], arm["requests"], "{arm}");
        assert!(arm["total"]["mean_us"].as_f64().unwrap() > 0.0);
        assert!(arm["total"]["half_width_us"].is_f64(), "{arm}");
    }
    assert!(shown["arms"][1]["total_difference"]["significant"].is_boolean());
    let text = cluster.ok("gate-1", &["policy", "compare", "web"]);
    assert!(text.contains("Against a (round-robin), with 95 % confidence:"), "{text}");
    let metrics = cluster.ok("gate-1", &["policy", "compare", "web", "stop"]);
    assert!(metrics.starts_with("web: 2 arms compared"), "{metrics}");
    kept.get("/a.txt").assert_status(200);
    cluster.refused(&["web"], &["no policies of service web are being compared"]);
}

#[test]
fn arms_of_the_file_work_under_redirect_and_a_node_that_dies_loses_no_request() {
    let arms = "dispatch = \"redirect\"\n\
                [[service.arm]]\nname = \"a\"\npolicy = \"random\"\nweight = 3\nnodes = \"node-1\"\n\
                [[service.arm]]\nname = \"b\"\npolicy = \"lard\"\nnodes = \"node-2\"";
    let mut cluster = Cluster::start(&["gate-1"], arms);
    let place = |cluster: &Cluster, client: u8| {
        let to = cluster.daemon("gate-1").address();
        let response = connect_from(client, to).get("/a.txt");
        response.assert_status(307);
        response.header("x-skep-node").unwrap().to_owned()
    };
    let places: Vec<String> = (1..=8).map(|client| place(&cluster, client)).collect();
    assert_eq!(places.iter().filter(|node| *node == "node-1").count(), 6, "{places:?}");
    let of_second = places.iter().position(|node| node == "node-2").unwrap() as u8 + 1;
    let at = cluster.daemons.iter().position(|(name, _)| *name == "node-2").unwrap();
    let (_, node) = cluster.daemons.remove(at);
    node.signal(Signal::KILL);
    poll_until(PATIENCE, "its clients go to the other group", || {
        place(&cluster, of_second) == "node-1"
    });
    let shown = cluster.compare("gate-1");
    assert!(shown["arms"][1]["strayed"].as_u64().unwrap() > 0, "{shown}");
    assert!(shown["arms"][0]["total"].is_null());
    let text = cluster.ok("gate-1", &["policy", "compare", "web"]);
    assert!(text.contains("`skep probe`"), "{text}");
}

#[test]
fn clients_have_the_same_arm_at_the_dispatcher_that_is_left() {
    let arms = "[[service.arm]]\nname = \"a\"\npolicy = \"round-robin\"\nnodes = \"node-1\"\n\
                [[service.arm]]\nname = \"b\"\npolicy = \"least-outstanding\"\nnodes = \"node-2\"";
    let mut cluster = Cluster::start(&["gate-1", "gate-2"], arms);
    let before: Vec<String> = (1..=5).map(|client| cluster.node_for("gate-1", client)).collect();
    poll_until(PATIENCE, "the other dispatcher knows them", || {
        cluster.counts("gate-2") == [(3, 0), (2, 0)]
    });
    let (_, gate) = cluster.daemons.remove(0);
    gate.signal(Signal::KILL);
    let mut after: Vec<String> =
        (1..=5).rev().map(|client| cluster.node_for("gate-2", client)).collect();
    after.reverse();
    assert_eq!(after, before);
    assert_eq!(cluster.node_for("gate-2", 6), "node-2", "the turn goes on");
    assert_eq!(cluster.counts("gate-2"), [(3, 3), (3, 3)]);
}

#[test]
fn what_is_no_test_is_refused_by_name_and_nothing_changes() {
    let cluster = Cluster::start(&["gate-1"], "");
    for (arguments, mentions) in [
        (&["web", "start"][..], &["--arm"][..]),
        (
            &["web", "start", "--arm=a=lrad", "--arm=b=random"],
            &["did you mean \"lard\"?", "round-robin"],
        ),
        (&["web", "start", "--arm=a=lard*0", "--arm=b=random"], &["weight 0", "from 1 to 256"]),
        (&["web", "start", "--arm=a=lard:", "--arm=b=random"], &["empty group of nodes"]),
        (&["web", "start", "--arm=lard"], &["NAME=POLICY"]),
        (&["web", "start", "--arm=a=lard"], &["1 arms: a comparison has 2 to 8"]),
        (&["web", "start", "--arm=a=lard", "--arm=a=random"], &["two arms are called \"a\""]),
        (
            &["web", "start", "--arm=a=lard:node-1", "--arm=b=random"],
            &["give each a group, or none"],
        ),
        (
            &["web", "start", "--arm=a=lard:node-1", "--arm=b=random:node-1"],
            &["node \"node-1\" is in arm \"a\" and in arm \"b\""],
        ),
        (
            &["web", "start", "--arm=a=lard:node-1", "--arm=b=random:nod-2"],
            &["no node \"nod-2\"", "did you mean \"node-2\"?", "node-1, node-2"],
        ),
        (&["wbe", "start", "--arm=a=lard", "--arm=b=random"], &["no service \"wbe\"", "web"]),
        (&["web", "stop"], &["no policies of service web are being compared"]),
        (&["web", "stop", "--arm=a=lard"], &["--arm is for"]),
        (&["web", "begin"], &["show", "start", "stop"]),
    ] {
        cluster.refused(arguments, mentions);
    }
    cluster.refused(&["web"], &["being compared"]);
}
