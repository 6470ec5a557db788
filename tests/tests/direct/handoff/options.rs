//! Connections without common TCP options.

use skep_tests::direct::{DirectCluster, LONG};

use super::moving::{CLIENT, Elsewhere, path_like, start};
use super::{by_url, moved};

/// Settings of a client's network that disable options of its connections.
const OFF: [(&str, &str); 3] = [
    ("net.ipv4.tcp_sack", "0"),
    ("net.ipv4.tcp_timestamps", "0"),
    ("net.ipv4.tcp_window_scaling", "0"),
];

/// Number of connections of each kind.
const TIMES: usize = 3;

/// Requests a long reply on connections that move, and verifies every byte.
#[track_caller]
fn move_long(cluster: &DirectCluster, path: &str, what: &str) {
    let before = moved(cluster);
    for _ in 0..TIMES {
        let mut it = Elsewhere::connect(cluster, cluster.vip(), "node-2");
        for _ in 0..2 {
            it.client.ask(path);
            it.assert_body(LONG.1);
        }
    }
    // On a busy machine READY may be late; then the donor serves.
    assert!(moved(cluster) > before, "{what}");
}

#[test]
fn connections_move_without_any_option_and_with_small_segments() {
    let Some(cluster) = start(by_url(2)) else { return };
    let path = path_like(&cluster, LONG.0, "node-2");
    let client = cluster.machine(CLIENT);
    for (setting, value) in OFF {
        let file = setting.replace('.', "/");
        let read = || std::fs::read_to_string(format!("/proc/sys/{file}")).unwrap();
        let usual = client.run(read).unwrap();
        client.set_kernel(setting, value).unwrap();
        move_long(&cluster, &path, setting);
        client.set_kernel(setting, usual.trim()).unwrap();
    }
    OFF.iter().for_each(|(setting, value)| client.set_kernel(setting, value).unwrap());
    move_long(&cluster, &path, "all off");
    // The minimum MTU that IPv4 hosts must accept.
    cluster.tool(CLIENT, "ip", &["link", "set", "dev", client.device(), "mtu", "576"]);
    move_long(&cluster, &path, "small segments, all off");
    OFF.iter().for_each(|(setting, _)| client.set_kernel(setting, "1").unwrap());
    move_long(&cluster, &path, "small segments");
    cluster.tool(CLIENT, "ip", &["link", "set", "dev", client.device(), "mtu", "1500"]);
}

#[test]
fn connections_move_with_the_largest_window_scale() {
    let Some(cluster) = start(by_url(2)) else { return };
    let path = path_like(&cluster, LONG.0, "node-2");
    let all: Vec<&str> = cluster.bed().nodes().iter().map(|node| node.name()).collect();
    // A buffer of 1 GiB needs the window scale 14.
    for name in all.iter().copied().chain([CLIENT]) {
        let set = cluster.machine(name).set_kernel("net.ipv4.tcp_rmem", "4096 131072 1073741824");
        set.unwrap();
    }
    move_long(&cluster, &path, "window scale 14");
}
