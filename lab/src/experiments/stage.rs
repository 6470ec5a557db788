//! The bed of one cell and what runs in it: an origin, nodes, what is in front of them, and a client's
//! machine.
//!
//! **Invariant:** everything is removed when the stage is dropped, for whatever reason.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use skep_lab::load::Mix;
use skep_testbed::{Bed, Frames, Limits, Machine, Topology};
use skep_testclient::{RawClient, request_bytes};

use super::data::DataSet;
use super::limits::{ASK_MS, POLL_MS, READY_MS};
use super::origin::{OriginCounts, Speed};
use super::rows::{NODE_PORT, Names, Program, TableRow, node_name};
use super::settings::Settings;
use super::{Failure, interrupted};

/// The beginning of the metrics lines that count outcomes of look-ups in the cluster.
const OUTCOME: &str = "skep_cluster_cache_total{outcome=\"";

/// The parameters of a cell.
pub(super) struct StagePlan<'a> {
    pub(super) row: TableRow,
    /// Nodes in use from the beginning.
    pub(super) nodes: usize,
    /// Machines for nodes that may be added later.
    pub(super) spares: usize,
    pub(super) cache_bytes: u64,
    /// Rate of each node's link, as Skep's config states it; 0: not stated.
    pub(super) link_mbit_s: u64,
    pub(super) data: &'a DataSet,
    pub(super) settings: &'a Settings,
}

/// A bed in which all machines serve.
pub(super) struct ServingBed {
    row: TableRow,
    names: Names,
    settings: Settings,
    /// The nodes, by index; `None` if a node is not running.
    nodes: Vec<Option<Process>>,
    _others: Vec<Process>,
    bed: Bed,
    _folder: Folder,
}

/// A process with all processes that it started; killed on drop.
pub(super) struct Process(Child);

/// A temporary folder in memory.
pub(super) struct Folder(pub(super) PathBuf);

impl ServingBed {
    /// Starts everything; origin and links have no rate limit.
    pub(super) fn new(plan: &StagePlan<'_>) -> Result<Self, Failure> {
        let settings = plan.settings;
        let machines = plan.nodes + plan.spares;
        let bed = Bed::new(&topology(settings, machines))?;
        let folder = Folder::new()?;
        let names = Names {
            folder: folder.0.clone(),
            skep: settings.skep.clone(),
            cache_bytes: plan.cache_bytes,
            cache_objects: plan.cache_bytes * plan.data.count() as u64 / plan.data.bytes(),
            dispatcher: the(bed.dispatchers())?.ipv4(),
            vip: bed.vip(0).0,
            origin: bed.origin().ok_or("the bed has no origin")?.ipv4(),
            nodes: bed.nodes().iter().map(Machine::ipv4).collect(),
            in_use: plan.nodes,
            link_mbit_s: plan.link_mbit_s,
            site: site(bed.origin().map(Machine::ipv4)),
        };
        let nodes = (0..machines).map(|_| None).collect();
        let (row, settings) = (plan.row, settings.clone());
        let mut stage =
            Self { row, names, settings, nodes, _others: Vec::new(), bed, _folder: folder };
        stage.prepare_machines()?;
        stage.start_origin()?;
        (0..plan.nodes).try_for_each(|index| stage.start_node(index))?;
        stage.start_dispatcher()?;
        stage.await_answer(plan.data)?;
        Ok(stage)
    }

    /// Starts requesting objects.
    pub(super) fn start_mix(&self, mix: Mix) -> Result<skep_lab::load::MixRunning, Failure> {
        Ok(mix.start_in(self.client()?)?)
    }

    /// The address that clients use.
    pub(super) fn target(&self) -> SocketAddr {
        self.names.target(self.row)
    }

    /// The address at which a node serves directly.
    pub(super) fn node_address(&self, index: usize) -> SocketAddr {
        (self.names.nodes[index], NODE_PORT).into()
    }

    pub(super) fn client(&self) -> Result<&Machine, Failure> {
        the(self.bed.clients())
    }

    /// A machine's own folder, in memory.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.names.folder(name)
    }

    /// Sets the rate of nodes' links in both directions, or removes it.
    pub(super) fn set_node_rate(&self, bits_s: Option<u64>) -> Result<(), Failure> {
        Ok(self.bed.nodes().iter().try_for_each(|node| node.set_rate(bits_s))?)
    }

    /// Starts one more program on a machine, and waits until it listens.
    pub(super) fn start_beside(
        &mut self,
        name: &str,
        program: &Program,
        port: u16,
    ) -> Result<(), Failure> {
        let process = self.start(name, program)?;
        self._others.push(process);
        let ip = self.bed.machine(name).ok_or("the bed has no such machine")?.ipv4();
        self.await_port(name, (ip, port).into())
    }

    /// Sets the speeds of origin and links, or removes all their limits.
    pub(super) fn set_slow(&self, is_slow: bool) -> Result<(), Failure> {
        let settings = &self.settings;
        let speed = if is_slow { settings.origin } else { Speed::default() };
        self.set_node_rate(is_slow.then_some(settings.node_rate_bits_s))?;
        let Speed { delay_ms, rate_bits_s } = speed;
        self.ask_origin(&format!("set?delay_ms={delay_ms}&rate_bits_s={rate_bits_s}"))?;
        Ok(())
    }

    /// Gives each node a source of its own at the origin, of this speed.
    pub(super) fn set_sources(&self, speed: Speed) -> Result<(), Failure> {
        let Speed { delay_ms, rate_bits_s } = speed;
        self.ask_origin(&format!("set?delay_ms={delay_ms}&rate_bits_s={rate_bits_s}&each=1"))?;
        Ok(())
    }

    /// The machines of nodes.
    pub(super) fn node_machines(&self) -> &[Machine] {
        self.bed.nodes()
    }

    /// What the origin was asked for so far.
    pub(super) fn origin_counts(&self) -> Result<OriginCounts, Failure> {
        self.ask_origin("counts")
    }

    /// Outcomes so far of look-ups of segments by Skep's nodes, summed over all nodes.
    pub(super) fn outcomes(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let mut outcomes = BTreeMap::new();
        for index in 0..self.names.in_use {
            let metrics = self.metrics(&node_name(index))?;
            for line in metrics.lines().filter_map(|line| line.strip_prefix(OUTCOME)) {
                let (outcome, count) = line.split_once("\"} ").ok_or("not a metric")?;
                *outcomes.entry(outcome.to_owned()).or_default() += count.parse::<u64>()?;
            }
        }
        Ok(outcomes)
    }

    /// The metrics of the Skep process of this name.
    pub(super) fn metrics(&self, name: &str) -> Result<String, Failure> {
        let socket = self.names.folder(name).join("state").join(format!("{name}.sock"));
        let mut client = RawClient::try_connect_local(&socket)?;
        Ok(client.ask("/api/v1/metrics").try_response()?.text())
    }

    /// Bytes that each node has sent so far, to whomever.
    pub(super) fn sent_bytes(&self) -> Result<Vec<u64>, Failure> {
        let sent = |node: &Machine| {
            let text = node.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
            Ok(sent_by(&text, node.device()).ok_or("no device in /proc/net/dev")?)
        };
        self.bed.nodes().iter().map(sent).collect()
    }

    /// Mean number of objects in the folders of nginx's nodes: whether it keeps to its limit.
    pub(super) fn files_per_node(&self) -> usize {
        let of_node = |index| files_below(&self.names.folder(&node_name(index)).join("cache"));
        let nodes = self.names.in_use;
        (0..nodes).map(of_node).sum::<usize>() / nodes.max(1)
    }

    /// Starts a node, and waits until it listens.
    pub(super) fn start_node(&mut self, index: usize) -> Result<(), Failure> {
        let program = self.names.node(self.row, index);
        let process = self.start(&node_name(index), &program)?;
        self.nodes[index] = Some(process);
        self.await_port(&node_name(index), (self.names.nodes[index], NODE_PORT).into())
    }

    /// Ends a node as `kill -9` does.
    pub(super) fn kill_node(&mut self, index: usize) {
        self.nodes[index] = None;
    }

    /// Orders what is in front of the nodes to send no new requests to this one.
    pub(super) fn drain_node(&self, index: usize) -> Result<(), Failure> {
        let name = node_name(index);
        if self.row.is_skep() {
            return self.control(&["node", "drain", &name]);
        }
        self.tell_haproxy(&format!("set server nodes/{name} state drain"))
    }

    /// Ends a drain.
    pub(super) fn resume_node(&self, index: usize) -> Result<(), Failure> {
        let name = node_name(index);
        if self.row.is_skep() {
            return self.control(&["node", "resume", &name]);
        }
        self.tell_haproxy(&format!("set server nodes/{name} state ready"))
    }

    /// Starts a node that was not in use, and adds it.
    pub(super) fn add_node(&mut self, index: usize) -> Result<(), Failure> {
        self.start_node(index)?;
        let (name, address) = (node_name(index), self.names.nodes[index]);
        if self.row.is_skep() {
            return self.control(&["node", "add", &name, &format!("{address}:{NODE_PORT}")]);
        }
        self.tell_haproxy(&format!("enable server nodes/{name}"))
    }

    fn prepare_machines(&self) -> Result<(), Failure> {
        for machine in self.bed.machines() {
            if let Some(name) = &self.settings.congestion {
                machine.set_kernel("net.ipv4.tcp_congestion_control", name)?;
            }
            // A client may reuse a port that waits for stray packets.
            machine.set_kernel("net.ipv4.ip_local_port_range", "1024 65535")?;
            machine.set_kernel("net.ipv4.tcp_tw_reuse", "1")?;
        }
        Ok(())
    }

    fn start_origin(&mut self) -> Result<(), Failure> {
        let own = std::env::current_exe()?.display().to_string();
        let words = [own.as_str(), "origin", "--listen", "0.0.0.0:80"].map(str::to_owned).into();
        let process = self.start("origin", &Program { files: Vec::new(), words })?;
        self._others.push(process);
        self.await_port("origin", (self.names.origin, 80).into())
    }

    fn start_dispatcher(&mut self) -> Result<(), Failure> {
        let process = self.start("dispatcher-1", &self.names.dispatcher(self.row))?;
        self._others.push(process);
        Ok(())
    }

    /// Starts a program on the machine with this name, with files in its folder.
    fn start(&self, name: &str, program: &Program) -> Result<Process, Failure> {
        let machine = self.bed.machine(name).ok_or("the bed has no such machine")?;
        let folder = self.names.folder(name);
        fs::create_dir_all(&folder)?;
        for (file, text) in &program.files {
            fs::write(folder.join(file), text)?;
            // Programs read the other files as a different user.
            let mode = if *file == "key" { 0o600 } else { 0o644 };
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(folder.join(file), mode)?;
        }
        let [first, rest @ ..] = program.words.as_slice() else { return Err("no words".into()) };
        let output = fs::File::create(folder.join("output.log"))?;
        let mut command = machine.command(first);
        command.args(rest);
        Process::start(command, output)
    }

    fn await_port(&self, name: &str, address: SocketAddr) -> Result<(), Failure> {
        let machine = self.bed.machine(name).ok_or("the bed has no such machine")?;
        poll(|| Ok(machine.run(|| TcpStream::connect(address).is_ok())?)).map_err(|error| {
            format!("{name} does not listen: {error}{}", self.said_by(name)).into()
        })
    }

    /// Waits for right answers from all nodes in use.
    fn await_answer(&self, data: &DataSet) -> Result<(), Failure> {
        let client = the(self.bed.clients())?;
        let path = data.first_path();
        let mut goods = 0;
        let target = self.target();
        let waited = poll(|| {
            let answer = client.run(|| get(target, &path))?;
            goods = if answer.is_ok() { goods + 1 } else { 0 };
            Ok(goods >= 2 * self.names.in_use)
        });
        waited.map_err(|error| {
            format!("no answers: {error}{}{}", self.said_by("dispatcher-1"), self.said_by("node-1"))
                .into()
        })
    }

    /// The end of a program's output.
    fn said_by(&self, name: &str) -> String {
        let text = fs::read_to_string(self.names.folder(name).join("output.log"));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        format!("\n{name} said: {}", lines.join("\n"))
    }

    fn ask_origin(&self, question: &str) -> Result<OriginCounts, Failure> {
        let address = (self.names.origin, 80).into();
        let machine = self.bed.origin().ok_or("the bed has no origin")?;
        let body = machine.run(|| get(address, &format!("/.lab/{question}")))??;
        Ok(serde_json::from_str(&body)?)
    }

    /// A command of `skep` to the dispatcher.
    pub(super) fn control(&self, words: &[&str]) -> Result<(), Failure> {
        let socket = self.names.folder("dispatcher-1").join("state/dispatcher-1.sock");
        let mut command = std::process::Command::new(&self.settings.skep);
        let output = command.args(words).arg("--socket").arg(socket).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("skep {words:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    fn tell_haproxy(&self, line: &str) -> Result<(), Failure> {
        let socket = self.names.folder("dispatcher-1").join("haproxy.sock");
        let said = ask_socket(&socket, &format!("{line}\n"))?;
        if said.trim().is_empty() { Ok(()) } else { Err(format!("haproxy: {said}").into()) }
    }
}

/// Sends `question` to a local socket; returns the whole answer.
fn ask_socket(socket: &Path, question: &str) -> Result<String, Failure> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(question.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

fn topology(settings: &Settings, nodes: usize) -> Topology {
    // Without a quota, not even a generous one: a group has the weight of a single process.
    let cpu =
        |cores: f64| Limits { cpu_cores: cores.is_finite().then_some(cores), ..Limits::default() };
    let limits = [
        ("node", cpu(settings.node_cpu_cores)),
        ("dispatcher", cpu(settings.dispatcher_cpu_cores)),
        ("origin", cpu(settings.origin_cpu_cores)),
    ];
    Topology {
        clients: 1,
        dispatchers: 1,
        nodes,
        origin: true,
        frames: Frames::Large,
        limits: limits.map(|(name, limits)| (name.to_owned(), limits)).into(),
        ..Topology::default()
    }
}

/// The sites of Skep's nodes.
fn site(origin: Option<Ipv4Addr>) -> String {
    let origin = origin.unwrap_or(Ipv4Addr::UNSPECIFIED);
    format!("[[site]]\norigins = [\"http://{origin}:80\"]\n")
}

pub(super) fn the(machines: &[Machine]) -> Result<&Machine, Failure> {
    machines.first().ok_or_else(|| "the bed lacks a machine".into())
}

/// Waits until `is_so`, for as long as a server may take to start.
pub(super) fn poll(mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_millis(READY_MS);
    while !is_so()? {
        interrupted()?;
        if Instant::now() > deadline {
            return Err(format!("not within {READY_MS} ms").into());
        }
        thread::sleep(Duration::from_millis(POLL_MS));
    }
    Ok(())
}

/// The body of a successful answer.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<String, String> {
    let host = address.to_string();
    let fields = [("Host", host.as_str()), ("Connection", "close")];
    let client = RawClient::try_connect_within(address, Duration::from_millis(ASK_MS));
    let response =
        client.and_then(|mut it| it.send(request_bytes("GET", path, &fields)).try_response());
    match response {
        Ok(response) if response.status == 200 => Ok(response.text()),
        Ok(response) => Err(format!("status {}", response.status)),
        Err(error) => Err(error.to_string()),
    }
}

fn files_below(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

/// Bytes sent, from `/proc/net/dev` (proc(5)): the ninth number of a device.
fn sent_by(text: &str, device: &str) -> Option<u64> {
    let of_device =
        |line: &str| line.trim().strip_prefix(device)?.strip_prefix(':').map(str::to_owned);
    let line = text.lines().find_map(of_device)?;
    line.split_whitespace().nth(8)?.parse().ok()
}

impl Process {
    /// Starts a command as the leader of a process group; its output goes to `output`.
    pub(super) fn start(mut command: Command, output: fs::File) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.process_group(0).spawn();
        let program = command.get_program().display();
        Ok(Self(child.map_err(|error| format!("cannot run {program}: {error}"))?))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Folder {
    pub(super) fn new() -> Result<Self, Failure> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("skep-lab-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_the_ninth_number() {
        let text = "Inter-| Receive | Transmit\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1\n  eth0: \
                    10 2 3 4 5 6 7 8 90 10\n";
        assert_eq!(sent_by(text, "eth0"), Some(90));
        assert_eq!(sent_by(text, "eth1"), None);
    }
}
