//! Every limit of the codec, named, with its unit and its reason.

/// Slots for fields in a [`crate::FieldSlots`]: the largest possible `fields_max`. These are the
/// 128 that an operator may allow, plus those that hops add; 160 slots of 32 bytes take 5 KiB of
/// stack.
pub const FIELDS_CAP: usize = 160;

/// Fields that a dispatcher may add to a request: Host, four that state the origin of the request,
/// Content-Length, Via; and one to spare.
pub const HOP_FIELDS_MAX: usize = 8;

/// Bytes that it may add: the host twice (261 bytes each), the client's address twice (45), a space
/// after each colon (160), and the rest of those fields.
pub const HOP_BYTES_MAX: usize = 2 * 1024;

/// Bytes that a gateway adds to the head of an application server's reply: a reason phrase (31
/// bytes) and `Transfer-Encoding: chunked` (28).
pub const GATEWAY_BYTES_MAX: usize = 64;

/// Head of a message, first byte to CRLFCRLF: 16 KiB, similar to the defaults of nginx and Apache;
/// browsers with large cookies stay below it.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Fields in a head: 100, the common default (hyper, Apache, HAProxy).
pub const FIELDS_MAX: usize = 100;

/// Request target: 8 KiB (RFC 9112 3 recommends at least 8000 octets).
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Method token: 32 bytes; the longest registered one has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Options in all Connection fields of a head: 32; real ones have three. Each is compared with
/// every field when a head is forwarded.
pub const CONNECTION_OPTIONS_MAX: usize = 32;

/// A body: 1 GiB unless configured otherwise for the site.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One chunk line, including size, extensions and CRLF: 256 bytes; real ones have fewer than 20.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Chunk extensions of one body in total: 16 KiB (CVE-2023-39326, and hyper's limit): without it,
/// one byte of payload can cost the reader hundreds of bytes.
pub const CHUNK_EXT_BYTES_MAX: usize = 16 * 1024;

/// Trailer section of one body: half the size of a head.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Trailer fields of one body.
pub const TRAILER_FIELDS_MAX: usize = 32;

/// Limits on the head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// First byte to CRLFCRLF, in bytes; 431 above it.
    pub head_bytes_max: usize,
    /// Number of fields, at most [`FIELDS_CAP`]; 431 above it.
    pub fields_max: usize,
    /// Request target, in bytes; 414 above it.
    pub target_bytes_max: usize,
    /// How fields with `_` in their names are handled.
    pub underscores: Underscores,
}

/// How a field with `_` in its name is handled. It is legal (RFC 9110 5.1), but CGI-like
/// applications read `A_B` and `A-B` as the same variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// The field is dropped from the head and counted.
    #[default]
    Drop,
    /// The field is treated like any other.
    Pass,
    /// The message is refused.
    Refuse,
}

impl HeadLimits {
    /// The limits for a receiver of requests forwarded by a dispatcher with these limits: clients
    /// lose nothing of what they may send.
    #[must_use]
    pub fn behind_a_hop(self) -> HeadLimits {
        HeadLimits {
            head_bytes_max: self.head_bytes_max + HOP_BYTES_MAX,
            fields_max: self.fields_max + HOP_FIELDS_MAX,
            ..self
        }
    }
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            head_bytes_max: HEAD_BYTES_MAX,
            fields_max: FIELDS_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            underscores: Underscores::Drop,
        }
    }
}

/// Limits on a message body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Payload, in bytes; 413 above it.
    pub body_bytes_max: u64,
    /// One chunk line with its CRLF, in bytes; 400 above it.
    pub chunk_line_bytes_max: usize,
    /// Chunk extensions of the whole body, in bytes; 400 above it.
    pub chunk_ext_bytes_max: usize,
    /// Trailer section, in bytes; 431 above it.
    pub trailer_bytes_max: usize,
    /// Trailer fields; 431 above it.
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

/// Head of a response to a proxy or cache: twice the size of a request's, for applications that set
/// many cookies. Underscores in names are accepted: no downstream reader maps them to variables.
pub const RESPONSE_HEAD: HeadLimits = HeadLimits {
    head_bytes_max: 2 * HEAD_BYTES_MAX,
    fields_max: FIELDS_MAX,
    target_bytes_max: TARGET_BYTES_MAX,
    underscores: Underscores::Pass,
};

/// Head of a node's response to a dispatcher: what [`RESPONSE_HEAD`] accepts from an origin, plus
/// what a node adds: a dozen fields, and `site.headers`.
pub const NODE_RESPONSE_HEAD: HeadLimits =
    HeadLimits { head_bytes_max: 4 * HEAD_BYTES_MAX, fields_max: FIELDS_CAP, ..RESPONSE_HEAD };

/// Body of such a response: its length is unbounded, since it is never stored as a whole, or its
/// reader bounds what it stores; its framing is bounded.
pub const RESPONSE_BODY: BodyLimits = BodyLimits {
    body_bytes_max: u64::MAX,
    chunk_line_bytes_max: CHUNK_LINE_BYTES_MAX,
    chunk_ext_bytes_max: CHUNK_EXT_BYTES_MAX,
    trailer_bytes_max: TRAILER_BYTES_MAX,
    trailer_fields_max: TRAILER_FIELDS_MAX,
};

/// Interim responses (1xx) before the final one; real servers send one or two.
pub const INTERIM_RESPONSES_MAX: usize = 8;

/// Clients stated by a trusted proxy in one family of fields that are translated to the other: a
/// chain of proxies is short.
pub const FORWARDED_TRANSLATED_MAX: usize = 8;
