//! The bed: a machine of clients, one for Skep, and nodes with one Tomcat each.
//!
//! The Tomcats run from the first run to the last, so that they are warm; Skep is restarted for each number
//! of nodes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use skep_testbed::{Bed, Frames, Limits, Machine, Topology};
use skep_testclient::RawClient;

use super::limits::{
    AJP_PORT, NODE_CPU_CORES, NODE_CPU_PERIOD_US, NODE_REQUESTS_MAX, NODES_MAX, SERVING_USER,
    START_MS,
};
use super::tomcat;
use crate::experiments::account::threads_of;
use crate::experiments::limits::POLL_MS;
use crate::experiments::metrics::NodeMetrics;
use crate::experiments::rows::node_name;
use crate::experiments::stage::{Folder, Process, poll, the};
use crate::experiments::{Failure, interrupted};

const CONFIG: &str = include_str!("../../../peers/skep-portal.toml");

/// The name of Skep's node, which has no files, and of its folder.
const GATEWAY: &str = "gateway";

/// A bed in which the Tomcats serve.
pub(super) struct PortalBed {
    /// Declared first, so that they end before their machines.
    nodes: Vec<Process>,
    bed: Bed,
    folder: Folder,
    skep: PathBuf,
}

/// Skep in front of some of the nodes; ends on drop.
pub(super) struct Gateway {
    process: Process,
    socket: PathBuf,
    /// Indexes of the nodes in its config.
    nodes: Vec<usize>,
}

impl PortalBed {
    /// Starts all nodes, without quotas.
    pub(super) fn new(skep: PathBuf) -> Result<Self, Failure> {
        let cpu_period_us = Some(NODE_CPU_PERIOD_US);
        let limits = Limits { cpu_period_us, ..Limits::default() };
        let bed = Bed::new(&Topology {
            dispatchers: 1,
            nodes: NODES_MAX,
            frames: Frames::Large,
            limits: [("node".to_owned(), limits)].into(),
            ..Topology::default()
        })?;
        let folder = Folder::new()?;
        let application = folder.0.join("application");
        tomcat::write_application(&application)?;
        let mut it = Self { nodes: Vec::new(), bed, folder, skep };
        for machine in it.bed.nodes() {
            let folder = it.folder.0.join(machine.name());
            it.nodes.push(tomcat::start(machine, &folder, &application)?);
        }
        it.await_nodes()?;
        Ok(it)
    }

    /// Limits each node to its share of a core from now on, even if nothing else runs.
    pub(super) fn set_quotas(&self) -> Result<(), Failure> {
        let mut nodes = self.bed.nodes().iter();
        nodes.try_for_each(|node| node.set_cpu(Some(NODE_CPU_CORES)))?;
        Ok(self.bed.put_quotas_first()?)
    }

    /// Starts Skep in front of these nodes, and waits until all of them are up; `queue_max` requests may wait
    /// for them.
    pub(super) fn start_gateway(
        &self,
        nodes: &[usize],
        queue_max: u32,
    ) -> Result<Gateway, Failure> {
        let folder = self.folder.0.join(GATEWAY);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let config = folder.join("skep.toml");
        fs::write(&config, self.config(&folder, nodes, queue_max)?)?;
        write_secret(&folder.join("secret"))?;
        let mut command = self.gateway_machine()?.command(&self.skep);
        command.arg("run").arg("--config").arg(config).args(["--as", GATEWAY]);
        let process = Process::start(command, fs::File::create(folder.join("output.log"))?)?;
        let socket = folder.join("state").join(format!("{GATEWAY}.sock"));
        let gateway = Gateway { process, socket, nodes: nodes.to_vec() };
        poll(|| Ok(gateway.are_up())).map_err(|error| {
            let said = fs::read_to_string(folder.join("output.log")).unwrap_or_default();
            format!("the nodes are not up at Skep: {error}\nit said: {said}")
        })?;
        Ok(gateway)
    }

    pub(super) fn client(&self) -> Result<&Machine, Failure> {
        the(self.bed.clients())
    }

    /// The URL that clients request.
    pub(super) fn url(&self) -> Result<String, Failure> {
        Ok(format!("http://{}/", self.gateway_machine()?.ipv4()))
    }

    pub(super) fn skep(&self) -> &Path {
        &self.skep
    }

    /// CPU time of each node so far, in nanoseconds.
    pub(super) fn node_cpu_ns(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| threads_of(node.id()).values().sum()).collect()
    }

    fn gateway_machine(&self) -> Result<&Machine, Failure> {
        the(self.bed.dispatchers())
    }

    fn config(&self, folder: &Path, nodes: &[usize], queue_max: u32) -> Result<String, Failure> {
        let server = |&index: &usize| {
            let address = self.bed.nodes()[index].ipv4();
            format!(
                "[[pool.server]]\nname = \"{}\"\naddress = \"{address}:{AJP_PORT}\"\n\
                 connections_max = {NODE_REQUESTS_MAX}\n",
                node_name(index)
            )
        };
        Ok(CONFIG
            .replace("@DIR@", &folder.display().to_string())
            .replace("@USER@", &SERVING_USER.to_string())
            .replace("@ADDRESS@", &self.gateway_machine()?.ipv4().to_string())
            .replace("@QUEUE@", &queue_max.to_string())
            .replace("@SERVERS@", &nodes.iter().map(server).collect::<String>()))
    }

    fn await_nodes(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_millis(START_MS);
        for node in self.bed.nodes() {
            let folder = self.folder.0.join(node.name());
            while !tomcat::serves(&folder) {
                interrupted()?;
                if Instant::now() > deadline {
                    let said = fs::read_to_string(folder.join("output.log")).unwrap_or_default();
                    return Err(format!("{} does not start; it said:\n{said}", node.name()).into());
                }
                thread::sleep(Duration::from_millis(POLL_MS));
            }
        }
        Ok(())
    }
}

impl Gateway {
    /// Requests that each of its nodes has received so far, by the index of the node.
    pub(super) fn requests(&self) -> Result<BTreeMap<usize, u64>, Failure> {
        let metrics = self.metrics()?;
        let of = |&index: &usize| {
            let sample = sample("skep_pool_server_requests_total", index);
            (index, metrics.value(&sample) as u64)
        };
        Ok(self.nodes.iter().map(of).collect())
    }

    /// Its CPU time so far, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        threads_of(self.process.id()).values().sum()
    }

    fn are_up(&self) -> bool {
        let is_up = |metrics: NodeMetrics| {
            self.nodes.iter().all(|&it| metrics.value(&sample("skep_pool_server_up", it)) == 1.0)
        };
        // At first it does not listen yet.
        self.metrics().is_ok_and(is_up)
    }

    fn metrics(&self) -> Result<NodeMetrics, Failure> {
        let mut client = RawClient::try_connect_local(&self.socket)?;
        Ok(NodeMetrics::new(client.ask("/api/v1/metrics").try_response()?.text()))
    }
}

/// The name of a server's metric, as in the text.
fn sample(name: &str, index: usize) -> String {
    format!("{name}{{pool=\"portal\",server=\"{}\"}}", node_name(index))
}

/// Writes the connectors' secret, readable by the serving user.
fn write_secret(file: &Path) -> Result<(), Failure> {
    fs::write(file, format!("{}\n", tomcat::SECRET))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    Ok(chown(file, Some(SERVING_USER), None)?)
}
