//! The displayed state of members: `skep status`, `skep node list`, the admin API.

use serde::{Deserialize, Serialize};
use skep_units::ServerAddress;

/// The state of a member at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub name: String,
    /// The address to connect to.
    pub address: ServerAddress,
    /// Host and port used in redirects.
    pub public_address: String,
    /// `joining`, `up`, `draining`, `drained`, `down` or `removing`.
    pub state: String,
    /// The reason for that state, if there is one.
    pub reason: Option<String>,
    /// Time since it entered that state, in milliseconds.
    pub since_ms: u64,
    /// The source of its entry.
    pub source: MemberSource,
    /// Its weight under weighted policies.
    pub weight: u32,
    /// Thousandths of its share that are in effect now: below 1000 during slow start, 0 while it gets
    /// no new requests.
    pub share_permille: u16,
    /// Connections in use: requests and tunnels.
    pub connections: u32,
    /// Bound on concurrent requests and tunnels of all processes that count together; `u32::MAX`:
    /// none.
    pub connections_max: u32,
    /// The part of that bound that this process may use now.
    pub slots: u32,
    /// Requests and tunnels of other processes there, as reported to policies.
    pub elsewhere: u32,
    /// Requests sent to it and not completely answered yet.
    pub outstanding_requests: u32,
    /// Bytes of announced reply bodies that have not arrived yet.
    pub outstanding_bytes: u64,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests that were sent or redirected to it.
    pub requests: u64,
    /// Requests to it that did not end with a complete reply.
    pub failures: u64,
    /// The same by cause, in the order of [`crate::CAUSES`].
    pub failures_by_cause: [u64; crate::CAUSES.len()],
    /// Bytes of its reply bodies.
    pub bytes: u64,
    /// Moving average of its response time, in microseconds; 0: none yet.
    pub latency_us: u64,
    /// For a server that is not an HTTP server.
    pub gateway: GatewayStatus,
}

/// Totals of a member whose protocol is FastCGI or AJP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Connections that were checked by CPING before they got a request.
    pub pings: u64,
    /// Those of them that did not answer.
    pub pings_failed: u64,
    /// Request fields that were not passed on, since their names could be read as those of other
    /// fields.
    pub fields_dropped: u64,
    /// Lines of standard error that were not logged because there were too many in a second.
    pub stderr_lines_dropped: u64,
    /// Bytes of standard error that were not logged because a line, or the output for a reply, was too
    /// long.
    pub stderr_bytes_dropped: u64,
}

/// The source of a member's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberSource {
    /// The config file.
    Config,
    /// The admin API; stays across reloads until it is removed.
    Api,
}
