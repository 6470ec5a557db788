//! Clusters that share their caches: dispatchers and nodes as processes on the loopback, or on the machines
//! of a test bed, with one shared folder.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use skep_testbed::{Bed, Machine};
use skep_testclient::{RawClient, Response, request_bytes, request_with_body};
use skep_wire::cache::{ObjectName, PurgeStamp, SegmentName};

use crate::port::FreePort;
use crate::process::{Finished, Skep, run_to_end};
use crate::site::Site;
use crate::sought::{DOUBTS, ORIGIN};
use crate::wait::{PATIENCE, poll_until, skip};

/// Ports on the machines of a bed: for clients, and for other machines.
const BED_PORTS: [u16; 2] = [8080, 7071];

/// Size of a full segment in bytes.
pub const SEGMENT: usize = skep_units::SEGMENT_BYTES as usize;

/// Header fields of requests to the management API.
const API_FIELDS: [(&str, &str); 2] = [("Host", "skep"), ("Connection", "close")];

/// Placeholder in lines of `[[site]]` for the name of the process that reads the config.
pub const OWN_NAME: &str = "$NAME";

/// A running cluster; killed when dropped.
pub struct CacheCluster {
    daemons: BTreeMap<String, Skep>,
    /// The addresses at which each process serves clients and other machines.
    places: BTreeMap<String, [SocketAddr; 2]>,
    /// Held so that no other test claims these ports.
    _ports: Vec<FreePort>,
    bed: Option<Bed>,
    folder: Site,
    /// The folder that all nodes share.
    pub site: Site,
    lines: String,
    settings: String,
}

impl CacheCluster {
    /// Starts this number of dispatchers and nodes, linked with each other. `settings` are lines of
    /// `[cache]`.
    #[track_caller]
    pub fn start(dispatchers: usize, nodes: usize, site: Site, settings: &str) -> Self {
        let lines = format!("root = \"{}\"\ncontent = \"shared\"\n", site.root().display());
        Self::start_of(dispatchers, nodes, site, &lines, settings)
    }

    /// Like [`Self::start`] with other lines of `[[site]]`, in which [`OWN_NAME`] stands for the name of the
    /// process. They may be followed by `[service.health]`, for other than the usual health checks.
    #[track_caller]
    pub fn start_of(
        dispatchers: usize,
        nodes: usize,
        site: Site,
        lines: &str,
        settings: &str,
    ) -> Self {
        let dispatchers = (1..=dispatchers).map(|it| format!("dispatcher-{it}"));
        let names = dispatchers.chain((1..=nodes).map(|it| format!("node-{it}")));
        let mut ports = Vec::new();
        let place = |name| {
            let [outer, inner] = [FreePort::claim(), FreePort::claim()];
            let place = (name, [outer.address(), inner.address()]);
            ports.extend([outer, inner]);
            place
        };
        let places = names.map(place).collect();
        Self::start_at((places, ports, None), site, lines, settings)
    }

    /// Starts a cluster on the dispatchers and nodes of a bed.
    #[track_caller]
    pub fn start_on(bed: Bed, site: Site, lines: &str, settings: &str) -> Self {
        let machines = bed.dispatchers().iter().chain(bed.nodes());
        let place = |machine: &Machine| {
            (machine.name().to_owned(), BED_PORTS.map(|port| (machine.ipv4(), port).into()))
        };
        let places = machines.map(place).collect();
        Self::start_at((places, Vec::new(), Some(bed)), site, lines, settings)
    }

    #[track_caller]
    fn start_at(
        (places, ports, bed): (BTreeMap<String, [SocketAddr; 2]>, Vec<FreePort>, Option<Bed>),
        site: Site,
        lines: &str,
        settings: &str,
    ) -> Self {
        let folder = Site::new().with("key", [b'k'; 32]);
        let only_ours = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.path("key"), only_ours).expect("the folder is ours");
        let (lines, settings) = (lines.to_owned(), settings.to_owned());
        let (daemons, _ports) = (BTreeMap::new(), ports);
        let mut cluster = Self { daemons, places, _ports, bed, folder, site, lines, settings };
        let names: Vec<String> = cluster.places.keys().cloned().collect();
        for name in &names {
            cluster.folder.write(&format!("{name}.toml"), cluster.config(name));
        }
        names.iter().for_each(|name| cluster.run(name));
        cluster.wait_linked(names.iter().filter(|name| name.starts_with("node")).count());
        cluster
    }

    /// Starts a process and waits for its ready line.
    #[track_caller]
    pub fn run(&mut self, name: &str) {
        let config = self.folder.path(&format!("{name}.toml"));
        let mut command = match &self.bed {
            Some(_) => self.machine(name).command(Skep::binary()),
            None => Command::new(Skep::binary()),
        };
        command.arg("run").arg("--config").arg(config).args(["--as", name]);
        let daemon = Skep::run_command(&mut command, self.outer(name));
        self.daemons.insert(name.to_owned(), daemon);
    }

    /// Kills a process by SIGKILL. For a node, waits until all running dispatchers have noticed, so that
    /// [`Self::wait_linked`] does not mistake it for its successor.
    #[track_caller]
    pub fn kill(&mut self, name: &str) {
        drop(self.daemons.remove(name));
        poll_until(PATIENCE, &format!("the loss of {name} is noticed"), || {
            self.dispatchers().all(|it| !self.linked(it).iter().any(|node| node == name))
        });
    }

    /// Returns a running process.
    #[track_caller]
    pub fn daemon(&self, name: &str) -> &Skep {
        self.daemons.get(name).unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// The address at which a node or a dispatcher serves clients.
    pub fn outer(&self, name: &str) -> SocketAddr {
        self.places[name][0]
    }

    /// The address at which a process serves other machines of the cluster.
    pub fn inner(&self, name: &str) -> SocketAddr {
        self.places[name][1]
    }

    /// The bed of this cluster.
    #[track_caller]
    pub fn bed(&self) -> &Bed {
        self.bed.as_ref().expect("a cluster on a bed")
    }

    /// Returns a machine of the bed.
    #[track_caller]
    pub fn machine(&self, name: &str) -> &Machine {
        self.bed().machine(name).unwrap_or_else(|| panic!("the bed has no {name}"))
    }

    /// The name that all nodes use for a segment of a file.
    #[track_caller]
    pub fn segment_name(&self, file: &str, index: u32) -> SegmentName {
        let stat = std::fs::metadata(self.site.path(file)).expect("a file of the site");
        let mtime_ns = stat.mtime() * 1_000_000_000 + stat.mtime_nsec();
        let version = format!("\"{mtime_ns:x}-{:x}\"", stat.len());
        let root = self.site.root().as_os_str().as_encoded_bytes();
        let (file, version) = (file.as_bytes(), version.as_bytes());
        ObjectName::new(root, file, version, stat.len(), PurgeStamp::NONE).segment(index)
    }

    /// Waits until each running dispatcher is linked with this number of nodes.
    #[track_caller]
    pub fn wait_linked(&self, nodes: usize) {
        poll_until(PATIENCE, &format!("{nodes} linked nodes"), || {
            self.dispatchers().all(|name| self.linked(name).len() == nodes)
        });
    }

    /// Waits until the health checks of all dispatchers report all nodes as up, which is later than when they
    /// are linked.
    #[track_caller]
    pub fn wait_up(&self) {
        poll_until(PATIENCE, "all nodes are up", || {
            self.dispatchers().all(|name| self.states(name).iter().all(|state| state == "up"))
        });
    }

    /// Waits until the health checks of a dispatcher report this state of a node.
    #[track_caller]
    pub fn wait_state(&self, dispatcher: &str, node: &str, state: &str) {
        poll_until(PATIENCE, &format!("{node} is {state}"), || {
            let status = self.status(dispatcher);
            let nodes = status["services"][0]["nodes"].as_array().expect("a list").iter();
            nodes.filter(|it| it["name"] == node).any(|it| it["state"] == state)
        });
    }

    /// Changes the config file of a process; it takes effect at its next start.
    pub fn reconfigure(&self, name: &str, change: impl FnOnce(String) -> String) {
        self.folder.replace(&format!("{name}.toml"), change(self.config(name)));
    }

    /// Takes ownership of the config folder away from the unprivileged user, who must not control which
    /// commands run.
    pub fn guard_configs(&self) {
        if rustix::process::geteuid().is_root() {
            let state = self.folder.path("state");
            std::fs::create_dir_all(&state).expect("the folder is ours");
            let serving = Some(crate::site::server());
            std::os::unix::fs::chown(&state, serving, serving).expect("root gives it away");
            std::os::unix::fs::chown(self.folder.root(), Some(0), Some(0)).expect("root takes it");
        }
    }

    /// Returns the states of the nodes by a dispatcher's health checks.
    #[track_caller]
    pub fn states(&self, dispatcher: &str) -> Vec<String> {
        let status = self.status(dispatcher);
        let services = status["services"].as_array().expect("a list").iter();
        let nodes = services.flat_map(|service| service["nodes"].as_array().expect("a list"));
        nodes.map(|node| node["state"].as_str().expect("a word").to_owned()).collect()
    }

    /// Names of the running dispatchers.
    fn dispatchers(&self) -> impl Iterator<Item = &str> {
        self.daemons.keys().map(String::as_str).filter(|name| name.starts_with("dispatcher"))
    }

    /// Names of the nodes linked with a dispatcher.
    fn linked(&self, dispatcher: &str) -> Vec<String> {
        let nodes = self.coordinator(dispatcher)["nodes"].take();
        let nodes = nodes.as_array().map(Vec::as_slice).unwrap_or_default();
        nodes.iter().filter_map(|node| Some(node["name"].as_str()?.to_owned())).collect()
    }

    /// Returns the coordinator's status of a dispatcher, as in `skep status --json`.
    #[track_caller]
    pub fn coordinator(&self, name: &str) -> Value {
        self.status(name)["cache"].clone()
    }

    /// Returns the status of a process, as in `skep status --json`.
    #[track_caller]
    pub fn status(&self, name: &str) -> Value {
        let text = self.ask_socket(name, "/api/v1/status");
        serde_json::from_str(&text).expect("JSON of ours")
    }

    /// Returns the metrics page of a process.
    #[track_caller]
    pub fn metrics(&self, name: &str) -> String {
        self.ask_socket(name, "/api/v1/metrics")
    }

    /// Returns a sample of a process's metrics, by its name with labels.
    #[track_caller]
    pub fn metric(&self, name: &str, metric: &str) -> u64 {
        let text = self.metrics(name);
        let of = |line: &str| line.strip_prefix(metric)?.strip_prefix(' ')?.parse::<f64>().ok();
        let value = text.lines().find_map(of);
        value.unwrap_or_else(|| panic!("no {metric} of {name} in:\n{text}")) as u64
    }

    /// Waits until a counter of a process is `expected`. It may increase only after the last byte of what it
    /// counts can be read.
    ///
    /// # Panics
    /// If it becomes greater.
    #[track_caller]
    pub fn wait_metric(&self, name: &str, metric: &str, expected: u64) {
        wait_count(&format!("{metric} of {name}"), expected, || self.metric(name, metric));
    }

    /// Like [`Self::wait_metric`] for the sum over all running nodes.
    #[track_caller]
    pub fn wait_sum(&self, metric: &str, expected: u64) {
        wait_count(metric, expected, || self.sum(metric));
    }

    /// Checks the number of requests to the origin, or of reads of the disk, where each byte is needed from
    /// there once: `wanted` times, plus the retries that nodes had reason for. On a busy machine, a process
    /// that cannot respond within a second is considered dead, and others rightly use another source.
    #[track_caller]
    pub fn assert_asked(&self, asked: u64, wanted: u64) {
        self.assert_asked_beside(asked, wanted, 0);
    }

    /// Like [`Self::assert_asked`], for tests in which `planned` attempts to get data from other nodes fail
    /// on purpose.
    #[track_caller]
    pub fn assert_asked_beside(&self, asked: u64, wanted: u64, planned: u64) {
        assert!(asked >= wanted, "asked {asked} times for {wanted}");
        if asked > wanted {
            let (doubts, silences) = (self.doubts().saturating_sub(planned), self.silences());
            // If a node's link is lost, everything is requested again.
            let most = wanted * (1 + silences) + doubts;
            let why = format!("{doubts} doubts, {silences} links silent");
            assert!(asked <= most, "asked {asked} times for {wanted}: {why}");
        }
    }

    /// Waits until this number of segments was read from the origin or the disk: see [`Self::assert_asked`].
    #[track_caller]
    pub fn wait_asked(&self, wanted: u64) {
        poll_until(PATIENCE, &format!("{wanted} of {ORIGIN}"), || self.sum(ORIGIN) >= wanted);
        self.assert_asked(self.sum(ORIGIN), wanted);
    }

    /// Whether nodes considered others dead more than `planned` times, which is reported loudly: then the
    /// sources that were used are not those that the test planned.
    pub fn has_doubts(&self, planned: u64) -> bool {
        let (doubts, silences) = (self.doubts(), self.silences());
        let has_doubts = doubts > planned || silences > 0;
        if has_doubts {
            skip(&format!(
                "{doubts} attempts in vain ({planned} planned), {silences} links silent"
            ));
        }
        has_doubts
    }

    /// Number of failed attempts to get data from others, and of leases that expired without renewal.
    pub fn doubts(&self) -> u64 {
        let in_vain: u64 = DOUBTS.iter().map(|metric| self.sum(metric)).sum();
        let expired = "skep_coordinator_answers_total{kind=\"expired\"}";
        in_vain + self.dispatchers().map(|name| self.metric(name, expired)).sum::<u64>()
    }

    /// Number of links between nodes and coordinators that ended because one end was silent.
    fn silences(&self) -> u64 {
        let silent = "skep_stream_events_total{kind=\"silent\"}";
        self.daemons.keys().map(|name| self.metric(name, silent)).sum()
    }

    /// Sum of a counter over all running nodes.
    #[track_caller]
    pub fn sum(&self, metric: &str) -> u64 {
        let nodes = self.daemons.keys().filter(|name| name.starts_with("node-"));
        nodes.map(|name| self.metric(name, metric)).sum()
    }

    /// Sends one request to a node, on a new connection.
    #[track_caller]
    pub fn get(&self, node: &str, path: &str) -> Response {
        let (address, path) = (self.outer(node), path.to_owned());
        let get = move || RawClient::connect(address).get(&path);
        match &self.bed {
            None => get(),
            Some(bed) => bed.clients()[0].run(get).expect("the client's machine runs"),
        }
    }

    /// Runs `skep ARGUMENTS` against a process until it ends.
    #[track_caller]
    pub fn skep(&self, name: &str, arguments: &[&str]) -> Finished {
        let socket = self.socket(name);
        let socket = ["--socket", socket.to_str().expect("temporary paths are UTF-8")];
        run_to_end(&[arguments, &socket].concat())
    }

    /// Purges at a dispatcher, and returns the answer of its API.
    #[track_caller]
    pub fn purge(&self, name: &str, what: &[&str]) -> Value {
        self.order_purge(name, &serde_json::json!({ "what": what }))
    }

    /// Like [`Self::purge`] with the whole request body.
    #[track_caller]
    pub fn order_purge(&self, name: &str, order: &Value) -> Value {
        let fields = [&API_FIELDS[..], &[("Content-Type", "application/json")]].concat();
        let order = order.to_string();
        let text = self.exchange(name, &request_with_body("POST", "/api/v1/purge", &fields, order));
        serde_json::from_str(&text).expect("JSON of ours")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path("state").join(format!("{name}.sock"))
    }

    fn ask_socket(&self, name: &str, path: &str) -> String {
        self.exchange(name, &request_bytes("GET", path, &API_FIELDS))
    }

    fn exchange(&self, name: &str, request: &[u8]) -> String {
        let client = RawClient::try_connect_local(&self.socket(name));
        let mut client = client.expect("the process has a socket");
        client.try_send(request).expect("the process takes requests");
        client.response().text()
    }

    /// Returns the config without the service; here, dispatchers share one machine. The timeouts of
    /// coordinators allow for a busy machine; what nodes do without an answer is tested elsewhere. (A link
    /// that ends needs no timeout.)
    fn config(&self, own: &str) -> String {
        let root = self.folder.root().display();
        let mut text = format!(
            "cluster = \"test\"\nstate_dir = \"{root}/state\"\nkey_file = \"{root}/key\"\n\
             [admin]\nlisten = \"off\"\n[machine]\nthreads = 1\n[cache]\n"
        );
        if !self.settings.contains("coordinator_timeout_ms") {
            text += "coordinator_timeout_ms = \"5s\"\n";
        }
        text += &format!("{}\n", self.settings);
        for (name, [address, inner]) in &self.places {
            let kind = name.split('-').next().unwrap_or(name);
            text += &match kind {
                "node" => format!(
                    "[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nagent = \"{inner}\"\n"
                ),
                _ => format!("[[dispatcher]]\nname = \"{name}\"\naddress = \"{inner}\"\n"),
            };
        }
        let health = match self.lines.contains("[service.health]") {
            true => "",
            false => "health = { interval_ms = \"100ms\", timeout_ms = \"100ms\", fall = 10 }\n",
        };
        text += &format!(
            "[[service]]\nname = \"web\"\nlisten = \"{}\"\n{health}[[site]]\n{}\n",
            self.outer(if own.starts_with("node") { "dispatcher-1" } else { own }),
            self.lines.replace(OWN_NAME, own)
        );
        text
    }
}

/// Waits until a count is `expected`.
///
/// # Panics
/// If it becomes greater.
#[track_caller]
pub fn wait_count(what: &str, expected: u64, count: impl Fn() -> u64) {
    let seen = Cell::new(0);
    poll_until(PATIENCE, &format!("{what} is {expected}"), || {
        seen.set(count());
        seen.get() >= expected
    });
    assert_eq!(seen.get(), expected, "{what}");
}
