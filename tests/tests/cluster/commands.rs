//! `skep up` and the commands that operate a cluster: status, top, node, service, reload.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skep_tests::{
    ClientError, Crowd, Finished, FreePort, Load, PATIENCE, RawClient, Site, Skep, poll_until,
};

/// A cluster with its own runtime folder, so that commands find this one.
struct Cluster {
    skep: Skep,
    runtime: Site,
    address: SocketAddr,
    _site: Site,
}

/// Returns the command `skep ARGUMENTS` with a runtime folder.
fn skep(runtime: &Site, arguments: &[&str]) -> Command {
    let mut command = Command::new(Skep::binary());
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime.root()).env_remove("SKEP_SOCKET");
    command
}

fn site() -> Site {
    Site::new().with("a.txt", "aaa").with_large("large", 64 << 20)
}

impl Cluster {
    #[track_caller]
    fn up(arguments: &[&str]) -> Self {
        Self::up_in(Site::guarded(), arguments)
    }

    #[track_caller]
    fn up_in(runtime: Site, arguments: &[&str]) -> Self {
        let site = site();
        let mut all = vec!["up", site.root().to_str().unwrap()];
        for option in [["--listen", "127.0.0.1:0"], ["--admin", "off"], ["--threads", "1"]] {
            if !arguments.contains(&option[0]) {
                all.extend(option);
            }
        }
        all.extend(arguments);
        let mut skep = Skep::start_command(&mut skep(&runtime, &all));
        poll_until(PATIENCE, "the ready line", || {
            skep.assert_running();
            skep.stdout_text().ends_with('\n')
        });
        let line = skep.stdout_text();
        let address = line.trim_end().strip_prefix("skep: cluster ready on http://");
        let address = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Self { skep, runtime, address, _site: site }
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        Skep::start_command(&mut skep(&self.runtime, arguments)).finish()
    }

    /// Returns the standard output of a command that must succeed.
    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let finished = self.run(arguments);
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        finished.stdout
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// Returns a node of `skep node list`.
    #[track_caller]
    fn node(&self, name: &str) -> Option<Value> {
        let nodes = self.json(&["node", "list"]);
        nodes.as_array().unwrap().iter().find(|node| node["name"] == name).cloned()
    }

    #[track_caller]
    fn wait_for_state(&self, name: &str, state: &str) {
        poll_until(PATIENCE, &format!("{name} is {state}"), || {
            self.node(name).is_some_and(|node| node["state"] == state)
        });
    }

    fn load(&self) -> Load {
        Load::on(self.address).get("/a.txt", "aaa").threads(2)
    }

    /// Returns the process ID of a member.
    fn pid_of(&self, name: &str) -> Option<Pid> {
        children(self.skep.pid()).into_iter().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            words.windows(2).any(|pair| pair[0] == b"--as" && pair[1] == name.as_bytes())
        })
    }
}

fn children(parent: Pid) -> Vec<Pid> {
    let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let pids = text.unwrap_or_default();
    pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Returns the remaining entries of a runtime folder.
fn left_in(runtime: &Site) -> Vec<PathBuf> {
    fs::read_dir(runtime.root()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[track_caller]
fn assert_nothing_left(runtime: &Site) {
    let left = left_in(runtime);
    assert!(left.is_empty(), "{left:?}");
}

#[track_caller]
fn assert_failed(finished: &Finished, mentions: &[&str]) {
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    for text in mentions {
        assert!(finished.stderr.contains(text), "{text:?} in:\n{}", finished.stderr);
    }
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

#[test]
fn a_cluster_serves_as_soon_as_it_says_so_and_every_node_is_up() {
    let cluster = Cluster::up(&["--nodes", "3"]);
    RawClient::connect(cluster.address).get("/a.txt").assert_status(200);
    let expected = format!("skep: cluster ready on http://{}\n", cluster.address);
    assert_eq!(cluster.skep.stdout_text(), expected);
    let status = cluster.json(&["status"]);
    assert_eq!(status["roles"][0], "dispatcher");
    let nodes = status["services"][0]["nodes"].as_array().unwrap();
    let states: Vec<&str> = nodes.iter().map(|node| node["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["up"; 3]);
    assert_eq!(children(cluster.skep.pid()).len(), 4);
}

#[test]
fn the_address_and_how_to_end_it_are_said_last_and_logs_only_if_asked_for() {
    for verbose in [false, true] {
        let (runtime, site) = (Site::guarded(), site());
        let mut command = Command::new("sh");
        // As on a terminal: both outputs in one stream.
        command.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(Skep::binary());
        command.args(["up", site.root().to_str().unwrap(), "--nodes", "2", "--admin", "off"]);
        command.args(["--listen", "127.0.0.1:0"]).args(verbose.then_some("--verbose"));
        command.env("XDG_RUNTIME_DIR", runtime.root());
        let cluster = Skep::start_command(&mut command);
        poll_until(PATIENCE, "it says how to end it", || {
            cluster.stdout_text().contains("skep: Ctrl-C ends it\n")
        });
        poll_until(PATIENCE, "nodes are linked, which they log", || {
            let status = Skep::start_command(&mut skep(&runtime, &["status", "--json"])).finish();
            let status: Value = serde_json::from_str(&status.stdout).unwrap();
            status["cache"]["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
        });
        let said = cluster.stdout_text();
        let (before, end) = said.split_once("skep: cluster ready on http://127.0.0.1:").unwrap();
        assert!(before.starts_with("skep: starting a dispatcher and 2 nodes\n"), "{said}");
        assert_eq!(before.contains(" INFO "), verbose, "{said}");
        assert!(verbose || end.lines().skip(1).eq(["skep: Ctrl-C ends it"]), "{said}");
        cluster.signal(Signal::INT);
        assert_eq!(cluster.finish().code, Some(0));
    }
}

#[test]
fn requests_reach_all_nodes_by_proxy_and_by_redirect() {
    for mode in ["proxy", "redirect"] {
        let cluster = Cluster::up(&["--nodes", "2", "--dispatch", mode]);
        let load = cluster.load();
        let load = if mode == "redirect" { load.following_redirects() } else { load };
        load.run(40).assert_clean();
        for name in ["node-1", "node-2"] {
            let requests = cluster.node(name).unwrap()["requests_total"].as_u64().unwrap();
            assert_eq!(requests, 20, "{mode}: {name}");
        }
    }
}

#[test]
fn a_node_killed_under_load_fails_no_request_and_comes_back() {
    let cluster = Cluster::up(&["--nodes", "3"]);
    let load = cluster.load().start();
    load.wait_for_more(50);
    let old = cluster.pid_of("node-2").unwrap();
    kill_process(old, Signal::KILL).unwrap();
    poll_until(PATIENCE, "node-2 runs again", || {
        cluster.pid_of("node-2").is_some_and(|pid| pid != old)
    });
    cluster.wait_for_state("node-2", "up");
    load.wait_for_more(50);
    load.stop().assert_clean();
    poll_until(PATIENCE, "its end is said", || {
        let said = cluster.skep.stderr_text();
        said.contains("node-2") && said.contains("killed by signal 9")
    });
}

#[test]
fn a_dispatcher_that_dies_is_started_again_with_the_same_address() {
    let cluster = Cluster::up(&["--nodes", "1"]);
    kill_process(cluster.pid_of("dispatcher").unwrap(), Signal::KILL).unwrap();
    poll_until(PATIENCE, "it serves again", || {
        let reply = RawClient::try_connect(cluster.address).and_then(|mut client| {
            client.ask("/a.txt");
            client.try_response()
        });
        reply.is_ok_and(|reply| reply.status == 200)
    });
    cluster.wait_for_state("node-1", "up");
}

#[test]
fn the_end_of_a_cluster_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let port = FreePort::claim();
        let listen = port.address().to_string();
        let mut cluster = Cluster::up(&["--nodes", "2", "--listen", &listen]);
        let pids = children(cluster.skep.pid());
        assert_eq!(pids.len(), 3);
        cluster.skep.signal(signal);
        assert_eq!(cluster.skep.wait_exit(PATIENCE).code(), Some(0), "{signal:?}");
        assert!(pids.into_iter().all(is_gone), "{signal:?}");
        assert_nothing_left(&cluster.runtime);
        TcpListener::bind(cluster.address).expect("the port is free");
        assert_failed(&cluster.run(&["status"]), &["no cluster answers"]);
    }
}

#[test]
fn the_end_waits_for_replies_under_way_unless_told_twice() {
    for twice in [false, true] {
        let mut cluster = Cluster::up(&["--nodes", "1"]);
        let mut client = RawClient::connect(cluster.address);
        client.ask("/large");
        client.try_head().unwrap().assert_status(200);
        cluster.skep.signal(Signal::INT);
        poll_until(PATIENCE, "new clients are refused", || {
            matches!(RawClient::try_connect(cluster.address), Err(ClientError::Connect(_)))
        });
        if twice {
            cluster.skep.signal(Signal::INT);
        } else {
            let mut received = 0;
            while received < 64 << 20 {
                let piece = client.try_read_some().unwrap();
                assert!(!piece.is_empty(), "cut off after {received} bytes");
                received += piece.len();
            }
        }
        assert_eq!(cluster.skep.wait_exit(PATIENCE).code(), Some(0));
        assert_nothing_left(&cluster.runtime);
    }
}

#[test]
fn kill_9_takes_the_children_along_and_the_next_cluster_cleans_up() {
    let mut cluster = Cluster::up(&["--nodes", "2"]);
    let pids = children(cluster.skep.pid());
    cluster.skep.signal(Signal::KILL);
    cluster.skep.wait_exit(PATIENCE);
    poll_until(PATIENCE, "the children end", || pids.iter().all(|pid| is_gone(*pid)));
    assert!(!left_in(&cluster.runtime).is_empty());
    // The next command that looks for a cluster removes stale entries.
    assert_failed(&cluster.run(&["status"]), &["no cluster answers"]);
    assert_nothing_left(&cluster.runtime);
    let Cluster { runtime, .. } = cluster;
    let mut next = Cluster::up_in(runtime, &["--nodes", "1"]);
    next.skep.signal(Signal::INT);
    next.skep.wait_exit(PATIENCE);
    assert_nothing_left(&next.runtime);
}

#[test]
fn what_cannot_start_is_one_sentence_and_leaves_nothing() {
    let (site, runtime) = (site(), Site::guarded());
    let root = site.root().to_str().unwrap();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = held.local_addr().unwrap().to_string();
    let file = site.path("a.txt");
    for (arguments, mentions) in [
        (["up", root, "--listen", &held], &[held.as_str(), "another program"][..]),
        (["up", root, "--admin", &held], &["dispatcher", held.as_str(), "admin API"]),
        (["up", "/nowhere/at/all", "--nodes", "1"], &["/nowhere/at/all"]),
        (["up", file.to_str().unwrap(), "--nodes", "1"], &["not a folder"]),
        (["up", root, "--access-log", "/nowhere/log"], &["node-", "/nowhere/log"]),
    ] {
        let free = [["--listen", "127.0.0.1:0"], ["--admin", "off"]];
        let more = free.iter().filter(|option| !arguments.contains(&option[0])).flatten();
        let finished = Skep::start_command(skep(&runtime, &arguments).args(more)).finish();
        assert_failed(&finished, mentions);
        let last = finished.stderr.trim_end().lines().last().unwrap();
        assert!(last.starts_with("skep: "), "{}", finished.stderr);
        assert_eq!(finished.stdout, "");
        assert_nothing_left(&runtime);
    }
}

#[test]
fn several_clusters_run_side_by_side_and_the_newest_is_asked() {
    let first = Cluster::up(&["--nodes", "1", "--policy", "random"]);
    // The second one uses the first one's folder.
    let site = site();
    let arguments =
        ["up", site.root().to_str().unwrap(), "--nodes", "2", "--listen", "127.0.0.1:0"];
    let more = ["--admin", "off", "--threads", "1"];
    let mut second = Skep::start_command(skep(&first.runtime, &arguments).args(more));
    poll_until(PATIENCE, "the second is ready", || {
        second.assert_running();
        second.stdout_text().ends_with('\n')
    });
    let status = first.json(&["status"]);
    assert_eq!(status["services"][0]["nodes"].as_array().unwrap().len(), 2);
    second.signal(Signal::INT);
    second.wait_exit(PATIENCE);
    let status = first.json(&["status"]);
    assert_eq!(status["services"][0]["policy"], "random");
}

#[test]
fn a_drained_node_gets_nothing_and_no_request_fails() {
    let cluster = Cluster::up(&["--nodes", "2"]);
    let load = cluster.load().start();
    load.wait_for_more(20);
    let said = cluster.ok(&["node", "drain", "node-1", "--wait"]);
    assert_eq!(said, "node-1: drained, weight 1, service web\n");
    let requests = || cluster.node("node-1").unwrap()["requests_total"].clone();
    let before = requests();
    load.wait_for_more(50);
    assert_eq!(requests(), before);
    cluster.ok(&["node", "resume", "node-1"]);
    cluster.wait_for_state("node-1", "up");
    poll_until(PATIENCE, "node-1 gets requests again", || requests() != before);
    load.stop().assert_clean();
}

#[test]
fn nodes_come_and_go_under_load() {
    let cluster = Cluster::up(&["--nodes", "1"]);
    let other = site();
    let extra = Skep::serve(other.root(), &["--threads", "1"]);
    let address = extra.address().to_string();
    let load = cluster.load().start();
    load.wait_for_more(20);
    let added = cluster.json(&["node", "add", "extra", &address, "--weight", "2"]);
    assert_eq!((&added[0]["name"], &added[0]["weight"]), (&"extra".into(), &2.into()));
    cluster.wait_for_state("extra", "up");
    assert_eq!(cluster.node("extra").unwrap()["source"], "api");
    load.wait_for_more(50);
    assert_eq!(cluster.json(&["node", "weight", "extra", "3"])[0]["weight"], 3);
    cluster.ok(&["node", "remove", "extra"]);
    poll_until(PATIENCE, "extra is gone", || cluster.node("extra").is_none());
    // The command returns once the name is free again.
    for _ in 0..3 {
        cluster.ok(&["node", "add", "extra", &address]);
        cluster.wait_for_state("extra", "up");
        cluster.ok(&["node", "remove", "extra", "--wait"]);
        assert!(cluster.node("extra").is_none());
    }
    load.wait_for_more(50);
    load.stop().assert_clean();
}

#[test]
fn what_a_command_cannot_do_is_said_with_what_was_meant() {
    let cluster = Cluster::up(&["--nodes", "2"]);
    let failed = |arguments: &[&str], mentions: &[&str]| {
        let finished = cluster.run(arguments);
        assert_failed(&finished, mentions);
        assert_eq!(finished.stdout, "", "{arguments:?}");
    };
    failed(&["node", "drain", "nod-1"], &["nod-1", "did you mean \"node-1\""]);
    failed(&["node", "resume", "../../status"], &["../../status"]);
    failed(&["node", "add", "node-1", "127.0.0.1:1"], &["exists already"]);
    failed(&["node", "add", "node-9", "0.0.0.0:1"], &["0.0.0.0:1"]);
    for weight in ["0", "257", "65535"] {
        for command in [
            &["node", "weight", "node-1", weight][..],
            &["node", "add", "node-9", "127.0.0.1:1", "--weight", weight],
        ] {
            let finished = cluster.run(command);
            assert_eq!(finished.code, Some(2), "{}", finished.stderr);
            assert!(finished.stderr.contains("1..=256"), "{}", finished.stderr);
        }
    }
    failed(&["node", "drain", "node-1", "--service", "mail"], &["mail", "web"]);
    failed(&["policy", "set", "mail", "random"], &["mail", "web"]);
    assert_eq!(cluster.run(&["policy", "set", "web", "randon"]).code, Some(2));
}

#[test]
fn the_policy_can_be_changed_and_a_reload_counted() {
    let cluster = Cluster::up(&["--nodes", "1"]);
    assert_eq!(cluster.ok(&["policy", "set", "web", "lard-r"]), "web: policy lard-r\n");
    assert_eq!(cluster.ok(&["policy", "set", "web", "random"]), "web: policy random\n");
    assert!(cluster.ok(&["policy", "list"]).contains("\nlard-r "));
    assert_eq!(cluster.json(&["policy", "show", "lard-r"])["goes_by"], "URL and load");
    let services = cluster.json(&["service", "list"]);
    assert_eq!(services[0]["policy"], "random");
    assert!(cluster.ok(&["service", "list"]).contains("random"));
    assert_eq!(cluster.json(&["reload"])["config_generation"], 2);
    assert_eq!(cluster.json(&["status"])["config_generation"], 2);
}

#[test]
fn what_people_read_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let cluster = Cluster::up(&["--nodes", "2"]);
    cluster.load().run(10).assert_clean();
    for arguments in
        [&["status"][..], &["node", "list"], &["service", "list"], &["top", "--interval", "100ms"]]
    {
        let text = cluster.ok(arguments);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
        let expected = if arguments[0] == "service" { "web" } else { "node-2" };
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_api_over_tcp_reads_without_a_token_and_changes_nothing() {
    let port = FreePort::claim();
    let admin = port.address().to_string();
    let cluster = Cluster::up(&["--nodes", "1", "--admin", &admin]);
    let url = format!("http://{admin}");
    assert_eq!(cluster.json(&["status", "--api", &url])["name"], "dispatcher");
    let finished = cluster.run(&["node", "drain", "node-1", "--api", &url]);
    assert_failed(&finished, &["token"]);
    let api = RawClient::connect(port.address()).get("/api/v1/openapi.json");
    assert_eq!(api.status, 403, "Host is not the listener's: {}", api.head_text());
    assert_eq!(cluster.node("node-1").unwrap()["state"], "up");
}

#[test]
fn half_sent_requests_keep_no_command_out() {
    /// Far more than the available slots.
    const HALVES: usize = 2_000;
    let Some(_crowd) = Crowd::of(HALVES as u64) else { return };
    let port = FreePort::claim();
    let admin = port.address().to_string();
    let cluster = Cluster::up(&["--nodes", "1", "--admin", &admin]);
    let url = format!("http://{admin}");
    let mut halves = Vec::new();
    for number in 0..HALVES {
        let mut half = RawClient::connect(port.address());
        half.send("GET /api/v1/st");
        halves.push(half);
        if number % 500 == 499 {
            assert_eq!(cluster.json(&["status", "--api", &url])["name"], "dispatcher");
        }
    }
}

#[test]
fn a_command_can_be_told_whom_to_ask() {
    let cluster = Cluster::up(&["--nodes", "1"]);
    let folder = fs::read_dir(cluster.runtime.path("skep")).unwrap();
    let folder = folder.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    let socket = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let nowhere = Site::new();
    let name = |command: &mut Command| {
        let finished = Skep::start_command(command).finish();
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        serde_json::from_str::<Value>(&finished.stdout).unwrap()["name"].clone()
    };
    let status = |arguments: &[&str]| skep(&nowhere, &[&["status", "--json"], arguments].concat());
    assert_eq!(name(&mut status(&["--socket", &socket("state/node-1.sock")])), "node-1");
    assert_eq!(name(&mut status(&["--config", &socket("skep.toml")])), "dispatcher");
    assert_eq!(name(status(&[]).env("SKEP_SOCKET", socket("state/node-1.sock"))), "node-1");
    let missing = Skep::start_command(&mut status(&["--socket", &socket("no.sock")])).finish();
    assert_failed(&missing, &["no.sock", "no cluster answers"]);
    let node = cluster.json(&["status", "--socket", &socket("state/node-1.sock")]);
    assert_eq!((&node["roles"][0], &node["services"]), (&"node".into(), &Value::Array(vec![])));
    assert_eq!(node["node"]["sites"][0], "*");
}
