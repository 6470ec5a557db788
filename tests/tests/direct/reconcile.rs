//! What others change on a machine of direct dispatch is put right, and said.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};
use skep_tests::direct::{DirectCluster, SHORT, Setup};
use skep_tests::{PATIENCE, Skep, poll_until};

const DISPATCHER: &str = "dispatcher-1";
const OTHER: &str = "dispatcher-2";
const NODE: &str = "node-1";

/// Waits until a client's new connection is answered.
#[track_caller]
fn wait_answer(cluster: &DirectCluster) {
    poll_until(PATIENCE, "an answer", || {
        cluster.ask("client-1", cluster.vip(), SHORT.0) == Ok(NODE.to_owned())
    });
}

#[test]
fn what_is_removed_from_a_dispatcher_is_put_back() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    let vip = cluster.vip().ip().to_string();
    // As a network manager does that is restarted.
    cluster.tool(DISPATCHER, "ip", &["address", "del", &vip, "dev", "eth0"]);
    cluster.wait_log(DISPATCHER, "virtual address");
    poll_until(PATIENCE, "the address is back", || cluster.holders() == [DISPATCHER]);
    wait_answer(&cluster);
    assert_eq!(cluster.metric(DISPATCHER, "skep_direct_addresses_held"), 1.0);
    // As an upgrade of another program does that cleans up.
    cluster.tool(DISPATCHER, "sh", &["-c", "rm /sys/fs/bpf/skep/*/dispatch/link-*"]);
    cluster.wait_log(DISPATCHER, "packet program was detached");
    wait_answer(&cluster);
    assert!(cluster.tool(DISPATCHER, "ip", &["link", "show", "dev", "eth0"]).contains("xdp"));
}

#[test]
fn what_is_removed_from_a_node_is_put_back() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 1)) else { return };
    let vip = cluster.vip().ip().to_string();
    let address = || cluster.tool(NODE, "ip", &["-o", "address", "show", "to", &vip]);
    cluster.tool(NODE, "ip", &["address", "del", &vip, "dev", "lo"]);
    poll_until(PATIENCE, "the address is back", || address().contains("lo"));
    wait_answer(&cluster);
    // As `sysctl --system` does.
    let setting = "/proc/sys/net/ipv4/conf/eth0/arp_ignore";
    cluster.tool(NODE, "sh", &["-c", &format!("echo 0 > {setting}")]);
    poll_until(PATIENCE, "it is silent again", || {
        cluster.tool(NODE, "cat", &[setting]).trim() == "1"
    });
    cluster.tool(NODE, "sh", &["-c", "rm /sys/fs/bpf/skep/*/node/link-*"]);
    cluster.wait_log(NODE, "packet program was detached");
    poll_until(PATIENCE, "its program is back", || {
        cluster.tool(NODE, "sh", &["-c", "ls /sys/fs/bpf/skep/*/node/"]).contains("link-")
    });
    wait_answer(&cluster);
}

#[test]
fn netguard_releases_the_addresses_of_a_dispatcher_that_hangs() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(2, 1)) else { return };
    let config = cluster.path(&format!("{DISPATCHER}.toml"));
    let mut guard = cluster.machine(DISPATCHER).command(Skep::binary());
    let arguments = ["netguard", "--config", config.to_str().unwrap(), "--as", DISPATCHER];
    let guard = Skep::start_command(guard.args(arguments));
    poll_until(PATIENCE, "netguard listens", || guard.stdout_text().contains("netguard ready"));
    // So it is the active one.
    cluster.run(DISPATCHER);
    cluster.wait_active();
    cluster.run(OTHER);
    cluster.run(NODE);
    wait_answer(&cluster);

    let pid = cluster.daemon(DISPATCHER).pid();
    kill_process(pid, Signal::STOP).unwrap();
    // Both hold them, until it has been silent for longer than an upgrade takes.
    poll_until(PATIENCE, "a takeover", || cluster.holders().len() == 2);
    poll_until(PATIENCE, "a release", || cluster.holders() == [OTHER]);
    assert!(guard.stderr_text().contains("virtual addresses are released"));
    wait_answer(&cluster);
    kill_process(pid, Signal::CONT).unwrap();
    cluster.wait_log(DISPATCHER, "not active any more");
    assert_eq!(cluster.holders(), [OTHER]);
    wait_answer(&cluster);
}

#[test]
fn a_damaged_store_is_moved_aside_and_its_epochs_are_skipped() {
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 1)) else { return };
    let file = cluster.path("state").join(format!("{DISPATCHER}.redb"));
    let folder = file.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(&file, "no store").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    cluster.run_all();
    cluster.wait_serving();
    assert_eq!(fs::read(file.with_extension("redb.damaged")).unwrap(), b"no store");
    cluster.wait_log(DISPATCHER, "damaged, or not a store of Skep");
    let epoch = cluster.status(DISPATCHER)["epoch"].as_u64().unwrap();
    assert!(epoch >= 1 << 16, "{epoch}: an earlier process may have used the first ones");
}
