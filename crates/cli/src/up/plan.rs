//! The config of a cluster on this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use skep_config::{
    AGENT_PORT, AccessLogTarget, BackendConfig, Config, ContentPlacement, DispatchMode,
    DispatcherConfig, Level, NodeConfig, ServiceConfig, SiteConfig,
};

use super::folder::state_of;
use super::limits::{CHECK_MS, DRAIN_MS};
use super::ports::Ports;
use crate::arguments::{Admin, UpArgs};
use crate::options;

/// Name of the dispatcher.
pub(crate) const DISPATCHER: &str = "dispatcher";

/// Name of the standby, in direct dispatch.
pub(super) const STANDBY: &str = "standby";

/// Port at which nodes answer checks in direct dispatch, beside the virtual address.
const NODE_PORT: u16 = 8081;

/// The settings that are set by options.
const OPTIONS: &[(&str, &str)] = &[
    ("machine.threads", "--threads"),
    ("cache.size_bytes_max", "--cache-size"),
    ("log.access", "--access-log"),
    ("recorder.file", "--record"),
    ("recorder.interval_ms", "--record-interval"),
    ("site.root", "DIR"),
    ("service.listen", "--listen"),
    ("admin.listen", "--admin"),
];

/// The addresses of a cluster in a test bed.
pub(super) struct Places {
    /// The virtual address.
    pub(super) vip: SocketAddr,
    /// The dispatchers' addresses, in order.
    pub(super) dispatchers: Vec<IpAddr>,
    /// The nodes' addresses, in order.
    pub(super) nodes: Vec<IpAddr>,
}

/// Makes the config for `args`, with free addresses, for the cluster's `folder`.
pub(super) fn make(
    args: &UpArgs,
    ports: &mut Ports,
    places: Option<Places>,
    folder: &Path,
) -> anyhow::Result<Config> {
    if let Some(places) = places {
        return make_direct(args, &places, folder);
    }
    let mut nodes = Vec::new();
    let ip = node_ip(args);
    for number in 1..=args.nodes {
        let (address, agent) = (ports.any(ip)?, Some(ports.any(ip)?));
        nodes.push(NodeConfig {
            name: format!("node-{number}"),
            address,
            agent,
            ..NodeConfig::default()
        });
    }
    let coordinator = ports.any(Ipv4Addr::LOCALHOST.into())?;
    let listen = match args.listen.port() {
        0 => ports.any(args.listen.ip())?,
        _ => args.listen,
    };
    let mut config = config(args, nodes, listen, admin(args.admin, ports), folder)?;
    config.dispatchers[0].address = Some(coordinator);
    options::check(&config, OPTIONS)?;
    Ok(config)
}

/// The config of a cluster in a test bed.
fn make_direct(args: &UpArgs, places: &Places, folder: &Path) -> anyhow::Result<Config> {
    if let Some(Admin::On(address)) = args.admin {
        bail!(
            "--admin {address}: with --dispatch direct the management API is in a network \
             namespace; leave it out, the commands find the cluster by its socket"
        );
    }
    let node = |(number, &ip): (usize, &IpAddr)| NodeConfig {
        name: format!("node-{}", number + 1),
        address: (ip, NODE_PORT).into(),
        ..NodeConfig::default()
    };
    let nodes = places.nodes.iter().enumerate().map(node).collect();
    let mut config = config(args, nodes, places.vip, None, folder)?;
    let names = [DISPATCHER, STANDBY].into_iter().zip(&places.dispatchers);
    let dispatcher = |(name, &ip): (&str, &IpAddr)| DispatcherConfig {
        name: name.into(),
        address: Some((ip, AGENT_PORT).into()),
        ..DispatcherConfig::default()
    };
    config.dispatchers = names.map(dispatcher).collect();
    options::check(&config, OPTIONS)?;
    Ok(config)
}

/// The address on which nodes listen: local, unless clients must reach them. Redirects can't contain an
/// unspecified address.
fn node_ip(args: &UpArgs) -> IpAddr {
    match (args.dispatch, args.listen.ip()) {
        (DispatchMode::Redirect, ip) if !ip.is_unspecified() => ip,
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

fn config(
    args: &UpArgs,
    nodes: Vec<NodeConfig>,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    folder: &Path,
) -> anyhow::Result<Config> {
    let absolute = |path: &Path| {
        std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))
    };
    let mut service = ServiceConfig {
        name: "web".into(),
        listen: vec![listen],
        dispatch: args.dispatch,
        policy: args.policy.clone(),
        node_header: args.node_header,
        ..ServiceConfig::default()
    };
    service.health.interval_ms = CHECK_MS;
    service.health.timeout_ms = CHECK_MS;
    let mut config = Config {
        state_dir: state_of(folder),
        dispatchers: vec![DispatcherConfig {
            name: DISPATCHER.into(),
            ..DispatcherConfig::default()
        }],
        nodes,
        services: vec![service],
        // All nodes are on this machine, and share the one folder.
        sites: vec![SiteConfig::of(BackendConfig {
            root: Some(absolute(&args.dir)?),
            content: ContentPlacement::Shared,
            ..BackendConfig::default()
        })],
        key_file: Some(folder.join("key")),
        ..Config::default()
    };
    config.direct.guard_dir = folder.join("guard");
    config.machine.threads = args.threads;
    config.machine.user = args.user.clone();
    config.cache.size_bytes_max = args.cache_size;
    config.timeouts.drain_ms = DRAIN_MS;
    config.admin.listen = admin;
    config.log.level = if args.verbose { Level::Info } else { Level::Warn };
    config.recorder.interval_ms = args.record_interval;
    config.recorder.file = args.record.as_deref().map(absolute).transpose()?;
    config.log.access = match args.access_log.as_str() {
        "off" => AccessLogTarget::Off,
        "-" => AccessLogTarget::Stdout,
        path => AccessLogTarget::File(absolute(Path::new(path))?),
    };
    Ok(config)
}

/// The TCP address of the API. The default address is used only if it is free: otherwise the unix socket
/// suffices.
fn admin(asked: Option<Admin>, ports: &mut Ports) -> Option<SocketAddr> {
    match asked {
        Some(Admin::Off) => None,
        Some(Admin::On(address)) => Some(address),
        None => Config::default().admin.listen.filter(|usual| ports.take(*usual)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;

    use super::*;
    use crate::arguments::{Cli, Command};

    fn up(options: &str) -> UpArgs {
        let line = format!("skep up . {options}");
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Up(up) => up,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_file_says_it_all_and_is_read_back_the_same() {
        let folder = Path::new("/tmp/state");
        let args = up("--nodes 2 --dispatch redirect --policy random --listen 127.0.0.1:0 \
                       --cache-size 8MiB --threads 2 --access-log a.log --admin off");
        let config = make(&args, &mut Ports::beside(&[]), None, folder).unwrap();
        let names: Vec<_> = config.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["node-1", "node-2"]);
        assert_ne!(config.services[0].listen[0].port(), 0);
        assert_eq!(config.admin.listen, None);
        assert_eq!(Config::parse("skep.toml", &config.to_toml()).unwrap(), config);
        assert!(matches!(&config.log.access, AccessLogTarget::File(path) if path.is_absolute()));
        assert_eq!(config.socket_of(DISPATCHER), folder.join("state/dispatcher.sock"));
    }

    #[test]
    fn processes_log_what_is_wrong_and_the_rest_if_asked() {
        let level = |options| {
            let config = make(&up(options), &mut Ports::beside(&[]), None, Path::new("/tmp"));
            config.unwrap().log.level
        };
        assert_eq!((level("--listen 127.0.0.1:0"), level("-v")), (Level::Warn, Level::Info));
    }

    #[test]
    fn nodes_listen_where_those_who_call_them_are() {
        for (options, ip) in [
            ("--listen 127.0.0.2:0", [127, 0, 0, 1]),
            ("--listen 127.0.0.2:0 --dispatch redirect", [127, 0, 0, 2]),
            ("--listen 0.0.0.0:0 --dispatch redirect", [127, 0, 0, 1]),
        ] {
            let config =
                make(&up(options), &mut Ports::beside(&[]), None, Path::new("/tmp")).unwrap();
            assert_eq!(config.nodes[0].address.ip(), IpAddr::from(ip), "{options}");
        }
    }

    #[test]
    fn the_usual_admin_address_goes_to_the_first_cluster_that_asks() {
        let folder = Path::new("/tmp/state");
        let first = Config::default();
        assert!(first.admin.listen.is_some());
        let mut ports = Ports::beside(&[first]);
        let second = make(&up(""), &mut ports, None, folder).unwrap();
        assert_eq!(second.admin.listen, None);
        let own: SocketAddr = ([127, 0, 0, 1], 9).into();
        let third = make(&up("--admin 127.0.0.1:9"), &mut ports, None, folder).unwrap();
        assert_eq!(third.admin.listen, Some(own));
    }
}
