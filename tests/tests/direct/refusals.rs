//! Direct dispatch that cannot start, that ends, and clients that are denied: what is logged, and what
//! remains on the machine.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use skep_tests::direct::{DirectCluster, SHORT, Setup, figure};
use skep_tests::{Finished, PATIENCE, RawClient, Skep, poll_until};

/// Timeout of a client that is expected to get no answer.
const IN_VAIN: Duration = Duration::from_millis(300);

/// A port of the machine's own processes, such as that of SSH.
const OTHER_PORT: u16 = 2222;

const DISPATCHER: &str = "dispatcher-1";
const NODE: &str = "node-1";

// --- what is on a machine ---

/// Returns a description of everything that direct dispatch has left on a machine.
fn traces(cluster: &DirectCluster, name: &str) -> Vec<String> {
    let lines = |command: &str| -> Vec<String> {
        cluster.tool(name, "sh", &["-c", command]).lines().map(str::to_owned).collect()
    };
    let mut found = lines("find /sys/fs/bpf/skep 2>/dev/null || true");
    let vip = cluster.vip().ip();
    found.extend(lines(&format!("ip -o addr show to {vip}")));
    found.extend(lines("ip link show dev eth0 | grep xdp || true"));
    let folders = ["state", "guard"].map(|folder| fs::read_dir(cluster.path(folder)));
    let files = folders.into_iter().flatten().flatten();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    found.extend(files.filter(|file| file.starts_with(name) && !file.ends_with(".redb")));
    found.extend(cluster.processes(name, "").iter().map(|pid| format!("process {pid:?}")));
    found
}

/// Runs `skep netguard --clear`, after which nothing must remain.
#[track_caller]
fn clear(cluster: &DirectCluster, name: &str) {
    let config = cluster.path(&format!("{name}.toml"));
    let arguments = ["netguard", "--config", config.to_str().unwrap(), "--as", name, "--clear"];
    cluster.tool(name, Skep::binary().to_str().unwrap(), &arguments);
    assert_eq!(traces(cluster, name), Vec::<String>::new());
}

// --- starts that fail ---

/// Starts `name` through `wrapper` with a changed config; it must fail at once, with one line that contains
/// these words, and leave nothing.
#[track_caller]
fn refused(
    cluster: &DirectCluster,
    name: &str,
    change: impl Fn(String) -> String,
    wrapper: &[&str],
    words: &str,
) {
    let path = cluster.path(&format!("{name}.toml"));
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(config.clone())).unwrap();
    let binary = Skep::binary();
    let path_text = path.to_str().unwrap();
    let run = [binary.to_str().unwrap(), "run", "--config", path_text, "--as", name];
    let all: Vec<&str> = wrapper.iter().copied().chain(run).collect();
    let mut command = cluster.machine(name).command(all[0]);
    let Finished { code, stdout, stderr } = Skep::start_command(command.args(&all[1..])).finish();
    fs::write(&path, config).unwrap();

    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{name}: {words}: {stderr}");
    let notices = |line: &&str| !line.contains(" INFO ");
    let said: Vec<&str> = stderr.lines().filter(notices).collect();
    assert_eq!(said.len(), 1, "{name}: one line with {words:?} in: {stderr}");
    assert!(said[0].starts_with("skep: ") && said[0].contains(words), "{words:?} in: {stderr}");
    poll_until(PATIENCE, &format!("nothing is left of {name} after {words:?}"), || {
        traces(cluster, name).is_empty()
    });
}

#[test]
fn a_start_that_fails_says_why_in_a_line_and_leaves_nothing() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let same = |config: String| config;
    let key = cluster.path("key");
    let key_text = key.to_str().unwrap().to_owned();
    let mut cases = 0;
    for name in [DISPATCHER, NODE] {
        let mut refused = |change: &dyn Fn(String) -> String, wrapper: &[&str], words: &str| {
            cases += 1;
            refused(&cluster, name, change, wrapper, words);
        };
        let device = |config: String| {
            let own = format!("name = \"{name}\"\n");
            config.replace(&own, &format!("{own}device = \"eth7\"\n"))
        };
        refused(&device, &[], "eth7");
        refused(&|config| config.replace(&key_text, "/nowhere/key"), &[], "/nowhere/key");
        fs::write(cluster.path("short"), "too short").unwrap();
        fs::set_permissions(cluster.path("short"), fs::Permissions::from_mode(0o600)).unwrap();
        let short = cluster.path("short");
        let short = |config: String| config.replace(&key_text, short.to_str().unwrap());
        refused(&short, &[], "this one has 9");

        let bounded = ["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon"];
        refused(&same, &bounded, "skep needs CAP_BPF");
        let no_bpffs = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            "umount /sys/fs/bpf && exec setpriv --bounding-set=-sys_admin \"$@\"",
            "sh",
        ];
        refused(&same, &no_bpffs, "there is no bpffs at /sys/fs/bpf");

        let address = SocketAddr::from((cluster.machine(name).ipv4(), 7071));
        let taken = cluster.machine(name).run(|| UdpSocket::bind(address)).unwrap().unwrap();
        refused(
            &same,
            &[],
            &format!("cannot listen for other machines of the cluster on {address}"),
        );
        drop(taken);
        // The listener that is opened last.
        let metrics = SocketAddr::from(([127, 0, 0, 1], 9090));
        let taken = cluster.machine(name).run(|| TcpListener::bind(metrics)).unwrap().unwrap();
        refused(&same, &[], "127.0.0.1:9090");
        drop(taken);
    }
    let own = cluster.node_address(NODE);
    let taken = cluster.machine(NODE).run(|| TcpListener::bind(own)).unwrap().unwrap();
    refused(&cluster, NODE, same, &[], &own.to_string());
    drop(taken);

    // Readable by the unprivileged user, so that permissions are not the cause of the failure.
    fs::set_permissions(cluster.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(cluster.path("state"), fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(&key, Some(65534), Some(65534)).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    for name in [DISPATCHER, NODE] {
        refused(&cluster, name, same, &nobody, "run it as root");
    }
    std::os::unix::fs::chown(&key, Some(0), Some(0)).unwrap();
    cluster.run_all();
    cluster.wait_serving();
    figure(&format!("{} starts that fail: a line each, nothing left", cases + 3));
}

#[test]
fn a_failed_start_takes_nothing_away_that_an_earlier_process_left() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    cluster.kill(DISPATCHER);
    let taken = SocketAddr::from(([127, 0, 0, 1], 9090));
    let taken = cluster.machine(DISPATCHER).run(|| TcpListener::bind(taken)).unwrap().unwrap();
    cluster.spawn(DISPATCHER);
    let failed = cluster.end(DISPATCHER);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    drop(taken);
    assert_eq!(cluster.ask("client-1", cluster.vip(), SHORT.0).as_deref(), Ok(NODE));
    cluster.run(DISPATCHER);
    cluster.wait_serving();
}

// --- ends ---

#[test]
fn what_is_told_to_end_leaves_what_the_documents_say_and_clear_the_rest() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    for signal in [Signal::TERM, Signal::INT] {
        for name in [DISPATCHER, NODE] {
            cluster.daemon(name).signal(signal);
            let ended = cluster.end(name);
            assert_eq!(ended.code, Some(0), "{name}: {}", ended.stderr);
            poll_until(PATIENCE, "netguard ends, too", || cluster.processes(name, "").is_empty());
            // XDP programs continue to steer, and a node keeps its addresses: see there.
            let stays = |trace: &String| {
                trace.starts_with("/sys/fs/bpf/")
                    || trace.contains("xdp")
                    || (name == NODE && (trace.contains(" lo ") || trace.ends_with(".json")))
            };
            let mut left = traces(&cluster, name);
            left.retain(|trace| !stays(trace));
            assert_eq!(left, Vec::<String>::new(), "{name} after {signal:?}");
        }
        clear(&cluster, DISPATCHER);
        clear(&cluster, NODE);
        cluster.run_all();
        cluster.wait_serving();
    }
}

#[test]
fn a_daemon_whose_netguard_is_killed_ends_in_order_and_starts_anew() {
    let Some(cluster) = DirectCluster::start(Setup::default()) else { return };
    let active = cluster.wait_active();
    for name in [&active, NODE] {
        let [guard] = cluster.processes(name, "netguard")[..] else { panic!("no netguard") };
        kill_process(guard, Signal::KILL).unwrap();
        let ended = cluster.end(name);
        // So that a supervisor restarts it: Restart=on-failure.
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("connection to netguard lost: this process ends"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        cluster.run(name);
        cluster.wait_serving();
    }
    // With SIGKILL of both.
    for name in [cluster.wait_active().as_str(), NODE] {
        cluster.kill(name);
        cluster.run(name);
        cluster.wait_serving();
    }
}

// --- who may come in ---

/// A connection that stays open.
struct Kept(RawClient);

impl Kept {
    fn open(cluster: &DirectCluster, client: &str) -> Self {
        let vip = cluster.vip();
        let connect = || RawClient::connect(vip);
        let mut kept = Self(cluster.machine(client).run(connect).unwrap());
        kept.0.get(SHORT.0).assert_status(200);
        kept
    }
}

/// Whether a client's new connections are accepted within `within`.
fn connects(cluster: &DirectCluster, client: &str, address: SocketAddr, within: Duration) -> bool {
    let connect = || TcpStream::connect_timeout(&address, within).is_ok();
    cluster.machine(client).run(connect).unwrap()
}

fn is_let_in(cluster: &DirectCluster, client: &str, address: SocketAddr) -> bool {
    connects(cluster, client, address, PATIENCE)
}

fn is_kept_out(cluster: &DirectCluster, client: &str, address: SocketAddr) -> bool {
    !connects(cluster, client, address, IN_VAIN)
}

fn denied(cluster: &DirectCluster) -> u64 {
    let status = cluster.status(DISPATCHER);
    let packets = status["packets"].as_array().unwrap().iter();
    let mut denied = packets.filter(|it| it["verdict"] == "drop_denied");
    denied.next().map_or(0, |it| it["packets"].as_u64().unwrap())
}

#[test]
fn networks_that_may_not_come_in_do_not() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 2)) else { return };
    let own = |client: &str| cluster.machine(client).ipv4();
    let reload = |direct: String| {
        cluster.reconfigure(|setup| setup.direct = direct);
        cluster.control(DISPATCHER, &["reload"]);
    };
    let lan = format!("{}/24", own("client-1"));
    for direct in [
        format!("deny = [\"{}\"]", own("client-1")),
        format!("allow = [\"{}\"]", own("client-2")),
        format!("deny = [\"{lan}\"]\nallow = [\"{}\"]", own("client-2")),
    ] {
        let (mut one, mut two) =
            (Kept::open(&cluster, "client-1"), Kept::open(&cluster, "client-2"));
        reload(direct.replace(&lan, &network(own("client-1").into())));
        poll_until(PATIENCE, &format!("client-1 is kept out by {direct}"), || {
            is_kept_out(&cluster, "client-1", cluster.vip())
        });
        assert!(is_let_in(&cluster, "client-2", cluster.vip()), "{direct}");
        // An open connection stalls until the client is allowed again.
        one.0.set_timeout(IN_VAIN);
        one.0.ask("/short");
        assert!(one.0.try_response().is_err(), "{direct}");
        two.0.get(SHORT.0).assert_status(200);
        let before = denied(&cluster);
        poll_until(PATIENCE, "drops are counted", || denied(&cluster) > before.min(1));
        reload(String::new());
        one.0.set_timeout(PATIENCE);
        one.0.response().assert_status(200);
        assert!(is_let_in(&cluster, "client-1", cluster.vip()));
    }
    let drops = denied(&cluster);
    figure(&format!(
        "allow and deny, 3 ways: {drops} packets of one client dropped, none of other"
    ));
}

/// Returns the /24 network of an address.
fn network(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { panic!("an IPv4 address") };
    let [a, b, c, _] = address.octets();
    format!("{a}.{b}.{c}.0/24")
}

fn nft(cluster: &DirectCluster, machine: &str, rules: &str) {
    let table = format!(
        "add table ip t\nadd chain ip t in {{ type filter hook input priority 0; }}\n{rules}"
    );
    cluster.tool(machine, "nft", &[&table]);
}

#[test]
fn firewalls_of_nodes_and_dispatchers_do_what_they_are_told() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    let vip = cluster.vip();
    let one = cluster.machine("client-1").ipv4();
    let mut kept = Kept::open(&cluster, "client-2");
    // On the node, the rule applies to traffic through the virtual address.
    let rule = format!("ip saddr {one} tcp dport 80 counter reject with tcp reset");
    nft(&cluster, NODE, &format!("add rule ip t in {rule}"));
    let refused = cluster.ask("client-1", vip, SHORT.0).unwrap_err();
    assert!(refused.contains("refused"), "{refused}");
    assert_eq!(cluster.ask("client-2", vip, SHORT.0).as_deref(), Ok(NODE));
    kept.0.get(SHORT.0).assert_status(200);
    let listed = cluster.tool(NODE, "nft", &["list", "ruleset"]);
    assert!(!listed.contains("counter packets 0 "), "{listed}");
    cluster.tool(NODE, "nft", &["delete", "table", "ip", "t"]);
    assert_eq!(cluster.ask("client-1", vip, SHORT.0).as_deref(), Ok(NODE));

    // On the dispatcher, it applies to all other traffic.
    let other = SocketAddr::from((cluster.machine(DISPATCHER).ipv4(), OTHER_PORT));
    let _listener = cluster.machine(DISPATCHER).run(|| TcpListener::bind(other)).unwrap().unwrap();
    assert!(is_let_in(&cluster, "client-1", other));
    let rule = format!("ip saddr {one} tcp dport {{ 80, {OTHER_PORT} }} counter drop");
    nft(&cluster, DISPATCHER, &format!("add rule ip t in {rule}"));
    assert!(is_kept_out(&cluster, "client-1", other));
    assert!(is_let_in(&cluster, "client-2", other));
    assert_eq!(cluster.ask("client-1", vip, SHORT.0).as_deref(), Ok(NODE));
    kept.0.get(SHORT.0).assert_status(200);
    figure("nft on a node holds for steered packets, on a dispatcher for all others");
}

#[test]
fn the_tools_of_these_tests_are_here() {
    for tool in ["nft", "setpriv", "unshare", "find"] {
        assert!(Command::new(tool).arg("--version").output().is_ok(), "{tool}");
    }
}
