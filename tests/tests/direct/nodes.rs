//! Nodes that fail, return, are drained and removed, under load.

use std::collections::BTreeSet;
use std::time::Instant;

use skep_lab::load::{Downloads, Report};
use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, SHORT, Setup, figure};
use skep_tests::{ClientError, PATIENCE, RawClient, poll_until};

/// Number of long downloads of each client.
const DOWNLOADS: usize = 20;

/// Rate of each, in bytes per second: they last longer than a test takes on a busy machine.
const DOWNLOAD_BYTES_S: u64 = 300 * 1024;

/// Number of idle connections that wait for their next request.
const HELD: usize = 30;

/// Short requests per second of each client.
const PER_SECOND: u32 = 100;

const DISPATCHER: &str = "dispatcher-1";

/// The node that fails, or is drained.
const VICTIM: &str = "node-2";

/// A cluster under load.
struct Scene {
    cluster: DirectCluster,
    downloads: Loads,
    requests: Loads,
    /// The start of the requests.
    began: Instant,
    held: Vec<Held>,
    /// Number of downloads from the victim.
    at_stake: u64,
}

/// An idle connection that waits for its next request, with its node.
struct Held {
    client: RawClient,
    node: String,
}

impl Scene {
    fn new() -> Option<Self> {
        let cluster = DirectCluster::start(Setup::of(1, 3))?;
        let clients = cluster.bed().clients();
        let download = |client: &Machine| {
            let rate_bytes_s = DOWNLOAD_BYTES_S;
            let load = Downloads { rate_bytes_s, ..cluster.downloads(DOWNLOADS) };
            load.start_in(client).unwrap()
        };
        let downloads = Loads::start(clients, download);
        let all = (DOWNLOADS * clients.len()) as u64;
        downloads.wait_flowing(all);
        let open = |node: &String| cluster.node_seen(DISPATCHER, node).unwrap().1;
        poll_until(PATIENCE, "nodes report all downloads", || {
            names(&[1, 2, 3]).iter().map(open).sum::<u64>() == all
        });
        poll_until(PATIENCE, "heartbeats tell of their load", || {
            let loads = &cluster.whole_status(DISPATCHER)["loads"];
            let loads = loads.as_array().expect("a list");
            let connections = loads.iter().map(|load| load["connections"].as_u64().unwrap());
            loads.len() == 3
                && connections.sum::<u64>() == all
                && loads.iter().all(|load| {
                    load["is_stale"] == false && load["sent_bytes_s"].as_u64().unwrap() > 0
                })
        });
        let at_stake = open(&VICTIM.to_owned());
        let held = (0..HELD).map(|_| Held::open(&cluster)).collect();
        let ask = |client: &Machine| cluster.stream(PER_SECOND).start_in(client).unwrap();
        let began = Instant::now();
        let requests = Loads::start(clients, ask);
        requests.wait_for_more(100);
        assert_eq!(requests.failed() + downloads.failed(), 0);
        Some(Self { cluster, downloads, requests, began, held, at_stake })
    }

    /// Waits until the dispatcher shows this state of the victim, or no longer lists it.
    #[track_caller]
    fn wait_state(&self, wanted: Option<&str>) {
        poll_until(PATIENCE, &format!("{VICTIM} is {wanted:?}"), || {
            let seen = self.cluster.node_seen(DISPATCHER, VICTIM);
            seen.as_ref().map(|(state, _)| state.as_str()) == wanted
        });
    }

    /// Waits for the end of all downloads; returns the combined reports of downloads and of requests.
    #[track_caller]
    fn finish(self) -> (Report, Report) {
        let all = (DOWNLOADS * self.cluster.bed().clients().len()) as u64;
        poll_until(PATIENCE, "the downloads' end", || {
            self.downloads.succeeded() + self.downloads.failed() >= all
        });
        (sum(self.downloads.stop()), sum(self.requests.stop()))
    }
}

impl Held {
    fn open(cluster: &DirectCluster) -> Self {
        let (vip, machine) = (cluster.vip(), cluster.machine("client-1"));
        let mut client = machine.run(|| RawClient::connect(vip)).expect("a living machine");
        let response = client.get(SHORT.0);
        let node = response.header("x-skep-node").expect("a name").to_owned();
        Self { client, node }
    }
}

/// Combines the relevant fields of several reports.
fn sum(reports: Vec<Report>) -> Report {
    let mut sum = Report::default();
    for report in reports {
        sum.succeeded += report.succeeded;
        sum.failed += report.failed;
        sum.stopped += report.stopped;
        sum.refused += report.refused;
        sum.timeouts += report.timeouts;
        sum.longest_wait_ms = sum.longest_wait_ms.max(report.longest_wait_ms);
        sum.last_trouble_ms = sum.last_trouble_ms.max(report.last_trouble_ms);
        sum.examples.extend(report.examples);
        for (node, count) in report.by_node {
            *sum.by_node.entry(node).or_default() += count;
        }
    }
    sum
}

fn names(numbers: &[u32]) -> BTreeSet<String> {
    numbers.iter().map(|number| format!("node-{number}")).collect()
}

/// Sends one more request on each held connection at once: those of the victim get an RST (or a FIN, if a
/// process has died but not its kernel), all others an answer. Returns the time until all have a result, in
/// milliseconds.
#[track_caller]
fn ask_held(held: Vec<Held>, may_close: bool) -> u128 {
    let begin = Instant::now();
    let mut held = held;
    assert!(held.iter().any(|it| it.node == VICTIM), "no connection to {VICTIM}");
    for Held { client, .. } in &mut held {
        client.ask(SHORT.0);
    }
    for Held { mut client, node } in held {
        let answer = client.try_response().map(|response| response.status);
        match answer {
            Ok(status) => assert_eq!((status, node == VICTIM), (200, false)),
            Err(error) => {
                assert_eq!(node, VICTIM, "{error}");
                let is_reset = matches!(error, ClientError::Failed(_));
                assert!(is_reset || may_close && error == ClientError::Closed(0), "{error}");
            }
        }
    }
    begin.elapsed().as_millis()
}

/// Runs the test of a fault and its repair.
fn node_fails(what: &str, fault: impl FnOnce(&DirectCluster), mend: impl FnOnce(&DirectCluster)) {
    let Some(mut scene) = Scene::new() else { return };
    let fault_ms = scene.began.elapsed().as_millis() as u64;
    fault(&scene.cluster);
    let told_ms = ask_held(std::mem::take(&mut scene.held), what.contains("process"));
    scene.wait_state(Some("down"));
    scene.requests.wait_for_more(200);
    scene.cluster.wait_nodes("client-1", &names(&[1, 3]));
    let failed = scene.requests.failed();

    mend(&scene.cluster);
    scene.cluster.wait_nodes("client-1", &names(&[1, 2, 3]));
    scene.requests.wait_for_more(200);
    let failed_after = scene.requests.failed();

    let at_stake = scene.at_stake;
    let (downloads, requests) = scene.finish();
    assert_eq!(failed_after, failed, "{what}: its return is not seen; {:?}", requests.examples);
    assert_eq!(downloads.by_node[VICTIM], at_stake, "{downloads:?}");
    // A client with nothing to send is notified too; some downloads may have continued earlier, when a cable
    // is back.
    assert!(downloads.failed <= at_stake && downloads.stopped == 0, "{downloads:?}");
    assert_eq!(downloads.timeouts + requests.timeouts, 0, "{requests:?}");
    let noticed_ms = requests.last_trouble_ms.unwrap_or(fault_ms).saturating_sub(fault_ms);
    figure(&format!(
        "{what}: new connections see it for {noticed_ms} ms ({failed} failed, {} of them refused, \
         of {}; longest {} ms), its open ones are told within {told_ms} ms; downloads: {} done, \
         {at_stake} at stake, {} told",
        requests.refused,
        requests.succeeded + requests.failed,
        requests.longest_wait_ms,
        downloads.succeeded,
        downloads.failed,
    ));
    assert_eq!(requests.refused, 0, "{what}: {:?}", requests.examples);
}

#[test]
fn a_nodes_process_is_killed() {
    // Its kernel forwards new connections, so none is refused.
    let run = |cluster: &DirectCluster| cluster.run(VICTIM);
    node_fails("process of a node killed", |cluster| cluster.kill(VICTIM), run);
}

#[test]
fn a_nodes_machine_dies() {
    let boot = |cluster: &DirectCluster| {
        cluster.machine(VICTIM).boot().unwrap();
        cluster.run(VICTIM);
    };
    node_fails("machine of a node killed", |it| it.machine(VICTIM).kill().unwrap(), boot);
}

#[test]
fn a_nodes_cable_is_pulled() {
    let up = |cluster: &DirectCluster| cluster.machine(VICTIM).up().unwrap();
    node_fails("cable of a node pulled", |it| it.machine(VICTIM).down().unwrap(), up);
}

#[test]
fn a_drained_node_finishes_what_it_has() {
    let Some(mut scene) = Scene::new() else { return };
    // The drain would wait for held connections.
    scene.held.clear();
    let control = |arguments: &[&str]| scene.cluster.control(DISPATCHER, arguments);
    control(&["node", "drain", VICTIM]);
    scene.wait_state(Some("draining"));
    let client = scene.cluster.machine("client-1");
    let ask = |count| scene.cluster.requests(count).start_in(client).unwrap().finish().unwrap();
    // The XDP program was updated before the command ended: no new connection is sent there.
    let fresh = ask(300);
    assert_eq!((fresh.failed, fresh.by_node.get(VICTIM)), (0, None), "{fresh:?}");
    assert_eq!(scene.downloads.succeeded(), 0, "the downloads are too short for this test");

    control(&["node", "remove", VICTIM]);
    let at_stake = scene.at_stake;
    // The node is removed when its last connection has ended.
    scene.wait_state(None);
    let (downloads, requests) = scene.finish();
    assert_eq!(downloads.by_node[VICTIM], at_stake);
    assert_eq!((downloads.failed, downloads.stopped, requests.failed), (0, 0, 0), "{requests:?}");
    figure(&format!(
        "drained and removed under load: {at_stake} downloads from it done, {} requests, 0 failed, none of {} new ones sent there",
        requests.succeeded, fresh.succeeded
    ));
}
