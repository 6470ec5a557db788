//! Services with separate addresses and nodes in one cluster.

use std::collections::BTreeSet;

use skep_lab::load::Requests;
use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, Setup, figure};
use skep_tests::{PATIENCE, poll_until};

const DISPATCHER: &str = "dispatcher-1";

/// The node that moves to the other service.
const MOVED: &str = "node-2";

/// Number of long downloads of each client.
const DOWNLOADS: usize = 50;

fn names(numbers: &[usize]) -> BTreeSet<String> {
    numbers.iter().map(|number| format!("node-{number}")).collect()
}

/// Waits until the two services have these nodes.
#[track_caller]
fn wait_nodes(cluster: &DirectCluster, web: &[usize], other: &[usize]) {
    cluster.wait_nodes_at("client-1", cluster.vip(), &names(web));
    cluster.wait_nodes_at("client-1", cluster.other_vip(), &names(other));
}

fn setup(dispatchers: usize, web: &[usize], other: &[usize]) -> Setup {
    let (web_nodes, other_nodes) = (web.to_vec(), other.to_vec());
    Setup { web_nodes, other_nodes, ..Setup::of(dispatchers, 4) }
}

#[test]
fn each_of_two_services_is_served_by_its_own_nodes() {
    let setup = setup(2, &[1, 2], &[3, 4]);
    let Some(cluster) = DirectCluster::prepare(setup) else { return };
    cluster.run_all();
    wait_nodes(&cluster, &[1, 2], &[3, 4]);
    // The standby has the same configuration.
    let active = cluster.wait_active();
    cluster.kill(&active);
    cluster.machine(&active).kill().unwrap();
    cluster.wait_active();
    wait_nodes(&cluster, &[1, 2], &[3, 4]);
}

/// By a reload of the dispatcher, which precedes that of the node.
#[test]
fn a_node_comes_to_be_behind_another_service() {
    let setup = setup(1, &[1, 2, 3], &[4]);
    let Some(cluster) = DirectCluster::prepare(setup) else { return };
    cluster.run(DISPATCHER);
    cluster.run(MOVED);
    cluster.wait_log(DISPATCHER, &format!("heartbeat from node {MOVED}"));
    // The first index: packets forwarded within a row reach it before all other nodes.
    ["node-1", "node-3", "node-4"].iter().for_each(|name| cluster.run(name));
    wait_nodes(&cluster, &[1, 2, 3], &[4]);
    // Up by its health checks too; as long as all nodes of a service fail, checks are ignored.
    poll_until(PATIENCE, "node-4 is up", || {
        cluster.node_seen(DISPATCHER, "node-4").is_some_and(|(state, _)| state == "up")
    });
    let clients = cluster.bed().clients();
    let requests = Loads::start(clients, |client: &Machine| {
        let load = cluster.requests_to(cluster.other_vip(), u64::MAX);
        Requests { workers: 4, ..load }.start_in(client).unwrap()
    });
    requests.wait_for_more(100);

    cluster.reconfigure(|setup| {
        (setup.web_nodes, setup.other_nodes) = (vec![1, 3], vec![2, 4]);
    });
    cluster.control(DISPATCHER, &["reload"]);
    // Its process does not listen at the other address.
    cluster.wait_log(DISPATCHER, &format!("node {MOVED} does not listen at"));
    wait_nodes(&cluster, &[1, 3], &[4]);
    requests.wait_for_more(100);
    cluster.control(MOVED, &["reload"]);
    cluster.wait_log(MOVED, "takes effect at the next restart");
    cluster.terminate(MOVED);
    cluster.run(MOVED);
    wait_nodes(&cluster, &[1, 3], &[2, 4]);
    requests.wait_for_more(100);
    let reports = requests.stop();
    assert!(reports.iter().all(|report| report.failed == 0), "{reports:#?}");

    // It no longer belongs to the first service, but is in the history of its rows.
    let downloads = Loads::start(clients, |client: &Machine| {
        cluster.downloads(DOWNLOADS).start_in(client).unwrap()
    });
    let all = (DOWNLOADS * clients.len()) as u64;
    downloads.wait_flowing(all);
    let machine = cluster.machine(DISPATCHER);
    machine.kill().unwrap();
    machine.boot().unwrap();
    cluster.run(DISPATCHER);
    cluster.wait_active();
    downloads.wait_flowing(all);
    poll_until(PATIENCE, "it hands on", || cluster.packets(MOVED, "node_hand_on") > 0);
    let handed_on = cluster.packets(MOVED, "node_hand_on");
    let reports = downloads.stop();
    assert!(reports.iter().all(|report| report.failed == 0), "{reports:#?}");
    wait_nodes(&cluster, &[1, 3], &[2, 4]);
    figure(&format!(
        "{all} downloads of a service outlive the flow table; {MOVED}, behind it before, handed \
         {handed_on} packets on"
    ));
}

/// One dispatcher's config lists another address first: both must mean the same service in their tables and
/// in the flows that they exchange.
#[test]
fn dispatchers_restarted_with_one_more_address_lose_no_connection() {
    // A row has few of the nodes, so a flow that is looked up in the wrong row is lost.
    let (policy, other_nodes) = ("maglev-connection".to_owned(), vec![7, 8]);
    let setup = Setup { policy, other_nodes, is_other_first: true, ..Setup::of(2, 8) };
    let Some(cluster) = DirectCluster::prepare(setup) else { return };
    let all_nodes: Vec<usize> = (1..=8).collect();
    names(&all_nodes).iter().for_each(|name| cluster.run(name));
    // The nodes already have it in their config.
    cluster.reconfigure(|setup| setup.other_nodes.clear());
    ["dispatcher-1", "dispatcher-2"].iter().for_each(|name| cluster.run(name));
    cluster.wait_serving();
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    cluster.reconfigure(|setup| setup.other_nodes = vec![7, 8]);
    let clients = cluster.bed().clients();
    let downloads = Loads::start(clients, |client: &Machine| {
        cluster.downloads(DOWNLOADS).start_in(client).unwrap()
    });
    let all = (DOWNLOADS * clients.len()) as u64;
    downloads.wait_flowing(all);
    for (restarted, next) in [(&standby, &active), (&active, &standby)] {
        cluster.terminate(restarted);
        cluster.run(restarted);
        poll_until(PATIENCE, "the other is active, and it has all flows", || {
            cluster.metric(restarted, "skep_direct_flows_synced") == 1.0
        });
        assert_eq!(cluster.wait_active(), *next);
        downloads.wait_flowing(all);
    }
    wait_nodes(&cluster, &all_nodes, &[7, 8]);
    // By the flows that were synchronized to it.
    cluster.machine(&standby).kill().unwrap();
    assert_eq!(cluster.wait_active(), active);
    downloads.wait_flowing(all);
    let reports = downloads.stop();
    assert!(reports.iter().all(|report| report.failed == 0), "{reports:#?}");
    figure(&format!(
        "{all} downloads outlive the restart of both dispatchers with one more address"
    ));
}
