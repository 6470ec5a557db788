//! Every limit of the loads, with its unit and its reason.

/// Maximum length of a response's head that a load client reads, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of connections or requests in flight of one load: below the 64,512 ports of a client
/// machine.
pub const IN_FLIGHT_MAX: usize = 60_000;

/// Time from which on a request is slow, in milliseconds: a lost SYN is retransmitted after 1 s (RFC 6298,
/// 2.1), and a busy machine rarely takes that long.
pub(crate) const SLOW_MS: u64 = 500;

/// Maximum number of failures that a report describes; further ones are only counted.
pub(crate) const EXAMPLES_MAX: usize = 10;

/// Maximum number of node names that a report counts; further ones are left out.
pub(crate) const NODE_NAMES_MAX: usize = 256;
