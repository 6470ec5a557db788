//! The second chance: connections outlive the flow table, because a node hands
//! on what belongs to an earlier owner.

use skep_lab::Machine;
use skep_tests::direct::{DirectCluster, Loads, Setup, figure};
use skep_tests::{Crowd, PATIENCE, poll_until};

/// Long downloads that each client begins under each membership.
const DOWNLOADS: usize = 100;

const DISPATCHER: &str = "dispatcher-1";

/// A cluster whose nodes change, and downloads that each began under another
/// membership.
struct Scene {
    cluster: DirectCluster,
    downloads: Vec<Loads>,
}

impl Scene {
    /// One dispatcher and five nodes, of which three are planned.
    fn new(policy: &str, direct: &str) -> Option<Self> {
        let mut setup = Setup::of(1, 5);
        setup.nodes.truncate(3);
        (setup.policy, setup.direct) = (policy.to_owned(), direct.to_owned());
        let cluster = DirectCluster::start(setup)?;
        cluster.run("node-4");
        cluster.run("node-5");
        let mut scene = Self { cluster, downloads: Vec::new() };
        scene.download();
        Some(scene)
    }

    /// Downloads of one membership.
    fn each(&self) -> u64 {
        (DOWNLOADS * self.cluster.bed().clients().len()) as u64
    }

    /// Begins downloads once these nodes, and no others, get new connections.
    fn download_from(&mut self, numbers: &[usize]) {
        let names = numbers.iter().map(|number| format!("node-{number}")).collect();
        self.cluster.wait_nodes("client-1", &names);
        self.download();
    }

    fn download(&mut self) {
        let loads = Loads::start(self.cluster.bed().clients(), |client: &Machine| {
            self.cluster.downloads(DOWNLOADS).start_in(client).unwrap()
        });
        loads.wait_flowing(self.each());
        self.downloads.push(loads);
    }

    /// The file has these nodes now.
    fn plan(&self, numbers: &[usize]) {
        let nodes = numbers.iter().map(|&number| (number, 100)).collect();
        self.cluster.reconfigure(|setup| setup.nodes = nodes);
        self.cluster.control(DISPATCHER, &["reload"]);
    }

    /// Nodes come, one is drained, one is removed, all with downloads.
    fn change_nodes(&mut self) {
        self.plan(&[1, 2, 3, 4]);
        self.download_from(&[1, 2, 3, 4]);
        self.cluster.control(DISPATCHER, &["node", "drain", "node-1"]);
        self.download_from(&[2, 3, 4]);
        self.plan(&[1, 3, 4, 5]);
        self.download_from(&[3, 4, 5]);
    }

    /// Packets that met this fate at nodes, as they last counted them.
    fn at_nodes(&self, verdict: &str) -> u64 {
        let nodes = self.cluster.bed().nodes().iter();
        nodes.map(|node| self.cluster.packets(node.name(), verdict)).sum()
    }

    /// Each download goes on, and nodes have handed packets on.
    #[track_caller]
    fn finish(self, what: &str) {
        let (each, batches) = (self.each(), self.downloads.len() as u64);
        self.downloads.iter().for_each(|loads| loads.wait_flowing(each));
        poll_until(PATIENCE, "packets handed on", || self.at_nodes("node_hand_on") > 0);
        let (handed_on, refused) = (self.at_nodes("node_hand_on"), self.at_nodes("node_last"));
        let reports: Vec<_> = self.downloads.into_iter().map(Loads::stop).collect();
        let failed: u64 = reports.iter().flatten().map(|report| report.failed).sum();
        assert_eq!(failed, 0, "{what}; {refused} refused, by batches: {reports:#?}");
        figure(&format!(
            "{what}: {} downloads of {batches} memberships, none lost; {handed_on} packets handed \
             on, {refused} refused",
            each * batches
        ));
    }
}

/// The only dispatcher loses all that it knew.
fn outlive_the_dispatcher(policy: &str) {
    let Some(_crowd) = Crowd::of(2000) else { return };
    let Some(mut scene) = Scene::new(policy, "") else { return };
    scene.change_nodes();
    let machine = scene.cluster.machine(DISPATCHER);
    machine.kill().unwrap();
    machine.boot().unwrap();
    scene.cluster.run(DISPATCHER);
    scene.cluster.wait_active();
    // What the operator wanted is not forgotten either.
    scene.download_from(&[3, 4, 5]);
    scene.finish(&format!("{policy}, the only dispatcher dies and comes back"));
}

/// The flow table has room for few of them.
fn outlive_the_flow_table(policy: &str) {
    let Some(_crowd) = Crowd::of(2000) else { return };
    let Some(mut scene) = Scene::new(policy, "new_flows_per_s_max = 1") else { return };
    scene.change_nodes();
    scene.finish(&format!("{policy}, no flow table"));
}

#[test]
fn the_only_dispatcher_dies_round_robin() {
    outlive_the_dispatcher("round-robin");
}

#[test]
fn the_only_dispatcher_dies_power_of_two() {
    outlive_the_dispatcher("power-of-two");
}

#[test]
fn the_only_dispatcher_dies_maglev_connection() {
    outlive_the_dispatcher("maglev-connection");
}

#[test]
fn few_flows_are_remembered() {
    outlive_the_flow_table("maglev-connection");
}
