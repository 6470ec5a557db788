//! API schemas of pools and their servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skep_units::ServerAddress;
use utoipa::ToSchema;

use super::NodeSource;
use super::state::NodeState;

/// The pools of a node, as it sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodePools {
    /// Name of the node.
    pub node: String,
    /// Why the node's status is missing; its pools are then unknown rather than empty.
    pub missing: Option<String>,
    /// Its pools.
    pub pools: Vec<PoolStatus>,
}

/// A node that is missing in a sum: its values are unknown, not zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingNode {
    /// Name of the node.
    pub node: String,
    /// Why its status is missing.
    pub why: String,
}

/// The state of a pool, as seen by one node or, with the counts added up, by all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// The policy by which servers are chosen.
    pub policy: String,
    /// Requests waiting for a server with free capacity.
    pub queued_requests: u64,
    /// Requests answered with 503 because no server was up, or had capacity in time.
    pub refused_total: u64,
    /// Requests of a session that were answered by a server other than the session's.
    pub sessions_lost_total: u64,
    /// Whether its servers report different versions.
    #[serde(default)]
    pub versions_differ: bool,
    /// The sessions recently seen by this node; absent if they cannot be distinguished according to
    /// `[pool.sticky]` of the config, or if the node runs an earlier build.
    #[serde(default)]
    pub sessions: Option<PoolSessions>,
    /// The sessions recently seen by all nodes that have answered, if all were asked: a session seen by
    /// several nodes counts once.
    #[serde(default)]
    pub cluster_sessions: Option<PoolSessions>,
    /// Its servers, oldest first.
    pub servers: Vec<ServerStatus>,
    /// For a sum: the nodes included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// For a sum: the nodes that are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingNode>,
}

/// The number of recently active sessions of a pool; an estimate with a standard error of 2.3 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolSessions {
    /// Maximum time since a session's last request, in seconds, accurate to five minutes.
    pub window_s: u64,
    /// All sessions.
    pub total: u64,
    /// Sessions by network of their clients. A session seen in several networks counts in each of them.
    pub networks: Vec<NetworkSessions>,
    /// The nodes that have seen the sessions.
    pub nodes: Vec<String>,
}

/// Sessions of the clients of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkSessions {
    /// Its name in the config, or `other`.
    pub network: String,
    /// The number of sessions.
    pub sessions: u64,
    /// The data by which the sessions of several nodes are merged. Nodes send it to dispatchers; the API does
    /// not include it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub sketch: Option<String>,
}

/// The state of a server of a pool, as seen by one node; or by all nodes, with counts added up and the state
/// that most nodes see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Name of the server.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// Address at which the node reaches it.
    #[schema(value_type = String)]
    pub address: ServerAddress,
    /// Whether it receives requests.
    pub state: NodeState,
    /// The source of its entry.
    pub source: NodeSource,
    /// The reason for the state, if there is one to report.
    pub reason: Option<String>,
    /// Time since it entered the state, in milliseconds.
    pub since_ms: u64,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// The part of its share that it currently receives, in thousandths.
    pub share_permille: u16,
    /// Requests and upgraded connections that this node currently has there.
    pub connections: u32,
    /// The number of these that this node may currently have.
    pub slots: u32,
    /// The maximum number of these for all nodes together, or for each node, depending on its scope.
    pub connections_max: u32,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests sent to it.
    pub requests_total: u64,
    /// Requests to it that did not end with a complete response.
    pub failures_total: u64,
    /// These failures by cause; only causes that occurred.
    pub failures_by_cause: BTreeMap<String, u64>,
    /// Bytes of its response bodies.
    pub bytes_total: u64,
    /// Moving average of its response time, in microseconds; 0: not measured yet.
    pub latency_us: u64,
    /// Its own status report, if it is queried.
    #[serde(default)]
    pub agent: Option<ServerSelfReport>,
    /// For a sum: how each node sees it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<ServerView>,
}

/// How a node sees a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerView {
    /// Name of the node.
    pub node: String,
    /// Whether it receives requests.
    pub state: NodeState,
    /// The reason for the state, if there is one to report.
    pub reason: Option<String>,
    /// Its share of the work under weighted policies.
    pub weight: u32,
}

/// The status reported by a server of a pool, if `[pool.status]` of the config enables it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerSelfReport {
    /// Age of the report, in milliseconds; absent if there is none yet.
    pub age_ms: Option<u64>,
    /// Its version.
    pub version: Option<String>,
    /// Values by name; names include the unit.
    pub values: BTreeMap<String, f64>,
    /// Sessions of each of its applications, by path.
    pub sessions: BTreeMap<String, u64>,
    /// Why the last query failed; the other fields are then older.
    pub error: Option<String>,
}

/// A server to add to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewServer {
    /// Name of the server.
    pub name: String,
    /// Address at which the node reaches it: an IP address and a port, or `unix:` and the path of a socket.
    #[schema(value_type = String, example = "10.0.0.23:3000")]
    pub address: ServerAddress,
    /// Its share of the work under weighted policies; 1 by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 256)]
    pub weight: Option<u32>,
    /// Maximum number of concurrent requests and upgraded connections; 256 by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 65_536)]
    pub connections_max: Option<u32>,
    /// Whether that limit applies to the `cluster`, to each `node`, or is chosen automatically (`auto`), as
    /// in the config.
    #[serde(default)]
    #[schema(example = "auto")]
    pub connections_scope: Option<String>,
    /// Address of its status, if it differs from `address`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub status_address: Option<ServerAddress>,
}

/// A request that tests a server of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewServerTest {
    /// Whether to send what the health checks of the pool send instead of a GET; `target` and `host` must
    /// then be absent.
    #[serde(default)]
    pub health: bool,
    /// Path and query, as the server receives them; `/` by default.
    #[serde(default)]
    #[schema(example = "/health")]
    pub target: Option<String>,
    /// Value of the Host field; by default that of the pool's health checks, or the server's address.
    #[serde(default)]
    pub host: Option<String>,
    /// How long the complete response may take, in milliseconds; 10 seconds by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 20_000)]
    pub timeout_ms: Option<u64>,
}

/// The response of a server to a test. Times are relative to the start of the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerTest {
    /// Name of the server.
    pub name: String,
    /// Its address.
    #[schema(value_type = String)]
    pub address: ServerAddress,
    /// Path and query of the request, if it had any.
    pub target: Option<String>,
    /// Time at which the connection was established, in microseconds.
    pub connected_us: Option<u64>,
    /// Time at which the head of the response had arrived, in microseconds.
    pub head_us: Option<u64>,
    /// End of the test, in microseconds.
    pub ended_us: u64,
    /// Status of the response.
    pub status: Option<u16>,
    /// Names and values of the response's fields; `(stderr)` contains lines that the application wrote for
    /// the log.
    pub fields: Vec<(String, String)>,
    /// Bytes of the body that were received.
    pub body_bytes: u64,
    /// The first KiB of the body.
    pub body: String,
    /// Whether the body exceeded 1 MiB, or 8 MiB including its framing, and was cut off.
    pub is_cut: bool,
    /// The result of the check, for tests with `health`: `good`, or why the server would be down.
    pub check: Option<String>,
    /// Why the response is incomplete, or what is wrong with it.
    pub error: Option<String>,
}
