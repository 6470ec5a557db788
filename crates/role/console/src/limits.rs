//! Every bound of this crate, with unit and reason.

/// Body of a request, in bytes: the largest one in use, for a new node, is below 1 KiB.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Head of a request, in bytes: enough for a token and the fields that browsers add.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Time for the head of a request, and idle time of a connection, in milliseconds: no command keeps a
/// connection open between two requests.
pub(crate) const HEAD_MS: u64 = 10_000;

/// Time from the head of a request to its reply, in milliseconds: a reload may read many sites.
pub(crate) const REQUEST_MS: u64 = 30_000;

/// Age at which a connection is closed, in milliseconds; bounds what a client that does not read its
/// reply can hold.
pub(crate) const CONNECTION_MS: u64 = 10 * 60_000;

/// Connections per listener: operators' commands and pages, not traffic. Each listener has its own, so
/// that remote clients cannot block the unix socket. Connections without a request in progress are
/// replaced by new ones.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Pause after a failed accept, in milliseconds: if descriptors are exhausted, immediate retries would
/// only consume processor time.
pub(crate) const ACCEPT_PAUSE_MS: u64 = 100;

/// Length of the shortest token, in bytes: 16 random bytes cannot be guessed over a network.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// Length of the longest token, in bytes: it must fit into a head.
pub(crate) const TOKEN_BYTES_MAX: usize = 1024;

/// Time that the client waits for a complete response, in milliseconds: a little longer than the
/// server's own limit.
pub(crate) const ANSWER_MS: u64 = REQUEST_MS + 5_000;

/// Longest response that the client accepts, in bytes: the metrics of thousands of nodes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Default time for a removed node's requests to complete, in milliseconds.
pub(crate) const REMOVE_MS: u64 = 30_000;

/// Default time for nodes to acknowledge a purge, in milliseconds: longer than it takes to detect a
/// failed node.
pub const PURGE_MS: u64 = 2_000;

/// Longest such time, in milliseconds: the response must be sent within the time limit of a request.
pub const PURGE_MS_MAX: u64 = 20_000;

const _: () = assert!(PURGE_MS_MAX < REQUEST_MS);

/// Default time limit for a server to respond to a test, in milliseconds.
pub const SERVER_TEST_MS: u64 = 10_000;

/// Longest such limit, in milliseconds: less than that of a request to the API.
pub const SERVER_TEST_MS_MAX: u64 = 20_000;

const _: () = assert!(SERVER_TEST_MS_MAX < REQUEST_MS);
const _: () = assert!(TOKEN_BYTES_MAX * 2 < HEAD_BYTES_MAX);

/// Default step of requests over time, in seconds: that of the longest history.
pub(crate) const SERIES_STEP_S: u64 = 60;
