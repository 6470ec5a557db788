//! The request and response types of the API; their docs are the API's docs.

mod cluster;
mod comparison;
mod explain;
mod pools;
mod series;
mod state;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use skep_telemetry::{Counter, Snapshot};
use utoipa::ToSchema;

pub use cluster::{
    ClusterPoint, ClusterRequests, ClusterSeries, NodeRequest, OrderedNode, ServerCommand,
    ServerOrdered,
};
pub use comparison::{
    ArmTimes, ComparedArm, NewArm, NewComparison, PolicyComparison, TimeDifference,
};
pub use explain::{
    CacheExplanation, CacheReason, CacheVerdict, ExplainOutcome, Explained, ExplainedNode,
    JudgedResponse, KeptVariant, NewExplain,
};
pub use pools::{
    MissingNode, NetworkSessions, NewServer, NewServerTest, NodePools, PoolSessions, PoolStatus,
    ServerSelfReport, ServerStatus, ServerTest, ServerView,
};
pub use series::{RequestStatus, TrafficPoint, TrafficSeries};
pub use state::NodeState;

/// A process of a cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessStatus {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the process: of its dispatcher or node.
    pub name: String,
    /// What it does.
    pub roles: Vec<Role>,
    /// Version of the program.
    pub version: String,
    /// Number of the process.
    pub pid: u32,
    /// When it started, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it has been running, in milliseconds; rates are differences of
    /// totals over differences of this.
    pub uptime_ms: u64,
    /// Whether it is about to end: takes nothing new, finishes the old.
    pub draining: bool,
    /// Number of the config in force: 1 at the start, one more with each
    /// reload.
    pub config_generation: u64,
    /// What it did for its clients.
    pub traffic: Traffic,
    /// Its node, if it has one.
    pub node: Option<NodeLocalStatus>,
    /// Its services, if it has a dispatcher.
    pub services: Vec<ServiceStatus>,
    /// Its part in direct dispatch, if it has one.
    #[serde(default)]
    pub direct: Option<DirectStatus>,
    /// Its coordinator of the cluster cache, if it has one.
    #[serde(default)]
    pub cache: Option<CoordinatorStatus>,
    /// What nodes say of their load, if it has a dispatcher.
    #[serde(default)]
    pub loads: Vec<NodeReport>,
    /// The pools of its node.
    #[serde(default)]
    pub pools: Vec<PoolStatus>,
}

/// The last load report of a node. Rates are those of the second before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeReport {
    /// Name of the node.
    pub name: String,
    /// Age of the report, in milliseconds.
    pub age_ms: u64,
    /// Whether that is so long that it counts no more: dispatchers go by what
    /// they see themselves.
    pub is_stale: bool,
    /// Use of its processors by its process, in thousandths of all of them.
    pub cpu_permille: u16,
    /// Memory of its process, with what it keeps of files, in bytes.
    pub memory_bytes: u64,
    /// Connections of clients.
    pub connections: u64,
    /// Requests that it is answering.
    pub requests_in_flight: u64,
    /// Bytes of replies, to clients and to nodes, that it has still to send; of
    /// a large object those of the segment that is being sent.
    pub bytes_outstanding: u64,
    /// Bytes that the process sends to clients and nodes, per second.
    pub sent_bytes_s: u64,
    /// Bytes that it reads from origins and disks into memory, per second.
    pub filled_bytes_s: u64,
    /// Requests answered out of its own memory, in thousandths.
    pub hit_permille: u16,
}

/// A coordinator of the cluster cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CoordinatorStatus {
    /// Whether it answers nodes; else another dispatcher's does.
    pub is_active: bool,
    /// In direct dispatch, the epoch of its term; else its rank among the dispatchers times 65,536,
    /// plus the number of the dispatcher.
    pub epoch: u64,
    /// Segments with a known holder.
    pub segments: u64,
    /// Segments times their holders.
    pub copies: u64,
    /// Fills under way.
    pub leases: u64,
    /// Files and folders of partitioned folders that nodes have announced.
    pub files: u64,
    /// Nodes that have not announced all their files, and nodes that were lost recently: what
    /// nobody is known to have may be there.
    pub nodes_unsure: u64,
    /// What it has answered, by kind: `have`, `busy`, `grant`, `refused`; and
    /// `directory_error`, of named holders that had lost the segment.
    pub answers: Vec<AnswerCount>,
    /// The nodes that are linked.
    pub nodes: Vec<CacheNode>,
}

/// Answers of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerCount {
    /// The kind.
    pub kind: String,
    /// How many, since the start.
    pub answers: u64,
}

/// A node in the cluster cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheNode {
    /// Name of the node.
    pub name: String,
    /// Where other nodes fetch from it.
    pub address: String,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
    /// Bytes that it holds.
    pub held_bytes: u64,
    /// Of these, bytes that other nodes hold, too.
    pub shared_bytes: u64,
}

/// A process's part in direct dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectStatus {
    /// Whether it steers: `active`, `standby`, `joining` or `leaving`; `node`
    /// for a node alone.
    pub stage: String,
    /// Number of the active dispatcher's term, as far as it is known here.
    pub epoch: u64,
    /// Name of the active dispatcher, if heartbeats of one arrive.
    pub active: Option<String>,
    /// Number of the table in that term by which packets are steered.
    pub table_generation: u64,
    /// Whether this dispatcher has all virtual addresses on its machine; never on a node alone.
    pub has_addresses: bool,
    /// On the active dispatcher: nodes that have not applied the latest table yet.
    pub nodes_behind: Vec<NodeBehind>,
    /// Whether a standby has all flows of the active dispatcher.
    pub flows_synced: bool,
    /// How the packet program is attached, such as `native XDP`.
    pub attached: String,
    /// The network device that it is attached to.
    pub device: String,
    /// How the store does that dispatchers share, if there is one.
    pub store: Option<String>,
    /// The other dispatchers.
    pub peers: Vec<DirectPeer>,
    /// Packets by what became of them, since the program was loaded.
    pub packets: Vec<PacketCount>,
    /// On a node that hands connections off: what became of those that it wanted to move to other nodes.
    #[serde(default)]
    pub handoffs: Vec<HandoffCount>,
    /// The same of those that other nodes offered.
    #[serde(default)]
    pub handoffs_received: Vec<HandoffCount>,
    /// What is wrong on this machine, in sentences.
    pub complaints: Vec<String>,
}

/// Connections whose handoff had one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandoffCount {
    /// As in the metrics: `moved`, `silent`, `refused_full` and others.
    pub outcome: String,
    pub connections: u64,
}

/// A node that steers by an earlier table than the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeBehind {
    /// Name of the node.
    pub node: String,
    /// Tables of this term that it has not applied yet.
    pub tables: u64,
}

/// Another dispatcher, by its heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectPeer {
    /// Name of the dispatcher or node.
    pub name: String,
    /// As `stage` of a process, or `silent`.
    pub stage: String,
    /// Time since its last heartbeat, in milliseconds.
    pub silent_ms: u64,
}

/// Packets with one fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PacketCount {
    /// What became of them, such as `forward_flow`.
    pub verdict: String,
    /// How many.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends clients' requests to nodes.
    Dispatcher,
    /// Serves files.
    Node,
}

/// What a process did for its clients. `total` counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Traffic {
    /// Client connections now open.
    pub connections_open: u64,
    /// Requests whose reply is not finished.
    pub requests_in_flight: u64,
    /// Client connections accepted.
    pub connections_total: u64,
    /// Client connections refused over a limit.
    pub refused_total: u64,
    /// Requests taken.
    pub requests_total: u64,
    /// Requests refused because they were no clean HTTP.
    pub rejects_total: u64,
    /// Replies of status 2xx.
    pub responses_2xx_total: u64,
    /// Replies of status 3xx.
    pub responses_3xx_total: u64,
    /// Replies of status 4xx.
    pub responses_4xx_total: u64,
    /// Replies of status 5xx.
    pub responses_5xx_total: u64,
    /// Bytes from clients.
    pub received_bytes_total: u64,
    /// Bytes to clients.
    pub sent_bytes_total: u64,
    /// Time from a request's first byte to its reply's last.
    pub latency: Latency,
}

/// Times of requests since the start, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// Requests timed.
    pub count: u64,
    /// Sum of their times.
    pub sum_us: u64,
    /// Half of the requests took at most this.
    pub p50_us: u64,
    /// 95 % of the requests took at most this.
    pub p95_us: u64,
    /// 99 % of the requests took at most this.
    pub p99_us: u64,
}

/// The node that runs in a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLocalStatus {
    /// Where it listens.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Bytes of files in its memory.
    pub cache_bytes: u64,
    /// Bytes that its memory may hold.
    pub cache_bytes_max: u64,
    /// Pieces of files in its memory.
    pub cache_segments: u64,
    /// Requests answered out of memory.
    pub cache_hits_total: u64,
    /// Requests for which memory was asked.
    pub cache_lookups_total: u64,
    /// Its sites: their first host name, or `*`.
    pub sites: Vec<String>,
}

/// A service at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// Name of the service.
    pub name: String,
    /// Where it listens.
    #[schema(value_type = Vec<String>)]
    pub listen: Vec<SocketAddr>,
    /// How a request gets to a node: `proxy` or `redirect`.
    pub dispatch: String,
    /// How the node is chosen.
    pub policy: String,
    /// The arms of its A/B test of policies; none: there is none.
    #[serde(default)]
    pub arms: Vec<ServiceArm>,
    /// Its nodes, the oldest first.
    pub nodes: Vec<NodeStatus>,
}

/// An arm of an A/B test that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceArm {
    /// Its name.
    pub name: String,
    /// How the node is chosen for its clients.
    pub policy: String,
    /// Its share of the clients, against the other arms' weights.
    pub weight: u32,
    /// Its group of nodes; none: all.
    pub nodes: Vec<String>,
}

/// A node at one moment, as the dispatcher of a service sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// The service.
    pub service: String,
    /// Where the dispatcher reaches it.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Host and port that a redirect names.
    pub public_address: String,
    /// Whether it gets requests.
    pub state: NodeState,
    /// Why it is in that state, where there is something to say.
    pub reason: Option<String>,
    /// How long it has been in that state, in milliseconds.
    pub since_ms: u64,
    /// Where it comes from.
    pub source: NodeSource,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// Thousandths of its share that it takes now: below 1000 while it warms
    /// up, 0 while it gets no new requests.
    pub share_permille: u16,
    /// Requests sent to it and not yet answered in full.
    pub outstanding_requests: u32,
    /// Bytes of announced reply bodies that did not come yet.
    pub outstanding_bytes: u64,
    /// Connections that carry something now: requests and tunnels.
    pub connections: u32,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests that were sent or redirected to it.
    pub requests_total: u64,
    /// Requests to it that did not end with a whole reply.
    pub failures_total: u64,
    /// Bytes of its reply bodies.
    pub bytes_total: u64,
    /// Moving average of its time to answer, in microseconds; 0: none yet.
    pub latency_us: u64,
}

/// Where a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeSource {
    /// The config file.
    Config,
    /// This API; the entry survives reloads until it is removed.
    Api,
}

/// A node to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNode {
    /// Name of the node.
    pub name: String,
    /// Where the dispatcher reaches it.
    #[schema(value_type = String, example = "10.0.0.12:8080")]
    pub address: SocketAddr,
    /// Its share of the work under weighted policies.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 256)]
    pub weight: u32,
    /// Host and port that a redirect names; without it, `address`.
    #[serde(default)]
    pub public_address: Option<String>,
    /// The service that it belongs to; needed where there are several.
    #[serde(default)]
    pub service: Option<String>,
}

/// A node's new weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWeight {
    /// Its share of the work under weighted policies.
    #[schema(minimum = 1, maximum = 256)]
    pub weight: u32,
}

/// A service's new policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPolicy {
    /// Its name, such as `round-robin`.
    pub policy: String,
}

/// What is to be purged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPurge {
    /// `/PATH`, or `/PREFIX*`, with or without `http://HOST` in front; or
    /// `tag:NAME`.
    #[schema(min_items = 1, max_items = 128, example = json!(["/img/*", "tag:news"]))]
    pub what: Vec<String>,
    /// Whether it is to be stale, not gone: validated with its source, or used as what is stale may
    /// be; false unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<bool>,
    /// How long nodes have to acknowledge it, in milliseconds; 2 seconds unless
    /// given.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 20_000)]
    pub timeout_ms: Option<u64>,
}

/// What came of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Purged {
    /// Its number: later purges have greater ones. It is above 2^53: a language that reads numbers as
    /// doubles rounds it.
    pub stamp: u64,
    /// Whether every node that is linked, and every node that serves clients, has acknowledged it
    /// in time.
    pub complete: bool,
    /// The nodes.
    pub nodes: Vec<PurgedNode>,
}

/// A node and a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgedNode {
    /// Name of the node.
    pub name: String,
    /// Whether it has applied the purge.
    pub outcome: PurgeOutcome,
    /// When it had, in milliseconds since the purge began.
    pub ms: Option<u64>,
}

/// Whether a node has applied a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PurgeOutcome {
    /// It has: no later reply begins with purged content.
    Acknowledged,
    /// It is linked, but did not acknowledge the purge in time.
    Late,
    /// It serves clients, and its link ended meanwhile; it applies the purge when it links again.
    Lost,
    /// It serves clients (its health checks succeed, and it is not drained), but was not linked in time:
    /// it may send purged content until it links.
    Unlinked,
    /// It serves no clients and was not linked; it applies the purge when it links.
    Away,
}

/// A reload that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Number of the config now in force.
    pub config_generation: u64,
    /// Settings that were changed by this reload and take effect at the next restart only.
    #[serde(default)]
    pub restart_needed: Vec<String>,
}

impl From<&Snapshot> for Traffic {
    fn from(snapshot: &Snapshot) -> Self {
        let (totals, latency) = (&snapshot.totals, &snapshot.latency);
        Self {
            connections_open: snapshot.connections_open,
            requests_in_flight: snapshot.requests_in_flight,
            connections_total: totals.get(Counter::ConnectionsAccepted),
            refused_total: totals.refused(),
            requests_total: totals.get(Counter::Requests),
            rejects_total: totals.rejects(),
            responses_2xx_total: totals.get(Counter::Responses2xx),
            responses_3xx_total: totals.get(Counter::Responses3xx),
            responses_4xx_total: totals.get(Counter::Responses4xx),
            responses_5xx_total: totals.get(Counter::Responses5xx),
            received_bytes_total: totals.get(Counter::ReceivedBytes),
            sent_bytes_total: totals.get(Counter::SentBytes),
            latency: Latency {
                count: latency.count,
                sum_us: latency.sum_us,
                p50_us: latency.p50_us,
                p95_us: latency.p95_us,
                p99_us: latency.p99_us,
            },
        }
    }
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn states_are_said_in_the_api_by_their_words() {
        for &state in NodeState::ALL {
            let said = serde_json::to_string(&state).unwrap();
            assert_eq!(said, format!("\"{}\"", state.word()));
            assert_eq!(NodeState::from_word(state.word()), Some(state));
        }
        assert!(NodeState::ALL.is_sorted());
        assert_eq!(NodeState::from_word("upp"), None);
    }

    #[test]
    fn a_new_node_needs_a_name_and_an_address_and_knows_no_other_words() {
        let read = |text: &str| serde_json::from_str::<NewNode>(text);
        let node = read(r#"{"name":"n","address":"127.0.0.1:1"}"#).unwrap();
        assert_eq!((node.weight, node.public_address, node.service), (1, None, None));
        assert!(read(r#"{"name":"n"}"#).is_err());
        assert!(read(r#"{"name":"n","address":"nowhere"}"#).is_err());
        let error = read(r#"{"name":"n","address":"127.0.0.1:1","wieght":2}"#).unwrap_err();
        assert!(error.to_string().contains("wieght"), "{error}");
    }
}
