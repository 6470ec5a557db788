//! Every limit of the rules, with unit and reason.

/// Largest number of seconds in a directive or in Age, 2^31 (RFC 9111 1.2.2).
pub const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// Names that a `no-cache="..."` or `private="..."` may list; with more it means the whole response.
pub(crate) const FIELD_NAMES_MAX: usize = 32;

/// Names that Vary may list; a response with more counts as `Vary: *`: nobody else sends the same.
pub(crate) const VARY_NAMES_MAX: usize = 16;

/// Bytes of the normalised values of a secondary key: that many fit a head beside the rest. A
/// request with more is forwarded without a look-up.
pub const SECONDARY_KEY_BYTES_MAX: usize = 4096;

/// Value of a cookie that is part of a key, in bytes: an identifier, not a document.
pub const KEY_COOKIE_BYTES_MAX: usize = 256;

/// Bytes of a key that clients are told: a field of a few hundred bytes, not one of several KiB for each reply.
pub const KEY_SHOWN_BYTES_MAX: usize = 1024;

/// Members of a structured field (RFC 9651 1.1 lets a parser refuse more than 1,024 of a dictionary).
pub(crate) const STRUCTURED_MEMBERS_MAX: usize = 1024;

/// Most of a heuristic lifetime, in milliseconds: an hour. What changes seldom has a lifetime of its
/// own; a wrong guess should be over within a shift.
pub const HEURISTIC_MS_MAX: u64 = 3_600_000;

/// Share of the time since the last change that a heuristic lifetime is, in percent
/// (RFC 9111 4.2.2: "a typical setting of this fraction might be 10%").
pub const HEURISTIC_PERCENT: u64 = 10;
