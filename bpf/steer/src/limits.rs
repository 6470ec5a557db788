//! Sizes that the packet programs hold to; those of `bpf/*.h`.

/// Tags that may stand between Ethernet and IP; more is not IP to the programs.
pub(crate) const TAGS_MAX: usize = 2;

/// Bytes: every IPv4 host takes this much (RFC 791, 3.1), so no node's limit is
/// lower.
pub(crate) const MTU_MIN: usize = 576;

/// Bytes of a too big packet's payload that go back with the answer: a TCP
/// header, in which its sender finds the connection.
pub(crate) const QUOTED_BYTES: usize = 20;

/// Hops that an answer may take; what Linux gives its own.
pub(crate) const ANSWER_TTL: u8 = 64;

/// Nanoseconds of a window in which new flows are counted.
pub(crate) const WINDOW_NS: u64 = 1_000_000_000;
