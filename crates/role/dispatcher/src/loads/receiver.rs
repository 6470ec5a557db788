//! Receives the loads of nodes if no heartbeats carry them: a socket, and a thread that waits only for it.
//! Dispatchers use the same socket to exchange the clients of A/B tests.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use skep_comparison::limits::SWEEP_MS as TELL_MS;
use skep_config::{Config, DispatcherConfig};
use skep_peer::{
    BindError, Counts, RealtimeWork, Received, Socket, SocketSettings, Waker, spawn_realtime_thread,
};
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::message::{Message, Name};
use skep_wire::seal::{Key, PeerId};

use crate::limits::LOAD_RECEIVER_WAIT_MS;
use crate::loads::node_loads::NodeLoads;
use crate::service::Dispatcher;

/// Receives the load reports of nodes, on its own thread, until it is dropped.
pub struct LoadReceiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    waker: Waker,
}

/// Loads of nodes cannot be received.
#[derive(Debug, thiserror::Error)]
pub enum LoadReceiverError {
    /// The config has no such dispatcher, or none with an address.
    #[error("the config has no dispatcher {0:?} with an `address`")]
    NoSuchDispatcher(String),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the address where nodes' loads are received is unknown: {0}")]
    Address(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

struct Shared {
    /// The nodes from which reports are accepted; replaced by a reload.
    nodes: ArcSwap<Nodes>,
    /// The services whose A/B tests are shared with the other dispatchers.
    services: Vec<Arc<Dispatcher>>,
    stop: AtomicBool,
}

/// The nodes of a config, and the addresses of their agents.
type Nodes = BTreeMap<PeerId, (Name, SocketAddr)>;

impl LoadReceiver {
    /// Starts to listen at the address of the dispatcher `name`.
    ///
    /// # Errors
    /// The dispatcher has no address, or it cannot be bound.
    pub fn start(
        config: &Config,
        name: &str,
        key: &Key,
        loads: &Arc<NodeLoads>,
        services: &[Arc<Dispatcher>],
    ) -> Result<Self, LoadReceiverError> {
        let address = config.dispatcher(name).and_then(|dispatcher| dispatcher.address);
        let mut socket = Socket::bind(&SocketSettings {
            address: address.ok_or_else(|| LoadReceiverError::NoSuchDispatcher(name.to_owned()))?,
            key: key.clone(),
            cluster: config.cluster.clone(),
            name: name.to_owned(),
            clock: now,
        })?;
        let address = socket.address().map_err(LoadReceiverError::Address)?;
        let others = others(config, name);
        others.iter().for_each(|(other, _, address)| socket.set_peer(other, *address));
        let others: Vec<PeerId> = others.into_iter().map(|(_, peer, _)| peer).collect();
        let (counts, waker) = (socket.counts(), socket.waker());
        let shared = Arc::new(Shared {
            nodes: ArcSwap::from_pointee(nodes(config)),
            services: services.to_vec(),
            stop: AtomicBool::new(false),
        });
        let (heard, loads) = (Arc::clone(&shared), Arc::clone(loads));
        // Loads that wait behind other work would be stale when they matter most.
        spawn_realtime_thread("skep-load-recv", RealtimeWork::Heartbeats, move |priority| {
            tracing::debug!("load reports are received with {priority}");
            listen(socket, &heard, &loads, &others);
        })
        .map_err(LoadReceiverError::Thread)?;
        Ok(Self { address, shared, counts, waker })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts reports of the nodes of a new config.
    pub fn reload(&self, config: &Config) {
        self.shared.nodes.store(Arc::new(nodes(config)));
        self.waker.wake();
    }

    /// Datagrams received, sent and refused.
    pub fn datagrams(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for LoadReceiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

fn listen(mut socket: Socket, shared: &Shared, loads: &NodeLoads, others: &[PeerId]) {
    let mut told_at = now();
    let mut nodes = Arc::<Nodes>::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let latest = shared.nodes.load_full();
        if !Arc::ptr_eq(&latest, &nodes) {
            nodes.values().for_each(|(name, _)| socket.forget_peer(name.as_str()));
            for (name, address) in latest.values() {
                socket.set_peer(name.as_str(), *address);
            }
            nodes = latest;
        }
        let wait = Duration::from_millis(tell_clients(&mut socket, shared, others, &mut told_at));
        match socket.receive(wait) {
            Ok(Some(Received { from, stamp, message, .. })) => match (nodes.get(&from), message) {
                (Some((name, _)), Message::Load(load)) => loads.hear(name, Some(stamp), load),
                (Some((name, _)), Message::Rates(rates)) => loads.hear_rates(name, rates),
                (Some(_), Message::Served(served)) if served.node == from => {
                    loads.hear_served(served);
                }
                (_, Message::ArmClients(told)) if others.contains(&from) => {
                    let tests = shared.services.iter().filter_map(|it| it.group().comparison());
                    for test in tests {
                        // Clients of another test are ignored.
                        test.hear(now(), from, &told);
                    }
                }
                _ => loads.ignore(),
            },
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "loads of nodes cannot be received");
                std::thread::sleep(wait);
            }
        }
    }
}

/// Sends the clients of A/B tests to the other dispatchers, if they are due. Returns the time until the next
/// call, in milliseconds.
fn tell_clients(socket: &mut Socket, shared: &Shared, others: &[PeerId], told_at: &mut Now) -> u64 {
    let tests = || shared.services.iter().filter_map(|it| it.group().comparison());
    if others.is_empty() || tests().next().is_none() {
        return LOAD_RECEIVER_WAIT_MS;
    }
    let now = now();
    let left_ms = TELL_MS.saturating_sub(now.since_ms(*told_at));
    if left_ms > 0 {
        return left_ms;
    }
    *told_at = now;
    for told in tests().flat_map(|test| test.tell(now)) {
        socket.send_all(others.iter().copied(), &Message::ArmClients(told));
    }
    TELL_MS
}

/// The other dispatchers that have an address.
fn others(config: &Config, own: &str) -> Vec<(String, PeerId, SocketAddr)> {
    let others = config.dispatchers.iter().filter(|it| it.name != own);
    let other = |it: &DispatcherConfig| Some((it.name.clone(), PeerId::of(&it.name), it.address?));
    others.filter_map(other).collect()
}

fn nodes(config: &Config) -> Nodes {
    let node = |node: &skep_config::NodeConfig| {
        let name = Name::new(&node.name).ok()?;
        Some((name.peer(), (name, node.agent_address())))
    };
    config.nodes.iter().filter_map(node).collect()
}

fn now() -> Now {
    Now(monotonic_ms())
}
