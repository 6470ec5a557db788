//! The web server: sites, files, the memory cache.
//!
//! ```text
//!  request -> WorkerIndex (no lock) --hit--> reply out of a Segment
//!               | miss
//!               v
//!            Catalog: path -> Resource (version, prepared heads)
//!               |   ^-- a file: checked by time (skep-fresh) and inotify (Watcher)
//!               |   ^-- an origin's (OriginHeadCache): fresh for as long as its head states
//!               |   ^-- another node's file (PartHeadCache): for as long as that node states
//!               v
//!            SegmentStore (skep-segments): S3-FIFO in bytes, one fill each
//!               | fill
//!               +--> other nodes' memories first, where they cooperate (peers)
//!               +--> origin (backend/origin): ranges pinned to the version
//!               '--> disk: openat2 beneath the root; preadv2 that never waits, or the pool
//! ```
//!
//! Invariants: a reply holds bytes of one version only; a worker never waits for a disk;
//! memory is bounded by the cache size plus the memory that replies pin.

#![forbid(unsafe_code)]

mod backend;
mod disk;
mod explain;
mod http;
mod limits;
mod load_meter;
mod model;
mod node_metrics;
mod peer_server;
mod peers;
mod pool_metrics;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use skep_config::{Config, ServerConfig, SpoolConfig};
use skep_engine::Context;
use skep_origin::{FaultKind, OriginTotals};
use skep_peer::stream::PeerService;
use skep_proxy::{Group, GroupControlError, MemberTest, TestRequest};
pub use skep_segments::StoreStats;
use skep_segments::{Pins, SegmentStore};
use skep_serve::{WorkerHandle, monotonic_ms};
use skep_spool::{BodyBuffers, BufferLimits};
use skep_telemetry::Registry;
use skep_units::Now;
use skep_wire::cache::{
    ExplainRequest, Explanation, PurgeKind, PurgeStamp, PurgeWhat, ServerOrder,
};
use skep_wire::message::ServedObjects;
use skep_wire::seal::{Key, PeerId};

use backend::compressed::{CompressedHeads, Compressor};
use backend::files::catalog::Catalog;
use backend::origin::{Remotes, Tally};
use backend::partition::Walker;
use disk::watch::Watcher;
pub use http::handler::NodeHandler;
pub use load_meter::LoadMeter;
pub use model::agents::AgentReport;
use model::announced::Announced;
use model::orders::Orders;
pub use model::orders::{OperatorHandler, OrderNovelty, OrderOutcome};
pub use model::pool_protocol::PoolError;
pub use model::pools::AddServerError;
use model::pools::{PoolMap, Pools};
use model::power::NodePower;
pub use model::purges::PurgeEffects;
use model::purges::Purges;
pub use model::route::SiteError;
use model::served::Served;
pub use model::sessions::{ClientNetworks, SessionsByNetwork};
use model::site::SiteSet;
use model::worker_index::WorkerIndexes;
pub use node_metrics::register_node;
pub use peer_server::PeerServer;
pub use peers::{Cluster, ClusterParts, RelayedAnswers};
use peers::{PeerClient, SharedParts};
pub use pool_metrics::register_pools;

/// Path of the health check by dispatchers.
pub const HEALTH_PATH: &str = "/.well-known/skep/health";

/// The node cannot be started or reconfigured.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A route cannot be served.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A pool cannot be created.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The spool folder cannot be used.
    #[error(
        "no files in spool.folder {folder}: {error}; it has to be a folder that the serving user may write \
         to, on a file system that has files without names, such as ext4, XFS, Btrfs or tmpfs"
    )]
    Spool { folder: String, error: std::io::Error },
    /// A thread could not be started.
    #[error("cannot start a thread of the node: {0}")]
    Thread(std::io::Error),
}

/// A web server with its memory; shared by all workers of a process.
pub struct Node {
    store: Arc<SegmentStore>,
    watcher: Arc<Watcher>,
    catalog: Arc<ArcSwap<Catalog>>,
    announced: Arc<Announced>,
    /// Announces the parts of the current sites, if other nodes use them.
    walker: Mutex<Option<Walker>>,
    cluster: OnceLock<Arc<Cluster>>,
    purges: Arc<Purges>,
    worker_indexes: Arc<WorkerIndexes>,
    pins: Arc<Pins>,
    compressor: Arc<Compressor>,
    /// Shared by all configs: the names of compressed variants identify the encoding and the source object.
    compressed_heads: Arc<CompressedHeads>,
    origins: Arc<Tally>,
    /// Whether dispatchers proxy clients to this node, and report their addresses.
    is_proxied: AtomicBool,
    /// Length of the IPv6 prefix that counts as one client, in bits.
    ipv6_prefix_bits: AtomicU8,
    leaving: AtomicBool,
    pools: Arc<Pools>,
    orders: Arc<Orders>,
    /// Objects whose sizes are to be reported to dispatchers.
    served: Served,
    power: Arc<NodePower>,
    /// Addresses of the cluster's dispatchers.
    dispatchers: ArcSwap<HashSet<IpAddr>>,
}

impl Node {
    /// Creates a node from a config; the roots of its sites must exist. `seed` initialises the policies of
    /// its pools and differs between processes. `key` is the key of the cluster, if there is one.
    pub fn start(config: &Config, seed: u64, key: Option<Key>) -> Result<Arc<Self>, NodeError> {
        let cache = &config.cache;
        let entries_max = cache.entries_max as usize;
        let store = SegmentStore::new(cache.size_bytes_max, entries_max, config.cooperates());
        store.start_cleaner().map_err(NodeError::Thread)?;
        let compressed_heads = CompressedHeads::new(&store, entries_max);
        let watcher = Watcher::start();
        let purges = Arc::<Purges>::default();
        let pools = Arc::new(Pools::new(seed, key, body_buffers(&config.spool)?));
        let prepared = pools.prepare(config)?;
        let catalog = catalog(config, &prepared, &store, &watcher, &purges)?;
        pools.adopt(config, prepared);
        Ok(Arc::new(Self {
            store,
            watcher,
            catalog: Arc::new(ArcSwap::new(catalog)),
            announced: Arc::default(),
            walker: Mutex::default(),
            cluster: OnceLock::new(),
            purges,
            worker_indexes: Arc::default(),
            pins: Pins::new(config.limits.pinned_per_address_bytes_max),
            compressor: Compressor::new(),
            compressed_heads,
            origins: Arc::default(),
            is_proxied: AtomicBool::new(config.is_proxied()),
            ipv6_prefix_bits: AtomicU8::new(config.limits.client_ipv6_prefix_bits as u8),
            leaving: AtomicBool::new(false),
            pools,
            orders: Arc::default(),
            served: Served::of(config),
            power: Arc::default(),
            dispatchers: ArcSwap::from_pointee(dispatchers(config)),
        }))
    }

    /// Replaces the sites; on an error the old ones stay in force. Cached contents are kept.
    pub fn reload(&self, config: &Config) -> Result<(), NodeError> {
        let prepared = self.pools.prepare(config)?;
        let new = catalog(config, &prepared, &self.store, &self.watcher, &self.purges)?;
        self.pools.adopt(config, prepared);
        self.dispatchers.store(Arc::new(dispatchers(config)));
        self.catalog.swap(new).retire_all();
        self.pins.set_per_address_max(config.limits.pinned_per_address_bytes_max);
        self.is_proxied.store(config.is_proxied(), Ordering::Relaxed);
        self.served.reload(config);
        let ipv6_prefix_bits = config.limits.client_ipv6_prefix_bits as u8;
        self.ipv6_prefix_bits.store(ipv6_prefix_bits, Ordering::Relaxed);
        if let Some(cluster) = self.cluster.get() {
            self.walk(config)?;
            cluster.reload(config);
        }
        Ok(())
    }

    /// Starts the checks of pool servers on `worker`. Call it once.
    pub fn start_checks(&self, worker: &WorkerHandle) {
        self.pools.start_checks(worker);
    }

    /// Tests the server `name` of `pool`: the result is sent within `limit_ms`, or the sender is dropped.
    ///
    /// # Errors
    /// There is no such server. Before [`Node::start_checks`] no result is ever sent.
    pub fn test_server(
        &self,
        pool: &Arc<Group>,
        name: &str,
        request: TestRequest,
        limit_ms: u64,
    ) -> Result<Receiver<MemberTest>, GroupControlError> {
        self.pools.test(pool, name, request, limit_ms)
    }

    /// Adds a server to the pool called `pool`; it receives requests after its first successful check.
    /// `config` is the config in force.
    ///
    /// # Errors
    /// There is no such pool; the name or address is taken or invalid.
    pub fn add_server(
        &self,
        config: &Config,
        pool: &str,
        server: ServerConfig,
    ) -> Result<(), AddServerError> {
        self.pools.add(config, pool, server)
    }

    /// The last status report of the server `name` of the pool called `pool`; `None`: its status is not
    /// queried.
    pub fn agent_report(&self, pool: &str, name: &str) -> Option<AgentReport> {
        self.pools.agents().get(pool)?.report(name)
    }

    /// Recently seen sessions, by pool; only pools that can distinguish sessions.
    pub fn sessions(&self) -> BTreeMap<String, SessionsByNetwork> {
        self.pools.sessions(Now(monotonic_ms()))
    }

    /// Sets the handler that answers operators' questions for this node, from all machines. Call it once.
    pub fn answer_operators_by(&self, handler: Box<dyn OperatorHandler>) {
        self.orders.answer_by(handler);
    }

    /// Carries out an order about a pool server here when no coordinator can pass it on. Other nodes receive
    /// it as soon as a coordinator is linked with this node and with them.
    pub fn order_here(&self, order: ServerOrder) -> OrderOutcome {
        match self.cluster.get() {
            Some(cluster) => cluster.order_here(order).unwrap_or_default(),
            None => self.orders.order_here(order, 0).1,
        }
    }

    /// Retries the orders about servers that could not be carried out; called after a reload.
    pub fn retry_orders(&self) {
        self.orders.retry();
    }

    pub fn pools(&self) -> Vec<Arc<Group>> {
        self.pools.all()
    }

    /// Joins the cluster cache; call it before handlers are created.
    pub fn join(&self, config: &Config, parts: ClusterParts) -> Result<(), NodeError> {
        // Pools that a reload adds are counted, too.
        self.pools.join();
        let prepared = self.pools.prepare(config)?;
        self.pools.adopt(config, prepared);
        let shared = SharedParts {
            store: Arc::clone(&self.store),
            announced: Arc::clone(&self.announced),
            purges: Arc::clone(&self.purges),
            pools: Arc::clone(&self.pools),
            orders: Arc::clone(&self.orders),
            explain: Box::new(explain::explainer(&self.catalog, &self.store)),
            power: Arc::clone(&self.power),
            release: self.releaser(),
        };
        let cluster = Cluster::start(config, parts, shared).map_err(NodeError::Thread)?;
        assert!(self.cluster.set(cluster).is_ok(), "a node joins once");
        self.walk(config)
    }

    /// Returns a closure that releases the memory of cached heads.
    fn releaser(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (catalog, compressed) = (Arc::clone(&self.catalog), Arc::clone(&self.compressed_heads));
        Arc::new(move || {
            catalog.load().retire_all();
            compressed.forget_all();
        })
    }

    /// Announces this node's parts of the current sites.
    fn walk(&self, config: &Config) -> Result<(), NodeError> {
        let (catalog, interval_ms) = (self.catalog.load(), config.cache.check_interval_ms);
        let walker = Walker::start(catalog.sites(), &self.announced, &self.watcher, interval_ms)
            .map_err(NodeError::Thread)?;
        *self.walker.lock().unwrap_or_else(PoisonError::into_inner) = Some(walker);
        Ok(())
    }

    /// Its part in the cluster cache, if it has one.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get()
    }

    /// Returns the server of other nodes' requests for the worker of `context`, whose `handler` answers
    /// clients; `registry` is shared by all workers.
    pub fn peer_service(
        &self,
        handler: &Rc<NodeHandler>,
        context: &Rc<Context>,
        registry: &Arc<Registry>,
    ) -> Option<Rc<PeerService<PeerServer>>> {
        let cluster = self.cluster.get()?;
        let peer_client = PeerClient::new(cluster, context.worker(), context.counters());
        peer_client.spawn_offering(&self.store);
        let server = PeerServer {
            cluster: Arc::clone(cluster),
            store: Arc::clone(&self.store),
            catalog: Arc::clone(&self.catalog),
            compressed_heads: Arc::clone(&self.compressed_heads),
            announced: Arc::clone(&self.announced),
            peer_client,
            handler: Rc::clone(handler),
            counters: Arc::clone(context.counters()),
            registry: Arc::clone(registry),
        };
        Some(PeerService::new(server, cluster.identity(), cluster.counts()))
    }

    /// The node's handler for the worker of `context`.
    pub fn handler(self: &Arc<Self>, context: &Rc<Context>) -> Rc<NodeHandler> {
        NodeHandler::new(self, context)
    }

    fn remotes(
        &self,
        context: &Rc<Context>,
        peer_client: Option<&Rc<PeerClient>>,
        catalog: &Catalog,
    ) -> Rc<Remotes> {
        Remotes::new(context, &self.store, peer_client, catalog.origin_heads(), &self.origins)
    }

    /// Fails health checks from now on, since this node is about to stop; requests are still served.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Returns objects served whose sizes have not been reported recently: for dispatchers and nodes that
    /// select nodes without seeing responses. `node` is the name of this node.
    pub fn take_served(&self, node: PeerId) -> Vec<ServedObjects> {
        self.served.take(node)
    }

    /// How fast memory is filled from the node's disk and origins, in bytes a second; 0: not known.
    pub fn fetch_bytes_per_s(&self) -> u64 {
        self.store.backend_rate().bytes_per_s()
    }

    /// Counts of the memory cache.
    pub fn store_stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// Removals from the memory cache, by kind: segments evicted to make room; files and objects that were
    /// found to have changed.
    pub fn cache_removals(&self) -> Vec<(&'static str, u64)> {
        let stats = self.store.stats();
        vec![("evicted", stats.evicted), ("stale", stats.stale)]
    }

    /// Counts of the origins of its sites, over all workers.
    pub fn origin_totals(&self) -> OriginTotals {
        self.origins.totals()
    }

    /// Requests to origins, by kind: needed, sent, retried, and sent on a reused connection.
    pub fn origin_requests(&self) -> Vec<(&'static str, u64)> {
        let OriginTotals { asked, requests, retries, reused, .. } = self.origin_totals();
        vec![("asked", asked), ("sent", requests), ("retried", retries), ("reused", reused)]
    }

    /// Failures of origins, by kind.
    pub fn origin_failures(&self) -> Vec<(&'static str, u64)> {
        let totals = self.origin_totals();
        FaultKind::ALL.iter().map(|kind| (kind.name(), totals.failed(*kind))).collect()
    }

    /// Purges on this node only, when it has no cluster: everything served from now on was fetched after the
    /// purge.
    pub fn purge(&self, kind: PurgeKind, what: Vec<PurgeWhat>) -> PurgeStamp {
        self.purges.purge(kind, what)
    }

    /// Explains whether and why this node caches the response to a request, from its own state only. `None`:
    /// the request is invalid.
    pub fn explain(&self, request: &ExplainRequest) -> Option<Explanation> {
        explain::explainer(&self.catalog, &self.store)(request)
    }

    /// Counts of what purges removed on this node.
    pub fn purge_effects(&self) -> PurgeEffects {
        self.purges.counts()
    }
}

fn body_buffers(config: &SpoolConfig) -> Result<Arc<BodyBuffers>, NodeError> {
    let buffers = BodyBuffers::new(BufferLimits {
        memory_bytes_max: config.memory_bytes_max,
        folder: config.folder.clone(),
        spool_bytes_max: config.files_bytes_max,
        spool_body_bytes_max: config.body_bytes_max,
    });
    let folder = || config.folder.as_deref().map(|it| it.display().to_string());
    let refused = |error| NodeError::Spool { folder: folder().unwrap_or_default(), error };
    buffers.check_folder().map_err(refused)?;
    Ok(buffers)
}

fn dispatchers(config: &Config) -> HashSet<IpAddr> {
    config.dispatcher_addresses().collect()
}

fn catalog(
    config: &Config,
    pools: &PoolMap,
    store: &Arc<SegmentStore>,
    watcher: &Arc<Watcher>,
    purges: &Arc<Purges>,
) -> Result<Arc<Catalog>, NodeError> {
    let sites = SiteSet::with_pools(&config.sites, pools, purges)?;
    let entries_max = config.cache.entries_max as usize;
    let interval_ms = config.cache.check_interval_ms;
    Catalog::start(sites, Arc::clone(store), Arc::clone(watcher), entries_max, interval_ms)
        .map_err(NodeError::Thread)
}

#[cfg(test)]
mod tests;
