//! Nodes that are off: they return their memory to the kernel, and commands switch their machines.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use skep_tests::cache::{CacheCluster, SEGMENT};
use skep_tests::privileges::{command_line, family};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, poll_until, promtool};

const GATE: &str = "dispatcher-1";
const MIB: u64 = 1 << 20;
const LARGE: usize = 12;
const SMALL: usize = 1_000;
const SMALL_BYTES: usize = 4 << 10;

/// The shortest windows; disabled at first.
const ELASTIC: &str = "[service.health]\ninterval_ms = \"100ms\"\ntimeout_ms = \"100ms\"\nrise = 1\n\
    [service.elastic]\nenabled = false\ntarget_requests = 1\ninterval_ms = 100\n\
    scale_out_window_ms = 0\nscale_in_window_ms = 300\nstep_in_nodes_max = 4\n";

fn cluster(nodes: usize, site: Site, more: &str) -> CacheCluster {
    let root = site.root().display();
    let lines = format!("root = \"{root}\"\ncontent = \"shared\"\n{ELASTIC}{more}");
    CacheCluster::start_of(1, nodes, site, &lines, "")
}

fn is_switched_on(config: String) -> String {
    config.replace("enabled = false", "enabled = true")
}

/// Returns the state of a node with its reason.
fn shown(cluster: &CacheCluster, node: &str) -> String {
    let status = cluster.status(GATE);
    let nodes = status["services"][0]["nodes"].as_array().unwrap().iter();
    let node = nodes.into_iter().find(|it| it["name"] == node).unwrap();
    format!("{}: {}", node["state"].as_str().unwrap(), node["reason"].as_str().unwrap_or(""))
}

#[track_caller]
fn wait_shown(cluster: &CacheCluster, node: &str, wanted: &str) {
    poll_until(PATIENCE, &format!("{node} is shown as {wanted}"), || {
        shown(cluster, node).contains(wanted)
    });
}

/// A client that has requested a large file and does not read it, as load.
fn waiting(cluster: &CacheCluster) -> RawClient {
    let mut client = RawClient::connect(cluster.outer(GATE));
    client.send_request("GET", "/big", &[("Connection", "close")]);
    client
}

fn get_all(cluster: &CacheCluster, node: &str) {
    let mut client = RawClient::connect(cluster.outer(node));
    for number in 0..LARGE {
        client.get(&format!("/large-{number}")).assert_status(200);
    }
    for number in 0..SMALL {
        client.get(&format!("/small-{number}")).assert_status(200);
    }
}

#[test]
fn a_node_that_is_off_has_returned_its_memory_and_has_lost_nothing() {
    let mut site = Site::new().with_large("big", 64 << 20);
    for number in 0..LARGE {
        site = site.with_large(&format!("large-{number}"), SEGMENT);
    }
    for number in 0..SMALL {
        site = site.with(&format!("small-{number}"), vec![b's'; SMALL_BYTES]);
    }
    let cluster = cluster(2, site, "");
    cluster.wait_up();
    let memory = || cluster.daemon("node-2").memory_bytes();
    let fresh = memory();
    get_all(&cluster, "node-2");
    let full = memory();
    let filled = (LARGE * SEGMENT + SMALL * SMALL_BYTES) as u64;
    assert!(full - fresh > filled, "{} MiB of {} MiB", (full - fresh) / MIB, filled / MIB);
    cluster.reconfigure(GATE, is_switched_on);
    assert_eq!(cluster.skep(GATE, &["reload"]).code, Some(0));
    wait_shown(&cluster, "node-2", "elasticity: off; memory is returned");
    let kept = |node: &str| {
        let nodes = cluster.coordinator(GATE)["nodes"].take();
        let found = nodes.as_array().unwrap().iter().find(|it| it["name"] == node).cloned();
        found.unwrap()["held_bytes"].as_u64().unwrap()
    };
    poll_until(PATIENCE, "what only it had is at the other one", || {
        kept("node-2") == 0 && kept("node-1") >= filled
    });
    // A worker returns its own memory one tick later.
    poll_until(PATIENCE, "the memory is returned", || memory() < fresh + (full - fresh) / 10);
    println!(
        "memory of a node: {} MiB fresh, {} full, {} off",
        fresh / MIB,
        full / MIB,
        memory() / MIB
    );
    // Requests that still arrive are answered, but not cached.
    RawClient::connect(cluster.outer("node-2")).get("/large-0").assert_status(200);
    assert_eq!(kept("node-2"), 0);
    let _load: Vec<_> = (0..3).map(|_| waiting(&cluster)).collect();
    wait_shown(&cluster, "node-2", "up: ");
    poll_until(PATIENCE, "it keeps segments again", || {
        let response = RawClient::connect(cluster.outer("node-2")).get("/large-1");
        response.assert_status(200);
        response.header("cache-status").is_some_and(|it| it.contains("hit")) && kept("node-2") > 0
    });
}

/// Switches the machines of the test: node-3 fails, node-4 hangs, and node-5's command succeeds but the node
/// does not start. The others work: the test starts them, as a booting machine would.
const SWITCH: &str = "#!/bin/sh
echo \"$1 $2 $SKEP_TEST\" >> \"$0.log\"
case $1-$2 in
status-*) test -e \"$0.$2.off\" && echo 'power is off' || echo 'power is on' ;;
off-*) kill -9 $(cat \"$0.$2.pid\"); touch \"$0.$2.off\" ;;
on-node-3) echo 'no such instance' >&2; exit 7 ;;
on-node-4) sleep 600 ;;
on-node-5) ;;
on-*) rm \"$0.$2.off\"; touch \"$0.$2.on\" ;;
esac
";

/// Nodes whose machines are switched by commands.
struct SwitchedCluster {
    cluster: CacheCluster,
    /// The program of all commands, and its files.
    tools: Site,
}

impl SwitchedCluster {
    /// `script` is the program, `more` lines of `[service.elastic]`; then its dispatcher is started again, with commands.
    fn start(nodes: usize, script: &str, more: &str) -> Self {
        Self::start_with(nodes, script, more, "")
    }

    /// The same with more services, which `services` appends to the config then.
    fn start_with(nodes: usize, script: &str, more: &str, services: &str) -> Self {
        let site = Site::new().with_large("big", 64 << 20).with("small", "small");
        let tools = Site::new().with("switch", script);
        let cluster = cluster(nodes, site, more);
        let mut started = Self { cluster, tools };
        let only_ours = fs::Permissions::from_mode(0o755);
        fs::set_permissions(started.tools.path("switch"), only_ours).unwrap();
        started.cluster.wait_up();
        (1..=nodes).for_each(|node| started.note_pid(&format!("node-{node}")));
        started.cluster.guard_configs();
        let power = format!(
            "[power]\n{}{}{}environment = {{ SKEP_TEST = \"a b\" }}\ntimeout_ms = 1000\nstatus_interval_ms = 100\n[[site]]",
            started.command("on"),
            started.command("off"),
            started.command("status")
        );
        let with_power = |config| is_switched_on(config + services).replace("[[site]]", &power);
        started.cluster.reconfigure(GATE, with_power);
        started.cluster.kill(GATE);
        started.cluster.run(GATE);
        started
    }

    fn command(&self, word: &str) -> String {
        let switch = self.tools.path("switch");
        format!("{word} = [\"{}\", \"{word}\", \"{{name}}\"]\n", switch.display())
    }

    fn file(&self, node: &str, kind: &str) -> PathBuf {
        self.tools.path(&format!("switch.{node}.{kind}"))
    }

    /// For the command that ends it.
    fn note_pid(&self, node: &str) {
        let pid = self.cluster.daemon(node).pid().as_raw_nonzero().to_string();
        fs::write(self.file(node, "pid"), pid).unwrap();
    }

    /// How often a command has begun for a node.
    fn begun(&self, command: &str) -> usize {
        let log = fs::read_to_string(self.tools.path("switch.log")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(command)).count()
    }

    #[track_caller]
    fn wait_said(&self, text: &str) {
        poll_until(PATIENCE, &format!("{GATE} says: {text}"), || {
            self.cluster.daemon(GATE).stderr_text().contains(text)
        });
    }

    #[track_caller]
    fn assert_serves(&self) {
        RawClient::connect(self.cluster.outer(GATE)).get("/small").assert_status(200);
    }

    /// The process that runs commands.
    #[track_caller]
    fn helper(&self) -> Pid {
        let all = family(self.cluster.daemon(GATE).pid());
        all.into_iter().find(|pid| command_line(*pid).contains(" power --config")).unwrap()
    }
}

#[test]
fn commands_that_work_fail_hang_and_exit_without_a_node_in_one_cluster() {
    let mut switched =
        SwitchedCluster::start(5, SWITCH, "start_timeout_ms = 2000\nattempts_max = 1\n");
    let all: Vec<String> = (1..=5).map(|it| format!("node-{it}")).collect();
    let cluster = &switched.cluster;
    for node in &all[1..] {
        wait_shown(cluster, node, "elasticity: off; machine is off");
    }
    // What a daemon says is written by a thread of its own.
    let said_off =
        || cluster.daemon(GATE).stderr_text().matches("power.off` exited with 0").count();
    poll_until(PATIENCE, "it is said of all", || said_off() >= 4);
    assert_eq!(said_off(), 4);
    let _load: Vec<_> = (0..5).map(|_| waiting(cluster)).collect();
    poll_until(PATIENCE, "node-2 is switched on", || switched.file("node-2", "on").exists());
    switched.cluster.run("node-2");
    let cluster = &switched.cluster;
    wait_shown(cluster, "node-2", "up: ");
    for node in &all[2..] {
        wait_shown(cluster, node, ", failed");
    }
    switched.assert_serves();
    for expected in [
        "node node-2: command `power.on` exited with 0",
        "node node-3: command `power.on` exited with 7: no such instance",
        "node node-4: command `power.on` was killed after its timeout",
        "node node-5: command `power.on` exited with 0",
        "node node-3: marked failed after 1 attempts to start it: the order failed",
        "node node-4: marked failed after 1 attempts to start it: the order failed",
        "node node-5: marked failed after 1 attempts to start it: no node came in time",
    ] {
        switched.wait_said(expected);
    }
    let metrics = cluster.metrics(GATE);
    promtool::assert_clean(&metrics);
    for (command, outcome) in
        [("on", "done"), ("on", "failed"), ("on", "timed_out"), ("off", "done"), ("status", "done")]
    {
        let metric =
            format!("skep_power_commands_total{{command=\"{command}\",outcome=\"{outcome}\"}}");
        assert!(cluster.metric(GATE, &metric) > 0, "{metric}");
    }
    assert!(switched.begun("on node-2 a b") > 0);
}

/// A node is switched off, and on when the test says so. Whatever becomes of who runs it, `on` ends with the folder of the test.
const SLOW_ON: &str = "#!/bin/sh
echo \"$1 $2\" >> \"$0.log\"
case $1 in
status) test -e \"$0.$2.off\" && echo off || echo on ;;
off) kill -9 $(cat \"$0.$2.pid\"); touch \"$0.$2.off\" ;;
on) while test -e \"$0.wait\"; do sleep 0.1; done; rm \"$0.$2.off\" ;;
esac
";

#[test]
fn when_the_process_that_runs_commands_dies_its_orders_fail_and_work_again_after_a_restart() {
    let mut switched =
        SwitchedCluster::start(2, SLOW_ON, "start_timeout_ms = 2000\nattempts_max = 1\n");
    wait_shown(&switched.cluster, "node-2", "elasticity: off; machine is off");
    switched.tools.write("switch.wait", "");
    let load: Vec<_> = (0..3).map(|_| waiting(&switched.cluster)).collect();
    poll_until(PATIENCE, "node-2 is being switched on", || switched.begun("on node-2") > 0);
    kill_process(switched.helper(), Signal::KILL).unwrap();
    wait_shown(&switched.cluster, "node-2", ", failed");
    for said in [
        "node node-2: command `power.on` is not known to have run: the process that runs commands has ended",
        "node node-2: marked failed after 1 attempts to start it",
    ] {
        switched.wait_said(said);
    }
    switched.assert_serves();
    drop(load);
    switched.tools.remove("switch.wait");
    switched.tools.remove("switch.node-2.off");
    switched.cluster.run("node-2");
    switched.note_pid("node-2");
    switched.cluster.kill(GATE);
    switched.cluster.run(GATE);
    wait_shown(&switched.cluster, "node-2", "elasticity: off; machine is off");
    assert_eq!(switched.begun("off node-2"), 2);
}

/// A process that stands still, until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Self {
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

#[test]
fn while_the_process_that_runs_commands_stands_still_its_nodes_count_as_failed_and_then_orders_work()
 {
    let switched =
        SwitchedCluster::start(2, SLOW_ON, "start_timeout_ms = 1100\nattempts_max = 1\n");
    wait_shown(&switched.cluster, "node-2", "elasticity: off; machine is off");
    let stopped = Stopped::new(switched.helper());
    let _load: Vec<_> = (0..3).map(|_| waiting(&switched.cluster)).collect();
    wait_shown(&switched.cluster, "node-2", ", failed");
    switched.wait_said("node node-2: marked failed after 1 attempts to start it: no node came");
    switched.assert_serves();
    assert_eq!([switched.begun("on node-2"), switched.begun("off node-2")], [0, 1]);
    drop(stopped);
    // It is switched off, in case it started partially. Whether the earlier order also runs depends on its age.
    poll_until(PATIENCE, "the next order is carried out", || switched.begun("off node-2") > 1);
}

#[test]
fn a_machine_goes_off_when_the_last_of_its_services_agrees_and_no_service_takes_that_for_a_return()
{
    let port = FreePort::claim();
    let late = ELASTIC.replace("scale_in_window_ms = 300", "scale_in_window_ms = 1500");
    let late = format!("[[service]]\nname = \"late\"\nlisten = [\"{}\"]\n{late}", port.address());
    let switched = SwitchedCluster::start_with(2, SWITCH, "", &late);
    switched.wait_said("service web: elasticity: node node-2: off");
    switched.wait_said("service late: elasticity: node node-2: off");
    wait_shown(&switched.cluster, "node-2", "elasticity: off; machine is off");
    assert_eq!(switched.begun("off node-2"), 1);
    let said = switched.cluster.daemon(GATE).stderr_text();
    assert!(!said.contains("node node-2: active"), "{said}");
}

#[test]
fn a_node_whose_machine_cannot_be_switched_off_serves_again() {
    let script = "#!/bin/sh\necho \"$1 $2\" >> \"$0.log\"\n\
        case $1 in off) echo 'no such machine' >&2; exit 5 ;; esac\n";
    let switched = SwitchedCluster::start(2, script, "attempts_max = 2\n");
    switched.wait_said("node node-2: command `power.off` exited with 5: no such machine");
    switched.wait_said("node node-2: attempt 1 to stop it failed; it is tried again");
    switched.wait_said("node node-2: marked failed after 2 attempts to stop it; it serves again");
    wait_shown(&switched.cluster, "node-2", "up: elasticity: active");
    // It is switched on in case it went off after all.
    poll_until(PATIENCE, "it is switched on", || switched.begun("on node-2") > 0);
    assert_eq!(switched.begun("off node-2"), 2);
    let failed = "skep_power_commands_total{command=\"off\",outcome=\"failed\"}";
    assert_eq!(switched.cluster.metric(GATE, failed), 2);
    switched.assert_serves();
}

#[test]
fn power_settings_that_cannot_be_are_refused_by_name() {
    let site = Site::new().with("small", "small");
    for (wrong, expected) in [
        ("[power]\non = [\"ipmitool\", \"on\"]\n", "the absolute path of a program"),
        ("[power]\non = [\"/bin/on\", \"{nmae}\"]\n", "{nmae}"),
        ("[power]\non = [\"/bin/on\", \"{id}\"]\n", "power_id"),
        ("[power]\noff = [\"/bin/off\"]\n", "a command `on`"),
        ("[power]\non = [\"/bin/on\"]\ntimeout_ms = \"2m\"\n", "power.timeout_ms"),
        ("[power]\non = \"/bin/on\"\n", "without a shell"),
    ] {
        let text = format!(
            "[[dispatcher]]\nname = \"gate\"\n[[node]]\nname = \"comb\"\naddress = \"127.0.0.1:8081\"\n\
             [[service]]\nname = \"web\"\nlisten = [\"127.0.0.1:8080\"]\n[service.elastic]\nenabled = true\n\
             target_requests = 1\n{wrong}[[site]]\nroot = \"{}\"\n",
            site.root().display()
        );
        let file = site.path("skep.toml");
        fs::write(&file, text).unwrap();
        let checked = skep_tests::run_to_end(&["config", "check", file.to_str().unwrap()]);
        assert_ne!(checked.code, Some(0), "{wrong}");
        let said = checked.stdout + &checked.stderr;
        assert!(said.contains(expected), "{said}");
    }
}
