//! Receives the loads of nodes where no heartbeats carry them: a socket, and a thread that waits
//! for nothing else.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use skep_config::Config;
use skep_peer::{
    BindError, Counts, Received, Socket, SocketSettings, Waker, spawn_heartbeat_thread,
};
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::message::{Message, Name};
use skep_wire::seal::{Key, PeerId};

use crate::limits::LOAD_RECEIVER_WAIT_MS;
use crate::loads::node_loads::NodeLoads;

/// Receives the load reports of nodes, on a thread of its own, until it is dropped.
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
    #[error("cannot listen for nodes' loads: {0}")]
    System(#[from] io::Error),
}

struct Shared {
    /// The nodes to receive from, replaced by a reload.
    nodes: ArcSwap<Nodes>,
    stop: AtomicBool,
}

/// The nodes of a config, and the addresses of their agents.
type Nodes = BTreeMap<PeerId, (Name, SocketAddr)>;

impl LoadReceiver {
    /// Starts to listen at the address of the dispatcher `name`.
    ///
    /// # Errors
    /// If it has none, or the address cannot be bound.
    pub fn start(
        config: &Config,
        name: &str,
        key: &Key,
        loads: &Arc<NodeLoads>,
    ) -> Result<Self, LoadReceiverError> {
        let address = config.dispatcher(name).and_then(|dispatcher| dispatcher.address);
        let socket = Socket::bind(&SocketSettings {
            address: address.ok_or_else(|| LoadReceiverError::NoSuchDispatcher(name.to_owned()))?,
            key: key.clone(),
            cluster: config.cluster.clone(),
            name: name.to_owned(),
            clock: now,
        })?;
        let address = socket.address()?;
        let (counts, waker) = (socket.counts(), socket.waker());
        let shared = Arc::new(Shared {
            nodes: ArcSwap::from_pointee(nodes(config)),
            stop: AtomicBool::new(false),
        });
        let (heard, loads) = (Arc::clone(&shared), Arc::clone(loads));
        // Loads that wait behind work would be stale just when they matter.
        spawn_heartbeat_thread("skep-load-recv", move |priority| {
            tracing::debug!("load reports are received with {priority}");
            listen(socket, &heard, &loads);
        })?;
        Ok(Self { address, shared, counts, waker })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receives from the nodes of a new config.
    pub fn reload(&self, config: &Config) {
        self.shared.nodes.store(Arc::new(nodes(config)));
        self.waker.wake();
    }

    /// Datagrams in, out and refused.
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

fn listen(mut socket: Socket, shared: &Shared, loads: &NodeLoads) {
    let wait = Duration::from_millis(LOAD_RECEIVER_WAIT_MS);
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
        match socket.receive(wait) {
            Ok(Some(Received { from, stamp, message, .. })) => match (nodes.get(&from), message) {
                (Some((name, _)), Message::Load(load)) => loads.hear(name, Some(stamp), load),
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
