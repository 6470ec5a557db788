//! The nodes' loads as this process receives them: in datagrams of their agents
//! ([`LoadReceiver`](crate::LoadReceiver), or the heartbeats of direct dispatch), or from the node
//! in the same process.
//!
//! ```text
//!   LoadReceiver, DirectLoop, own node --> NodeLoads --> Dispatchers: input of policies
//!                                             |  '---> coordinator of the caches
//!                                             v
//!                                          status, metrics
//! ```
//!
//! Invariant: of one node's reports the latest counts, in whatever order they arrive.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_config::{Config, DispatchMode};
use skep_policy::{Work, is_stale};
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::limits::PEERS_MAX;
use skep_wire::message::{Name, NodeLoad};
use skep_wire::seal::Stamp;

use crate::service::dispatcher::Dispatcher;

/// See the module. All methods may be called from any thread.
pub struct NodeLoads {
    interval_ms: u64,
    dispatchers: Vec<Arc<Dispatcher>>,
    on_load: OnLoad,
    heard: Mutex<BTreeMap<Name, Heard>>,
    taken: AtomicU64,
    late: AtomicU64,
    strange: AtomicU64,
}

/// Called with each load that counts.
pub type OnLoad = Box<dyn Fn(&Name, &NodeLoad) + Send + Sync>;

struct Heard {
    at: Now,
    stamp: Stamp,
    load: NodeLoad,
}

/// A node's last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub name: Name,
    /// Its age, in milliseconds.
    pub age_ms: u64,
    /// Whether it is too old to count.
    pub is_stale: bool,
    /// The reported load.
    pub load: NodeLoad,
}

impl NodeLoads {
    /// Starts empty. `dispatchers` and `on_load` receive the loads.
    pub fn new(config: &Config, dispatchers: &[Arc<Dispatcher>], on_load: OnLoad) -> Arc<Self> {
        Arc::new(Self {
            interval_ms: config.report_interval_ms(),
            dispatchers: dispatchers.to_vec(),
            on_load,
            heard: Mutex::default(),
            taken: AtomicU64::new(0),
            late: AtomicU64::new(0),
            strange: AtomicU64::new(0),
        })
    }

    /// Records a node's report from an authentic datagram that is not a replay; one that arrives
    /// after a later one of the same node does not count. Without a stamp it is from the node of
    /// this process.
    pub fn hear(&self, name: &Name, stamp: Option<Stamp>, load: NodeLoad) {
        if !self.note(name, stamp, load) {
            self.late.fetch_add(1, Relaxed);
            return;
        }
        self.taken.fetch_add(1, Relaxed);
        for dispatcher in &self.dispatchers {
            dispatcher.hear_load(name.as_str(), &load);
        }
        (self.on_load)(name, &load);
    }

    /// The last report of each node, by their names.
    pub fn reports(&self) -> Vec<NodeReport> {
        let now = now();
        let report = |(name, heard): (&Name, &Heard)| {
            let age_ms = now.since_ms(heard.at);
            let is_stale = is_stale(age_ms, self.interval_ms);
            NodeReport { name: name.clone(), age_ms, is_stale, load: heard.load }
        };
        self.lock().iter().map(report).collect()
    }

    /// Counts a datagram that is no load, or from a machine that is no node.
    pub fn ignore(&self) {
        self.strange.fetch_add(1, Relaxed);
    }

    /// Reports by outcome: those that count, those that arrived after a later one, and those that
    /// were ignored.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        [("taken", of(&self.taken)), ("late", of(&self.late)), ("strange", of(&self.strange))]
    }

    /// Forgets the nodes that a new config does not have.
    pub fn reload(&self, config: &Config) {
        self.lock().retain(|name, _| config.node(name.as_str()).is_some());
    }

    /// Stores the report, if it is the latest.
    fn note(&self, name: &Name, stamp: Option<Stamp>, load: NodeLoad) -> bool {
        let mut heard = self.lock();
        let is_new = match (heard.get(name), stamp) {
            (Some(last), Some(stamp)) => last.stamp < stamp,
            (Some(_), None) => true,
            (None, _) => heard.len() < PEERS_MAX,
        };
        if is_new {
            let stamp = stamp.unwrap_or_default();
            heard.insert(name.clone(), Heard { at: now(), stamp, load });
        }
        is_new
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Heard>> {
        // Changed by single insertions: a panic leaves it sound.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dispatcher {
    /// Applies a node's load. Where its requests do not pass through this process, drains wait for
    /// that load and the status displays it.
    fn hear_load(&self, name: &str, load: &NodeLoad) {
        self.change(|state, now| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            let Some(details) = id.and_then(|id| state.details.get(&id)) else { return };
            if state.settings.dispatch == DispatchMode::Direct {
                let own = &details.node.load;
                own.requests.set(load.requests_in_flight);
                own.bytes.set(load.bytes_outstanding);
                // Idle connections are flows too: a drain waits for them.
                let idle = load.connections.saturating_sub(load.requests_in_flight);
                own.tunnels.store(u32::try_from(idle).unwrap_or(u32::MAX), Relaxed);
            }
            details.node.hear(now, Work::of(load));
        });
    }
}

fn now() -> Now {
    Now(monotonic_ms())
}
