//! `skep run`: the daemon.

use anyhow::bail;
use rustix::process::Signal;
use skep_cli::{RunArgs, load_config};
use skep_config::Config;

use crate::compose::Process;
use crate::logging;
use crate::roles::Roles;
use crate::running::Running;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let config = load_config(&args.config)?;
    let roles = roles(&config, args)?;
    logging::start(config.log.level);
    let process = Process::start(config, roles, Some(args.config.clone()))?;
    if args.leashed {
        // Needs a thread, so it comes after privileges were dropped; if standard input was closed before,
        // that is still detected.
        end_with_stdin()?;
    }
    let ready = ready(process.running());
    process.run(&ready)
}

/// Where this process answers. A dispatcher that only steers packets answers nowhere itself.
fn ready(running: &Running) -> String {
    let own = running.addresses.iter().map(|address| format!("http://{address}"));
    let config = running.config();
    let steered = config.steered_services().flat_map(|(_, service)| service.listen.clone());
    let steered = steered.filter(|_| running.addresses.is_empty());
    let steered = steered.map(|address| format!("http://{address} (steered)"));
    format!("ready on {}", own.chain(steered).collect::<Vec<_>>().join(", "))
}

/// Drains as soon as standard input is closed: the process that started this one holds the other end, which
/// is closed even by kill -9.
fn end_with_stdin() -> anyhow::Result<()> {
    let watch = || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
    };
    std::thread::Builder::new().name("skep-leash".into()).spawn(watch)?;
    Ok(())
}

/// The roles of this process: those of the given name, or everything in the config.
fn roles(config: &Config, args: &RunArgs) -> anyhow::Result<Roles> {
    let Some(name) = &args.name else {
        return match config.nodes.as_slice() {
            [] => Ok(Roles { name: config.cluster.clone(), node: None, services: true }),
            [node] => {
                Ok(Roles { name: node.name.clone(), node: Some(node.name.clone()), services: true })
            }
            nodes => bail!(
                "{} has {} nodes: say which of them this process is with --as NAME (one of: {})",
                args.config.display(),
                nodes.len(),
                names(config)
            ),
        };
    };
    let node = config.node(name).map(|node| node.name.clone());
    let services = config.dispatcher(name).is_some();
    if node.is_none() && !services {
        bail!(
            "{} names no dispatcher and no node {name:?}; it has: {}",
            args.config.display(),
            names(config)
        );
    }
    Ok(Roles { name: name.clone(), node, services })
}

fn names(config: &Config) -> String {
    let dispatchers = config.dispatchers.iter().map(|dispatcher| dispatcher.name.as_str());
    let nodes = config.nodes.iter().map(|node| node.name.as_str());
    dispatchers.chain(nodes).collect::<Vec<_>>().join(", ")
}
