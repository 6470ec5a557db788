//! `skep netguard`: the small privileged process beside a daemon.

use std::os::unix::net::UnixStream;

use anyhow::{Context, bail};
use rustix::process::Signal;
use skep_cli::{NetguardArgs, announce, load_config};
use skep_netguard::{Netguard, socket_of};
use tokio::signal::unix::{SignalKind, signal};

use crate::logging;

pub(crate) fn run(args: &NetguardArgs) -> anyhow::Result<()> {
    match take_orders(args) {
        // Whoever holds the leash says it.
        #[expect(clippy::disallowed_methods, reason = "all that it had is dropped already")]
        Err(error) if args.leashed && announce(&format!("{error:#}")).is_ok() => {
            std::process::exit(1)
        }
        outcome => outcome,
    }
}

fn take_orders(args: &NetguardArgs) -> anyhow::Result<()> {
    let config = load_config(&args.config)?;
    logging::start(config.log.level);
    let socket = socket_of(&config, &args.name);
    if args.clear {
        // A guard on a leash does not show; the daemon that holds it does.
        let daemon = config.socket_of(&args.name);
        if skep_guard::is_listening(&socket) || UnixStream::connect(daemon).is_ok() {
            bail!("{} runs on this machine: stop it first, then clear", args.name);
        }
        return Ok(Netguard::new(&config, &args.config, &args.name)?.clear()?);
    }
    let guard = Netguard::at_socket(&config, &args.config, &args.name)?;
    // After the end of privileges, which are those of a thread.
    let _messages = logging::queue();
    if args.leashed {
        end_with_stdin()?;
        // Whoever holds the leash ends first, and has orders until then.
        outlive_others()?;
    }
    announce(&format!("netguard ready at {}", socket.display()))?;
    Ok(guard.listen(args.leashed)?)
}

/// Ends as soon as standard input closes: with the process that started it.
fn end_with_stdin() -> anyhow::Result<()> {
    let watch = || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // The one signal that is not left to others.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::HUP);
    };
    let thread = std::thread::Builder::new().name("skep-leash".into()).spawn(watch);
    thread.map(drop).context("cannot start a thread")
}

/// Ignores signals that go to the whole group (Ctrl-C, the end of a service): the other processes
/// handle them.
fn outlive_others() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Who is registered once stays so for as long as the process lives.
    let _in = runtime.enter();
    drop(signal(SignalKind::terminate())?);
    drop(signal(SignalKind::interrupt())?);
    Ok(())
}
