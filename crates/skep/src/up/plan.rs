//! The config of a cluster on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context;
use skep_config::{AccessLog, Config, Dispatcher, Node, Service, Site};

use super::limits::{CHECK_MS, DRAIN_MS};
use super::ports::{Claim, Ports};
use crate::cli::{Admin, Up};

/// Name of the dispatcher.
pub(crate) const DISPATCHER: &str = "dispatcher";

/// A cluster that can be started.
pub(super) struct Plan {
    pub(super) config: Config,
    /// The ports in it.
    _claims: Vec<Claim>,
}

impl Plan {
    /// What `args` ask for, with addresses that are free and `state_dir` for
    /// sockets.
    pub(super) fn make(args: &Up, ports: &mut Ports, state_dir: &Path) -> anyhow::Result<Self> {
        let mut claims = Vec::new();
        let mut nodes = Vec::new();
        for number in 1..=args.nodes {
            let claim = ports.any(Ipv4Addr::LOCALHOST.into())?;
            let (name, address) = (format!("node-{number}"), claim.address());
            nodes.push(Node { name, address, ..Node::default() });
            claims.push(claim);
        }
        let listen = match args.listen.port() {
            0 => {
                let claim = ports.any(args.listen.ip())?;
                let address = claim.address();
                claims.push(claim);
                address
            }
            _ => args.listen,
        };
        let admin = admin(args.admin, ports, &mut claims)?;
        let config = config(args, nodes, listen, admin, state_dir)?;
        config.validate().map_err(|errors| anyhow::anyhow!("{errors}"))?;
        Ok(Self { config, _claims: claims })
    }

    /// Names of the nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.config.nodes.iter().map(|node| node.name.as_str())
    }

    /// Where clients go.
    pub(super) fn address(&self) -> SocketAddr {
        self.config.services[0].listen[0]
    }
}

fn config(
    args: &Up,
    nodes: Vec<Node>,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    state_dir: &Path,
) -> anyhow::Result<Config> {
    let absolute = |path: &Path| {
        std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))
    };
    let mut service = Service {
        name: "web".into(),
        listen: vec![listen],
        dispatch: args.dispatch,
        policy: args.policy.clone(),
        ..Service::default()
    };
    service.health.interval_ms = CHECK_MS;
    service.health.timeout_ms = CHECK_MS;
    let mut config = Config {
        state_dir: state_dir.to_owned(),
        dispatchers: vec![Dispatcher { name: DISPATCHER.into() }],
        nodes,
        services: vec![service],
        sites: vec![Site { root: absolute(&args.dir)?, ..Site::default() }],
        ..Config::default()
    };
    config.machine.threads = args.threads;
    config.cache.size_bytes_max = args.cache_size;
    config.timeouts.drain_ms = DRAIN_MS;
    config.admin.listen = admin;
    config.log.access = match args.access_log.as_str() {
        "off" => AccessLog::Off,
        "-" => AccessLog::Stdout,
        path => AccessLog::File(absolute(Path::new(path))?),
    };
    Ok(config)
}

/// Where the API is over TCP. The usual address only if nobody has it: then
/// the unix socket is enough.
fn admin(
    asked: Option<Admin>,
    ports: &Ports,
    claims: &mut Vec<Claim>,
) -> anyhow::Result<Option<SocketAddr>> {
    match asked {
        Some(Admin::Off) => Ok(None),
        Some(Admin::On(address)) => Ok(Some(address)),
        None => {
            let Some(usual) = Config::default().admin.listen else { return Ok(None) };
            let claim = ports.exactly(usual)?;
            claims.extend(claim);
            Ok(claims.last().map(Claim::address).filter(|address| *address == usual))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn up(options: &str) -> Up {
        let line = format!("skep up . {options}");
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Up(up) => up,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_file_says_it_all_and_is_read_back_the_same() {
        let base = tempfile::tempdir().unwrap();
        let mut ports = Ports::new(base.path()).unwrap();
        let args = up("--nodes 2 --dispatch redirect --policy random --listen 127.0.0.1:0 \
                       --cache-size 8MiB --threads 2 --access-log a.log --admin off");
        let plan = Plan::make(&args, &mut ports, base.path()).unwrap();
        assert_eq!(plan.nodes().collect::<Vec<_>>(), ["node-1", "node-2"]);
        assert_ne!(plan.address().port(), 0);
        assert_eq!(plan.config.admin.listen, None);
        let read = Config::parse("skep.toml", &plan.config.to_toml()).unwrap();
        assert_eq!(read, plan.config);
        assert!(matches!(&read.log.access, AccessLog::File(path) if path.is_absolute()));
        assert_eq!(read.socket_of(DISPATCHER), base.path().join("dispatcher.sock"));
    }

    #[test]
    fn the_usual_admin_address_goes_to_the_first_cluster_that_asks() {
        let base = tempfile::tempdir().unwrap();
        let mut ports = Ports::new(base.path()).unwrap();
        let usual = Config::default().admin.listen.unwrap();
        // Another program may have it at this moment, whoever that is.
        let _held = ports.exactly(usual).unwrap();
        let plan = Plan::make(&up(""), &mut ports, base.path()).unwrap();
        assert_eq!(plan.config.admin.listen, None);
        let own: SocketAddr = ([127, 0, 0, 1], 9).into();
        let plan = Plan::make(&up("--admin 127.0.0.1:9"), &mut ports, base.path()).unwrap();
        assert_eq!(plan.config.admin.listen, Some(own));
    }
}
