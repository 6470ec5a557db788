//! Handoffs in this process: the mover, and what each worker needs for it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use skep_agent::Agent;
use skep_config::{Config, DispatchMode, HandoffTransport, ServiceConfig};
use skep_console::HandoffCount;
use skep_distributor::{
    ArmCounters, ArrivalQueue, Chooser, HandoffCounters, HandoffOutcome, HandoffSettings, Mover,
    MoverParts, NodesView, WorkerDistributor, handoff_outcomes, register_handoff_datagrams,
    register_handoffs,
};
use skep_guard::HandoffGuard;
use skep_peer::{Counts, LccpSettings, LccpSocket, LccpTransport, Watchdog};
use skep_serve::{Admission, Worker};
use skep_telemetry::Registry;
use skep_wire::guard::Side;
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::{HandoffOrder, HandoffResult};
use skep_wire::handoff::lccp::QueryKey;
use skep_wire::seal::{Key, PeerId};

/// The mover of the node of this process.
pub(crate) struct Handoffs {
    name: String,
    mover: Mover,
    /// By worker, until the worker takes its own.
    arrivals: Mutex<Vec<Option<ArrivalQueue>>>,
    nodes: NodesView,
    /// Addresses of the services with handoff.
    addresses: Vec<SocketAddr>,
    settings: HandoffSettings,
    counters: Arc<HandoffCounters>,
    /// Counts of LCCP's datagrams.
    datagrams: Arc<Counts>,
}

/// What handoffs need from the rest of the process.
pub(crate) struct HandoffParts<'a> {
    pub(crate) name: &'a str,
    pub(crate) guard: HandoffGuard,
    pub(crate) key: &'a Key,
    pub(crate) agent: &'a Agent,
    pub(crate) admission: Arc<Admission>,
    pub(crate) workers: usize,
    pub(crate) on_guard_gone: Box<dyn Fn() + Send>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) arm_counters: Arc<ArmCounters>,
}

impl Handoffs {
    /// Starts the mover.
    pub(crate) fn start(config: &Config, parts: HandoffParts<'_>) -> anyhow::Result<Arc<Self>> {
        let HandoffParts { name, mut guard, key, agent, admission, workers, .. } = parts;
        let node = config.node(name).context("the config has no such node")?;
        let own = lccp_address(config, node.agent_address());
        let mut lccp = lccp(config, (name, own), key, (&mut guard, Side::Node))?;
        let mut dispatchers = HashMap::new();
        for (dispatcher, address) in
            config.dispatchers.iter().filter_map(|it| Some((&it.name, it.address?)))
        {
            let named = dispatcher_name(dispatcher);
            lccp.set_peer(&named, dispatcher_address(config, address));
            dispatchers.insert(PeerId::of(dispatcher), PeerId::of(&named));
        }
        let agents = config.nodes.iter().map(|node| (node.name.clone(), node.agent_address()));
        let nodes = NodesView {
            table: Arc::clone(agent.table()),
            digest: Arc::clone(agent.digest()),
            served: Arc::clone(agent.served()),
            memory_bytes: config.cache.size_bytes_max,
            arms: Arc::clone(agent.arms()),
            arm_counters: parts.arm_counters,
            active: Arc::clone(agent.active()),
            agents: Arc::new(
                agents.map(|(name, agent)| (name, lccp_address(config, agent))).collect(),
            ),
        };
        let (counters, datagrams) = (Arc::<HandoffCounters>::default(), lccp.counts());
        let (mover, arrivals) = Mover::start(MoverParts {
            name: name.to_owned(),
            guard,
            lccp,
            nodes: nodes.clone(),
            own_dispatcher: dispatchers.get(&PeerId::of(name)).copied(),
            dispatchers,
            admission,
            workers,
            ready_timeout_ms: config.handoff.ready_timeout_ms,
            on_guard_gone: parts.on_guard_gone,
            counters: Arc::clone(&counters),
            watchdog: parts.watchdog,
        })
        .context("cannot start the mover of connections")?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            mover,
            arrivals: Mutex::new(arrivals.into_iter().map(Some).collect()),
            nodes,
            addresses: addresses(config.steered_services_of(name)),
            settings: HandoffSettings::of(config),
            counters,
            datagrams,
        }))
    }

    /// The distributor of a worker; `seed` drives its policies.
    pub(crate) fn distributor(&self, seed: u64, worker: &Rc<Worker>) -> Rc<WorkerDistributor> {
        let (addresses, settings) = (self.addresses.clone(), self.settings);
        let (nodes, mover) = (&self.nodes, &self.mover);
        let own = WorkerDistributor::new(&self.name, addresses, nodes, mover, settings, seed);
        let own = Rc::new(own);
        own.watch(worker);
        own
    }

    /// The connections that arrive for the worker with this index; can be taken once.
    pub(crate) fn arrivals(&self, worker: usize) -> Option<ArrivalQueue> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.get_mut(worker)?.take()
    }

    /// Addresses of the services with handoff.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Accepts no more connections from other nodes.
    pub(crate) fn leave(&self) {
        self.mover.leave();
    }

    /// The outcomes of connections handed off to other nodes, and of those received from them.
    pub(crate) fn shown(&self) -> [Vec<HandoffCount>; 2] {
        let count = |(outcome, connections): HandoffOutcome| HandoffCount {
            outcome: outcome.to_owned(),
            connections,
        };
        handoff_outcomes(&self.counters).map(|it| it.into_iter().map(count).collect())
    }

    /// Registers the mover's metrics.
    pub(crate) fn register(&self, registry: &Registry) {
        register_handoffs(registry, &self.counters);
        register_handoff_datagrams(registry, &self.datagrams);
    }
}

/// What a dispatcher needs to decide for nodes, and to receive reports of moved connections.
pub(crate) fn dispatcher_parts(
    config: &Config,
    name: &str,
    key: &Key,
    guard: &mut HandoffGuard,
    seed: u64,
) -> anyhow::Result<skep_steering::LccpServerParts> {
    let own = config.dispatcher(name).and_then(|it| it.address);
    let own = own.context("the dispatcher has no address")?;
    let port = config.handoff.port;
    let own = dispatcher_address(config, own);
    let socket = lccp(config, (&dispatcher_name(name), own), key, (guard, Side::Dispatch))?;
    let nodes = NodesView {
        table: Arc::default(),
        digest: Arc::default(),
        served: Arc::default(),
        memory_bytes: config.cache.size_bytes_max,
        arms: Arc::default(),
        // A/B tests are counted where requests are answered, not here.
        arm_counters: Arc::default(),
        active: Arc::default(),
        agents: Arc::default(),
    };
    let addresses = addresses(config.steered_services().map(|(_, service)| service));
    let mut chooser = Chooser::new(name.into(), &nodes, addresses, seed);
    let decide = move |socket: &SocketId, key: &QueryKey| {
        let mut parts = key.target().splitn(2, |byte| *byte == b'?');
        let target = (parts.next().unwrap_or_default(), parts.next());
        chooser.pick(key.host(), target, *socket, skep_agent::now())
    };
    let NodesView { table, digest, served, arms, .. } = nodes;
    let decide = Box::new(decide);
    Ok(skep_steering::LccpServerParts { socket, decide, table, digest, served, arms, port })
}

/// Addresses of those services that use handoff.
pub(crate) fn addresses<'a>(services: impl Iterator<Item = &'a ServiceConfig>) -> Vec<SocketAddr> {
    let services = services.filter(|service| service.dispatch == DispatchMode::Handoff);
    services.flat_map(|service| service.listen.clone()).collect()
}

/// Opens the socket by which movers communicate with each other and with dispatchers.
fn lccp(
    config: &Config,
    (name, address): (&str, SocketAddr),
    key: &Key,
    (guard, side): (&mut HandoffGuard, Side),
) -> anyhow::Result<LccpSocket> {
    let transport = match config.handoff.transport {
        HandoffTransport::Ip => LccpTransport::Raw(control_socket(guard, side)?),
        HandoffTransport::Udp => LccpTransport::Udp(address),
    };
    let settings = LccpSettings {
        key: key.clone(),
        cluster: config.cluster.clone(),
        name: name.to_owned(),
        clock: skep_agent::now,
    };
    Ok(LccpSocket::open(transport, &settings)?)
}

/// The name of a dispatcher in LCCP: a node of the same name has a socket of its own.
fn dispatcher_name(name: &str) -> String {
    format!("{name}/dispatcher")
}

/// The LCCP address of the dispatcher with this address; it differs from that of a node on the same machine.
fn dispatcher_address(config: &Config, address: SocketAddr) -> SocketAddr {
    (address.ip(), config.handoff.port.saturating_add(1)).into()
}

/// The LCCP address of the machine with this agent.
fn lccp_address(config: &Config, agent: SocketAddr) -> SocketAddr {
    (agent.ip(), config.handoff.port).into()
}

fn control_socket(guard: &mut HandoffGuard, side: Side) -> anyhow::Result<std::os::fd::OwnedFd> {
    let mut answers = guard.ask(&[(HandoffOrder::OpenControlSocket(side), None)])?;
    let answer = answers.pop().context("netguard gave no answer")?;
    match (answer.result, answer.socket) {
        (HandoffResult::Created, Some(socket)) => Ok(socket),
        (HandoffResult::Refused(why), _) => anyhow::bail!("no socket for handoffs: {why}"),
        _ => anyhow::bail!("netguard gave no socket for handoffs"),
    }
}
