//! What the API says of pools and their servers.

use serde::{Deserialize, Serialize};
use skep_units::ServerAddress;
use utoipa::ToSchema;

use super::state::NodeState;

/// A pool at one moment, as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// How the server is chosen.
    pub policy: String,
    /// Requests that wait for a server with room.
    pub queued_requests: u64,
    /// Requests that got 503, as no server was up or had room in time.
    pub refused_total: u64,
    /// Its servers, the oldest first.
    pub servers: Vec<ServerStatus>,
}

/// A server of a pool at one moment, as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// Where the node reaches it.
    #[schema(value_type = String)]
    pub address: ServerAddress,
    /// Whether it gets requests.
    pub state: NodeState,
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
    /// Bytes of its response bodies.
    pub bytes_total: u64,
    /// Moving average of its time to answer, in microseconds; 0: none yet.
    pub latency_us: u64,
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
    /// What the check says: `good`, or why the server would be down. Of tests with `health`.
    pub check: Option<String>,
    /// Why there is no whole answer, or what is wrong with it.
    pub error: Option<String>,
}
