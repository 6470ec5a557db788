//! Switches nodes for elasticity: their agents by the links of the cluster cache, their machines by commands that another
//! process runs.
//!
//! That process (`skep power`) is started while this one may still start programs, as netguard is. It takes orders by its
//! standard input, one a line: the name of a node and of a command. Which program that is it reads in the config itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use skep_cli::this_program;
use skep_config::Config;
use skep_coordinator::Coordination;
use skep_dispatcher::{
    CommandOutcome, Dispatcher, EndedCommand, NodeAgents, NodePowers, PowerCommand, PowerCommands,
    register_powers,
};
use skep_telemetry::Registry;
use skep_wire::cache::PowerStage;
use skep_wire::message::Name;

use crate::roles::Roles;

/// A line to the process that runs commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PowerRequest {
    Run {
        node: String,
        /// `on`, `off` or `status`.
        command: String,
    },
    /// Read the config again.
    Reload,
}

/// A line of it: a command has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerReport {
    pub(crate) node: String,
    pub(crate) command: String,
    /// `done`, `failed`, `timed_out` or `not_run`.
    pub(crate) outcome: String,
    pub(crate) how: String,
    pub(crate) output: String,
}

/// The process that runs commands, before this one reads what it says: that takes a thread.
pub(crate) struct PowerRunner {
    child: Child,
    orders: ChildStdin,
    reports: ChildStdout,
}

impl PowerRunner {
    /// Starts it if this process is to switch machines.
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
            // Ctrl-C at the terminal is for this process.
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

/// Has commands run by that process.
struct RemoteCommands {
    orders: Mutex<ChildStdin>,
    progress: Arc<Mutex<Progress>>,
    /// Ends when its standard input does, however this process ends.
    _child: Child,
}

/// What was ordered, and what came of it.
#[derive(Default)]
struct Progress {
    running: BTreeSet<(String, PowerCommand)>,
    ended: Vec<EndedCommand>,
    is_gone: bool,
}

impl RemoteCommands {
    fn new(runner: PowerRunner) -> anyhow::Result<Arc<Self>> {
        let PowerRunner { child, orders, reports } = runner;
        let progress = Arc::<Mutex<Progress>>::default();
        let heard = Arc::clone(&progress);
        std::thread::Builder::new()
            .name("skep-power".into())
            .spawn(move || hear(BufReader::new(reports), &heard))
            .context("cannot start a thread")?;
        Ok(Arc::new(Self { orders: Mutex::new(orders), progress, _child: child }))
    }

    /// The config was reloaded.
    fn reload(&self) {
        self.send(&PowerRequest::Reload);
    }

    /// False: nobody takes orders any more.
    fn send(&self, request: &PowerRequest) -> bool {
        let Ok(line) = serde_json::to_string(request) else { return false };
        let mut orders = lock(&self.orders);
        writeln!(orders, "{line}").and_then(|()| orders.flush()).is_ok()
    }
}

/// The same for [`NodePowers`], while reloads use it as well.
struct SharedCommands(Arc<RemoteCommands>);

impl PowerCommands for SharedCommands {
    fn run(&self, node: &str, command: PowerCommand) {
        let remote = &self.0;
        lock(&remote.progress).running.insert((node.to_owned(), command));
        let word = command.word().to_owned();
        let is_sent = remote.send(&PowerRequest::Run { node: node.to_owned(), command: word });
        let mut progress = lock(&remote.progress);
        if !is_sent || progress.is_gone {
            progress.end_all();
        }
    }

    fn take_ended(&self) -> Vec<EndedCommand> {
        std::mem::take(&mut lock(&self.0.progress).ended)
    }
}

impl Progress {
    fn reported(&mut self, report: PowerReport) {
        let Some(command) = command_of(&report.command) else { return };
        let PowerReport { node, outcome, how, output, .. } = report;
        if self.running.remove(&(node.clone(), command)) {
            let outcome = match outcome.as_str() {
                "done" => CommandOutcome::Done,
                "timed_out" => CommandOutcome::TimedOut,
                "not_run" => CommandOutcome::NotRun,
                _ => CommandOutcome::Failed,
            };
            self.ended.push(EndedCommand { node, command, outcome, how, output });
        }
    }

    /// Nothing more is heard of what runs.
    fn end_all(&mut self) {
        let why = "could not be run: the process that runs commands is gone, restart this one";
        for (node, command) in std::mem::take(&mut self.running) {
            self.ended.push(EndedCommand::not_run(&node, command, why));
        }
    }
}

fn hear(reports: BufReader<ChildStdout>, progress: &Mutex<Progress>) {
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

/// The agents of nodes that are linked with the coordinator of this process.
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
    /// Has `dispatchers` switch their nodes, before they are watched.
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

    /// Another config is in force.
    pub(crate) fn reload(&self, config: &Config) {
        self.powers.reload(config);
        if let Some(commands) = &self.commands {
            commands.reload();
        }
    }
}

/// The command of that name.
fn command_of(word: &str) -> Option<PowerCommand> {
    let all = [PowerCommand::On, PowerCommand::Off, PowerCommand::Status];
    all.into_iter().find(|command| command.word() == word)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
