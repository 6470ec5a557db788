//! Clusters in direct dispatch: real processes on the machines of a test bed.
//!
//! [`DirectCluster`] has its own bed (or shares one) and its own folder with config, key, site and sockets,
//! and runs `skep run` on each machine as an operator would. Everything is removed when it is dropped. Only a
//! few tests of a process have a bed at a time: see `turn`.
//!
//! Each node adds its name to its responses, by a header field of its site, so that clients know which node
//! served them.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use skep_lab::load::{Downloads, Pattern, Requests, Target, write_pattern};
use skep_testbed::{Bed, Machine, Topology};
use skep_testclient::{HOST, RawClient, request_bytes};

pub use crate::loads::Loads;
use crate::process::{Finished, Skep};
pub use crate::sent_again::sent_again;
use crate::site::Site;
use crate::turn::{Turn, heartbeats};
use crate::wait::{PATIENCE, holds_within, poll_until, skip};

/// Port of the service.
const PORT: u16 = 80;

/// Port of the nodes at their own addresses.
const NODE_PORT: u16 = 8080;

/// Port of heartbeats.
pub const HEARTBEAT_PORT: u16 = 7071;

/// Port of the metrics of each process, on the loopback of its machine.
const METRICS_PORT: u16 = 9_090;

/// The path of a small file, and its length in bytes.
pub const SHORT: (&str, u64) = ("/short", 512);

/// The path of a file whose download takes a while, and its length in bytes, which exceeds the socket buffers
/// on the way.
pub const LONG: (&str, u64) = ("/long", 4 * 1024 * 1024);

/// Content of both files.
const PATTERN: Pattern = Pattern { seed: 3 };

/// Rate of a long download in bytes per second: low, so that thousands of them leave processor time for
/// everything else.
const DOWNLOAD_BYTES_S: u64 = 4 * 1024;

/// The parameters of a cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The machines of the bed, if the cluster makes one.
    pub topology: Topology,
    pub cluster: String,
    /// Numbers of the machines that dispatch, from 1.
    pub dispatchers: Vec<usize>,
    /// Numbers of the machines that the config lists as nodes, from 1, with their weights.
    pub nodes: Vec<(usize, u32)>,
    /// `direct`, or `handoff`.
    pub dispatch: String,
    /// The policy's name.
    pub policy: String,
    /// Whether the service has an IPv6 address too.
    pub ipv6: bool,
    /// Lines of `[direct]`.
    pub direct: String,
    /// Lines before all tables.
    pub lines: String,
    /// Numbers of the service's nodes; if empty, all nodes.
    pub web_nodes: Vec<usize>,
    /// Numbers of the nodes of another service, at the next virtual address; if empty, there is none.
    pub other_nodes: Vec<usize>,
    /// Whether the config lists the other service first.
    pub is_other_first: bool,
    /// Lines of `[[site]]`.
    pub site: String,
    /// Whether no other test may have a bed meanwhile: this one uses the whole machine, and heartbeats have
    /// the product's intervals.
    pub alone: bool,
}

impl Default for Setup {
    /// Two dispatchers, three nodes and two clients.
    fn default() -> Self {
        Self::of(2, 3)
    }
}

impl Setup {
    /// This number of dispatchers and nodes, and two clients, all on one LAN.
    pub fn of(dispatchers: usize, nodes: usize) -> Self {
        Self {
            topology: Topology { clients: 2, dispatchers, nodes, ..Topology::default() },
            cluster: "lab".into(),
            dispatchers: (1..=dispatchers).collect(),
            nodes: (1..=nodes).map(|number| (number, 100)).collect(),
            dispatch: "direct".into(),
            policy: "round-robin".into(),
            ipv6: false,
            direct: String::new(),
            lines: String::new(),
            web_nodes: Vec::new(),
            other_nodes: Vec::new(),
            is_other_first: false,
            site: String::new(),
            alone: false,
        }
    }
}

/// A running cluster; killed when dropped.
pub struct DirectCluster {
    daemons: RefCell<BTreeMap<String, Skep>>,
    setup: RefCell<Setup>,
    folder: Site,
    bed: Arc<Bed>,
    _turn: Option<Turn>,
}

/// Reports a figure, even where the output of passing tests is hidden.
pub fn figure(text: &str) {
    let _ = writeln!(std::io::stderr(), "FIGURE {text}");
}

/// Whether a test bed can be made; reports it loudly if not.
pub fn root_or_skip() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("network namespaces and packet programs need root");
    }
    is_root
}

impl DirectCluster {
    /// Starts a bed with a cluster that serves; `None`, reported loudly, without root.
    #[track_caller]
    pub fn start(setup: Setup) -> Option<Self> {
        let cluster = Self::prepare(setup)?;
        cluster.run_all();
        cluster.wait_serving();
        Some(cluster)
    }

    /// Makes a bed and a folder for a cluster, without starting any process.
    pub fn prepare(setup: Setup) -> Option<Self> {
        if !root_or_skip() {
            return None;
        }
        let turn = Turn::wait(setup.alone);
        let bed = Arc::new(Bed::new(&setup.topology).expect("a test bed"));
        Some(Self { _turn: Some(turn), ..Self::prepare_on(&bed, setup) })
    }

    /// Makes a folder for a cluster on machines of a bed that has other clusters too.
    pub fn prepare_on(bed: &Arc<Bed>, setup: Setup) -> Self {
        // Padded to the minimum length of a key.
        let key = format!("{:-<32}", setup.cluster);
        let folder = Site::guarded().with("key", key);
        let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.path("key"), only_ours).expect("the folder is ours");
        let site = folder.path("site");
        std::fs::create_dir(&site).expect("the folder is ours");
        for (path, len) in [SHORT, LONG] {
            write_pattern(PATTERN, &site.join(&path[1..]), len).expect("the folder is ours");
        }
        let (daemons, setup) = (RefCell::default(), RefCell::new(setup));
        let cluster = Self { daemons, setup, folder, bed: Arc::clone(bed), _turn: None };
        cluster.write_configs();
        cluster
    }

    // --- what it is ---

    pub fn bed(&self) -> &Arc<Bed> {
        &self.bed
    }

    /// Returns a machine of the bed.
    #[track_caller]
    pub fn machine(&self, name: &str) -> &Machine {
        self.bed.machine(name).unwrap_or_else(|| panic!("the bed has no {name}"))
    }

    /// The service's IPv4 address.
    pub fn vip(&self) -> SocketAddr {
        (self.bed.vip(0).0, PORT).into()
    }

    /// The service's IPv6 address.
    pub fn vip6(&self) -> SocketAddr {
        (self.bed.vip(0).1, PORT).into()
    }

    /// The address of the other service.
    pub fn other_vip(&self) -> SocketAddr {
        (self.bed.vip(1).0, PORT).into()
    }

    /// Returns a path in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Changes the config files; takes effect with a reload.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Setup)) {
        change(&mut self.setup.borrow_mut());
        self.write_configs();
    }

    /// Returns the log of a process so far.
    pub fn log(&self, name: &str) -> String {
        self.daemon(name).stderr_text()
    }

    /// Waits until the log of a process contains these words.
    #[track_caller]
    pub fn wait_log(&self, name: &str, words: &str) {
        let has_said = holds_within(PATIENCE, || self.log(name).contains(words));
        assert!(has_said, "waited in vain: {words:?} from {name}, which said\n{}", self.log(name));
    }

    /// Returns a running process.
    #[track_caller]
    pub fn daemon(&self, name: &str) -> Ref<'_, Skep> {
        Ref::map(self.daemons.borrow(), |daemons| {
            daemons.get(name).unwrap_or_else(|| panic!("{name} does not run"))
        })
    }

    // --- processes ---

    /// Starts all processes and waits for their ready lines.
    #[track_caller]
    pub fn run_all(&self) {
        let names = self.names();
        names.iter().for_each(|name| self.spawn(name));
        names.iter().for_each(|name| self.wait_ready(name));
    }

    /// Starts one process and waits for its ready line.
    #[track_caller]
    pub fn run(&self, name: &str) {
        self.spawn(name);
        self.wait_ready(name);
    }

    /// Starts one process, which replaces a previous one of this name.
    pub fn spawn(&self, name: &str) {
        let (config, machine) = (self.config(name), self.machine(name));
        let mut command = machine.command(Skep::binary());
        command.arg("run").arg("--config").arg(config).args(["--as", name]);
        let daemon = Skep::start_command(&mut command);
        self.daemons.borrow_mut().insert(name.to_owned(), daemon);
    }

    /// Waits for a process's ready line.
    #[track_caller]
    pub fn wait_ready(&self, name: &str) {
        poll_until(PATIENCE, &format!("ready line of {name}"), || {
            let mut daemons = self.daemons.borrow_mut();
            let daemon = daemons.get_mut(name).expect("it was started");
            daemon.assert_running();
            daemon.stdout_text().lines().any(|line| line.starts_with("skep: ready on"))
        });
    }

    /// Kills a process and its netguard by SIGKILL.
    pub fn kill(&self, name: &str) {
        drop(self.daemons.borrow_mut().remove(name));
    }

    /// Kills only a process; its netguard keeps running for the time being.
    pub fn kill_alone(&self, name: &str) {
        self.daemon(name).signal(Signal::KILL);
        self.kill(name);
    }

    /// Ends a process by SIGTERM.
    #[track_caller]
    pub fn terminate(&self, name: &str) -> Finished {
        self.daemon(name).signal(Signal::TERM);
        self.end(name)
    }

    /// Waits for the end of a process that was signalled, or that ends by itself.
    #[track_caller]
    pub fn end(&self, name: &str) -> Finished {
        self.daemons.borrow_mut().remove(name).expect("it runs").finish()
    }

    /// Returns the processes of the binary that run as `name` with `word` among their arguments.
    pub fn processes(&self, name: &str, word: &str) -> Vec<Pid> {
        let config = self.config(name);
        let is_one = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|&byte| byte == 0).collect();
            let has = |word: &str| words.contains(&word.as_bytes());
            has(config.to_str().expect("a path of ours")) && (word.is_empty() || has(word))
        };
        let pids = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_one).filter_map(Pid::from_raw).collect()
    }

    /// Runs `skep ARGUMENTS --socket ...` against a dispatcher, and returns its output on success.
    #[track_caller]
    pub fn control(&self, dispatcher: &str, arguments: &[&str]) -> String {
        let Finished { code, stdout, stderr } = self.try_control(dispatcher, arguments);
        assert_eq!(code, Some(0), "skep {arguments:?} at {dispatcher}: {stdout}{stderr}");
        stdout
    }

    /// Like [`Self::control`], whatever the exit code.
    pub fn try_control(&self, dispatcher: &str, arguments: &[&str]) -> Finished {
        let socket = self.path("state").join(format!("{dispatcher}.sock"));
        let mut command = std::process::Command::new(Skep::binary());
        command.args(arguments).arg("--socket").arg(socket);
        Skep::start_command(&mut command).finish()
    }

    /// Returns a dispatcher's status of direct dispatch.
    #[track_caller]
    pub fn status(&self, dispatcher: &str) -> serde_json::Value {
        self.status_of(dispatcher, "direct")
    }

    /// Returns a dispatcher's status of its cache coordinator.
    #[track_caller]
    pub fn coordinator(&self, dispatcher: &str) -> serde_json::Value {
        self.status_of(dispatcher, "cache")
    }

    /// Returns any part of a dispatcher's status.
    #[track_caller]
    pub fn status_of(&self, dispatcher: &str, part: &str) -> serde_json::Value {
        let said = self.control(dispatcher, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        status[part].clone()
    }

    /// Returns the metrics page of a process.
    #[track_caller]
    pub fn metrics(&self, name: &str) -> String {
        let address = (IpAddr::from([127, 0, 0, 1]), METRICS_PORT).into();
        let read = || RawClient::connect(address).get("/metrics").text();
        self.machine(name).run(read).expect("the machine runs")
    }

    /// Returns a sample of a process's metrics, by its name with labels.
    #[track_caller]
    pub fn metric(&self, name: &str, sample: &str) -> f64 {
        let text = self.metrics(name);
        let of = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(of).unwrap_or_else(|| panic!("no {sample} in:\n{text}"))
    }

    /// Runs a program on a machine, and returns its output on success.
    #[track_caller]
    pub fn tool(&self, machine: &str, program: &str, arguments: &[&str]) -> String {
        let output = self.machine(machine).command(program).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?} on {machine}: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    // --- who is active ---

    /// The dispatchers whose machines have the virtual address.
    pub fn holders(&self) -> Vec<String> {
        let vip = self.vip().ip();
        let names = self.dispatcher_names();
        names.into_iter().filter(|name| is_local(self.machine(name), vip)).collect()
    }

    /// Waits until exactly one dispatcher has the virtual address, and returns its name.
    #[track_caller]
    pub fn wait_active(&self) -> String {
        let mut holders = Vec::new();
        poll_until(PATIENCE, "one dispatcher holds the virtual address", || {
            holders = self.holders();
            holders.len() == 1
        });
        holders.remove(0)
    }

    /// The standby dispatcher of a cluster with two dispatchers.
    #[track_caller]
    pub fn standby(&self) -> String {
        let active = self.wait_active();
        let names = self.dispatcher_names();
        names.into_iter().find(|name| *name != active).expect("a second dispatcher")
    }

    /// Waits until one dispatcher is active and new connections reach all nodes.
    #[track_caller]
    pub fn wait_serving(&self) {
        self.wait_active();
        let planned: BTreeSet<String> = self.node_names().into_iter().collect();
        self.wait_nodes("client-1", &planned);
    }

    /// Waits until exactly these nodes answer a client's new connections.
    #[track_caller]
    pub fn wait_nodes(&self, client: &str, wanted: &BTreeSet<String>) {
        self.wait_nodes_at(client, self.vip(), wanted);
    }

    /// Like [`Self::wait_nodes`] at the address of any service.
    #[track_caller]
    pub fn wait_nodes_at(&self, client: &str, address: SocketAddr, wanted: &BTreeSet<String>) {
        poll_until(PATIENCE, &format!("answers by {wanted:?} at {address}"), || {
            self.answering(client, address, 4 * wanted.len()).is_ok_and(|seen| seen == *wanted)
        });
    }

    /// Returns the nodes that answer this number of new connections of a client.
    pub fn answering(
        &self,
        client: &str,
        address: SocketAddr,
        requests: usize,
    ) -> Result<BTreeSet<String>, String> {
        // With handoff, the answering node may differ from the one that accepted the connection: it is chosen
        // by URL.
        let path = |number| format!("{}?{number}", SHORT.0);
        (0..requests).map(|number| self.ask(client, address, &path(number))).collect()
    }

    // --- clients ---

    /// Sends one request by a client, on a new connection, and returns the node that answered.
    pub fn ask(&self, client: &str, address: SocketAddr, path: &str) -> Result<String, String> {
        let request = request_bytes("GET", path, &[HOST, ("Connection", "close")]);
        let asked = self.machine(client).run(|| {
            let mut client = RawClient::try_connect(address)?;
            client.send(request);
            client.try_response()
        });
        let response = asked.map_err(|error| error.to_string())?;
        let response = response.map_err(|error| error.to_string())?;
        let node = response.header("x-skep-node").unwrap_or("nobody").to_owned();
        if response.status == 200 { Ok(node) } else { Err(format!("status {}", response.status)) }
    }

    /// Long downloads, slow on purpose, not started yet.
    pub fn downloads(&self, count: usize) -> Downloads {
        Downloads {
            rate_bytes_s: DOWNLOAD_BYTES_S,
            pattern: Some(PATTERN),
            silence_ms: 30_000,
            deadline_ms: 300_000,
            ..Downloads::new(Target::new(self.vip(), LONG.0), count)
        }
    }

    /// Short requests on a new connection each, not started yet.
    pub fn requests(&self, count: u64) -> Requests {
        self.requests_to(self.vip(), count)
    }

    /// Like [`Self::requests`] at the address of any service.
    pub fn requests_to(&self, address: SocketAddr, count: u64) -> Requests {
        Requests {
            duration_ms: 300_000,
            timeout_ms: 30_000,
            pattern: Some(PATTERN),
            ..Requests::new(Target::new(address, SHORT.0), count)
        }
    }

    /// A stream of short requests at an even rate, which shows gaps.
    pub fn stream(&self, per_second: u32) -> Requests {
        // Enough workers that the requests waiting in a gap do not keep others from being sent.
        let workers = 1000;
        Requests { per_second: Some(per_second), workers, ..self.requests(u64::MAX) }
    }

    // --- insides ---

    fn config(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.toml"))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.node_names().into_iter().chain(self.dispatcher_names()).collect()
    }

    pub(crate) fn dispatcher_names(&self) -> Vec<String> {
        self.setup.borrow().dispatchers.iter().map(|it| format!("dispatcher-{it}")).collect()
    }

    fn node_names(&self) -> Vec<String> {
        self.setup.borrow().nodes.iter().map(|(number, _)| format!("node-{number}")).collect()
    }

    /// Writes a config for each possible machine of the cluster; they differ in the header field with the
    /// node's name.
    fn write_configs(&self) {
        let setup = self.setup.borrow();
        let (v4, v6) = (self.vip(), self.vip6());
        let listen = if setup.ipv6 { format!("[\"{v4}\", \"{v6}\"]") } else { format!("\"{v4}\"") };
        let root = self.folder.root().display();
        let Setup { cluster, dispatch, policy, direct, lines, site, .. } = &*setup;
        let web = format!(
            "[[service]]\nname = \"web\"\nlisten = {listen}\ndispatch = \"{dispatch}\"\n\
             policy = \"{policy}\"\n{}",
            nodes_line(&setup.web_nodes)
        );
        let mut services = [web, self.other_service(&setup)];
        if setup.is_other_first {
            services.reverse();
        }
        let head = format!(
            "cluster = \"{cluster}\"\nstate_dir = \"{root}/state\"\nkey_file = \"{root}/key\"\n\
             metrics.listen = \"127.0.0.1:{METRICS_PORT}\"\n\
             limits.connections_per_address_max = 65536\n\
             timeouts.write_stall_ms = \"2m\"\n\
             {lines}\n[direct]\nguard_dir = \"{root}/guard\"\n{}{direct}\n{}{}",
            heartbeats(setup.alone),
            services.concat(),
            setup
                .dispatchers
                .iter()
                .map(|&number| self.dispatcher_lines(number))
                .collect::<String>()
        );
        let node_lines = |&(number, weight): &(usize, u32)| self.node_lines(number, weight);
        let nodes: String = setup.nodes.iter().map(node_lines).collect();
        let planned = |number| setup.nodes.iter().any(|(planned, _)| *planned == number);
        for machine in self.bed.dispatchers().iter().chain(self.bed.nodes()) {
            let name = machine.name();
            let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
            // A node that is added while the cluster runs has itself in its config.
            let is_new = name.starts_with("node-") && number.is_some_and(|it| !planned(it));
            let own = number.filter(|_| is_new).map(|number| self.node_lines(number, 100));
            let site = format!(
                "[[site]]\nroot = \"{root}/site\"\nheaders = {{ \"X-Skep-Node\" = \"{name}\" }}\n\
                 {site}"
            );
            let own = own.unwrap_or_default();
            self.folder.replace(&format!("{name}.toml"), format!("{head}{nodes}{own}{site}"));
        }
    }

    fn other_service(&self, setup: &Setup) -> String {
        if setup.other_nodes.is_empty() {
            return String::new();
        }
        let (address, nodes) = (self.other_vip(), nodes_line(&setup.other_nodes));
        let Setup { dispatch, policy, .. } = setup;
        format!(
            "[[service]]\nname = \"other\"\nlisten = \"{address}\"\ndispatch = \"{dispatch}\"\n\
             policy = \"{policy}\"\n{nodes}"
        )
    }

    fn dispatcher_lines(&self, number: usize) -> String {
        let name = format!("dispatcher-{number}");
        let address = self.machine(&name).ipv4();
        format!("[[dispatcher]]\nname = \"{name}\"\naddress = \"{address}:{HEARTBEAT_PORT}\"\n")
    }

    fn node_lines(&self, number: usize, weight: u32) -> String {
        let name = format!("node-{number}");
        let address = self.node_address(&name);
        format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nweight = {weight}\n")
    }

    /// The address at which a node itself serves.
    pub fn node_address(&self, name: &str) -> SocketAddr {
        (self.machine(name).ipv4(), NODE_PORT).into()
    }
}

/// Returns the setting of a service's nodes; empty for all.
fn nodes_line(numbers: &[usize]) -> String {
    let names: Vec<_> = numbers.iter().map(|number| format!("\"node-{number}\"")).collect();
    if names.is_empty() { String::new() } else { format!("nodes = [{}]\n", names.join(", ")) }
}

/// Whether an address is assigned to a machine.
fn is_local(machine: &Machine, address: IpAddr) -> bool {
    machine.run(|| UdpSocket::bind((address, 0)).is_ok()).unwrap_or(false)
}
