//! Clusters that share their memories: dispatchers and nodes as processes on the
//! loopback, or on the machines of a test bed, with one folder that all of them see.

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

/// Ports on the machines of a bed: of clients, and of other machines.
const BED_PORTS: [u16; 2] = [8080, 7071];

/// Bytes of a whole segment.
pub const SEGMENT: usize = skep_units::SEGMENT_BYTES as usize;

/// Of requests to the management API.
const API_FIELDS: [(&str, &str); 2] = [("Host", "skep"), ("Connection", "close")];

/// Stands for the name of the process that reads it, in lines of `[[site]]`.
pub const OWN_NAME: &str = "$NAME";

/// A running cluster; killed when dropped.
pub struct CacheCluster {
    daemons: BTreeMap<String, Skep>,
    /// Where each process serves clients, and other machines.
    places: BTreeMap<String, [SocketAddr; 2]>,
    /// Held so that no other test takes them.
    _ports: Vec<FreePort>,
    bed: Option<Bed>,
    folder: Site,
    /// What all nodes see.
    pub site: Site,
    lines: String,
    settings: String,
}

impl CacheCluster {
    /// So many dispatchers and nodes, linked with each other. `settings` are
    /// lines of `[cache]`.
    #[track_caller]
    pub fn start(dispatchers: usize, nodes: usize, site: Site, settings: &str) -> Self {
        let lines = format!("root = \"{}\"\ncontent = \"shared\"\n", site.root().display());
        Self::start_of(dispatchers, nodes, site, &lines, settings)
    }

    /// The same with other lines of `[[site]]`, in which [`OWN_NAME`] stands for
    /// the name of the process. Behind them may stand `[service.health]`, for checks other
    /// than the usual ones.
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

    /// One on the dispatchers and nodes of a bed.
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

    /// Starts a process, up to its ready line.
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

    /// Kills a process by SIGKILL. Of a node: all running dispatchers know then that
    /// it is gone, so that [`Self::wait_linked`] does not take it for its successor.
    #[track_caller]
    pub fn kill(&mut self, name: &str) {
        drop(self.daemons.remove(name));
        poll_until(PATIENCE, &format!("the loss of {name} is noticed"), || {
            self.dispatchers().all(|it| !self.linked(it).iter().any(|node| node == name))
        });
    }

    /// A running process.
    #[track_caller]
    pub fn daemon(&self, name: &str) -> &Skep {
        self.daemons.get(name).unwrap_or_else(|| panic!("{name} does not run"))
    }

    /// Where a node or a dispatcher serves clients.
    pub fn outer(&self, name: &str) -> SocketAddr {
        self.places[name][0]
    }

    /// Where a process serves other machines of the cluster.
    pub fn inner(&self, name: &str) -> SocketAddr {
        self.places[name][1]
    }

    /// The bed that it is on.
    #[track_caller]
    pub fn bed(&self) -> &Bed {
        self.bed.as_ref().expect("a cluster on a bed")
    }

    /// A machine of the bed.
    #[track_caller]
    pub fn machine(&self, name: &str) -> &Machine {
        self.bed().machine(name).unwrap_or_else(|| panic!("the bed has no {name}"))
    }

    /// What a segment of a file is called by all nodes.
    #[track_caller]
    pub fn segment_name(&self, file: &str, index: u32) -> SegmentName {
        let stat = std::fs::metadata(self.site.path(file)).expect("a file of the site");
        let mtime_ns = stat.mtime() * 1_000_000_000 + stat.mtime_nsec();
        let version = format!("\"{mtime_ns:x}-{:x}\"", stat.len());
        let root = self.site.root().as_os_str().as_encoded_bytes();
        let (file, version) = (file.as_bytes(), version.as_bytes());
        ObjectName::new(root, file, version, stat.len(), PurgeStamp::NONE).segment(index)
    }

    /// Waits until each running dispatcher is linked with so many nodes.
    #[track_caller]
    pub fn wait_linked(&self, nodes: usize) {
        poll_until(PATIENCE, &format!("{nodes} linked nodes"), || {
            self.dispatchers().all(|name| self.linked(name).len() == nodes)
        });
    }

    /// Waits until the checks of all dispatchers find all nodes well: that they are linked is
    /// known earlier.
    #[track_caller]
    pub fn wait_up(&self) {
        poll_until(PATIENCE, "all nodes are up", || {
            self.dispatchers().all(|name| self.states(name).iter().all(|state| state == "up"))
        });
    }

    /// Waits until the checks of a dispatcher find a node so.
    #[track_caller]
    pub fn wait_state(&self, dispatcher: &str, node: &str, state: &str) {
        poll_until(PATIENCE, &format!("{node} is {state}"), || {
            let status = self.status(dispatcher);
            let nodes = status["services"][0]["nodes"].as_array().expect("a list").iter();
            nodes.filter(|it| it["name"] == node).any(|it| it["state"] == state)
        });
    }

    /// Changes the config of a process, which it has from its next start on.
    pub fn reconfigure(&self, name: &str, change: impl FnOnce(String) -> String) {
        self.folder.replace(&format!("{name}.toml"), change(self.config(name)));
    }

    /// Takes the folder of the configs from the user who serves: what decides which commands run is not for that one.
    pub fn guard_configs(&self) {
        if rustix::process::geteuid().is_root() {
            let state = self.folder.path("state");
            std::fs::create_dir_all(&state).expect("the folder is ours");
            let serving = Some(crate::site::server());
            std::os::unix::fs::chown(&state, serving, serving).expect("root gives it away");
            std::os::unix::fs::chown(self.folder.root(), Some(0), Some(0)).expect("root takes it");
        }
    }

    /// How a dispatcher's checks find its nodes.
    #[track_caller]
    pub fn states(&self, dispatcher: &str) -> Vec<String> {
        let status = self.status(dispatcher);
        let services = status["services"].as_array().expect("a list").iter();
        let nodes = services.flat_map(|service| service["nodes"].as_array().expect("a list"));
        nodes.map(|node| node["state"].as_str().expect("a word").to_owned()).collect()
    }

    /// Names of the dispatchers that run.
    fn dispatchers(&self) -> impl Iterator<Item = &str> {
        self.daemons.keys().map(String::as_str).filter(|name| name.starts_with("dispatcher"))
    }

    /// Names of the nodes that a dispatcher is linked with.
    fn linked(&self, dispatcher: &str) -> Vec<String> {
        let nodes = self.coordinator(dispatcher)["nodes"].take();
        let nodes = nodes.as_array().map(Vec::as_slice).unwrap_or_default();
        nodes.iter().filter_map(|node| Some(node["name"].as_str()?.to_owned())).collect()
    }

    /// The coordinator of a dispatcher, as `skep status --json` has it.
    #[track_caller]
    pub fn coordinator(&self, name: &str) -> Value {
        self.status(name)["cache"].clone()
    }

    /// What a process says of itself, as `skep status --json` has it.
    #[track_caller]
    pub fn status(&self, name: &str) -> Value {
        let text = self.ask_socket(name, "/api/v1/status");
        serde_json::from_str(&text).expect("JSON of ours")
    }

    /// The page of metrics of a process.
    #[track_caller]
    pub fn metrics(&self, name: &str) -> String {
        self.ask_socket(name, "/api/v1/metrics")
    }

    /// A sample of a process's metrics, by its name with labels.
    #[track_caller]
    pub fn metric(&self, name: &str, metric: &str) -> u64 {
        let text = self.metrics(name);
        let of = |line: &str| line.strip_prefix(metric)?.strip_prefix(' ')?.parse::<f64>().ok();
        let value = text.lines().find_map(of);
        value.unwrap_or_else(|| panic!("no {metric} of {name} in:\n{text}")) as u64
    }

    /// Waits until a counter of a process is `expected`. It rises after the last byte of
    /// what it counts can be read.
    ///
    /// # Panics
    /// If it is more.
    #[track_caller]
    pub fn wait_metric(&self, name: &str, metric: &str, expected: u64) {
        wait_count(&format!("{metric} of {name}"), expected, || self.metric(name, metric));
    }

    /// The same of the sum over all nodes that run.
    #[track_caller]
    pub fn wait_sum(&self, metric: &str, expected: u64) {
        wait_count(metric, expected, || self.sum(metric));
    }

    /// Checks how often the origin was asked, or the disk read, where each byte is wanted
    /// from there once: `wanted` times, and no oftener than nodes had cause. Who is kept
    /// from answering on a busy machine is taken for dead, within a second, and others
    /// rightly go elsewhere.
    #[track_caller]
    pub fn assert_asked(&self, asked: u64, wanted: u64) {
        self.assert_asked_beside(asked, wanted, 0);
    }

    /// The same where so many vain attempts to get something from others are what the test
    /// is about.
    #[track_caller]
    pub fn assert_asked_beside(&self, asked: u64, wanted: u64, planned: u64) {
        assert!(asked >= wanted, "asked {asked} times for {wanted}");
        if asked > wanted {
            let (doubts, silences) = (self.doubts().saturating_sub(planned), self.silences());
            // Of a node whose link is lost all is asked for again.
            let most = wanted * (1 + silences) + doubts;
            let why = format!("{doubts} doubts, {silences} links silent");
            assert!(asked <= most, "asked {asked} times for {wanted}: {why}");
        }
    }

    /// Waits until so many segments have come from the origin, or the disk:
    /// [`Self::assert_asked`].
    #[track_caller]
    pub fn wait_asked(&self, wanted: u64) {
        poll_until(PATIENCE, &format!("{wanted} of {ORIGIN}"), || self.sum(ORIGIN) >= wanted);
        self.assert_asked(self.sum(ORIGIN), wanted);
    }

    /// Whether nodes took others for dead, beside so many `planned` times, which is said
    /// loudly: then who has got what from where is not what a test has planned.
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

    /// Attempts to get something from others that were in vain, and leases that nobody
    /// renewed.
    pub fn doubts(&self) -> u64 {
        let in_vain: u64 = DOUBTS.iter().map(|metric| self.sum(metric)).sum();
        let expired = "skep_coordinator_answers_total{kind=\"expired\"}";
        in_vain + self.dispatchers().map(|name| self.metric(name, expired)).sum::<u64>()
    }

    /// Links of nodes with coordinators that ended because one end was not heard.
    fn silences(&self) -> u64 {
        let silent = "skep_stream_events_total{kind=\"silent\"}";
        self.daemons.keys().map(|name| self.metric(name, silent)).sum()
    }

    /// Sum of a counter over all nodes that run.
    #[track_caller]
    pub fn sum(&self, metric: &str) -> u64 {
        let nodes = self.daemons.keys().filter(|name| name.starts_with("node-"));
        nodes.map(|name| self.metric(name, metric)).sum()
    }

    /// One request to a node, on a connection of its own.
    #[track_caller]
    pub fn get(&self, node: &str, path: &str) -> Response {
        let (address, path) = (self.outer(node), path.to_owned());
        let get = move || RawClient::connect(address).get(&path);
        match &self.bed {
            None => get(),
            Some(bed) => bed.clients()[0].run(get).expect("the client's machine runs"),
        }
    }

    /// `skep ARGUMENTS` on a process, to its end.
    #[track_caller]
    pub fn skep(&self, name: &str, arguments: &[&str]) -> Finished {
        let socket = self.socket(name);
        let socket = ["--socket", socket.to_str().expect("temporary paths are UTF-8")];
        run_to_end(&[arguments, &socket].concat())
    }

    /// Purges at a dispatcher: what its API answers.
    #[track_caller]
    pub fn purge(&self, name: &str, what: &[&str]) -> Value {
        self.order_purge(name, &serde_json::json!({ "what": what }))
    }

    /// The same, ordered in these words.
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

    /// The config of all, but for the service: here dispatchers have one machine.
    /// Coordinators on a busy machine have time to answer: what nodes do without an
    /// answer is the matter of tests that say so. (A link that ends needs no timeout.)
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
/// If it is more.
#[track_caller]
pub fn wait_count(what: &str, expected: u64, count: impl Fn() -> u64) {
    let seen = Cell::new(0);
    poll_until(PATIENCE, &format!("{what} is {expected}"), || {
        seen.set(count());
        seen.get() >= expected
    });
    assert_eq!(seen.get(), expected, "{what}");
}
