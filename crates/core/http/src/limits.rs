//! Every limit of the codec, named, with its unit and its reason.

/// Slots for fields in a [`crate::FieldSlots`]: the most that `fields_max` can
/// be. 128 slots of 32 bytes are one page of stack.
pub const FIELDS_CAP: usize = 128;

/// Head of a message, first byte to CRLFCRLF: 16 KiB, as nginx' and Apache's
/// defaults together allow; browsers with large cookies stay below it.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Fields in a head: 100, the common default (hyper, Apache, HAProxy).
pub const FIELDS_MAX: usize = 100;

/// Request target: 8 KiB (RFC 9112 3 recommends at least 8000 octets).
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Method token: 32 bytes; the longest registered one has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Options in all Connection fields of a head: 32; real ones have three. Each
/// is compared with every field when a head is passed on.
pub const CONNECTION_OPTIONS_MAX: usize = 32;

/// A body: 1 GiB unless the site says otherwise.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One chunk line, size and extensions and CRLF: 256 bytes; real ones have
/// fewer than 20.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Chunk extensions of one body together: 16 KiB (CVE-2023-39326, and hyper's
/// limit): without it one byte of payload can cost the reader hundreds.
pub const CHUNK_EXT_BYTES_MAX: usize = 16 * 1024;

/// Trailer section of one body: as much as half a head.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Trailer fields of one body.
pub const TRAILER_FIELDS_MAX: usize = 32;

/// Limits on the head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// First byte to CRLFCRLF, in bytes; over it: 431.
    pub head_bytes_max: usize,
    /// Fields; at most [`FIELDS_CAP`]; over it: 431.
    pub fields_max: usize,
    /// Request target, in bytes; over it: 414.
    pub target_bytes_max: usize,
    /// Whether `_` may stand in a field name. CGI-like backends read `A_B`
    /// and `A-B` as the same variable, so the default refuses it.
    pub allow_underscore: bool,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            head_bytes_max: HEAD_BYTES_MAX,
            fields_max: FIELDS_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            allow_underscore: false,
        }
    }
}

/// Limits on a message body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Payload, in bytes; over it: 413.
    pub body_bytes_max: u64,
    /// One chunk line with its CRLF, in bytes; over it: 400.
    pub chunk_line_bytes_max: usize,
    /// Chunk extensions of the whole body, in bytes; over it: 400.
    pub chunk_ext_bytes_max: usize,
    /// Trailer section, in bytes; over it: 431.
    pub trailer_bytes_max: usize,
    /// Trailer fields; over it: 431.
    pub trailer_fields_max: usize,
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits {
            body_bytes_max: BODY_BYTES_MAX,
            chunk_line_bytes_max: CHUNK_LINE_BYTES_MAX,
            chunk_ext_bytes_max: CHUNK_EXT_BYTES_MAX,
            trailer_bytes_max: TRAILER_BYTES_MAX,
            trailer_fields_max: TRAILER_FIELDS_MAX,
        }
    }
}

/// Head of a response to a proxy or cache: twice what a request's may be, for
/// applications that set many cookies. Underscores in names are theirs to use: no
/// reader behind us maps them to variables.
pub const RESPONSE_HEAD: HeadLimits = HeadLimits {
    head_bytes_max: 2 * HEAD_BYTES_MAX,
    fields_max: FIELDS_MAX,
    target_bytes_max: TARGET_BYTES_MAX,
    allow_underscore: true,
};

/// Body of such a response: its length is not bounded, since it is never held
/// whole, or whoever reads it decides what is kept; its framing is.
pub const RESPONSE_BODY: BodyLimits = BodyLimits {
    body_bytes_max: u64::MAX,
    chunk_line_bytes_max: CHUNK_LINE_BYTES_MAX,
    chunk_ext_bytes_max: CHUNK_EXT_BYTES_MAX,
    trailer_bytes_max: TRAILER_BYTES_MAX,
    trailer_fields_max: TRAILER_FIELDS_MAX,
};

/// Interim responses (1xx) before the real one; real servers send one or two.
pub const INTERIM_RESPONSES_MAX: usize = 8;
