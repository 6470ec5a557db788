//! What others change on a machine of direct dispatch is put right, and said.

use skep_tests::direct::{DirectCluster, SHORT, Setup};
use skep_tests::{PATIENCE, poll_until};

const DISPATCHER: &str = "dispatcher-1";
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
