//! The bed: a client, a dispatcher's machine, and nodes that serve files; all ways to the nodes are services
//! of one config.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use skep_lab::load::write_pattern;
use skep_testbed::{Bed, Frames, Machine, Topology};
use skep_testclient::RawClient;

use super::Plan;
use super::limits::CACHE_BYTES;
use super::outcomes::Outcomes;
use crate::experiments::Failure;
use crate::experiments::account::CpuAccount;
use crate::experiments::metrics::NodeMetrics;
use crate::experiments::origin::Object;
use crate::experiments::rows::{NODE_PORT, node_name};
use crate::experiments::stage::{Folder, Process, get, poll, the};

const CONFIG: &str = include_str!("../../../peers/skep-handoff.toml");

/// The ways in which clients reach the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// They connect to the nodes directly: the ideal system of the paper.
    Ideal,
    /// One address; the node that accepts a connection hands it off to the next one in turn.
    Handoff,
    /// One address; the node that accepts a connection answers.
    Direct,
    /// One address, of a proxy that forwards all bytes.
    Proxy,
}

/// A bed in which all machines serve.
pub(super) struct HandoffBed {
    /// Declared first, so that they end before their machines.
    nodes: Vec<Process>,
    dispatcher: Option<Process>,
    names: Vec<String>,
    bed: Bed,
    folder: Folder,
}

/// The parameters of a bed.
pub(super) struct BedPlan<'a> {
    pub(super) nodes: usize,
    /// The policy of the service with handoff.
    pub(super) policy: &'a str,
    /// The transport of LCCP.
    pub(super) transport: &'a str,
    pub(super) objects: &'a [Object],
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ideal => "nodes themselves",
            Self::Handoff => "Skep, handoff",
            Self::Direct => "Skep, direct",
            Self::Proxy => "Skep, proxy",
        }
    }
}

impl HandoffBed {
    /// Starts everything; links have no rate limit.
    pub(super) fn new(bed_plan: &BedPlan<'_>, plan: &Plan) -> Result<Self, Failure> {
        Self::start_all(bed_plan, plan, ("", false))
    }

    /// The same, with additional `lines` in the config's `[handoff]`.
    pub(super) fn with(bed_plan: &BedPlan<'_>, plan: &Plan, lines: &str) -> Result<Self, Failure> {
        Self::start_all(bed_plan, plan, (lines, false))
    }

    /// The same, with a router between the client and all other machines.
    pub(super) fn behind_router(bed_plan: &BedPlan<'_>, plan: &Plan) -> Result<Self, Failure> {
        Self::start_all(bed_plan, plan, ("", true))
    }

    fn start_all(
        bed_plan: &BedPlan<'_>,
        plan: &Plan,
        (lines, router): (&str, bool),
    ) -> Result<Self, Failure> {
        let nodes = bed_plan.nodes;
        let (dispatchers, frames, control_first) = (1, Frames::Wire, true);
        let topology =
            Topology { dispatchers, nodes, router, frames, control_first, ..Topology::default() };
        let bed = Bed::new(&topology)?;
        let folder = Folder::new()?;
        let names = (0..nodes).map(node_name).collect();
        let mut it = Self { nodes: Vec::new(), dispatcher: None, names, bed, folder };
        it.prepare_machines()?;
        write_files(it.folder.0.join("files"), bed_plan.objects)?;
        for name in it.names.clone() {
            let process = it.start(&name, (bed_plan, lines), plan)?;
            it.nodes.push(process);
        }
        it.dispatcher = Some(it.start("dispatcher-1", (bed_plan, lines), plan)?);
        it.await_answers(bed_plan.objects)?;
        Ok(it)
    }

    /// The machines of the bed.
    pub(super) fn machines(&self) -> &Bed {
        &self.bed
    }

    pub(super) fn client(&self) -> Result<&Machine, Failure> {
        the(self.bed.clients())
    }

    /// The addresses that clients use, one for each node.
    pub(super) fn targets(&self, way: Way) -> Result<Vec<SocketAddr>, Failure> {
        let one = match way {
            Way::Ideal => {
                let nodes = self.bed.nodes().iter();
                return Ok(nodes.map(|node| (node.ipv4(), NODE_PORT).into()).collect());
            }
            Way::Handoff => self.bed.vip(0).0,
            Way::Direct => self.bed.vip(1).0,
            Way::Proxy => the(self.bed.dispatchers())?.ipv4(),
        };
        Ok(vec![(one, 80).into(); self.nodes.len()])
    }

    /// Sets the rate of the links of nodes and dispatcher, or removes it.
    pub(super) fn set_rate(&self, bits_s: Option<u64>) -> Result<(), Failure> {
        let mut machines = self.bed.nodes().iter().chain(self.bed.dispatchers());
        Ok(machines.try_for_each(|machine| machine.set_rate(bits_s))?)
    }

    /// Drops this share of the control packets between nodes.
    pub(super) fn lose_control_packets(&self, protocol: u8, percent: f64) -> Result<(), Failure> {
        let mut nodes = self.bed.nodes().iter();
        Ok(nodes.try_for_each(|node| node.set_protocol_loss(protocol, percent))?)
    }

    /// CPU time of the whole bed so far.
    pub(super) fn account(&self) -> CpuAccount {
        CpuAccount::now(&self.processes())
    }

    /// The processes of all nodes, then the dispatcher's.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.nodes.iter().chain(&self.dispatcher).map(Process::id).collect()
    }

    pub(super) fn metrics(&self, index: usize) -> Result<NodeMetrics, Failure> {
        let name = &self.names[index];
        let socket = self.folder.0.join(name).join("state").join(format!("{name}.sock"));
        let mut client = RawClient::try_connect_local(&socket)?;
        Ok(NodeMetrics::new(client.ask("/api/v1/metrics").try_response()?.text()))
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Outcomes so far of connections that were to be handed off, summed over all nodes.
    pub(super) fn outcomes(&self) -> Result<Outcomes, Failure> {
        self.counts("skep_handoffs_total", "outcome")
    }

    /// Why nodes have closed connections.
    pub(super) fn closings(&self) -> Result<Outcomes, Failure> {
        self.counts("skep_connections_closed_total", "reason")
    }

    /// A counter summed over all nodes, by one of its labels.
    fn counts(&self, metric: &str, label: &str) -> Result<Outcomes, Failure> {
        let mut outcomes = Outcomes::default();
        for index in 0..self.nodes.len() {
            for (outcome, count) in self.metrics(index)?.by_label(metric, label) {
                outcomes.add(outcome, count as u64);
            }
        }
        Ok(outcomes)
    }

    fn prepare_machines(&self) -> Result<(), Failure> {
        for machine in self.bed.machines() {
            // The kernel's default; paced algorithms vary from run to run on few cores.
            machine.set_kernel("net.ipv4.tcp_congestion_control", "cubic")?;
            // A client may reuse a port that waits for stray packets.
            machine.set_kernel("net.ipv4.ip_local_port_range", "1024 65535")?;
            machine.set_kernel("net.ipv4.tcp_tw_reuse", "1")?;
        }
        Ok(())
    }

    fn start(
        &self,
        name: &str,
        bed: (&BedPlan<'_>, &str),
        plan: &Plan,
    ) -> Result<Process, Failure> {
        let folder = self.folder.0.join(name);
        fs::create_dir_all(&folder)?;
        let config = folder.join("skep.toml");
        fs::write(&config, self.config(&folder, bed)?)?;
        let key = folder.join("key");
        fs::write(&key, "0123456789abcdef0123456789abcdef\n")?;
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let machine = self.bed.machine(name).ok_or("the bed has no such machine")?;
        let mut command = machine.command(&plan.skep);
        command.arg("run").arg("--config").arg(config).args(["--as", name]);
        let process = Process::start(command, fs::File::create(folder.join("output.log"))?)?;
        Ok(process)
    }

    fn config(
        &self,
        folder: &std::path::Path,
        (bed, lines): (&BedPlan<'_>, &str),
    ) -> Result<String, Failure> {
        let node = |(name, node): (&String, &Machine)| {
            let address = node.ipv4();
            format!("[[node]]\nname = \"{name}\"\naddress = \"{address}:{NODE_PORT}\"\n")
        };
        let nodes: String = self.names.iter().zip(self.bed.nodes()).map(node).collect();
        let [handoff, direct] = [self.bed.vip(0).0, self.bed.vip(1).0].map(|it| it.to_string());
        let dispatcher: Ipv4Addr = the(self.bed.dispatchers())?.ipv4();
        Ok(CONFIG
            .replace("@DIR@", &folder.display().to_string())
            .replace("@ROOT@", &self.folder.0.join("files").display().to_string())
            .replace("@CACHE@", &CACHE_BYTES.to_string())
            .replace("@DISPATCHER@", &dispatcher.to_string())
            .replace("@HANDOFF@", &handoff)
            .replace("@DIRECT@", &direct)
            .replace("@POLICY@", bed.policy)
            .replace("@TRANSPORT@", bed.transport)
            .replace("@LINES@", lines)
            .replace("@NODES@", &nodes))
    }

    /// Waits for right answers by all ways and from all nodes.
    fn await_answers(&self, objects: &[Object]) -> Result<(), Failure> {
        let path = objects.first().ok_or("there are no objects")?.path();
        for way in [Way::Ideal, Way::Handoff, Way::Direct, Way::Proxy] {
            for (index, target) in self.targets(way)?.into_iter().enumerate() {
                let client = self.client()?;
                let waited = poll(|| Ok(client.run(|| get(target, &path))?.is_ok()));
                waited.map_err(|error| {
                    let name = if way == Way::Ideal { &self.names[index] } else { "dispatcher-1" };
                    format!("no answer, {}: {error}{}", way.name(), self.said_by(name))
                })?;
            }
        }
        Ok(())
    }

    /// The end of a program's output.
    fn said_by(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.0.join(name).join("output.log"));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        format!("\n{name} said: {}", lines.join("\n"))
    }
}

/// Writes each object to its path.
fn write_files(root: PathBuf, objects: &[Object]) -> Result<(), Failure> {
    for object in objects {
        let path = root.join(object.path().trim_start_matches('/'));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        write_pattern(object.issue().pattern, &path, object.bytes)?;
    }
    Ok(())
}
