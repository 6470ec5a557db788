//! `skep power`: runs the commands that switch machines, for the daemon that holds the other end of its
//! standard input.
//!
//! It has no privileges that the daemon was not started with, reads nothing from a network, and runs only commands
//! of the config. If it runs as root, the serving user must not be able to change the config, and commands run as that user
//! unless the config names another one.
//!
//! **Invariant:** a command runs only by the config that was last reloaded, and only if it begins before its order expires.

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use skep_cli::PowerArgs;
use skep_commands::{CommandReport, OperatorCommand, RunEnd};
use skep_config::Config;
use skep_dispatcher::CommandOutcome;
use skep_guard::User;
use skep_serve::monotonic_ms;

use crate::command_slots::{CommandSlot, CommandSlots};
use crate::logging;
use crate::power::{CommandOrder, PowerReport, PowerRequest};
use crate::trusted_config::TrustedConfig;

pub(crate) fn run(args: &PowerArgs) -> anyhow::Result<()> {
    let mut config = ConfigInForce::read(&args.config)?;
    logging::start(config.config.log.level);
    let slots = Arc::<CommandSlots>::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(PowerRequest::Run(order)) => {
                let number = order.number;
                if let Err(error) = begin(&mut config, order, &slots) {
                    report(not_run(number, &error));
                }
            }
            Ok(PowerRequest::Reload) => config.reload(),
            Err(error) => tracing::error!("cannot interpret an order: {error}"),
        }
    }
    // The daemon has ended: nobody waits for running commands.
    if !slots.kill_all() {
        tracing::error!("a command is still being started, and may keep running");
    }
    Ok(())
}

/// The config by which commands run.
struct ConfigInForce {
    file: PathBuf,
    /// The serving user at the start, who must not be able to change the config; `None`: this process is not root.
    user: Option<User>,
    config: Arc<Config>,
    /// The daemon has reloaded its config, and this process has not yet.
    is_stale: bool,
}

impl ConfigInForce {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let serving = |config: &Config| match rustix::process::geteuid().is_root() {
            true => User::serving(config.machine.user.as_deref(), &config.machine.groups).map(Some),
            false => Ok(None),
        };
        let read = Self::load(file, |config| Ok(serving(config)?))?;
        let TrustedConfig { config, user, .. } = read;
        Ok(Self { file: file.to_owned(), user, config: Arc::new(config), is_stale: false })
    }

    fn load(
        file: &Path,
        user_of: impl Fn(&Config) -> anyhow::Result<Option<User>>,
    ) -> anyhow::Result<TrustedConfig> {
        TrustedConfig::load("the config, with commands of `power`,", file, user_of)
    }

    /// The daemon has reloaded it.
    fn reload(&mut self) {
        self.is_stale = true;
        // It is tried again before the next command.
        let _ = self.refresh();
    }

    /// The config of the daemon; read again if it is stale.
    fn current(&mut self) -> anyhow::Result<Arc<Config>> {
        if self.is_stale {
            self.refresh()?;
        }
        Ok(Arc::clone(&self.config))
    }

    fn refresh(&mut self) -> anyhow::Result<()> {
        match Self::load(&self.file, |_| Ok(self.user.clone())) {
            Ok(read) => {
                (self.config, self.is_stale) = (Arc::new(read.config), false);
                Ok(())
            }
            Err(error) => {
                tracing::error!("no command runs until the config can be reloaded: {error:#}");
                bail!("`skep power` cannot reload the config, and has logged why")
            }
        }
    }
}

/// Starts a thread that runs a command.
fn begin(
    config: &mut ConfigInForce,
    order: CommandOrder,
    slots: &Arc<CommandSlots>,
) -> anyhow::Result<()> {
    let config = config.current()?;
    let slot = slots.take(&order.node)?;
    let run = move || run_one(&config, &order, slot, report);
    thread::Builder::new().name("skep-command".into()).spawn(run)?;
    Ok(())
}

/// Returns when no process of the command is left, which may be after its report.
fn run_one(
    config: &Config,
    order: &CommandOrder,
    slot: CommandSlot,
    report: impl FnOnce(PowerReport),
) {
    let (number, slot) = (order.number, RefCell::new(Some(slot)));
    let program = check_time(order, monotonic_ms()).and_then(|()| program_of(config, order));
    match program {
        Ok(program) => {
            let started = |group| slot.borrow_mut().iter_mut().for_each(|it| it.started(group));
            let ended = |it: CommandReport| {
                if it.end != RunEnd::Unkillable {
                    // Before the daemon may order the next command for this node.
                    slot.take();
                }
                report(report_of(number, it));
            };
            skep_commands::run(&program, started, ended);
        }
        Err(error) => report(not_run(number, &error)),
    }
}

/// Refuses a late order: its sender has abandoned it, and may have sent another one.
fn check_time(order: &CommandOrder, now_ms: u64) -> anyhow::Result<()> {
    let CommandOrder { node, command, not_after_ms, .. } = order;
    let late_ms = now_ms.saturating_sub(*not_after_ms);
    if late_ms > 0 {
        tracing::warn!(
            "node {node}: order to run `power.{command}` refused: {late_ms} ms too late"
        );
    }
    ensure!(late_ms == 0, "its order came {late_ms} ms late");
    Ok(())
}

fn program_of(config: &Config, order: &CommandOrder) -> anyhow::Result<OperatorCommand> {
    let CommandOrder { node, command, .. } = order;
    let node = config.node(node).with_context(|| format!("the config has no node {node:?}"))?;
    let power = config.power_of(node);
    let arguments = match command.as_str() {
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
        // The daemon abandons the order by the timeout that it sent.
        timeout: Duration::from_millis(power.timeout_ms.min(order.timeout_ms)),
    })
}

fn report_of(number: u64, report: CommandReport) -> PowerReport {
    let CommandReport { end, output } = report;
    let outcome = match end {
        RunEnd::Done => CommandOutcome::Done,
        RunEnd::Exited(_) | RunEnd::Signalled(_) => CommandOutcome::Failed,
        RunEnd::TimedOut | RunEnd::Unkillable => CommandOutcome::TimedOut,
        RunEnd::NotStarted(_) => CommandOutcome::NotRun,
    };
    PowerReport { number, outcome, how: end.to_string(), output }
}

fn not_run(number: u64, why: &anyhow::Error) -> PowerReport {
    let (outcome, how) = (CommandOutcome::NotRun, format!("could not be run: {why:#}"));
    PowerReport { number, outcome, how, output: String::new() }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;

    use super::*;

    fn text(more: &str) -> String {
        format!(
            "[[dispatcher]]\nname = 'd1'\n[[node]]\nname = 'n1'\naddress = '127.0.0.1:8001'\n\
             [[service]]\nname = 'web'\nlisten = '127.0.0.1:9001'\n[[site]]\nroot = '/srv'\n\
             [power]\ntimeout_ms = 100\n{more}"
        )
    }

    fn order(not_after_ms: u64) -> CommandOrder {
        let (node, command) = ("n1".to_owned(), "on".to_owned());
        CommandOrder { number: 7, node, command, not_after_ms, timeout_ms: 100 }
    }

    #[test]
    fn an_order_that_comes_after_its_time_is_refused() {
        let config = Config::parse("test", &text("on = ['/bin/true']\n")).unwrap();
        let slots = Arc::<CommandSlots>::default();
        let outcome = |not_after_ms| {
            let mut reported = None;
            let slot = slots.take("n1").unwrap();
            run_one(&config, &order(not_after_ms), slot, |it| reported = Some(it));
            reported.unwrap()
        };
        let now_ms = monotonic_ms();
        let late = outcome(now_ms - 1);
        assert_eq!((late.number, late.outcome), (7, CommandOutcome::NotRun));
        assert!(late.how.contains("late"), "{}", late.how);
        assert!(!outcome(now_ms + 60_000).how.contains("late"));
    }

    #[test]
    fn after_a_reload_that_failed_nothing_runs_until_it_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skep.toml");
        let write = |more: &str| fs::write(&file, text(more)).unwrap();
        write("on = ['/bin/true']\n");
        let mut config = ConfigInForce::read(&file).unwrap();
        let first = |config: &mut ConfigInForce| config.current().map(|it| it.power.on.join(" "));
        write("on = true\n");
        assert_eq!(first(&mut config).unwrap(), "/bin/true", "nobody has reloaded it");
        config.reload();
        assert!(first(&mut config).is_err());
        let slots = Arc::<CommandSlots>::default();
        let begun = begin(&mut config, order(u64::MAX), &slots);
        assert!(begun.unwrap_err().to_string().contains("reload"));
        write("on = ['/bin/other']\n");
        assert_eq!(first(&mut config).unwrap(), "/bin/other");
        write("on = true\n");
        assert_eq!(first(&mut config).unwrap(), "/bin/other", "it is read once");
    }
}
