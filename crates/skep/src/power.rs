//! Switches nodes for elasticity: their agents over the links of the cluster cache, their machines by
//! commands that another process runs.
//!
//! That process (`skep power`) is started while this one may still execute programs, as netguard is. It reads
//! orders from its standard input, one per line: the name of a node and of a command. It reads from the
//! config itself which program that is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use skep_cli::this_program;
use skep_config::Config;
use skep_coordinator::Coordination;
use skep_dispatcher::{
    CommandOutcome, Dispatcher, EndedCommand, NodeAgents, NodePowers, PowerCommand, PowerCommands,
    register_powers,
};
use skep_serve::monotonic_ms;
use skep_telemetry::Registry;
use skep_wire::cache::PowerStage;
use skep_wire::message::Name;

use crate::roles::Roles;

/// Time after a command's timeout by which its end must be reported, in milliseconds: longer than the order may wait (5 s)
/// plus a killed command takes to end (2 s), on a busy machine.
const REPORT_MARGIN_MS: u64 = 10_000;

/// Time that an order may wait until its command begins, in milliseconds: longer than a busy machine needs. A command that begins
/// in time has ended or timed out before its order is abandoned.
const ORDER_WAIT_MS_MAX: u64 = 5_000;

/// A line to the process that runs commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PowerRequest {
    Run(CommandOrder),
    /// Read the config again; it applies to all later orders.
    Reload,
}

/// An order to run a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandOrder {
    pub(crate) number: u64,
    pub(crate) node: String,
    /// `on`, `off` or `status`.
    pub(crate) command: String,
    /// When it must have begun, by `monotonic_ms`, which is the same in all processes of a machine.
    pub(crate) not_after_ms: u64,
    /// The command's timeout, unless the config has a shorter one.
    pub(crate) timeout_ms: u64,
}

/// A line from that process: a command has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerReport {
    /// The number of the order.
    pub(crate) number: u64,
    pub(crate) outcome: CommandOutcome,
    pub(crate) how: String,
    pub(crate) output: String,
}

/// The process that runs commands; the thread that reads its output is not started yet.
pub(crate) struct PowerRunner {
    child: Child,
    orders: ChildStdin,
    reports: ChildStdout,
}

impl PowerRunner {
    /// Starts it if this process has to switch machines.
    pub(crate) fn start(
        config: &Config,
        roles: &Roles,
        file: Option<&Path>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(file) = file.filter(|_| roles.services && config.switches_machines()) else {
            return Ok(None);
        };
        let mut child = Command::new(this_program())
            .arg("power")
            .arg("--config")
            .arg(file)
            // Ctrl-C at the terminal is handled by this process.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process that runs commands of `power`")?;
        let orders = child.stdin.take().context("`skep power` has no standard input")?;
        let reports = child.stdout.take().context("`skep power` has no standard output")?;
        Ok(Some(Self { child, orders, reports }))
    }
}

/// Sends orders to that process, and keeps track of them.
struct RemoteCommands {
    orders: Mutex<Orders<ChildStdin>>,
    progress: Arc<Mutex<Progress>>,
    /// The child ends when its standard input is closed, however this process ends.
    _child: Child,
}

/// Where orders go.
struct Orders<W> {
    /// Does not block.
    pipe: W,
    /// A reload of the config has not been forwarded yet.
    is_reload_due: bool,
}

/// Orders and their outcomes.
#[derive(Default)]
struct Progress {
    /// The number of the last order.
    last: u64,
    running: BTreeMap<u64, RunningCommand>,
    ended: Vec<EndedCommand>,
    is_gone: bool,
}

/// A command that was ordered.
struct RunningCommand {
    node: String,
    command: PowerCommand,
    /// When it is abandoned, whatever happened to the process that runs it.
    given_up_at: Instant,
}

impl RemoteCommands {
    fn new(runner: PowerRunner) -> anyhow::Result<Arc<Self>> {
        let PowerRunner { child, orders, reports } = runner;
        // A stalled process must not block the sender of orders.
        rustix::io::ioctl_fionbio(&orders, true).context("cannot set up a pipe")?;
        let progress = Arc::<Mutex<Progress>>::default();
        let shared = Arc::clone(&progress);
        std::thread::Builder::new()
            .name("skep-power".into())
            .spawn(move || read_reports(BufReader::new(reports), &shared))
            .context("cannot start a thread")?;
        let orders = Mutex::new(Orders { pipe: orders, is_reload_due: false });
        Ok(Arc::new(Self { orders, progress, _child: child }))
    }

    /// Forwards a reload of the config.
    fn reload(&self) {
        let is_told = lock(&self.orders).reload();
        if !is_told && !lock(&self.progress).is_gone {
            tracing::warn!(
                "`skep power` does not accept the order to reload the config; the order is repeated before the next command"
            );
        }
    }
}

impl<W: Write> Orders<W> {
    /// Sends the reload before all later orders. False: it could not be sent yet.
    fn reload(&mut self) -> bool {
        self.is_reload_due = !self.send(&PowerRequest::Reload);
        !self.is_reload_due
    }

    /// False: it could not be sent.
    fn run(&mut self, order: CommandOrder) -> bool {
        // A command must not run by a config that is no longer in force.
        (!self.is_reload_due || self.reload()) && self.send(&PowerRequest::Run(order))
    }

    /// A line is written whole or not at all, as it is shorter than `PIPE_BUF` (pipe(7)).
    fn send(&mut self, request: &PowerRequest) -> bool {
        let Ok(line) = serde_json::to_string(request) else { return false };
        self.pipe.write_all(format!("{line}\n").as_bytes()).is_ok()
    }
}

/// Gives [`NodePowers`] the commands, which reloads share.
struct SharedCommands(Arc<RemoteCommands>);

impl PowerCommands for SharedCommands {
    fn run(&self, node: &str, command: PowerCommand, timeout_ms: u64) {
        let remote = &self.0;
        let given_up_at = Instant::now() + Duration::from_millis(timeout_ms + REPORT_MARGIN_MS);
        let node = node.to_owned();
        let number = lock(&remote.progress).begin(RunningCommand {
            node: node.clone(),
            command,
            given_up_at,
        });
        let command = command.word().to_owned();
        let not_after_ms = monotonic_ms() + ORDER_WAIT_MS_MAX;
        let order = CommandOrder { number, node, command, not_after_ms, timeout_ms };
        let is_sent = lock(&remote.orders).run(order);
        let mut progress = lock(&remote.progress);
        if !is_sent || progress.is_gone {
            let why = "could not be run: the process that runs commands accepts no orders";
            progress.end(number, CommandOutcome::NotRun, why.to_owned(), String::new());
        }
    }

    fn take_ended(&self) -> Vec<EndedCommand> {
        let mut progress = lock(&self.0.progress);
        progress.give_up(Instant::now());
        std::mem::take(&mut progress.ended)
    }
}

impl Progress {
    /// Records an order; returns its number.
    fn begin(&mut self, running: RunningCommand) -> u64 {
        self.last += 1;
        self.running.insert(self.last, running);
        self.last
    }

    fn reported(&mut self, report: PowerReport) {
        let PowerReport { number, outcome, how, output } = report;
        self.end(number, outcome, how, output);
    }

    /// Records the end of an order; only the first counts.
    fn end(&mut self, number: u64, outcome: CommandOutcome, how: String, output: String) {
        if let Some(RunningCommand { node, command, .. }) = self.running.remove(&number) {
            self.ended.push(EndedCommand { node, command, outcome, how, output });
        }
    }

    /// Ends orders whose end should have been reported by now.
    fn give_up(&mut self, now: Instant) {
        let is_late = |it: &RunningCommand| now >= it.given_up_at;
        for (_, late) in self.running.extract_if(.., |_, it| is_late(it)) {
            let RunningCommand { node, command, .. } = late;
            let how =
                "was abandoned: the process that runs commands did not report its end".to_owned();
            let (outcome, output) = (CommandOutcome::TimedOut, String::new());
            self.ended.push(EndedCommand { node, command, outcome, how, output });
        }
    }

    /// Ends all running orders, since no more reports will be received.
    fn end_all(&mut self) {
        let why = "is not known to have run: the process that runs commands has ended; restart the dispatcher";
        for RunningCommand { node, command, .. } in std::mem::take(&mut self.running).into_values()
        {
            self.ended.push(EndedCommand::not_run(&node, command, why));
        }
    }
}

fn read_reports(reports: BufReader<ChildStdout>, progress: &Mutex<Progress>) {
    for line in reports.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(report) => lock(progress).reported(report),
            Err(error) => tracing::error!("cannot interpret a report of `skep power`: {error}"),
        }
    }
    let mut progress = lock(progress);
    progress.is_gone = true;
    progress.end_all();
}

/// The agents of nodes that are linked to the coordinator of this process.
struct LinkedAgents(Arc<Coordination>);

impl NodeAgents for LinkedAgents {
    fn want_off(&self, nodes: BTreeSet<String>) -> bool {
        let names = nodes.iter().filter_map(|name| Name::new(name).ok()).collect();
        let sent = self.0.want_off(names);
        if let Err(error) = &sent {
            tracing::warn!("elasticity: {error}");
        }
        sent.is_ok()
    }

    fn stages(&self) -> BTreeMap<String, PowerStage> {
        let stages = self.0.power_stages();
        stages.iter().map(|(name, stage)| (name.to_string(), *stage)).collect()
    }
}

/// What switches the nodes of this process's services.
pub(crate) struct NodeSwitches {
    powers: Arc<NodePowers>,
    commands: Option<Arc<RemoteCommands>>,
}

impl NodeSwitches {
    /// Has `dispatchers` switch their nodes; to be called before they are watched.
    pub(crate) fn start(
        config: &Config,
        runner: Option<PowerRunner>,
        coordination: Option<&Arc<Coordination>>,
        dispatchers: &[Arc<Dispatcher>],
    ) -> anyhow::Result<Self> {
        let commands = runner.map(RemoteCommands::new).transpose()?;
        let agents = coordination.map(|it| Box::new(LinkedAgents(Arc::clone(it))) as Box<_>);
        let shared = commands.as_ref().map(|it| Box::new(SharedCommands(Arc::clone(it))) as Box<_>);
        let powers = NodePowers::new(config, agents, shared);
        dispatchers.iter().for_each(|dispatcher| dispatcher.switch_by(&powers));
        Ok(Self { powers, commands })
    }

    pub(crate) fn register(&self, registry: &Registry, roles: &Roles) {
        if roles.services {
            register_powers(registry, &self.powers);
        }
    }

    /// Applies a new config.
    pub(crate) fn reload(&self, config: &Config) {
        // First: decisions made by the new config must run commands of the new config.
        if let Some(commands) = &self.commands {
            commands.reload();
        }
        self.powers.reload(config);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Records an order that is abandoned at `given_up_at`.
    fn begin(progress: &mut Progress, given_up_at: Instant) -> u64 {
        let (node, command) = ("n1".to_owned(), PowerCommand::On);
        progress.begin(RunningCommand { node, command, given_up_at })
    }

    fn done(number: u64) -> PowerReport {
        let (how, output) = (String::new(), String::new());
        PowerReport { number, outcome: CommandOutcome::Done, how, output }
    }

    fn outcomes(progress: &Progress) -> Vec<CommandOutcome> {
        progress.ended.iter().map(|it| it.outcome).collect()
    }

    #[test]
    fn what_is_not_reported_in_time_is_given_up_and_its_report_is_not_taken_for_that_of_a_later_order()
     {
        let (mut progress, now) = (Progress::default(), Instant::now());
        let late = begin(&mut progress, now + Duration::from_millis(10));
        progress.give_up(now + Duration::from_millis(9));
        assert_eq!(outcomes(&progress), []);
        progress.give_up(now + Duration::from_millis(10));
        let again = begin(&mut progress, now + Duration::from_millis(20));
        progress.reported(done(late));
        assert_eq!(outcomes(&progress), [CommandOutcome::TimedOut]);
        progress.reported(done(again));
        progress.reported(done(again));
        assert_eq!(outcomes(&progress), [CommandOutcome::TimedOut, CommandOutcome::Done]);
    }

    /// A pipe that takes so many lines more.
    struct Pipe {
        lines: Vec<String>,
        room: usize,
    }

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.room = self.room.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
            self.lines.push(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reload_that_does_not_fit_into_the_pipe_is_repeated_before_the_next_order() {
        let pipe = Pipe { lines: Vec::new(), room: 0 };
        let mut orders = Orders { pipe, is_reload_due: false };
        let order = || CommandOrder {
            number: 1,
            node: "n1".to_owned(),
            command: "off".to_owned(),
            not_after_ms: 0,
            timeout_ms: 100,
        };
        assert!(!orders.reload());
        assert!(!orders.run(order()));
        orders.pipe.room = 1;
        assert!(!orders.run(order()), "there is room for one of them");
        orders.pipe.room = 2;
        assert!(orders.run(order()) && orders.run(order()));
        let words: Vec<_> = orders.pipe.lines.iter().map(|it| it.contains("Reload")).collect();
        assert_eq!(words, [true, false, false]);
    }

    #[test]
    fn what_runs_when_the_process_is_gone_has_not_run() {
        let mut progress = Progress::default();
        begin(&mut progress, Instant::now());
        progress.end_all();
        assert_eq!(outcomes(&progress), [CommandOutcome::NotRun]);
        assert!(progress.running.is_empty());
    }
}
