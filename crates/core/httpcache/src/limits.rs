//! Every limit of the rules, with unit and reason.

/// Largest number of seconds in a directive or in Age, 2^31 (RFC 9111 1.2.2).
pub const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// Names that `no-cache="..."` or `private="..."` may list; with more, it applies to the whole
/// response.
pub(crate) const FIELD_NAMES_MAX: usize = 32;

/// Names that Vary may list; a response with more is treated as `Vary: *`, since no other request
/// would match.
pub(crate) const VARY_NAMES_MAX: usize = 16;

/// Bytes of the normalised values of a secondary key: as many as fit into a head besides the rest.
/// A request with more is forwarded without a lookup.
pub const SECONDARY_KEY_BYTES_MAX: usize = 4096;

/// Value of a cookie that is part of a key, in bytes: enough for an identifier.
pub const KEY_COOKIE_BYTES_MAX: usize = 256;

/// Longest key that is shown to clients, in bytes: longer ones would add several KiB to each reply.
pub const KEY_SHOWN_BYTES_MAX: usize = 1024;

/// Members of a structured field (RFC 9651 1.1 allows parsers to refuse more than 1,024 members of
/// a dictionary).
pub(crate) const STRUCTURED_MEMBERS_MAX: usize = 1024;

/// Longest heuristic lifetime, in milliseconds: an hour. Objects that rarely change have an
/// explicit lifetime; a wrong guess should not last long.
pub const HEURISTIC_MS_MAX: u64 = 3_600_000;

/// Heuristic lifetime relative to the time since the last change, in percent (RFC 9111 4.2.2: "a
/// typical setting of this fraction might be 10%").
pub const HEURISTIC_PERCENT: u64 = 10;
