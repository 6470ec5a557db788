//! Every bound of this crate, with unit and reason.

/// Body of a request, in bytes: the largest real one, a new node, is below
/// 1 KiB.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Head of a request, in bytes: room for a token and what browsers add.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Time for a request's head, also the time that a connection may be idle, in
/// milliseconds: no command keeps one open between two requests.
pub(crate) const HEAD_MS: u64 = 10_000;

/// Time for a request from its head to its reply, in milliseconds: a reload
/// may read many sites.
pub(crate) const REQUEST_MS: u64 = 30_000;

/// Age at which a connection is cut, in milliseconds; it bounds what a client
/// that takes no byte of its reply can hold.
pub(crate) const CONNECTION_MS: u64 = 10 * 60_000;

/// Connections to one listener: commands and screens, not traffic. Each
/// listener has its own, so nobody locks the unix socket from outside. Those without
/// a request in work make room for others.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Pause after a failed accept, in milliseconds: out of descriptors, trying on
/// at once would only burn a core.
pub(crate) const ACCEPT_PAUSE_MS: u64 = 100;

/// Shortest token, in bytes: 16 random bytes can't be guessed over a network.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// Longest token, in bytes: it must fit into a head.
pub(crate) const TOKEN_BYTES_MAX: usize = 1024;

/// Time that the client waits for a whole answer, in milliseconds: a little
/// longer than the server takes to give up.
pub(crate) const ANSWER_MS: u64 = REQUEST_MS + 5_000;

/// Answer that the client takes, in bytes: the metrics of thousands of nodes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Time that a removed node's requests get when nothing else is asked for, in
/// milliseconds.
pub(crate) const REMOVE_MS: u64 = 30_000;

/// Time that nodes get to acknowledge a purge when nothing else is asked for, in
/// milliseconds: longer than it takes until one that is gone counts as gone.
pub const PURGE_MS: u64 = 2_000;

/// Longest such time, in milliseconds: the answer must come in that of a request.
pub const PURGE_MS_MAX: u64 = 20_000;

const _: () = assert!(PURGE_MS_MAX < REQUEST_MS);

/// How long a server may take to answer a test, unless the request says something else, in milliseconds.
pub const SERVER_TEST_MS: u64 = 10_000;

/// How long it may take at most, in milliseconds: less than a request of the API may.
pub const SERVER_TEST_MS_MAX: u64 = 20_000;

const _: () = assert!(SERVER_TEST_MS_MAX < REQUEST_MS);
const _: () = assert!(TOKEN_BYTES_MAX * 2 < HEAD_BYTES_MAX);

/// Step of requests over time unless one is asked for, in seconds: that of the longest time.
pub(crate) const SERIES_STEP_S: u64 = 60;
