//! The netguard of a killed daemon: it stays for as long as the machine has virtual addresses that another
//! one may have taken over, and releases them without harm.

use std::net::{SocketAddr, TcpListener};

use rustix::process::{Pid, Signal, kill_process};
use skep_tests::direct::{DirectCluster, Loads, Setup, figure, root_or_skip};
use skep_tests::privileges::{command_line, family};
use skep_tests::{PATIENCE, Site, Skep, poll_until};

/// Kills the daemon of the active dispatcher, waits until the other one has taken over, and returns the
/// process ID of the remaining netguard.
#[track_caller]
fn kill_active(cluster: &DirectCluster, active: &str) -> Pid {
    // The entry is kept, for its netguard's log.
    cluster.daemon(active).signal(Signal::KILL);
    poll_until(PATIENCE, "a takeover", || cluster.holders().len() == 2);
    cluster.wait_log(active, "ended without releasing its virtual addresses");
    let [left] = cluster.processes(active, "netguard")[..] else { panic!("no netguard is left") };
    left
}

/// Waits until no process of that name runs.
#[track_caller]
fn wait_none(cluster: &DirectCluster, name: &str) {
    poll_until(PATIENCE, "netguard ends, too", || cluster.processes(name, "").is_empty());
}

#[test]
fn the_netguard_of_a_killed_daemon_releases_the_addresses_that_another_machine_has() {
    let Some(cluster) = DirectCluster::start(Setup::of(2, 2)) else { return };
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    let clients = cluster.bed().clients();
    let requests = Loads::start(clients, |client| cluster.stream(50).start_in(client).unwrap());
    requests.wait_for_more(100);
    cluster.daemon(&active).signal(Signal::KILL);
    poll_until(PATIENCE, "a takeover", || cluster.holders().len() == 2);
    let taken_over = std::time::Instant::now();
    poll_until(PATIENCE, "a release", || cluster.holders() == [standby.clone()]);
    figure(&format!("released {} ms after the takeover", taken_over.elapsed().as_millis()));
    cluster.wait_log(&active, "its virtual addresses are released");
    // It has nothing left to do; the XDP program steers packets that still arrive.
    wait_none(&cluster, &active);
    assert!(cluster.tool(&active, "ip", &["link", "show", "dev", "eth0"]).contains("xdp"));
    requests.wait_for_more(100);
    let reports = requests.stop();
    assert!(reports.iter().all(|it| (it.failed, it.resets) == (0, 0)), "{reports:?}");
}

#[test]
fn a_netguard_that_lingers_gives_way_to_a_new_one_and_to_operators() {
    let Some(cluster) = DirectCluster::start(Setup::of(2, 1)) else { return };
    let (first, second) = (cluster.wait_active(), cluster.standby());
    // A restart.
    let left = kill_active(&cluster, &first);
    cluster.run(&first);
    poll_until(
        PATIENCE,
        "the new netguard alone",
        || matches!(cluster.processes(&first, "netguard")[..], [guard] if guard != left),
    );
    assert_eq!(cluster.wait_active(), second);
    cluster.wait_log(&first, &format!("heartbeat from dispatcher {second}"));

    // A restart that fails: its netguard stays instead.
    let left = kill_active(&cluster, &second);
    let taken = SocketAddr::from(([127, 0, 0, 1], 9090));
    let taken = cluster.machine(&second).run(|| TcpListener::bind(taken)).unwrap().unwrap();
    cluster.spawn(&second);
    cluster.wait_log(&second, "ended without releasing its virtual addresses");
    drop(taken);
    poll_until(
        PATIENCE,
        "the new netguard alone",
        || matches!(cluster.processes(&second, "netguard")[..], [guard] if guard != left),
    );
    assert_eq!(cluster.holders().len(), 2);
    // `--clear` works on its own.
    let config = cluster.path(&format!("{second}.toml"));
    let arguments = ["netguard", "--config", config.to_str().unwrap(), "--as", &second, "--clear"];
    cluster.tool(&second, Skep::binary().to_str().unwrap(), &arguments);
    assert_eq!(cluster.wait_active(), first);
    wait_none(&cluster, &second);
    assert!(!cluster.path(&format!("guard/{second}.pid")).exists());
    cluster.run(&second);
    cluster.wait_log(&second, &format!("heartbeat from dispatcher {first}"));

    // Ended by an operator: the XDP program still steers packets that arrive.
    let left = kill_active(&cluster, &first);
    kill_process(left, Signal::TERM).unwrap();
    wait_none(&cluster, &first);
    assert_eq!(cluster.holders().len(), 2);
}

#[test]
fn skep_up_starts_a_killed_dispatcher_again_at_once_and_leaves_nothing() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new().with("a.txt", "aaa");
    let listens = ["--listen", "127.0.0.1:80", "--admin", "off"];
    let direct = ["up", site.root().to_str().unwrap(), "--dispatch", "direct", "--nodes", "1"];
    let skep = Skep::start(&[&direct[..], &listens[..]].concat());
    poll_until(PATIENCE, "the cluster is ready", || skep.stdout_text().contains("ready on"));
    let kill = |name: &str| {
        let words = [" run ".to_owned(), format!(" --as {name} ")];
        let is_it = |pid: &Pid| words.iter().all(|word| command_line(*pid).contains(word));
        kill_process(family(skep.pid()).into_iter().find(is_it).unwrap(), Signal::KILL).unwrap();
    };
    // One of them was active.
    kill("dispatcher");
    poll_until(PATIENCE, "it is back", || skep.stderr_text().contains("dispatcher is back"));
    let all = family(skep.pid());
    kill("standby");
    for words in ["standby (process", "ended without releasing its virtual addresses"] {
        poll_until(PATIENCE, words, || skep.stderr_text().contains(words));
    }
    skep.signal(Signal::TERM);
    let finished = skep.finish();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(!finished.stderr.contains("are released"), "{}", finished.stderr);
    let left: Vec<_> = all.into_iter().map(command_line).filter(|it| !it.is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
}
