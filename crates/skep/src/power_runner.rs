//! `skep power`: runs the commands that switch machines, for the daemon that holds the other end of its
//! standard input.
//!
//! It has no privileges that the daemon was not started with, reads nothing from a network, and runs only
//! commands of the config. If it runs as root, the serving user must not be able to change the config, and
//! commands run as that user unless the config names another.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use skep_cli::{PowerArgs, load_config};
use skep_commands::{OperatorCommand, RunEnd, kill_group};
use skep_config::Config;
use skep_guard::{User, trust};

use crate::logging;
use crate::power::{PowerReport, PowerRequest};

/// Maximum number of concurrent commands, each with a thread. More nodes than this are not switched at once.
const RUNNING_MAX: usize = 64;

/// The process groups of running commands.
type Groups = Arc<Mutex<BTreeSet<i32>>>;

pub(crate) fn run(args: &PowerArgs) -> anyhow::Result<()> {
    let mut config = Arc::new(load_config(&args.config)?);
    logging::start(config.log.level);
    let first = Arc::clone(&config);
    check_file(&first, &args.config)?;
    let groups = Groups::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(PowerRequest::Run { number, node, command }) => {
                begin(&config, (number, node, command), &groups);
            }
            // The daemon has read the config and reported its errors. The serving user stays that of the
            // start.
            Ok(PowerRequest::Reload) => {
                if let Ok(new) = load_config(&args.config) {
                    match check_file(&first, &args.config) {
                        Ok(()) => config = Arc::new(new),
                        Err(error) => tracing::error!("the commands stay as they were: {error:#}"),
                    }
                }
            }
            Err(error) => tracing::error!("cannot interpret an order: {error}"),
        }
    }
    // The daemon has ended: nobody waits for the running commands.
    for group in lock(&groups).iter().filter_map(|it| rustix::process::Pid::from_raw(*it)) {
        kill_group(group);
    }
    Ok(())
}

/// If this process has more privileges than the serving user, that user must not decide what it runs.
fn check_file(config: &Config, file: &Path) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        let user = User::serving(config.machine.user.as_deref(), &config.machine.groups)?;
        trust::check_unchangeable("the config, with commands of `power`,", file, &user)?;
    }
    Ok(())
}

fn begin(config: &Arc<Config>, (number, node, command): (u64, String, String), groups: &Groups) {
    if lock(groups).len() >= RUNNING_MAX {
        let why = format!("could not be run: {RUNNING_MAX} commands run already");
        return report(not_run(number, why));
    }
    let (config, groups) = (Arc::clone(config), Arc::clone(groups));
    let run = move || report(run_one(&config, number, (&node, &command), &groups));
    if let Err(error) = thread::Builder::new().name("skep-command".into()).spawn(run) {
        report(not_run(number, format!("could not be run: {error}")));
    }
}

fn run_one(
    config: &Config,
    number: u64,
    (node, command): (&str, &str),
    groups: &Groups,
) -> PowerReport {
    let program = match program_of(config, node, command) {
        Ok(program) => program,
        Err(error) => return not_run(number, format!("could not be run: {error:#}")),
    };
    let mut own = None;
    let report = skep_commands::run(&program, |group| {
        own = Some(group.as_raw_nonzero().get());
        lock(groups).extend(own);
    });
    if let Some(own) = own {
        lock(groups).remove(&own);
    }
    let outcome = match &report.end {
        RunEnd::Done => "done",
        RunEnd::Exited(_) | RunEnd::Signalled(_) => "failed",
        RunEnd::TimedOut | RunEnd::Unkillable => "timed_out",
        RunEnd::NotStarted(_) => "not_run",
    };
    let (outcome, how) = (outcome.to_owned(), report.end.to_string());
    PowerReport { number, outcome, how, output: report.output }
}

fn program_of(config: &Config, node: &str, command: &str) -> anyhow::Result<OperatorCommand> {
    let node = config.node(node).with_context(|| format!("the config has no node {node:?}"))?;
    let power = config.power_of(node);
    let arguments = match command {
        "on" => &power.on,
        "off" => &power.off,
        "status" => &power.status,
        other => bail!("there is no command {other:?}"),
    };
    if arguments.is_empty() {
        bail!("the config has no `power.{command}` for it");
    }
    let home = ("HOME".to_owned(), config.state_dir.display().to_string());
    let user = match rustix::process::geteuid().is_root() {
        true => {
            let name = power.user.as_deref().or(config.machine.user.as_deref());
            let user = User::find(name, &[])?;
            Some((user.uid, user.gid))
        }
        false => None,
    };
    Ok(OperatorCommand {
        arguments: arguments.iter().map(|argument| node.power_argument(argument)).collect(),
        environment: [home].into_iter().chain(power.environment.clone()).collect(),
        user,
        timeout: Duration::from_millis(power.timeout_ms),
    })
}

fn not_run(number: u64, how: String) -> PowerReport {
    PowerReport { number, outcome: "not_run".to_owned(), how, output: String::new() }
}

/// Writes one complete line.
fn report(report: PowerReport) {
    match serde_json::to_string(&report) {
        Ok(line) => {
            // A daemon that does not read it is gone.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
        Err(error) => tracing::error!("a report cannot be written: {error}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
