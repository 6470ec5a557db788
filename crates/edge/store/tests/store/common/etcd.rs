//! A real etcd on loopback, each cluster on an address of its own.

use rustix::process::Signal;
use std::io::{Write, stderr};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use skep_store::{Store, StoreSettings};
use tempfile::TempDir;

use super::{Process, until};

/// Whether etcd is not installed; reports it.
pub(crate) fn is_missing() -> bool {
    let is_missing = Command::new("etcd").arg("--version").output().is_err();
    if is_missing {
        let _ = writeln!(stderr(), "SKIPPED: no `etcd` here: apt-get install etcd-server");
    }
    is_missing
}

/// An etcd cluster.
pub(crate) struct Cluster {
    dir: TempDir,
    address: Ipv4Addr,
    members: Vec<Option<Process>>,
    more: Vec<&'static str>,
    scheme: &'static str,
}

impl Cluster {
    /// Starts `count` members.
    pub(crate) fn start(count: usize) -> Self {
        let mut cluster = Self::new(count);
        cluster.start_all();
        cluster
    }

    /// Starts one member with additional options.
    pub(crate) fn start_with(more: &[&'static str]) -> Self {
        let mut cluster = Self { more: more.to_vec(), ..Self::new(1) };
        cluster.start_all();
        cluster
    }

    /// Starts one member whose clients must use TLS.
    pub(crate) fn start_with_tls() -> Self {
        let mut cluster = Self { scheme: "https", more: vec!["--auto-tls"], ..Self::new(1) };
        cluster.start_all();
        cluster
    }

    fn new(count: usize) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            address: free_address(),
            members: (0..count).map(|_| None).collect(),
            more: Vec::new(),
            scheme: "http",
        }
    }

    /// Starts the members that are not running.
    pub(crate) fn start_all(&mut self) {
        for at in 0..self.members.len() {
            if self.members[at].is_none() {
                self.start_one(at);
            }
        }
    }

    pub(crate) fn start_one(&mut self, at: usize) {
        let url = |scheme, port| format!("{scheme}://{}:{port}", self.address);
        let peers: Vec<_> = (0..self.members.len())
            .map(|at| format!("m{at}={}", url("http", peer_port(at))))
            .collect();
        let (client, peer) = (url(self.scheme, client_port(at)), url("http", peer_port(at)));
        let (name, data) = (format!("m{at}"), self.dir.path().join(format!("m{at}")));
        let mut command = vec!["etcd", "--name", &name, "--data-dir", data.to_str().unwrap()];
        command.extend(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.extend(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        let peers = peers.join(",");
        command.extend(["--initial-cluster", &peers, "--logger", "zap"]);
        command.extend(&self.more);
        let log = std::fs::File::create(self.log(at)).unwrap();
        self.members[at] = Some(Process::start(&command, |command| {
            command.stdout(log.try_clone().unwrap()).stderr(log);
        }));
    }

    pub(crate) fn kill(&mut self, at: usize) {
        // Dropping kills.
        self.members[at] = None;
    }

    pub(crate) fn kill_all(&mut self) {
        self.members.fill_with(|| None);
    }

    /// Sends `signal` to a running member.
    pub(crate) fn signal(&self, at: usize, signal: Signal) {
        self.members[at].as_ref().unwrap().signal(signal);
    }

    /// The leading member according to the last messages in their logs; if several consider themselves
    /// leaders (one has just resumed), the one elected last.
    pub(crate) fn leading_member(&self) -> usize {
        let leads_in = |at: usize| {
            let log = std::fs::read_to_string(self.log(at)).unwrap();
            // `... elected leader ID at term N` on every member.
            let last = log.lines().rfind(|line| line.contains("elected leader")).and_then(term)?;
            let own = log.lines().rfind(|line| line.contains("became leader")).and_then(term)?;
            (last == own).then_some((own, at))
        };
        let leading = || (0..self.members.len()).filter_map(leads_in).max();
        until("a leading member", leading).1
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        let url = |at| format!("http://{}:{}", self.address, client_port(at));
        (0..self.members.len()).map(url).collect()
    }

    pub(crate) fn client_address(&self, at: usize) -> (Ipv4Addr, u16) {
        (self.address, client_port(at))
    }

    /// Opens a store for the cluster `name` on this etcd.
    pub(crate) fn store(&self, name: &str) -> Store {
        Store::open(&self.settings(name)).unwrap()
    }

    pub(crate) fn settings(&self, name: &str) -> StoreSettings {
        StoreSettings::Etcd { endpoints: self.endpoints(), cluster: name.to_owned() }
    }

    fn log(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("m{at}.log"))
    }
}

fn term(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("at term ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn client_port(at: usize) -> u16 {
    2379 + 10 * at as u16
}

fn peer_port(at: usize) -> u16 {
    client_port(at) + 1
}

/// An address of 127.0.0.0/8 that no other test uses, so that its ports stay free while members are down.
pub(crate) fn free_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    loop {
        let last = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = Ipv4Addr::new(127, 64 | high >> 1, low, last);
        let is_free = |port| TcpListener::bind((address, port)).is_ok();
        if (1..255).contains(&last) && is_free(client_port(0)) && is_free(peer_port(0)) {
            return address;
        }
    }
}
