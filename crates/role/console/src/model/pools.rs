//! API schemas of pools and their servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skep_units::ServerAddress;
use utoipa::ToSchema;

use super::NodeSource;
use super::state::NodeState;

/// The pools of a node at one moment, as it sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodePools {
    /// Name of the node.
    pub node: String,
    /// Why there is nothing of it; its pools are then unknown, not none.
    pub missing: Option<String>,
    /// Its pools.
    pub pools: Vec<PoolStatus>,
}

/// A node that is not in a sum: what it has is not known, and not none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingNode {
    /// Name of the node.
    pub node: String,
    /// Why its status is missing.
    pub why: String,
}

/// A pool at one moment, as a node sees it; or all of them, whose counts are then added up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// How the server is chosen.
    pub policy: String,
    /// Requests that wait for a server with room.
    pub queued_requests: u64,
    /// Requests that got 503, as no server was up or had room in time.
    pub refused_total: u64,
    /// Requests of a session that another server answered than the one that has it.
    pub sessions_lost_total: u64,
    /// Whether its servers report different versions.
    #[serde(default)]
    pub versions_differ: bool,
    /// The sessions that this node has seen lately; nothing: they cannot be distinguished, as
    /// `[pool.sticky]` of the config has it, or the node is of an earlier build.
    #[serde(default)]
    pub sessions: Option<PoolSessions>,
    /// The same of all nodes that have answered, where all were asked: a session that several have seen is
    /// one.
    #[serde(default)]
    pub cluster_sessions: Option<PoolSessions>,
    /// Its servers, the oldest first.
    pub servers: Vec<ServerStatus>,
    /// Of a sum: the nodes that are in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Of a sum: the nodes that are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingNode>,
}

/// Sessions of a pool of which a request was seen lately; an estimate, with a standard error of 2.3 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolSessions {
    /// How long ago the last request may be, in seconds, to within five minutes.
    pub window_s: u64,
    /// All of them.
    pub total: u64,
    /// The same by networks of their clients. One that came from several is in each of them.
    pub networks: Vec<NetworkSessions>,
    /// The nodes that have seen them.
    pub nodes: Vec<String>,
}

/// Sessions of the clients of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkSessions {
    /// Its name in the config, or `other`.
    pub network: String,
    /// How many there are.
    pub sessions: u64,
    /// The data by which the sessions of several nodes are merged. Nodes send it to dispatchers; the API does
    /// not include it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub sketch: Option<String>,
}

/// A server of a pool at one moment, as a node sees it; or as all of them do: then counts are added up, and the state
/// is that which most nodes see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Name of the server.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// Where the node reaches it.
    #[schema(value_type = String)]
    pub address: ServerAddress,
    /// Whether it gets requests.
    pub state: NodeState,
    /// The source of its entry.
    pub source: NodeSource,
    /// Why it is in that state, where there is something to say.
    pub reason: Option<String>,
    /// How long it has been in that state, in milliseconds.
    pub since_ms: u64,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// Thousandths of its share that it takes now.
    pub share_permille: u16,
    /// Requests and upgraded connections that this node has there.
    pub connections: u32,
    /// How many this node may have there now.
    pub slots: u32,
    /// How many all nodes together may have there, or each of them for itself.
    pub connections_max: u32,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests that were sent to it.
    pub requests_total: u64,
    /// Requests to it that did not end with a whole response.
    pub failures_total: u64,
    /// The same by cause, as far as there are any.
    pub failures_by_cause: BTreeMap<String, u64>,
    /// Bytes of its response bodies.
    pub bytes_total: u64,
    /// Moving average of its time to answer, in microseconds; 0: none yet.
    pub latency_us: u64,
    /// The status that it reports, if it is asked.
    #[serde(default)]
    pub agent: Option<ServerSelfReport>,
    /// Of a sum, how each node sees it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<ServerView>,
}

/// How a node sees a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerView {
    /// Name of the node.
    pub node: String,
    /// Whether it gets requests.
    pub state: NodeState,
    /// Why it is in that state, where there is something to say.
    pub reason: Option<String>,
    /// Its share of the work under weighted policies.
    pub weight: u32,
}

/// The status that a server of a pool reports, if `[pool.status]` of the config asks for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerSelfReport {
    /// Age of the report, in milliseconds; nothing: there is none yet.
    pub age_ms: Option<u64>,
    /// Its version.
    pub version: Option<String>,
    /// Names, with units, and values.
    pub values: BTreeMap<String, f64>,
    /// Sessions of each of its applications, by path.
    pub sessions: BTreeMap<String, u64>,
    /// Why it did not answer last; the rest is then older.
    pub error: Option<String>,
}

/// A server to add to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewServer {
    /// Name of the server.
    pub name: String,
    /// Where the node reaches it: an IP address and a port, or `unix:` and the path of a socket.
    #[schema(value_type = String, example = "10.0.0.23:3000")]
    pub address: ServerAddress,
    /// Its share of the work under weighted policies; 1 unless given.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 256)]
    pub weight: Option<u32>,
    /// Requests and upgraded connections that it takes at a time, at most; 256 unless given.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 65_536)]
    pub connections_max: Option<u32>,
    /// Whose requests these are: those of the `cluster`, of each `node`, or `auto`, as in the config.
    #[serde(default)]
    #[schema(example = "auto")]
    pub connections_scope: Option<String>,
    /// Address of its status, if not `address`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub status_address: Option<ServerAddress>,
}

/// A request by which a server of a pool is tested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewServerTest {
    /// Whether it is what the checks of the pool send, in place of a GET; then there is neither `target` nor
    /// `host`.
    #[serde(default)]
    pub health: bool,
    /// Path and query, as the server sees them; `/` unless given.
    #[serde(default)]
    #[schema(example = "/health")]
    pub target: Option<String>,
    /// Field Host; that of the pool's checks unless given, else the server's address.
    #[serde(default)]
    pub host: Option<String>,
    /// How long the whole answer may take, in milliseconds; 10 seconds unless given.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 20_000)]
    pub timeout_ms: Option<u64>,
}

/// What a server answered to a test. Times are from its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerTest {
    /// The server.
    pub name: String,
    /// Where it is.
    #[schema(value_type = String)]
    pub address: ServerAddress,
    /// Path and query that it was asked for, if it was.
    pub target: Option<String>,
    /// When its address was reached, in microseconds.
    pub connected_us: Option<u64>,
    /// When the head of its answer had come, in microseconds.
    pub head_us: Option<u64>,
    /// The end of the test, in microseconds.
    pub ended_us: u64,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Names and values of the answer's fields; `(stderr)` are lines that the application wrote for the log.
    pub fields: Vec<(String, String)>,
    /// Bytes of the body that came.
    pub body_bytes: u64,
    /// The first KiB of it.
    pub body: String,
    /// Whether there would have been more than 1 MiB of it, or 8 MiB with its framing.
    pub is_cut: bool,
    /// The result of the check: `good`, or why the server would be down. Of tests with `health`.
    pub check: Option<String>,
    /// Why there is no whole answer, or what is wrong with it.
    pub error: Option<String>,
}
