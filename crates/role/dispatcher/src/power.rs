//! Switches nodes off and on for all services of this process: their agents, and their machines by commands.
//!
//! ```text
//!   elastic.rs of each service --order--> NodePowers { MachinePower of each node }
//!                                            |              |
//!                           NodeAgents: who is to be off   PowerCommands: which command runs
//! ```
//!
//! **Invariant:** a node is switched off only if all services of this process that use it want it off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use skep_cluster::elasticity::{
    CommandEnd, MachinePower, MachineSeen, MachineSettings, MachineStatus, PowerCommand,
};
use skep_config::{Config, PowerConfig, ServiceConfig};
use skep_units::Now;
use skep_wire::cache::PowerStage;

use crate::limits::{POWER_HAND_OVER_MS, POWER_OUTPUT_SHOWN_MAX};

/// Sends orders to the agents of nodes.
pub trait NodeAgents: Send + Sync {
    /// Orders these nodes to return their memory, and all others not to. Returns false if the order could not
    /// be sent.
    fn want_off(&self, nodes: BTreeSet<String>) -> bool;

    /// Returns the stage reported by each linked node.
    fn stages(&self) -> BTreeMap<String, PowerStage>;
}

/// Runs commands for the machines of nodes, outside of this process.
pub trait PowerCommands: Send + Sync {
    /// Starts a command with a timeout; its result is returned by a later call of
    /// [`PowerCommands::take_ended`].
    fn run(&self, node: &str, command: PowerCommand, timeout_ms: u64);

    /// Returns the commands that have ended since the last call.
    fn take_ended(&self) -> Vec<EndedCommand>;
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedCommand {
    pub node: String,
    pub command: PowerCommand,
    pub outcome: CommandOutcome,
    /// How it ended, as a text.
    pub how: String,
    pub output: String,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOutcome {
    /// It exited with status 0.
    Done,
    Failed,
    TimedOut,
    /// It could not be started.
    NotRun,
}

pub struct NodePowers {
    agents: Option<Box<dyn NodeAgents>>,
    commands: Option<Box<dyn PowerCommands>>,
    state: Mutex<PowersState>,
}

/// See [`NodePowers`].
#[derive(Default)]
struct PowersState {
    /// The nodes of each service that this process serves; the set of services is fixed at its start.
    nodes_of: BTreeMap<String, BTreeSet<String>>,
    /// The services that use each node.
    services_of: BTreeMap<String, BTreeSet<String>>,
    machines: BTreeMap<String, Machine>,
    told_off: BTreeSet<String>,
    counts: BTreeMap<(PowerCommand, CommandOutcome), u64>,
}

/// State of one node's machine.
struct Machine {
    power: MachinePower,
    config: PowerConfig,
    /// Services that want it off.
    wanted_off: BTreeSet<String>,
    /// Services whose health checks of it succeed.
    well: BTreeSet<String>,
    /// Services not yet notified that an order failed.
    failed_for: BTreeSet<String>,
    /// A reload has changed its services while some wanted it off: whether all do is decided anew.
    is_agreement_due: bool,
}

impl NodePowers {
    /// Creates the nodes of a config. Without `agents`, nodes cannot return their memory; without `commands`,
    /// machines stay on.
    pub fn new(
        config: &Config,
        agents: Option<Box<dyn NodeAgents>>,
        commands: Option<Box<dyn PowerCommands>>,
    ) -> Arc<Self> {
        let name = |service: &ServiceConfig| (service.name.clone(), BTreeSet::new());
        let nodes_of = config.services.iter().map(name).collect();
        let state = Mutex::new(PowersState { nodes_of, ..PowersState::default() });
        let powers = Self { agents, commands, state };
        powers.reload(config);
        Arc::new(powers)
    }

    /// Applies a new config. A service that is not in it is served until the restart, with the nodes that it
    /// has.
    pub fn reload(&self, config: &Config) {
        let mut state = self.lock();
        let PowersState { nodes_of, services_of, machines, .. } = &mut *state;
        for service in &config.services {
            if let Some(nodes) = nodes_of.get_mut(&service.name) {
                *nodes = config.nodes_of(service).map(|(_, node)| node.name.clone()).collect();
            }
        }
        let before = std::mem::take(services_of);
        for (service, nodes) in nodes_of {
            for node in &*nodes {
                services_of.entry(node.clone()).or_default().insert(service.clone());
            }
        }
        machines.retain(|name, _| services_of.contains_key(name));
        for (name, machine) in &mut *machines {
            machine.is_agreement_due |=
                !machine.wanted_off.is_empty() && before.get(name) != services_of.get(name);
            // A service that no longer uses the node has no say in it.
            machine.wanted_off.retain(|service| services_of[name].contains(service));
        }
        for node in &config.nodes {
            let power = config.power_of(node);
            match machines.get_mut(&node.name) {
                Some(machine) => machine.reload(power),
                None => _ = machines.insert(node.name.clone(), Machine::new(power)),
            }
        }
    }

    /// Records that a service wants a node on, and switches it on.
    pub(crate) fn order_on(&self, service: &str, node: &str) {
        if let Some(machine) = self.lock().machines.get_mut(node) {
            machine.wanted_off.remove(service);
            machine.failed_for.remove(service);
            machine.power.order_on();
        }
    }

    /// Records that a service no longer needs a node, and switches it off if that holds for all services.
    pub(crate) fn order_off(&self, now: Now, service: &str, node: &str) {
        let mut state = self.lock();
        let PowersState { services_of, machines, .. } = &mut *state;
        let Some(machine) = machines.get_mut(node) else { return };
        machine.wanted_off.insert(service.to_owned());
        machine.failed_for.remove(service);
        if services_of.get(node) == Some(&machine.wanted_off) {
            machine.power.order_off(now);
        }
    }

    /// Returns the nodes that a service does not need.
    pub(crate) fn wanted_off_by(&self, service: &str) -> Vec<String> {
        let state = self.lock();
        let is_it = |(_, machine): &(&String, &Machine)| machine.wanted_off.contains(service);
        state.machines.iter().filter(is_it).map(|(name, _)| name.clone()).collect()
    }

    /// Continues pending orders. `well` contains the nodes of a service whose health checks succeed.
    pub(crate) fn tick(&self, now: Now, service: &str, well: &BTreeSet<String>) {
        let stages = self.agents.as_ref().map(|agents| agents.stages()).unwrap_or_default();
        let mut state = self.lock();
        let ended = self.commands.as_ref().map(|it| it.take_ended()).unwrap_or_default();
        ended.iter().for_each(|ended| state.finished(now, ended));
        let mut not_run = Vec::new();
        let PowersState { services_of, machines, .. } = &mut *state;
        for (name, machine) in machines {
            if std::mem::take(&mut machine.is_agreement_due) {
                match services_of.get(name) == Some(&machine.wanted_off) {
                    true => machine.power.order_off(now),
                    false if machine.power.wants_agent_off() => machine.power.order_on(),
                    false => {}
                }
            }
            machine.set_well(service, well.contains(name));
            let seen =
                MachineSeen { serves: !machine.well.is_empty(), agent: stages.get(name).copied() };
            let Some(command) = machine.power.tick(now, seen) else { continue };
            tracing::debug!("node {name}: command `power.{}` runs", command.word());
            match &self.commands {
                Some(commands) => commands.run(name, command, machine.config.timeout_ms),
                None => not_run.push(EndedCommand::not_run(
                    name,
                    command,
                    "could not be run: commands are run by a process that is started with this one",
                )),
            }
        }
        not_run.iter().for_each(|ended| state.finished(now, ended));
        state.note_failures();
        let wants_off = |(name, machine): (&String, &Machine)| {
            machine.power.wants_agent_off().then(|| name.clone())
        };
        let off: BTreeSet<_> = state.machines.iter().filter_map(wants_off).collect();
        if let Some(agents) = &self.agents
            && off != state.told_off
        {
            // If sending fails, the next tick sends it again.
            if agents.want_off(off.clone()) {
                state.told_off = off;
            }
        }
    }

    /// Whether the machine of a node is off, or still on only because other services need it; `None`: no
    /// command switches it.
    pub(crate) fn is_off(&self, service: &str, node: &str) -> Option<bool> {
        let state = self.lock();
        let machine = state.machines.get(node).filter(|it| !it.config.off.is_empty())?;
        let is_wanted = state.services_of.get(node) != Some(&machine.wanted_off);
        Some(machine.power.is_off() || (is_wanted && machine.wanted_off.contains(service)))
    }

    /// Whether the machine of a node is starting up because of a command.
    pub(crate) fn is_coming(&self, node: &str) -> bool {
        let state = self.lock();
        let machine = state.machines.get(node).filter(|it| !it.config.on.is_empty());
        machine.is_some_and(|machine| machine.power.is_coming())
    }

    /// Whether the last order of a service failed; returns true only once per failure.
    pub(crate) fn take_failed(&self, service: &str, node: &str) -> bool {
        self.lock().machines.get_mut(node).is_some_and(|it| it.failed_for.remove(service))
    }

    /// Returns a text for operators on a node, shown after the state of elasticity.
    pub(crate) fn text(&self, node: &str) -> Option<String> {
        let text = self.lock().machines.get(node)?.power.to_string();
        (!text.is_empty()).then_some(text)
    }

    /// Returns the longest time that a node may take to be off after the order, in milliseconds; `None`: no
    /// command switches any node.
    pub(crate) fn stop_timeout_ms(&self) -> Option<u64> {
        let state = self.lock();
        let switched = state.machines.values().filter(|machine| !machine.config.off.is_empty());
        let needs_ms = |it: &PowerConfig| POWER_HAND_OVER_MS + it.timeout_ms + it.off_timeout_ms;
        switched.map(|machine| needs_ms(&machine.config)).max()
    }

    /// Returns the number of ended commands by result.
    pub(crate) fn counts(&self) -> BTreeMap<(PowerCommand, CommandOutcome), u64> {
        self.lock().counts.clone()
    }

    fn lock(&self) -> MutexGuard<'_, PowersState> {
        // The next tick corrects any state that a panic left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PowersState {
    fn finished(&mut self, now: Now, ended: &EndedCommand) {
        let EndedCommand { node, command, outcome, how, output } = ended;
        *self.counts.entry((*command, *outcome)).or_default() += 1;
        let word = command.word();
        let shown = shown(output);
        match (outcome, command) {
            (CommandOutcome::Done, PowerCommand::Status) => {
                tracing::debug!("node {node}: command `power.{word}` {how}{shown}");
            }
            (CommandOutcome::Done, _) => {
                tracing::info!("node {node}: command `power.{word}` {how}{shown}");
            }
            _ => tracing::warn!("node {node}: command `power.{word}` {how}{shown}"),
        }
        let Some(machine) = self.machines.get_mut(node) else { return };
        let (on_words, off_words) = (&machine.config.on_words, &machine.config.off_words);
        let end = match outcome {
            CommandOutcome::Done => {
                CommandEnd::Done(MachineStatus::read(output, on_words, off_words))
            }
            _ => CommandEnd::Failed,
        };
        machine.power.finished(now, *command, end);
    }

    fn note_failures(&mut self) {
        for (name, machine) in &mut self.machines {
            if machine.power.take_failed() {
                tracing::warn!("node {name}: {}", machine.power);
                machine.failed_for = self.services_of.get(name).cloned().unwrap_or_default();
            }
        }
    }
}

impl Machine {
    fn new(config: &PowerConfig) -> Self {
        Self {
            power: MachinePower::new(settings(config)),
            config: config.clone(),
            wanted_off: BTreeSet::new(),
            well: BTreeSet::new(),
            failed_for: BTreeSet::new(),
            is_agreement_due: false,
        }
    }

    fn reload(&mut self, config: &PowerConfig) {
        self.power.set_settings(settings(config));
        self.config = config.clone();
    }

    fn set_well(&mut self, service: &str, is_well: bool) {
        match is_well {
            true if !self.well.contains(service) => _ = self.well.insert(service.to_owned()),
            true => {}
            false => _ = self.well.remove(service),
        }
    }
}

impl EndedCommand {
    /// Returns the end of a command that could not be started, with the reason.
    pub fn not_run(node: &str, command: PowerCommand, how: &str) -> Self {
        let (node, how) = (node.to_owned(), how.to_owned());
        Self { node, command, outcome: CommandOutcome::NotRun, how, output: String::new() }
    }
}

impl CommandOutcome {
    /// Returns the name used in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::NotRun => "not_run",
        }
    }
}

fn settings(config: &PowerConfig) -> MachineSettings {
    MachineSettings {
        has_on: !config.on.is_empty(),
        has_off: !config.off.is_empty(),
        has_status: !config.status.is_empty(),
        status_interval_ms: config.status_interval_ms,
        off_timeout_ms: config.off_timeout_ms,
    }
}

/// Returns the beginning of a command's output, on one line.
fn shown(output: &str) -> String {
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    let kept: String = words.chars().take(POWER_OUTPUT_SHOWN_MAX).collect();
    match (kept.is_empty(), kept.len() < words.len()) {
        (true, _) => String::new(),
        (false, true) => format!(": {}...", kept.escape_debug()),
        (false, false) => format!(": {}", kept.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Records the orders sent; the first attempt to send fails.
    #[derive(Default)]
    struct Agents(Mutex<Vec<BTreeSet<String>>>);

    impl NodeAgents for Arc<Agents> {
        fn want_off(&self, nodes: BTreeSet<String>) -> bool {
            let mut told = self.0.lock().unwrap();
            told.push(nodes);
            told.len() > 1
        }

        fn stages(&self) -> BTreeMap<String, PowerStage> {
            BTreeMap::new()
        }
    }

    fn config(services: &[&str]) -> Config {
        let mut text =
            "[[dispatcher]]\nname = 'd1'\n[[node]]\nname = 'n1'\naddress = '127.0.0.1:8001'\n\
                        [[site]]\nroot = '/srv'\n"
                .to_owned();
        for (number, service) in services.iter().enumerate() {
            text += &format!("[[service]]\nname = '{service}'\nlisten = '127.0.0.1:900{number}'\n");
        }
        Config::parse("test", &text).unwrap()
    }

    #[test]
    fn a_node_is_off_when_all_services_that_are_served_want_it_whatever_a_reload_drops_or_adds() {
        let agents = Arc::<Agents>::default();
        let boxed = Box::new(Arc::clone(&agents));
        let powers = NodePowers::new(&config(&["a", "b"]), Some(boxed), None);
        let tick = |at| powers.tick(Now(at), "a", &BTreeSet::new());
        let told = || agents.0.lock().unwrap().len();
        // This process serves "b" until the restart; "c" is served only after it.
        powers.reload(&config(&["a", "c"]));
        powers.order_off(Now(0), "a", "n1");
        tick(0);
        assert_eq!(told(), 0);
        powers.order_off(Now(100), "b", "n1");
        tick(100);
        assert_eq!(told(), 1);
        tick(200);
        assert_eq!(told(), 2, "what could not be sent is sent again");
        tick(300);
        assert_eq!(told(), 2);
        assert_eq!(agents.0.lock().unwrap()[1], BTreeSet::from(["n1".to_owned()]));
    }

    /// `web` uses n1; `other` uses it, or n2 alone.
    fn config_where(other_uses_it: bool) -> Config {
        let nodes = |is_n1| if is_n1 { "['n1']" } else { "['n2']" };
        let mut text = "[[dispatcher]]\nname = 'd1'\n[[site]]\nroot = '/srv'\n".to_owned();
        for number in 1..=2 {
            text += &format!("[[node]]\nname = 'n{number}'\naddress = '127.0.0.{number}:8001'\n");
        }
        for (service, port, uses_it) in [("web", 9001, true), ("other", 9002, other_uses_it)] {
            let nodes = nodes(uses_it);
            text += &format!(
                "[[service]]\nname = '{service}'\nlisten = '127.0.0.1:{port}'\nnodes = {nodes}\n"
            );
        }
        Config::parse("test", &text).unwrap()
    }

    #[test]
    fn a_reload_of_the_nodes_of_a_service_decides_anew_whether_all_want_it_off() {
        let agents = Arc::<Agents>::default();
        // The first one is not accepted.
        agents.0.lock().unwrap().push(BTreeSet::new());
        let boxed = Box::new(Arc::clone(&agents));
        let powers = NodePowers::new(&config_where(true), Some(boxed), None);
        let told = |at| {
            powers.tick(Now(at), "web", &BTreeSet::from(["n1".to_owned()]));
            agents.0.lock().unwrap().last().cloned().unwrap()
        };
        powers.order_off(Now(0), "web", "n1");
        assert!(told(0).is_empty(), "the other service uses it");
        powers.reload(&config_where(false));
        assert_eq!(told(100), BTreeSet::from(["n1".to_owned()]), "nobody else does");
        powers.reload(&config_where(true));
        assert!(told(200).is_empty(), "it is used again");
    }
}
