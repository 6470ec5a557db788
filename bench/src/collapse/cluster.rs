//! The cluster: four nodes, and their dispatcher, which coordinates all of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use skep_testclient::RawClient;

use crate::interrupt;
use crate::limits::{COLLAPSE_CLIENTS, COLLAPSE_NODES, POLL_INTERVAL, READY_TIMEOUT, SERVER_CORE};
use crate::peers::last_words;
use crate::process::{Server, free_port};

const CONFIG: &str = include_str!("../../peers/skep-collapse.toml");

const DISPATCHER: &str = "dispatcher";

/// The metric by which nodes report that the application's server is up.
const UP: &str = "skep_pool_server_up{pool=\"app\",server=\"one\"} 1";

/// A running cluster.
pub(super) struct Cluster {
    processes: Vec<(String, Server)>,
    dir: PathBuf,
}

impl Cluster {
    /// Starts all processes, and waits until the nodes are linked and the application is up at each of them.
    pub(super) fn start(skep: &Path, dir: &Path, app_port: u16) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let key = dir.join("key");
        fs::write(&key, "0123456789abcdef0123456789abcdef\n")?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        let ports = (0..COLLAPSE_NODES).map(|_| Ok([free_port()?, free_port()?]));
        let ports = ports.collect::<Result<Vec<_>>>()?;
        let config = dir.join("skep.toml");
        fs::write(&config, config_of(dir, app_port, &ports)?)?;
        let mut cluster = Self { processes: Vec::new(), dir: dir.to_owned() };
        let nodes = ports.iter().enumerate().map(|(at, ports)| (node_name(at), ports[0]));
        for (name, port) in std::iter::once((DISPATCHER.to_owned(), 0)).chain(nodes) {
            let own = dir.join(&name);
            fs::create_dir_all(&own)?;
            let argv = [&skep.display().to_string(), "run", "--config"].map(str::to_owned);
            let rest = [config.display().to_string(), "--as".to_owned(), name.clone()];
            let argv: Vec<String> = argv.into_iter().chain(rest).collect();
            cluster.processes.push((name, Server::start(&argv, &own, SERVER_CORE, port)?));
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// The port of each node for clients.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.processes.iter().skip(1).map(|(_, server)| server.port).collect()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while !self.is_ready() {
            interrupt::check()?;
            for (name, server) in &mut self.processes {
                let dir = self.dir.join(&*name);
                server.check_alive().with_context(|| format!("{name}: {}", last_words(&dir)))?;
                server.prefer();
            }
            if Instant::now() > deadline {
                let said = last_words(&self.dir.join(DISPATCHER));
                bail!("the cluster is not ready after {READY_TIMEOUT:?}; {said}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let is_up = |(name, _): &(String, Server)| {
            self.ask(name, "/api/v1/metrics").is_ok_and(|it| it.lines().any(|line| line == UP))
        };
        self.linked().is_ok_and(|linked| linked == COLLAPSE_NODES)
            && self.processes.iter().skip(1).all(is_up)
    }

    /// The number of nodes linked to the coordinator.
    fn linked(&self) -> Result<usize> {
        let status: serde_json::Value =
            serde_json::from_str(&self.ask(DISPATCHER, "/api/v1/status")?)?;
        Ok(status["cache"]["nodes"].as_array().map_or(0, Vec::len))
    }

    /// Queries the management API of a process.
    fn ask(&self, name: &str, path: &str) -> Result<String> {
        let socket = self.dir.join("state").join(format!("{name}.sock"));
        Ok(RawClient::try_connect_local(&socket)?.ask(path).try_response()?.text())
    }
}

fn node_name(index: usize) -> String {
    format!("node-{}", index + 1)
}

fn config_of(dir: &Path, app_port: u16, ports: &[[u16; 2]]) -> Result<String> {
    let node = |(at, [port, agent]): (usize, &[u16; 2])| {
        format!(
            "[[node]]\nname = \"{}\"\naddress = \"127.0.0.1:{port}\"\nagent = \"127.0.0.1:{agent}\"\n",
            node_name(at)
        )
    };
    Ok(CONFIG
        .replace("@DIR@", &dir.display().to_string())
        .replace("@LINKS@", &free_port()?.to_string())
        .replace("@SERVICE@", &free_port()?.to_string())
        .replace("@APP@", &app_port.to_string())
        .replace("@SLOTS@", &COLLAPSE_CLIENTS.to_string())
        .replace("@NODES@", &ports.iter().enumerate().map(node).collect::<String>()))
}
