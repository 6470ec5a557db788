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

/// The state of a process of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessStatus {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the process: of its dispatcher or node.
    pub name: String,
    /// The roles of the process.
    pub roles: Vec<Role>,
    /// Version of the program.
    pub version: String,
    /// Process ID.
    pub pid: u32,
    /// Start time, in seconds since 1970.
    pub started_unix_s: u64,
    /// Time since the start, in milliseconds; rates are differences of totals divided by differences of
    /// this.
    pub uptime_ms: u64,
    /// Whether the process is about to end: it accepts no new requests and finishes those in progress.
    pub draining: bool,
    /// Number of the config in force: 1 at the start, increased by one with each reload.
    pub config_generation: u64,
    /// The traffic of its clients.
    pub traffic: Traffic,
    /// Its node, if it has one.
    pub node: Option<NodeLocalStatus>,
    /// Its services, if it has a dispatcher.
    pub services: Vec<ServiceStatus>,
    /// Its state in direct dispatch, if it takes part.
    #[serde(default)]
    pub direct: Option<DirectStatus>,
    /// Its coordinator of the cluster cache, if it has one.
    #[serde(default)]
    pub cache: Option<CoordinatorStatus>,
    /// Load reports of nodes, if it has a dispatcher.
    #[serde(default)]
    pub loads: Vec<NodeReport>,
    /// The pools of its node.
    #[serde(default)]
    pub pools: Vec<PoolStatus>,
}

/// The last load report of a node. Rates are averages over the second before the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeReport {
    /// Name of the node.
    pub name: String,
    /// Age of the report, in milliseconds.
    pub age_ms: u64,
    /// Whether the report is too old to be used: dispatchers then use only their own observations.
    pub is_stale: bool,
    /// Processor use of its process, in thousandths of all processors.
    pub cpu_permille: u16,
    /// Memory of its process, including cached files, in bytes.
    pub memory_bytes: u64,
    /// Client connections.
    pub connections: u64,
    /// Requests that it is currently answering.
    pub requests_in_flight: u64,
    /// Bytes of replies to clients and nodes that are still to be sent; of a large object, only those of
    /// the segment being sent.
    pub bytes_outstanding: u64,
    /// Bytes sent to clients and nodes, per second.
    pub sent_bytes_s: u64,
    /// Bytes read from origins and disks into memory, per second.
    pub filled_bytes_s: u64,
    /// Share of requests answered from its own memory, in thousandths.
    pub hit_permille: u16,
}

/// A coordinator of the cluster cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CoordinatorStatus {
    /// Whether it answers nodes; otherwise the coordinator of another dispatcher does.
    pub is_active: bool,
    /// In direct dispatch, the epoch of its term; otherwise its rank among the dispatchers times 65,536,
    /// plus the number of the dispatcher.
    pub epoch: u64,
    /// Segments with a known holder.
    pub segments: u64,
    /// Replicas: the sum of the holders of all segments.
    pub copies: u64,
    /// Fills in progress.
    pub leases: u64,
    /// Files and folders of partitioned folders that nodes have announced.
    pub files: u64,
    /// Nodes that have not announced all their files, and nodes that were lost recently: files without a
    /// known holder may be there.
    pub nodes_unsure: u64,
    /// Its answers by kind: `have`, `busy`, `grant`, `refused`; and `directory_error`, for named holders
    /// that no longer had the segment.
    pub answers: Vec<AnswerCount>,
    /// The linked nodes.
    pub nodes: Vec<CacheNode>,
}

/// The number of answers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerCount {
    /// The kind.
    pub kind: String,
    /// Answers since the start.
    pub answers: u64,
}

/// A node in the cluster cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheNode {
    /// Name of the node.
    pub name: String,
    /// Address at which other nodes fetch from it.
    pub address: String,
    /// Bytes that it may keep.
    pub capacity_bytes: u64,
    /// Bytes that it keeps.
    pub held_bytes: u64,
    /// Of these, bytes that other nodes keep as well.
    pub shared_bytes: u64,
}

/// The state of a process in direct dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectStatus {
    /// Its stage: `active`, `standby`, `joining` or `leaving`; `node` for a process that is only a node.
    pub stage: String,
    /// Number of the active dispatcher's term, as last known here.
    pub epoch: u64,
    /// Name of the active dispatcher, if its heartbeats are received.
    pub active: Option<String>,
    /// Number, within that term, of the table by which packets are steered.
    pub table_generation: u64,
    /// Whether this dispatcher has all virtual addresses on its machine; always false for a process that
    /// is only a node.
    pub has_addresses: bool,
    /// On the active dispatcher: nodes that have not yet applied the latest table.
    pub nodes_behind: Vec<NodeBehind>,
    /// On a standby: whether it has all flows of the active dispatcher.
    pub flows_synced: bool,
    /// The attachment mode of the packet program, such as `native XDP`.
    pub attached: String,
    /// The network device to which it is attached.
    pub device: String,
    /// The state of the store shared by the dispatchers, if there is one.
    pub store: Option<String>,
    /// The other dispatchers.
    pub peers: Vec<DirectPeer>,
    /// Packets by verdict, since the program was loaded.
    pub packets: Vec<PacketCount>,
    /// On a node with handoffs: outcomes of the connections that it tried to move to other nodes.
    #[serde(default)]
    pub handoffs: Vec<HandoffCount>,
    /// Outcomes of the connections that other nodes offered to it.
    #[serde(default)]
    pub handoffs_received: Vec<HandoffCount>,
    /// Faults of this machine, as sentences.
    pub complaints: Vec<String>,
}

/// The number of connections whose handoff had one outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandoffCount {
    /// The outcome, as in the metrics: `moved`, `silent`, `refused_full` and others.
    pub outcome: String,
    pub connections: u64,
}

/// A node that still steers by an earlier table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeBehind {
    /// Name of the node.
    pub node: String,
    /// Tables of this term that it has not yet applied.
    pub tables: u64,
}

/// Another dispatcher, as seen through its heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectPeer {
    /// Name of the dispatcher or node.
    pub name: String,
    /// Like `stage` of a process, or `silent`.
    pub stage: String,
    /// Time since its last heartbeat, in milliseconds.
    pub silent_ms: u64,
}

/// The number of packets with one verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PacketCount {
    /// The verdict, such as `forward_flow`.
    pub verdict: String,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of the packets' frames.
    pub bytes: u64,
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends clients' requests to nodes.
    Dispatcher,
    /// Serves files.
    Node,
}

/// The traffic of a process's clients. Fields with `total` count since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Traffic {
    /// Open client connections.
    pub connections_open: u64,
    /// Requests whose reply is not complete.
    pub requests_in_flight: u64,
    /// Client connections accepted.
    pub connections_total: u64,
    /// Client connections refused because of a limit.
    pub refused_total: u64,
    /// Requests received.
    pub requests_total: u64,
    /// Requests rejected because they were not valid HTTP.
    pub rejects_total: u64,
    /// Replies with status 2xx.
    pub responses_2xx_total: u64,
    /// Replies with status 3xx.
    pub responses_3xx_total: u64,
    /// Replies with status 4xx.
    pub responses_4xx_total: u64,
    /// Replies with status 5xx.
    pub responses_5xx_total: u64,
    /// Bytes received from clients.
    pub received_bytes_total: u64,
    /// Bytes sent to clients.
    pub sent_bytes_total: u64,
    /// Time from the first byte of a request to the last byte of its reply.
    pub latency: Latency,
}

/// Response times since the start, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// Requests measured.
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

/// The node of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLocalStatus {
    /// Its listen address.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Bytes of files in its memory.
    pub cache_bytes: u64,
    /// Maximum number of bytes that its memory may hold.
    pub cache_bytes_max: u64,
    /// Segments of files in its memory.
    pub cache_segments: u64,
    /// Requests answered from memory.
    pub cache_hits_total: u64,
    /// Requests looked up in memory.
    pub cache_lookups_total: u64,
    /// Its sites: the first host name of each, or `*`.
    pub sites: Vec<String>,
}

/// The state of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceStatus {
    /// Name of the service.
    pub name: String,
    /// Its listen addresses.
    #[schema(value_type = Vec<String>)]
    pub listen: Vec<SocketAddr>,
    /// How requests are dispatched to nodes: `proxy` or `redirect`.
    pub dispatch: String,
    /// The policy by which nodes are chosen.
    pub policy: String,
    /// The arms of its A/B test of policies; empty if there is no test.
    #[serde(default)]
    pub arms: Vec<ServiceArm>,
    /// Its nodes, oldest first.
    pub nodes: Vec<NodeStatus>,
}

/// An arm of a running A/B test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceArm {
    /// Its name.
    pub name: String,
    /// The policy by which nodes are chosen for its clients.
    pub policy: String,
    /// Its share of the clients, relative to the weights of the other arms.
    pub weight: u32,
    /// Its group of nodes; empty: all nodes.
    pub nodes: Vec<String>,
}

/// The state of a node, as seen by the dispatcher of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// The service.
    pub service: String,
    /// Address at which the dispatcher reaches it.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// Host and port that redirects contain.
    pub public_address: String,
    /// Whether it receives requests.
    pub state: NodeState,
    /// The reason for the state, if there is one to report.
    pub reason: Option<String>,
    /// Time since it entered the state, in milliseconds.
    pub since_ms: u64,
    /// The source of its entry.
    pub source: NodeSource,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// The part of its share that it currently receives, in thousandths: below 1000 during slow start, 0
    /// while it receives no new requests.
    pub share_permille: u16,
    /// Requests sent to it whose replies are not complete.
    pub outstanding_requests: u32,
    /// Bytes of announced reply bodies that have not arrived yet.
    pub outstanding_bytes: u64,
    /// Connections in use by requests or tunnels.
    pub connections: u32,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests sent or redirected to it.
    pub requests_total: u64,
    /// Requests to it that did not end with a complete reply.
    pub failures_total: u64,
    /// Bytes of its reply bodies.
    pub bytes_total: u64,
    /// Moving average of its response time, in microseconds; 0: not measured yet.
    pub latency_us: u64,
}

/// The source of a node's entry.
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
    /// Address at which the dispatcher reaches it.
    #[schema(value_type = String, example = "10.0.0.12:8080")]
    pub address: SocketAddr,
    /// Its share of the work under weighted policies.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 256)]
    pub weight: u32,
    /// Host and port that redirects contain; `address` by default.
    #[serde(default)]
    pub public_address: Option<String>,
    /// The service to which it belongs; required if there are several.
    #[serde(default)]
    pub service: Option<String>,
}

/// A new weight of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWeight {
    /// Its share of the work under weighted policies.
    #[schema(minimum = 1, maximum = 256)]
    pub weight: u32,
}

/// A new policy of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPolicy {
    /// Its name, such as `round-robin`.
    pub policy: String,
}

/// A purge request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPurge {
    /// `/PATH` or `/PREFIX*`, optionally preceded by `http://HOST`; or `tag:NAME`.
    #[schema(min_items = 1, max_items = 128, example = json!(["/img/*", "tag:news"]))]
    pub what: Vec<String>,
    /// Whether objects become stale instead of being removed: they are then validated with their source,
    /// or used as stale objects may be; false by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<bool>,
    /// How long nodes have to acknowledge the purge, in milliseconds; 2 seconds by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 20_000)]
    pub timeout_ms: Option<u64>,
}

/// The result of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Purged {
    /// The purge's number: later purges have greater ones. It exceeds 2^53: languages that read numbers
    /// as doubles round it.
    pub stamp: u64,
    /// Whether every linked node, and every node that serves clients, acknowledged the purge in time.
    pub complete: bool,
    /// The result at each node.
    pub nodes: Vec<PurgedNode>,
}

/// The result of a purge at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgedNode {
    /// Name of the node.
    pub name: String,
    /// Whether it has applied the purge.
    pub outcome: PurgeOutcome,
    /// Time of the acknowledgement, in milliseconds since the purge began.
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

/// A successful reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Number of the config now in force.
    pub config_generation: u64,
    /// Changed settings that take effect only after a restart.
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
