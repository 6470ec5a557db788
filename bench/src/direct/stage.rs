//! The bed: one client, one dispatcher's machine, three permanent nodes, and what is started on the
//! dispatcher's machine in front of them.
//!
//! **Invariant:** no state of a way outlives it: the dispatcher's machine is killed after each way and booted
//! for the next.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use skep_testbed::{Bed, Frames, Machine, Topology};

use super::client::Client;
use crate::check;
use crate::content::{HUGE, LARGE, SMALL};
use crate::interrupt;
use crate::limits::{CLIENT_PORTS, DIRECT_NODES, POLL_INTERVAL, READY_TIMEOUT};
use crate::machine::file_limit;
use crate::peers::{MeasuredServer, Places, SKEP, fill, last_words};
use crate::process::Server;

/// A server in front of the nodes.
pub(super) struct Way {
    /// The name of its rows.
    pub(super) name: &'static str,
    /// The name of its server.
    pub(super) peer: &'static str,
    /// Name and content of its config file.
    config: (&'static str, &'static str),
    command: &'static str,
    /// How Skep's packet programs are attached; `None` for proxies, which have the machine's own address.
    attach: Option<&'static str>,
    /// Whether it supports frames longer than the MTU.
    takes_large: bool,
}

const SKEP_CONFIG: (&str, &str) =
    ("skep-direct.toml", include_str!("../../peers/skep-direct.toml"));
const SKEP_RUN: &str = "@SKEP@ run --config @CONFIG@ --as dispatcher-1";

/// All ways, in the order of the tables.
const WAYS: [Way; 4] = [
    Way {
        name: "skep, XDP",
        peer: SKEP,
        config: SKEP_CONFIG,
        command: SKEP_RUN,
        attach: Some("xdp-native"),
        takes_large: false,
    },
    Way {
        name: "skep, tc",
        peer: SKEP,
        config: SKEP_CONFIG,
        command: SKEP_RUN,
        attach: Some("tc"),
        takes_large: true,
    },
    Way {
        name: "haproxy",
        peer: "haproxy",
        config: ("haproxy-tcp.conf", include_str!("../../peers/haproxy-tcp.conf")),
        command: "haproxy -db -f @CONFIG@",
        attach: None,
        takes_large: true,
    },
    Way {
        name: "nginx",
        peer: "nginx",
        config: ("nginx-stream.conf", include_str!("../../peers/nginx-stream.conf")),
        command: "nginx -c @CONFIG@ -p @DIR@ -e @DIR@/error.log",
        attach: None,
        takes_large: true,
    },
];

/// The ways that support such frames.
pub(super) fn ways(frames: Frames) -> impl Iterator<Item = &'static Way> {
    WAYS.iter().filter(move |way| way.takes_large || frames == Frames::Wire)
}

/// A bed with its nodes.
pub(super) struct Stage {
    pub(super) frames: Frames,
    /// The nodes; declared first, so that they end before their machines.
    nodes: Vec<Server>,
    addresses: Vec<SocketAddr>,
    places: Places,
    dir: PathBuf,
    bed: Bed,
}

impl Way {
    /// The version that its server reports.
    pub(super) fn version(&self, stage: &Stage) -> Result<String> {
        MeasuredServer::named(self.peer)
            .context("a way is one of the peers")?
            .version(&stage.places)
    }
}

impl Stage {
    /// Creates a bed and starts its nodes, which serve `root`.
    pub(super) fn new(frames: Frames, dir: &Path, root: &Path, skep: &Path) -> Result<Self> {
        let nodes = DIRECT_NODES;
        let topology = Topology { dispatchers: 1, nodes, frames, ..Topology::default() };
        let bed = Bed::new(&topology)?;
        let places = Places { root: root.into(), limit: PathBuf::new(), skep: skep.into() };
        let addresses =
            bed.nodes().iter().map(|node| (IpAddr::from(node.ipv4()), 8080).into()).collect();
        let mut stage = Self { frames, nodes: Vec::new(), addresses, places, dir: dir.into(), bed };
        stage.dispatcher()?.kill()?;
        give_ports(stage.client()?)?;
        for index in 0..nodes {
            let node = stage.start_node(index)?;
            stage.nodes.push(node);
        }
        Ok(stage)
    }

    /// Runs `work` with a client that can use `way`.
    pub(super) fn through(
        &self,
        way: &Way,
        work: impl FnOnce(&Client) -> Result<()>,
    ) -> Result<()> {
        let machine = self.dispatcher()?;
        machine.boot()?;
        let done = self.start_way(way, machine).and_then(|dispatcher| {
            let target = self.target(way)?;
            let done = self.check(target).and_then(|()| {
                work(&Client {
                    machine: self.client()?,
                    dir: &self.dir,
                    nodes: &self.nodes,
                    addresses: &self.addresses,
                    dispatcher: &dispatcher,
                    target,
                })
            });
            // Before waiting for it: no orderly shutdown is needed.
            machine.kill()?;
            done
        });
        if machine.pid().is_some() {
            machine.kill()?;
        }
        done
    }

    /// Runs `work` while the links of nodes and dispatcher have this rate.
    pub(super) fn with_links<T>(
        &self,
        rate_bits_s: Option<u64>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let machines = || self.bed.nodes().iter().chain(self.bed.dispatchers());
        machines().try_for_each(|machine| machine.set_rate(rate_bits_s))?;
        let done = work();
        machines().try_for_each(|machine| machine.set_rate(None))?;
        done
    }

    fn start_node(&self, index: usize) -> Result<Server> {
        let machine = self.bed.nodes().get(index).context("a bed has nodes")?;
        let address = *self.addresses.get(index).context("a node has an address")?;
        let command = format!("@SKEP@ run --config @CONFIG@ --as {}", machine.name());
        let server = self.start(machine, SKEP_CONFIG, &command, "auto", machine.name(), address)?;
        Ok(server)
    }

    fn start_way(&self, way: &Way, machine: &Machine) -> Result<Server> {
        give_ports(machine)?;
        let attach = way.attach.unwrap_or_default();
        let target = self.target(way)?;
        self.start(machine, way.config, way.command, attach, way.name, target)
    }

    /// Starts a server on a machine, and waits until it answers the client.
    fn start(
        &self,
        machine: &Machine,
        (file, text): (&str, &str),
        command: &str,
        attach: &str,
        name: &str,
        address: SocketAddr,
    ) -> Result<Server> {
        let dir = self.dir.join(name.replace(", ", "-"));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("key"), "0123456789abcdef0123456789abcdef\n")?;
        let config = dir.join(file);
        let mut names = self.names()?;
        names.extend([
            ("@DIR@", dir.display().to_string()),
            ("@ATTACH@", attach.to_owned()),
            ("@CONFIG@", config.display().to_string()),
        ]);
        fs::write(&config, fill(text, &names, &self.places))?;
        let mut words = command.split(' ').map(|word| fill(word, &names, &self.places));
        let mut command = machine.command(words.next().unwrap_or_default());
        command.args(words);
        let mut server = Server::launch(command, &dir, address.port())?;
        self.await_answer(&mut server, address).with_context(|| last_words(&dir))?;
        Ok(server)
    }

    /// The values of the names in config files, for this bed.
    fn names(&self) -> Result<Vec<(&'static str, String)>> {
        let node = |index: usize| {
            let node = self.bed.nodes().get(index).context("a bed has nodes")?;
            anyhow::Ok(node.ipv4().to_string())
        };
        Ok(vec![
            ("@NODE1@", node(0)?),
            ("@NODE2@", node(1)?),
            ("@NODE3@", node(2)?),
            ("@DISPATCHER@", self.dispatcher()?.ipv4().to_string()),
            ("@VIP@", self.bed.vip(0).0.to_string()),
            ("@FILES@", file_limit().to_string()),
        ])
    }

    fn await_answer(&self, server: &mut Server, address: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            interrupt::check()?;
            server.check_alive()?;
            match self.client()?.run(|| check::get_at(address, SMALL.0))? {
                Ok(answer) if answer.status == 200 => return Ok(()),
                _ if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
                Ok(answer) => bail!("status {} after {READY_TIMEOUT:?}", answer.status),
                Err(error) => return Err(error.context(format!("none after {READY_TIMEOUT:?}"))),
            }
        }
    }

    /// Requests every file once per node, and compares it.
    fn check(&self, target: SocketAddr) -> Result<()> {
        let rounds = std::iter::repeat_n([SMALL, LARGE, HUGE], DIRECT_NODES);
        for (path, _) in rounds.flatten() {
            let answer = self.client()?.run(|| check::get_at(target, path))??;
            let wanted = fs::read(self.places.root.join(path.trim_start_matches('/')))?;
            ensure!(answer.status == 200, "GET {path}: status {}", answer.status);
            ensure!(answer.body == wanted, "GET {path}: not the bytes of the file");
        }
        Ok(())
    }

    fn target(&self, way: &Way) -> Result<SocketAddr> {
        let address = match way.attach {
            Some(_) => self.bed.vip(0).0,
            None => self.dispatcher()?.ipv4(),
        };
        Ok((IpAddr::from(address), 80).into())
    }

    fn client(&self) -> Result<&Machine> {
        self.bed.clients().first().context("a bed has a client")
    }

    fn dispatcher(&self) -> Result<&Machine> {
        self.bed.dispatchers().first().context("a bed has a dispatcher's machine")
    }
}

/// Allows a machine to open connections without end: all ports, reused while the other side still waits for
/// stray packets (RFC 6191).
fn give_ports(machine: &Machine) -> Result<()> {
    machine.run(|| {
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", CLIENT_PORTS)?;
        fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1")
    })??;
    Ok(())
}
