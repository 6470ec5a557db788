//! Direct dispatch in this process: the netguard beside it, the dispatcher's part, the node's part, and the
//! end of this process if netguard is lost.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use skep_agent::{Agent, AgentParts, ReportSource, register_agent};
use skep_config::{Config, DispatchMode};
use skep_console::{ControlError, DirectPeer, DirectStatus, NodeBehind, PacketCount};
use skep_dispatcher::{Dispatcher, NodeLoads};
use skep_distributor::ArmCounters;
use skep_guard::HandoffGuard;
use skep_peer::Watchdog;
use skep_serve::Admission;
use skep_steering::{Direct, DirectParts, OnTerm, register_direct, register_store};
use skep_telemetry::{Registry, register_netguard_messages};
use skep_wire::guard::{Order, PacketCounters};
use skep_wire::seal::Key;
use skep_wire::steer::{Count, Verdict};

use crate::failure;
use crate::handoff::{self, HandoffParts, Handoffs};
use crate::netguard_handle::NetguardHandle;
use crate::roles::Roles;
use crate::seed::seed;
use crate::stores::Stores;

/// Direct dispatch in this process: netguard, the dispatcher's part and the node's part; empty if there is
/// none.
#[derive(Default)]
pub(crate) struct DirectDispatch {
    netguard: Option<Arc<NetguardHandle>>,
    key: Option<Key>,
    direct: Option<Arc<Direct>>,
    /// Taken when handoffs start.
    handoff_guard: Option<HandoffGuard>,
    handoffs: Option<Arc<Handoffs>>,
    agent: Option<Arc<Agent>>,
    /// Virtual addresses at which the node of this process listens as well.
    node_addresses: Vec<SocketAddr>,
}

/// The content of heartbeats, and the receivers of their content.
pub(crate) struct Reports {
    /// Provides the load of this process's node, if it has one.
    pub(crate) source: Option<ReportSource>,
    /// Receives the nodes' loads.
    pub(crate) loads: Arc<NodeLoads>,
    /// Called with the active dispatcher.
    pub(crate) on_term: OnTerm,
    /// Watches the threads.
    pub(crate) watchdog: Arc<Watchdog>,
}

/// Removes what a start has added to this machine, and nothing else.
pub(crate) struct Undo(Option<Arc<NetguardHandle>>);

impl Undo {
    pub(crate) fn run(&self) {
        let aborted = self.0.as_ref().map(|netguard| netguard.guard.ask(&Order::Abort));
        if let Some(Err(error)) = aborted {
            tracing::warn!("cleanup after the failed start was incomplete: {error}");
        }
    }
}

impl DirectDispatch {
    /// Runs before listeners are bound: starts netguard, and adds virtual addresses to a node.
    pub(crate) fn prepare(
        config: &Config,
        roles: &Roles,
        file: Option<&Path>,
        key: Option<&Key>,
    ) -> anyhow::Result<Self> {
        let is_direct = config.steered_services().next().is_some();
        let (Some(key), Some(file)) = (key.filter(|_| is_direct), file) else {
            return Ok(Self::default());
        };
        let netguard = Arc::new(NetguardHandle::start(config, file, &roles.name)?);
        let undo = Undo(Some(Arc::clone(&netguard)));
        let (mut node_addresses, mut handoff_guard) = (Vec::new(), None);
        if let Some(name) = &roles.node {
            Agent::hold_addresses(&netguard.guard).inspect_err(|_| undo.run())?;
            node_addresses = addresses_of(config, name);
        }
        if config.hands_off() {
            let connected = HandoffGuard::connect(&netguard.handoff_socket);
            handoff_guard = Some(connected.inspect_err(|_| undo.run())?);
        }
        let (netguard, key) = (Some(netguard), Some(key.clone()));
        Ok(Self { netguard, key, node_addresses, handoff_guard, ..Self::default() })
    }

    /// What to undo if the start fails.
    pub(crate) fn undo(&self) -> Undo {
        Undo(self.netguard.clone())
    }

    /// Virtual addresses at which the node of this process listens as well.
    pub(crate) fn node_addresses(&self) -> &[SocketAddr] {
        &self.node_addresses
    }

    /// Runs after listeners are bound: starts the dispatcher's and the node's part.
    pub(crate) fn start(
        mut self,
        config: &Config,
        roles: &Roles,
        dispatchers: &[Arc<Dispatcher>],
        registry: &Arc<Registry>,
        reporting: Reports,
    ) -> anyhow::Result<Self> {
        let (Some(netguard), Some(key)) = (&self.netguard, &self.key) else { return Ok(self) };
        let Reports { source, loads, on_term, watchdog } = reporting;
        let guard = Arc::clone(&netguard.guard);
        register_netguard_messages(registry, move || guard.messages_dropped());
        if let (Some(name), Some(source)) = (&roles.node, source) {
            let parts = AgentParts {
                name: name.clone(),
                key: key.clone(),
                guard: Arc::clone(&netguard.guard),
                source,
                on_drained: Box::new(|is_drained| {
                    let what = if is_drained { "no new connections" } else { "new connections" };
                    tracing::info!("this node serves {what}");
                }),
                on_guard_gone: Box::new(end_without_guard),
                watchdog: Arc::clone(&watchdog),
            };
            let agent = Arc::new(Agent::start(config, parts)?);
            register_agent(registry, &agent);
            self.agent = Some(agent);
        }
        if let Some(dispatcher) = roles.own_dispatcher(config) {
            let stores = Stores::open(config, &dispatcher.name)?;
            let (last_epoch, local, shared_store) =
                (stores.last_epoch(), stores.local, stores.shared);
            let is_shared = shared_store.is_some();
            let handoffs = self.handoff_guard.as_mut().map(|guard| {
                handoff::dispatcher_parts(config, &dispatcher.name, key, guard, seed())
            });
            let parts = DirectParts {
                name: dispatcher.name.clone(),
                key: key.clone(),
                guard: Arc::clone(&netguard.guard),
                dispatchers: dispatchers.to_vec(),
                last_epoch,
                local_store: local,
                on_guard_gone: Box::new(end_without_guard),
                watchdog,
                loads,
                on_term,
                shared_store,
                handoffs: handoffs.transpose()?,
            };
            let direct = Arc::new(Direct::start(config, parts)?);
            register_direct(registry, &direct);
            if is_shared {
                register_store(registry, &direct);
            }
            self.direct = Some(direct);
        }
        Ok(self)
    }

    /// Starts handing off connections and accepting those of other nodes, with this number of workers.
    pub(crate) fn start_handoffs(
        &mut self,
        config: &Config,
        roles: &Roles,
        (admission, workers): (&Arc<Admission>, usize),
        (watchdog, arm_counters): (&Arc<Watchdog>, &Arc<ArmCounters>),
    ) -> anyhow::Result<()> {
        let Some(guard) = self.handoff_guard.take() else { return Ok(()) };
        let (Some(name), Some(key), Some(agent)) = (&roles.node, &self.key, &self.agent) else {
            return Ok(());
        };
        let parts = HandoffParts {
            name,
            guard,
            key,
            agent,
            admission: Arc::clone(admission),
            workers,
            on_guard_gone: Box::new(end_without_guard),
            watchdog: Arc::clone(watchdog),
            arm_counters: Arc::clone(arm_counters),
        };
        self.handoffs = Some(Handoffs::start(config, parts)?);
        Ok(())
    }

    /// The mover of connections, if this process has one.
    pub(crate) fn handoffs(&self) -> Option<&Arc<Handoffs>> {
        self.handoffs.as_ref()
    }

    /// Applies a new config.
    pub(crate) fn reload(&self, config: &Config, roles: &Roles) -> anyhow::Result<()> {
        if let (Some(_), Some(name)) = (&self.agent, &roles.node)
            && addresses_of(config, name) != self.node_addresses
        {
            tracing::warn!(
                "this node is now behind other services; it takes effect at the next restart"
            );
        }
        if let (Some(_), Some(name)) = (&self.agent, &roles.node) {
            let own = self.handoffs.as_ref().map_or(&[][..], |it| it.addresses());
            if handoff::addresses(config.steered_services_of(name)) != own {
                tracing::warn!(
                    "connections of other services than before are to be handed off; it takes effect at the \
                     next restart"
                );
            }
        }
        if let (Some(direct), Some(key)) = (&self.direct, &self.key) {
            direct.reload(config, key)?;
        }
        Ok(())
    }

    /// Waits until no new connections are steered to a node that was drained.
    ///
    /// # Errors
    /// New connections are still steered to it.
    pub(crate) fn await_drained(&self, node: &str) -> Result<(), ControlError> {
        if self.direct.as_ref().is_none_or(|direct| direct.await_drained(node)) {
            return Ok(());
        }
        let what = format!(
            "{node} drains, but netguard does not answer and new connections may still be steered \
             there; it is told as soon as it listens: `skep status` says what is wrong, `skep node \
             drain {node}` looks again"
        );
        Err(ControlError::Unavailable { what })
    }

    /// The state to display, if this process takes part in direct dispatch.
    pub(crate) fn status(&self) -> Option<DirectStatus> {
        let handoffs = self.handoffs.as_ref().map(|it| it.shown());
        let [handoffs, handoffs_received] = handoffs.unwrap_or_default();
        if let Some(direct) = &self.direct {
            let shown = direct.status();
            let peer = |peer: skep_steering::PeerStatus| DirectPeer {
                name: peer.name,
                stage: peer.stage,
                silent_ms: peer.silent_ms,
            };
            let behind = shown.nodes_behind.iter().filter(|(_, tables)| *tables > 0);
            let behind =
                behind.map(|(node, tables)| NodeBehind { node: node.to_string(), tables: *tables });
            return Some(DirectStatus {
                stage: shown.stage,
                epoch: shown.epoch,
                active: shown.active,
                table_generation: shown.table_generation,
                has_addresses: shown.has_addresses,
                nodes_behind: behind.collect(),
                flows_synced: shown.flows_synced,
                attached: shown.attached,
                device: shown.device,
                store: shown.store,
                peers: shown.peers.into_iter().map(peer).collect(),
                packets: packets(&direct.counters()),
                handoffs,
                handoffs_received,
                complaints: shown.complaints,
            });
        }
        let agent = self.agent.as_ref()?;
        let status = agent.status();
        Some(DirectStatus {
            stage: "node".to_owned(),
            table_generation: status.table_generation,
            attached: agent.opened().how.clone(),
            device: agent.opened().device.clone(),
            packets: packets(&agent.counters()),
            complaints: status.complaints,
            handoffs,
            handoffs_received,
            ..DirectStatus::default()
        })
    }

    /// Has another dispatcher take over before this process stops accepting.
    pub(crate) fn leave(&self) {
        if let Some(handoffs) = &self.handoffs {
            handoffs.leave();
        }
        if let Some(agent) = &self.agent {
            agent.leave();
        }
        if let Some(direct) = &self.direct {
            direct.leave(failure::outcome().is_err());
        }
    }
}

/// The virtual addresses at which a node listens.
fn addresses_of(config: &Config, node: &str) -> Vec<SocketAddr> {
    config.steered_services_of(node).flat_map(|service| service.listen.iter().copied()).collect()
}

/// The verdicts that at least one packet had.
fn packets(counters: &PacketCounters) -> Vec<PacketCount> {
    let met = counters.verdicts.iter().filter(|(_, count)| count.packets > 0);
    let count = |(verdict, count): &(Verdict, Count)| PacketCount {
        verdict: verdict.name().to_owned(),
        packets: count.packets,
        bytes: count.bytes,
    };
    met.map(count).collect()
}

/// The config as used by a node: the node names itself in responses that pass no dispatcher, that is with all
/// modes but `proxy`.
pub(crate) fn config_of_node(config: &Config, roles: &Roles) -> Config {
    let mut config = config.clone();
    let is_named = |name: &String| {
        let mut unseen = config.services.iter().filter(|it| it.dispatch != DispatchMode::Proxy);
        unseen.any(|it| it.node_header && config.nodes_of(it).any(|(_, node)| node.name == *name))
    };
    if let Some(name) = roles.node.as_ref().filter(|name| is_named(name)) {
        for site in &mut config.sites {
            site.headers.push(("X-Skep-Node".to_owned(), name.clone()));
        }
    }
    config
}

/// Ends this process, since nothing can be changed without netguard: the supervisor restarts both.
fn end_without_guard() {
    failure::fail("connection to netguard lost");
}

/// The cluster's key, if this config needs it. Read once, while this process may read it.
pub(crate) fn cluster_key(config: &Config) -> anyhow::Result<Option<Key>> {
    let is_direct = config.steered_services().next().is_some();
    // Session cookies work without a key, but reveal more.
    let is_of_use = config.key_file.is_some() && !config.pools.is_empty();
    let is_needed = is_direct || config.cooperates() || config.reports_load() || is_of_use;
    is_needed.then(|| read_key(config)).transpose()
}

fn read_key(config: &Config) -> anyhow::Result<Key> {
    let Some(path) = &config.key_file else { bail!("the config has no `key_file`") };
    let text = std::fs::read_to_string(path)
        .with_context(|| {
        let path = path.display();
        format!("cannot read the cluster's key {path}: make one with `openssl rand -hex 32 > {path}`, the same for all machines")
    })?;
    warn_if_open(path);
    Key::from_text(&text).with_context(|| format!("{} holds no key", path.display()))
}

fn warn_if_open(path: &Path) {
    let open = std::fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o007 != 0);
    if open {
        let path = path.display();
        tracing::warn!("the cluster key {path} is readable by all users: chmod o= {path}");
    }
}
