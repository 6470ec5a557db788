//! Every limit of the loads, with its unit and its reason.

/// Longest head of a response that a load client reads, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Connections or requests in flight that one load may ask for: below the
/// 64,512 ports that a client machine has.
pub const IN_FLIGHT_MAX: usize = 60_000;

/// From here on a request is slow, in milliseconds: a SYN that is lost is sent
/// again after 1 s (RFC 6298, 2.1), and a busy machine rarely takes so long.
pub(crate) const SLOW_MS: u64 = 500;

/// Failures whose description a report keeps; later ones are only counted.
pub(crate) const EXAMPLES_MAX: usize = 10;

/// Names of nodes that a report counts; further ones are left out.
pub(crate) const NODE_NAMES_MAX: usize = 256;
