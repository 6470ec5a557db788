//! `skep netguard`: the small privileged process beside a daemon.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{process, thread};

use anyhow::bail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_cli::{NetguardArgs, announce};
use skep_config::Config;
use skep_guard::User;
use skep_netguard::{Leash, Netguard, socket_of};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::failure::LAST_LINE;
use crate::logging;
use crate::trusted_config::TrustedConfig;

pub(crate) fn run(args: &NetguardArgs) -> anyhow::Result<()> {
    match take_orders(args) {
        // The parent process prints it.
        #[expect(clippy::disallowed_methods, reason = "all that it had is dropped already")]
        Err(error) if args.leashed && announce(&format!("{error:#}")).is_ok() => process::exit(1),
        outcome => outcome,
    }
}

fn take_orders(args: &NetguardArgs) -> anyhow::Result<()> {
    let trusted = TrustedConfig::load("the config", &args.config, serving_user)?;
    let TrustedConfig { config, real: file, .. } = trusted;
    logging::start(config.log.level);
    let socket = socket_of(&config, &args.name);
    if args.clear {
        // A netguard that a daemon has started does not listen here; its daemon does.
        let daemon = config.socket_of(&args.name);
        if skep_guard::is_listening(&socket) || UnixStream::connect(daemon).is_ok() {
            bail!("{} runs on this machine: stop it first, then clear", args.name);
        }
        return Ok(Netguard::new(&config, &file, &args.name)?.clear()?);
    }
    let mut guard = Netguard::at_socket(&config, &file, &args.name, end_at_once)?;
    // After the end of privileges, which are those of a thread.
    let messages = logging::queue();
    guard.count_dropped_messages(messages.counts_dropped());
    // From the ready line on, signals are handled by the daemon.
    let daemon = args.leashed.then(Daemon::watch).transpose()?;
    let announced = announce(&format!("netguard ready at {}", socket.display()));
    match daemon {
        // A daemon that does not read the line is gone, and may have left state behind, as may an earlier
        // one.
        Some(mut daemon) => guard.listen_on_leash(&mut daemon)?,
        None => announced.and_then(|()| Ok(guard.listen()?))?,
    }
    Ok(())
}

/// Whom the config has to be kept from, if there is such a user on this machine.
fn serving_user(config: &Config) -> anyhow::Result<Option<User>> {
    Ok(skep_netguard::serving_user(config)?)
}

/// An end in good order would wait for the order that another thread executes.
#[expect(clippy::disallowed_methods, reason = "an end in good order waits for another thread")]
fn end_at_once(why: &str) {
    tracing::error!("{why}: this process ends at once");
    thread::sleep(LAST_LINE);
    process::exit(1);
}

/// The daemon that started this process, and holds the other end of its standard input.
///
/// Signals to the whole process group (Ctrl-C, stopping a service) are left to the daemon as long as it runs:
/// it gives orders until its end.
struct Daemon {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl Daemon {
    fn watch() -> anyhow::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let within = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        drop(within);
        Ok(Self { runtime, terminate, interrupt })
    }
}

impl Leash for Daemon {
    fn is_over(&self) -> bool {
        let stdin = io::stdin();
        // Nobody writes to it, so it becomes readable when it is closed.
        let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
        poll(&mut waited, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    fn wait(&mut self, time: Duration) -> bool {
        let Self { runtime, terminate, interrupt } = self;
        let told = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        runtime.block_on(async { timeout(time, told).await }).is_ok()
    }
}
