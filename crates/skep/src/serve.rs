//! `skep serve DIR`: one node, no config file.

use anyhow::Context;
use skep_cli::{ServeArgs, check_options};
use skep_config::{AccessLogTarget, BackendConfig, Config, NodeConfig, SiteConfig};

use crate::compose::Process;
use crate::logging;
use crate::roles::Roles;

/// The settings that are set by options.
const OPTIONS: &[(&str, &str)] = &[
    ("machine.threads", "--threads"),
    ("cache.size_bytes_max", "--cache-size"),
    ("log.access", "--access-log"),
    ("site.spa_fallback", "--spa"),
    ("site.root", "DIR"),
    ("node.address", "--listen"),
];

pub(crate) fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.machine.threads = args.threads;
    config.machine.user = args.user;
    config.cache.size_bytes_max = args.cache_size;
    config.admin.listen = None;
    config.log.access = match args.access_log.as_str() {
        "off" => AccessLogTarget::Off,
        "-" => AccessLogTarget::Stdout,
        path => AccessLogTarget::File(path.into()),
    };
    let root = std::path::absolute(&args.dir)
        .with_context(|| format!("cannot serve {}", args.dir.display()))?;
    config.sites.push(SiteConfig::of(BackendConfig {
        root: Some(root),
        listing: args.listing,
        spa_fallback: args.spa,
        ..BackendConfig::default()
    }));
    config.nodes.push(NodeConfig {
        name: "local".into(),
        address: args.listen,
        ..NodeConfig::default()
    });
    check_options(&config, OPTIONS)?;
    logging::start(config.log.level);
    let roles = Roles { name: "local".into(), node: Some("local".into()), services: false };
    let process = Process::start(config, roles, None)?;
    let address = process.running().addresses[0];
    process.run(&format!("serving {} on http://{address}", args.dir.display()))
}
