//! The displayed state of members: `skep status`, `skep node list`, the admin API.

use serde::{Deserialize, Serialize};
use skep_units::ServerAddress;

/// The state of a member at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub name: String,
    /// Where it is connected to.
    pub address: ServerAddress,
    /// Host and port that a redirect names.
    pub public_address: String,
    /// `joining`, `up`, `draining`, `drained`, `down` or `removing`.
    pub state: String,
    /// The reason for that state, where there is one.
    pub reason: Option<String>,
    /// How long it has been in that state, in milliseconds.
    pub since_ms: u64,
    /// The source of its entry.
    pub source: MemberSource,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// Thousandths of its share that it gets now: below 1000 during slow start, 0 while it gets no
    /// new requests.
    pub share_permille: u16,
    /// Connections in use: requests and tunnels.
    pub connections: u32,
    /// Requests and tunnels at a time, at most, of all processes that count together; `u32::MAX` is no
    /// bound.
    pub connections_max: u32,
    /// Of these, how many this process may have now.
    pub slots: u32,
    /// Requests and tunnels that other processes have there, as policies are told.
    pub elsewhere: u32,
    /// Requests sent to it and not yet answered in full.
    pub outstanding_requests: u32,
    /// Bytes of announced reply bodies that have not arrived yet.
    pub outstanding_bytes: u64,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests that were sent or redirected to it.
    pub requests: u64,
    /// Requests to it that did not end with a whole reply.
    pub failures: u64,
    /// The same by cause, in the order of [`crate::CAUSES`].
    pub failures_by_cause: [u64; crate::CAUSES.len()],
    /// Bytes of its reply bodies.
    pub bytes: u64,
    /// Moving average of its time to answer, in microseconds; 0: none yet.
    pub latency_us: u64,
    /// Of a server that is no HTTP server.
    pub gateway: GatewayStatus,
}

/// Totals of a member that speaks FastCGI or AJP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Connections that were asked by CPING before they got a request.
    pub pings: u64,
    /// Of these, those without an answer.
    pub pings_failed: u64,
    /// Fields of requests that were not passed on, since their names could be read as others'.
    pub fields_dropped: u64,
    /// Lines of standard error that were not logged: too many in a second.
    pub stderr_lines_dropped: u64,
    /// Bytes of standard error that were not logged: too many of a line, or of a reply.
    pub stderr_bytes_dropped: u64,
}

/// The source of a member's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberSource {
    /// The config file.
    Config,
    /// The admin API; stays through reloads until it is removed.
    Api,
}
