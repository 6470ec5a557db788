//! The death of a dispatcher's machine, and of its daemon alone, under load.

use std::time::{Duration, Instant};

use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, Setup, figure, sent_again};
use skep_tests::{Crowd, PATIENCE, holds_within, poll_until};

/// Number of long downloads of all clients.
const DOWNLOADS: u64 = 2000;

/// Short requests per second of each client.
const PER_SECOND: u32 = 100;

/// Starts two dispatchers, with the product's heartbeats.
fn start_alone() -> Option<DirectCluster> {
    DirectCluster::start(Setup { alone: true, ..Setup::default() })
}

/// Asserts that the standby that took over is still active. A busy machine may delay its heartbeats for
/// longer than the timeout; the other one takes over only for that reason.
#[track_caller]
fn assert_stays_active(cluster: &DirectCluster, standby: &str, other: &str) {
    let active = cluster.wait_active();
    let log = cluster.log(other);
    assert!(active == standby || log.contains("no heartbeat from active"), "{active}: {log}");
}

/// Downloads in progress and short requests at an even rate, by every client.
struct Traffic<'a> {
    cluster: &'a DirectCluster,
    downloads: Loads,
    requests: Loads,
    sent_again: u64,
}

impl<'a> Traffic<'a> {
    fn start(cluster: &'a DirectCluster) -> Self {
        let clients = cluster.bed().clients();
        let each = DOWNLOADS as usize / clients.len();
        let download = |client: &Machine| cluster.downloads(each).start_in(client).unwrap();
        let downloads = Loads::start(clients, download);
        downloads.wait_flowing(DOWNLOADS);
        assert_eq!(downloads.failed(), 0);
        let ask = |client: &Machine| cluster.stream(PER_SECOND).start_in(client).unwrap();
        let requests = Loads::start(clients, ask);
        requests.wait_for_more(100);
        let sent_again = clients.iter().map(sent_again).sum();
        Self { cluster, downloads, requests, sent_again }
    }

    /// Waits until all traffic flows: bytes in each download, and new requests.
    #[track_caller]
    fn wait_flowing(&self) {
        self.requests.wait_for_more(200);
        self.downloads.wait_flowing(DOWNLOADS);
    }

    /// Ends the traffic, and asserts that nothing was lost.
    #[track_caller]
    fn finish(self, what: &str) {
        self.wait_flowing();
        let again: u64 = self.cluster.bed().clients().iter().map(sent_again).sum();
        let again = again - self.sent_again;
        let requests = self.requests.stop();
        let downloads = self.downloads.stop();
        for report in requests.iter().chain(&downloads) {
            assert_eq!((report.failed, report.resets), (0, 0), "{what}: {report:?}");
        }
        let done: u64 = requests.iter().map(|report| report.succeeded).sum();
        let gap_ms = requests.iter().map(|report| report.longest_gap_ms).max().unwrap();
        let wait_ms = requests.iter().map(|report| report.longest_wait_ms).max().unwrap();
        let lasting: u64 = downloads.iter().map(|it| it.succeeded + it.stopped).sum();
        assert_eq!(lasting, DOWNLOADS);
        figure(&format!(
            "{what}: no good reply for {gap_ms} ms, longest request {wait_ms} ms, {again} \
             segments sent again by clients, {done} requests and {lasting} downloads, none lost"
        ));
        assert_eq!(self.cluster.holders().len(), 1);
    }
}

#[test]
fn the_active_dispatchers_machine_dies_and_no_connection_is_lost() {
    let Some(_crowd) = Crowd::of(3 * DOWNLOADS) else { return };
    let Some(cluster) = start_alone() else { return };
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    let traffic = Traffic::start(&cluster);
    cluster.machine(&active).kill().unwrap();
    traffic.wait_flowing();
    assert_eq!(cluster.wait_active(), standby);
    traffic.finish("the active dispatcher's machine killed");

    let traffic = Traffic::start(&cluster);
    cluster.machine(&active).boot().unwrap();
    cluster.run(&active);
    cluster.wait_log(&active, &format!("heartbeat from dispatcher {standby}"));
    traffic.wait_flowing();
    traffic.finish("it comes back");
    assert_stays_active(&cluster, &standby, &active);
}

#[test]
fn the_active_dispatchers_cable_is_pulled_and_put_in_again() {
    let Some(_crowd) = Crowd::of(3 * DOWNLOADS) else { return };
    let Some(cluster) = start_alone() else { return };
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    let traffic = Traffic::start(&cluster);
    cluster.machine(&active).down().unwrap();
    poll_until(PATIENCE, "the standby takes over", || cluster.holders().contains(&standby));
    traffic.wait_flowing();
    // The old one has not been informed: it holds the address until it receives a message.
    cluster.machine(&active).up().unwrap();
    assert_stays_active(&cluster, &standby, &active);
    traffic.finish("the active dispatcher's cable pulled and put in again");
}

#[test]
fn the_active_daemon_is_killed_and_no_packet_is_lost() {
    let Some(_crowd) = Crowd::of(3 * DOWNLOADS) else { return };
    for dispatchers in [1, 2] {
        let Some(cluster) = DirectCluster::start(Setup::of(dispatchers, 3)) else { return };
        let active = cluster.wait_active();
        let traffic = Traffic::start(&cluster);
        cluster.kill(&active);
        traffic.wait_flowing();
        cluster.run(&active);
        cluster.wait_active();
        traffic.finish(&format!("daemon of the active of {dispatchers} killed and restarted"));
    }
}

/// After this time, an active dispatcher knows the other one: several times what nodes take to report it.
const STAYS: Duration = Duration::from_secs(2);

/// Its machine answers ARP for the address, but the standby has never received that it belongs to the
/// cluster.
#[test]
fn a_standby_takes_over_from_a_paused_dispatcher_that_it_never_heard() {
    let Some(cluster) = DirectCluster::start(Setup::of(2, 2)) else { return };
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    let ask = |client: &Machine| cluster.stream(PER_SECOND).start_in(client).unwrap();
    let requests = Loads::start(cluster.bed().clients(), ask);
    requests.wait_for_more(100);
    cluster.kill(&standby);
    cluster.daemon(&active).pause();
    cluster.spawn(&standby);
    // It may yield once more to the paused one's machine, which answers ARP for the addresses, until nodes
    // have reported that this is a dispatcher.
    let mut holds_since = None;
    let stays = holds_within(PATIENCE, || {
        let holds = cluster.holders().contains(&standby);
        holds_since = if holds { holds_since.or_else(|| Some(Instant::now())) } else { None };
        holds_since.is_some_and(|since| since.elapsed() > STAYS)
    });
    assert!(stays, "{standby} does not take over, or does not stay:\n{}", cluster.log(&standby));
    requests.wait_for_more(100);
    cluster.daemon(&active).resume();
    poll_until(PATIENCE, "the other one steps down", || cluster.holders() == [standby.clone()]);
    requests.wait_for_more(100);
    let reports = requests.stop();
    assert!(reports.iter().all(|it| (it.failed, it.resets) == (0, 0)), "{reports:?}");
}

/// How long the active daemon is paused.
const PAUSE: Duration = Duration::from_secs(10);

/// With a standby that had just restarted, 2 to 3 of about 360,000 connections were once reset; with a
/// release build, none of 157,000 in four runs.
#[test]
#[ignore = "takes a minute, and all that the machine has"]
fn the_active_daemon_is_paused_after_its_standby_came_back_and_no_connection_is_lost() {
    let Some(cluster) = start_alone() else { return };
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    let ask = |client: &Machine| cluster.requests(u64::MAX).start_in(client).unwrap();
    let requests = Loads::start(cluster.bed().clients(), ask);
    requests.wait_for_more(10_000);
    cluster.kill(&standby);
    cluster.run(&standby);
    cluster.daemon(&active).pause();
    // The pause is the fault itself, not a wait for a condition.
    std::thread::sleep(PAUSE);
    assert!(cluster.holders().contains(&standby));
    cluster.daemon(&active).resume();
    poll_until(PATIENCE, "it steps down", || cluster.holders() == [standby.clone()]);
    requests.wait_for_more(10_000);
    let reports = requests.stop();
    let done: u64 = reports.iter().map(|report| report.succeeded).sum();
    let trouble: Vec<_> = reports
        .iter()
        .map(|it| (it.failed, it.resets, it.last_trouble_ms, it.elapsed_ms))
        .collect();
    figure(&format!(
        "the active daemon paused for 10 s after its standby came back: {done} connections, \
         (failed, resets, last at ms, of ms): {trouble:?}"
    ));
    for report in &reports {
        assert_eq!((report.failed, report.resets), (0, 0), "{report:?}");
    }
}
