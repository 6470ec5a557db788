//! The state of a run, and its events.

use skep_policy::UnknownPolicy;
use skep_units::Rng;
use slab::Slab;

use crate::chooser::Chooser;
use crate::cluster::{FetchSource, SimulatedCluster, SimulatedNode};
use crate::events::EventQueue;
use crate::fetch_table::Fetches;
use crate::limits::NS_PER_S;
use crate::memory::Memories;
use crate::outcome::RunOutcome;
use crate::pass_on_queue::PassOnQueue;
use crate::power_table::Power;
use crate::processor_sharing::ProcessorSharing;
use crate::request::Request;
use crate::traffic::TrafficMeter;
use crate::windows::OutcomeWindows;
use crate::workload::SiteWorkload;

/// The arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OfferedLoad {
    /// At random times (Poisson), at this share of the rate that the cluster's links can carry.
    Open { link_share: f64 },
    /// From `clients` clients, each with its next request when the last reply has ended.
    Closed { clients: u32 },
    /// The same, with clients that come and go; the number of requests follows from it.
    Ramp(SimulatedRamp),
    /// What the log says that the site comes from, or the requests that it was given.
    Logged,
}

/// Clients that start in batches, and run for a while each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedRamp {
    pub clients: u32,
    /// Number of clients per batch.
    pub batch_clients: u32,
    /// Interval of batches, in milliseconds.
    pub batch_interval_ms: u64,
    /// How long each client makes requests, in milliseconds.
    pub client_ms: u64,
}

impl SimulatedRamp {
    /// When a client starts, in milliseconds.
    pub(crate) fn begins_ms(&self, client: u32) -> u64 {
        u64::from(client / self.batch_clients) * self.batch_interval_ms
    }

    /// When the last client ends, in milliseconds.
    pub fn ends_ms(&self) -> u64 {
        self.begins_ms(self.clients - 1) + self.client_ms
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct SiteRun<'a> {
    pub site: &'a SiteWorkload,
    pub cluster: &'a SimulatedCluster,
    pub load: OfferedLoad,
    pub requests: u64,
    /// The share of the requests at the beginning that is not measured.
    pub warm_up_share: f64,
    pub seed: u64,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The next request of the open loop.
    Arrival,
    /// The next request of a client of the closed loop.
    Client(u32),
    /// A node has read a request.
    Serve(u32),
    /// The first byte of a fetch arrives.
    FetchArrives(u32),
    /// Transfers of a link, a disk or the origin may have ended.
    Wake(u32),
    /// Nodes report their loads.
    Report,
    /// The controller of elasticity takes a sample.
    Elasticity,
    /// A node that was started begins to serve.
    Booted(u32),
    /// The failure detector finds the lost nodes.
    LossDetected,
    /// A request that a lost node did not accept goes to another node.
    Retry(u32),
    /// A fetch that was interrupted restarts.
    Refetch(u32),
}

/// A transfer over a link, or from a disk or the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transfer {
    /// Segments for this request, to its client.
    Send(u32),
    /// The bytes of this fetch.
    Fetch(u32),
    /// Segments that this node hands over before it is stopped.
    HandOver(u32),
    /// What this node evicted and passes on.
    PassOn(u32),
}

/// The state of a run.
pub(crate) struct World<'a> {
    pub(crate) run: SiteRun<'a>,
    pub(crate) events: EventQueue<Event>,
    pub(crate) memories: Memories,
    /// The links of the nodes, then their disks or the origin.
    pub(crate) rates: Vec<ProcessorSharing<Transfer>>,
    pub(crate) choosers: Vec<Chooser>,
    pub(crate) requests: Slab<Request>,
    pub(crate) fetches: Fetches,
    pub(crate) outcome: RunOutcome,
    /// Random choices of clients, the same under all policies.
    pub(crate) rng: Rng,
    /// Random choices of the nodes from which segments are fetched.
    pub(crate) peer_rng: Rng,
    /// When each node's processor is free.
    pub(crate) processors_ns: Vec<u64>,
    pub(crate) arrival_gap_ns: f64,
    pub(crate) asked: u64,
    /// At the first measured arrival: the time, and the busy times of the links.
    pub(crate) warm: (u64, Vec<u64>),
    /// Set if nodes are started and stopped.
    pub(crate) power: Option<Power>,
    /// What each node passes on.
    pub(crate) pass_on_queues: Vec<PassOnQueue>,
    pub(crate) traffic: TrafficMeter,
    /// Outcomes until nodes are lost.
    pub(crate) windows: OutcomeWindows,
}

impl SiteRun<'_> {
    pub(crate) fn warm_up_requests(&self) -> u64 {
        ((self.requests as f64 * self.warm_up_share) as u64).min(self.requests.saturating_sub(1))
    }
}

impl<'a> World<'a> {
    /// Creates the state at the start of the run.
    pub(crate) fn new(run: SiteRun<'a>, policy: &str) -> Result<Self, UnknownPolicy> {
        let SiteRun { site, cluster, seed, .. } = run;
        assert!(cluster.elasticity.is_none() || cluster.loss.is_none(), "one or the other");
        let is_constant = cluster.elasticity.is_none() && cluster.loss.is_none();
        assert!(is_constant || !cluster.passes_on, "not where nodes come and go");
        let link = |node: &SimulatedNode| {
            ProcessorSharing::new(node.link_bytes_per_s)
                .with_transfer_max(cluster.client_bytes_per_s)
        };
        let links = cluster.nodes.iter().map(link);
        let sources: Vec<u64> = match cluster.source {
            FetchSource::OwnDisk => cluster.nodes.iter().map(|it| it.disk_bytes_per_s).collect(),
            FetchSource::SharedOrigin { bytes_per_s } => vec![bytes_per_s],
        };
        // The names of nodes are fixed, unless the site comes from a log: then the cluster only resembles the
        // real one.
        let placement = if run.load == OfferedLoad::Logged { seed } else { 0 };
        let chooser =
            |number| Chooser::new(policy, (seed + number as u64 * 1_000_003, placement), cluster);
        let capacities = cluster.nodes.iter().map(|node| node.memory_bytes);
        Ok(Self {
            run,
            events: EventQueue::default(),
            memories: Memories::new(capacities, site.segments, cluster.has_cluster_cache)
                .with_costs(cluster.memory_costs, site.objects.len())
                .passing_on(cluster.passes_on),
            rates: links.chain(sources.into_iter().map(ProcessorSharing::new)).collect(),
            choosers: (0..cluster.workers).map(chooser).collect::<Result<_, _>>()?,
            requests: Slab::new(),
            fetches: Fetches::new(cluster.nodes.len()),
            outcome: RunOutcome::new(),
            rng: Rng::new(seed ^ 0x5eed),
            peer_rng: Rng::new(seed ^ 0x9ee2),
            processors_ns: vec![0; cluster.nodes.len()],
            arrival_gap_ns: arrival_gap_ns(&run),
            asked: 0,
            warm: (0, vec![0; cluster.nodes.len()]),
            power: cluster.elasticity.map(|it| Power::new(it, cluster.nodes.len())),
            pass_on_queues: cluster.nodes.iter().map(|_| PassOnQueue::default()).collect(),
            traffic: TrafficMeter::new(cluster.nodes.len()),
            windows: OutcomeWindows::new(cluster.loss.map_or(1, |loss| loss.window_ms)),
        })
    }

    /// Starts a transfer over a link, or from a disk or the origin.
    pub(crate) fn transfer(&mut self, now: u64, rate: usize, bytes: u64, transfer: Transfer) {
        let wake = self.rates[rate].start(now, bytes, transfer);
        wake.into_iter().for_each(|at| self.events.schedule(at, Event::Wake(rate as u32)));
    }

    /// Bytes that a node has announced to clients and not yet sent.
    pub(crate) fn client_bytes(&self, now: u64, node: u32) -> u64 {
        let virtual_bytes = self.rates[node as usize].virtual_bytes(now);
        self.choosers.iter().map(|chooser| chooser.own_work(node, virtual_bytes).bytes).sum()
    }
}

fn arrival_gap_ns(run: &SiteRun<'_>) -> f64 {
    match run.load {
        OfferedLoad::Open { link_share } => {
            let bytes_per_s = run.cluster.link_bytes_per_s() as f64 * link_share;
            run.site.mean_bytes() / bytes_per_s * NS_PER_S as f64
        }
        OfferedLoad::Closed { .. } | OfferedLoad::Ramp(_) | OfferedLoad::Logged => 0.0,
    }
}
