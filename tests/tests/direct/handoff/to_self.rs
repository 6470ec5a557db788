//! A node that hands connections off to itself.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use skep_lab::load::Pattern;
use skep_tests::direct::{DirectCluster, LONG, SHORT, Setup, figure};
use skep_tests::{ClientError, PATIENCE, RawClient, poll_until};

use super::moving::{CLIENT, inode};
use super::{PATIENT, count, moved, moved_at_rest, usual};

/// Starts a cluster with one node; `lines` are for its config.
fn start(lines: &str) -> Option<DirectCluster> {
    let lines = format!("{PATIENT}handoff.to_self = true\n{lines}");
    let cluster = DirectCluster::start(Setup { lines, ..usual(1) })?;
    poll_until(PATIENCE, "the node has its table, and moves connections", || {
        cluster.ask(CLIENT, cluster.vip(), SHORT.0).unwrap();
        moved(&cluster) > 0.0
    });
    Some(cluster)
}

/// Duplicates the descriptor of the node's socket for a client's connection.
fn steal(cluster: &DirectCluster, client: &RawClient) -> OwnedFd {
    let local = client.stream().local_addr().unwrap();
    let pid = cluster.daemon("node-1").pid();
    let mut stolen = None;
    poll_until(PATIENCE, "the node has the connection", || {
        let Some(inode) = inode(cluster, "node-1", local) else { return false };
        stolen = descriptor_of(pid, inode);
        stolen.is_some()
    });
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    pidfd_getfd(process, stolen.unwrap(), PidfdGetfdFlags::empty()).unwrap()
}

/// Returns its descriptor number in that process.
fn descriptor_of(pid: rustix::process::Pid, inode: u64) -> Option<i32> {
    let folder = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap();
    let name = format!("socket:[{inode}]");
    let is_it = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == name.as_str())
    };
    let mut entries = folder.filter_map(Result::ok).filter(is_it);
    entries.next()?.file_name().to_str()?.parse().ok()
}

#[track_caller]
fn assert_body(client: &mut RawClient, (path, len): (&str, u64)) {
    client.ask(path);
    let response = client.response();
    assert_eq!(response.assert_status(200).body.len() as u64, len);
    assert_eq!(Pattern { seed: 3 }.first_wrong(0, &response.body), None);
}

#[test]
fn connections_move_and_every_byte_comes() {
    const CONNECTIONS: usize = 20;
    for decide in ["local", "coordinator"] {
        let Some(cluster) = start(&format!("handoff.decide = \"{decide}\"\n")) else { return };
        let (vip, before) = (cluster.vip(), moved_at_rest(&cluster));
        let connect = || RawClient::connect(vip);
        for _ in 0..CONNECTIONS {
            let mut client = cluster.machine(CLIENT).run(connect).unwrap();
            [SHORT, LONG, SHORT].into_iter().for_each(|file| assert_body(&mut client, file));
        }
        let moves = moved_at_rest(&cluster) - before;
        let others = ["silent", "unsuitable", "closed"];
        let others: f64 = others.iter().map(|it| count(&cluster, "skep_handoffs_total", it)).sum();
        figure(&format!("{decide}: {moves} moves, for {CONNECTIONS} connections; {others} failed"));
        // The first request of each connection, and most long replies.
        assert!(moves >= CONNECTIONS as f64 && others == 0.0, "{moves}, {others}");
    }
}

/// Another process keeps the donor's socket open, so that the kernel cannot create another one for the
/// connection.
#[test]
fn a_socket_that_cannot_be_created_is_tried_again_and_the_client_gets_an_rst_in_the_end() {
    let Some(cluster) = start("") else { return };
    let vip = cluster.vip();
    let connect = || cluster.machine(CLIENT).run(|| RawClient::connect(vip)).unwrap();
    let refused = || count(&cluster, "skep_handoffs_total", "closed");
    // Temporarily.
    let mut client = connect();
    let (stolen, moves) = (steal(&cluster, &client), moved_at_rest(&cluster));
    client.ask(SHORT.0);
    std::thread::sleep(Duration::from_millis(20));
    drop(stolen);
    client.response().assert_status(200);
    assert_eq!((moved_at_rest(&cluster) - moves, refused()), (1.0, 0.0));
    // Permanently.
    let mut client = connect();
    let stolen = steal(&cluster, &client);
    client.ask(SHORT.0);
    poll_until(PATIENCE, "the move is given up", || refused() == 1.0);
    drop(stolen);
    let error = client.try_response().unwrap_err();
    assert_eq!(error, ClientError::Failed(ErrorKind::ConnectionReset));
    // Other connections are served as usual.
    assert_body(&mut connect(), SHORT);
}
