//! Why a message was refused. One constant per reason, so that counters, logs and tests use the
//! same names.
//!
//! Invariant: after a [`Reject`] the connection is closed; the rest of the buffer is ignored (no
//! resynchronisation).

/// A refusal: the status to answer with and a short stable name of the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{status} {reason}")]
pub struct Reject {
    /// Status code of the reply; always 502 for what an upstream sent.
    pub status: u16,
    /// Stable kebab-case name, for logs and counters.
    pub reason: &'static str,
}

impl Reject {
    /// The same reason, if an upstream's reply is at fault and not the client.
    pub const fn by_upstream(self) -> Reject {
        Reject { status: 502, reason: self.reason }
    }

    /// Index of the reason in [`Reject::ALL`], for counters; one past the last index for a reason
    /// from another crate.
    pub fn index(&self) -> usize {
        Reject::ALL.iter().position(|r| r.reason == self.reason).unwrap_or(Reject::ALL.len())
    }
}

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident $status:literal $reason:literal;)*) => {
        impl Reject {
            $($(#[$doc])* pub const $name: Reject = Reject { status: $status, reason: $reason };)*

            /// Every reason of this crate, in the order of this file.
            pub const ALL: &'static [Reject] = &[$(Reject::$name),*];
        }
    };
}

rejects! {
    // Bytes and limits of a head.

    /// The first byte cannot begin a message (a TLS hello, say).
    FIRST_BYTE 400 "first-byte";
    /// More than one empty line before a request line (RFC 9112 2.2).
    EMPTY_LINES 400 "empty-lines";
    /// LF not preceded by CR (RFC 9112 2.2).
    BARE_LF 400 "bare-lf";
    /// CR not followed by LF (RFC 9112 2.2).
    BARE_CR 400 "bare-cr";
    /// NUL or another control character (RFC 9110 5.5).
    CONTROL_BYTE 400 "control-byte";
    /// Head over its limit, or endless (RFC 6585 5).
    HEAD_TOO_LARGE 431 "head-too-large";
    /// More fields than the limit (RFC 6585 5).
    TOO_MANY_FIELDS 431 "too-many-fields";
    /// Request target over its limit (RFC 9112 3).
    TARGET_TOO_LONG 414 "target-too-long";

    // Request line.

    /// Not `method SP target SP version` (RFC 9112 3).
    REQUEST_LINE 400 "request-line";
    /// Method longer than any real one. RFC 9112 3 suggests 501 for an unknown method; this is
    /// garbage.
    METHOD_TOO_LONG 400 "method-too-long";
    /// CONNECT: Skep is no tunnel (RFC 9110 9.3.6).
    CONNECT 501 "connect";
    /// Not `HTTP/digit.digit` (RFC 9112 2.3).
    VERSION_SYNTAX 400 "version-syntax";
    /// A version other than 1.0 and 1.1 (RFC 9110 15.6.6).
    VERSION_UNSUPPORTED 505 "version-unsupported";
    /// A byte in the target that RFC 3986 does not allow there.
    TARGET_BYTE 400 "target-byte";
    /// A target of none of the four forms (RFC 9112 3.2).
    TARGET_FORM 400 "target-form";
    /// A fragment in the target (RFC 9112 3.2).
    FRAGMENT 400 "fragment";
    /// `*` with another method than OPTIONS (RFC 9112 3.2.4).
    ASTERISK 400 "asterisk";
    /// An absolute target with another scheme than http and https.
    SCHEME 400 "scheme";
    /// `user@host` in an authority (RFC 9110 4.2.4).
    USERINFO 400 "userinfo";

    // Fields.

    /// A byte in a field name that is not allowed in a token (RFC 9110 5.1).
    FIELD_NAME 400 "field-name";
    /// A field line without a name (RFC 9112 5).
    FIELD_NAME_EMPTY 400 "field-name-empty";
    /// A field line without a colon (RFC 9112 5).
    FIELD_NO_COLON 400 "field-no-colon";
    /// Whitespace between name and colon (RFC 9112 5.1).
    SPACE_BEFORE_COLON 400 "space-before-colon";
    /// A line that begins with whitespace (RFC 9112 2.2 and 5.2).
    OBS_FOLD 400 "obs-fold";
    /// `_` in a field name, which some backends read as `-`, if configured to be refused.
    UNDERSCORE 400 "underscore";
    /// A byte that is not allowed in a field value (RFC 9110 5.5).
    FIELD_VALUE 400 "field-value";
    /// More options in Connection than any real client sends.
    CONNECTION_OPTIONS 400 "connection-options";
    /// An Expect other than `100-continue` (RFC 9110 10.1.1).
    EXPECT 417 "expect";

    // Host.

    /// HTTP/1.1 without Host (RFC 9112 3.2).
    HOST_MISSING 400 "host-missing";
    /// More than one Host (RFC 9112 3.2).
    HOST_REPEATED 400 "host-repeated";
    /// Host is no valid host and port (RFC 9112 3.2).
    HOST_INVALID 400 "host-invalid";
    /// An absolute target and Host disagree (RFC 9112 3.2.2).
    HOST_MISMATCH 400 "host-mismatch";

    // Framing.

    /// Content-Length is not one plain number (RFC 9112 6.3).
    LENGTH_INVALID 400 "content-length";
    /// More than one Content-Length, even if equal (RFC 9112 6.3).
    LENGTH_REPEATED 400 "content-length-repeated";
    /// Both Transfer-Encoding and Content-Length (RFC 9112 6.3).
    LENGTH_AND_CODING 400 "length-and-coding";
    /// Transfer-Encoding in HTTP/1.0 (RFC 9112 6.1).
    CODING_IN_HTTP10 400 "coding-in-http10";
    /// Transfer-Encoding whose last coding is not one `chunked` (RFC 9112 6.3).
    CODING_INVALID 400 "transfer-encoding";
    /// More than one Transfer-Encoding.
    CODING_REPEATED 400 "transfer-encoding-repeated";
    /// A coding before `chunked` (RFC 9112 6.1).
    CODING_UNKNOWN 501 "transfer-coding-unknown";
    /// A status without a body announces one (RFC 9112 6.1, 6.3).
    BODY_FORBIDDEN 400 "body-forbidden";

    // Body.

    /// Payload over its limit (RFC 9110 15.5.14).
    BODY_TOO_LARGE 413 "body-too-large";
    /// The peer closed before the end (RFC 9112 8).
    BODY_TRUNCATED 400 "body-truncated";
    /// Chunk size is not 1 to 16 hexadecimal digits (RFC 9112 7.1).
    CHUNK_SIZE 400 "chunk-size";
    /// Malformed chunk extension (RFC 9112 7.1.1).
    CHUNK_EXT 400 "chunk-ext";
    /// Chunk line over its limit.
    CHUNK_LINE_LONG 400 "chunk-line-long";
    /// Chunk extensions of the body over their limit (CVE-2023-39326).
    CHUNK_EXT_LARGE 400 "chunk-ext-large";
    /// No CRLF where a chunk's data or line must end (RFC 9112 7.1).
    CHUNK_END 400 "chunk-end";
    /// Malformed trailer field (RFC 9112 7.1.2).
    TRAILER_FIELD 400 "trailer-field";
    /// Trailer section over one of its limits.
    TRAILER_TOO_LARGE 431 "trailer-too-large";

    // Path.

    /// The path does not begin with a slash.
    PATH_FORM 400 "path-form";
    /// `%` without two hexadecimal digits (RFC 3986 2.1).
    PATH_ESCAPE 400 "path-escape";
    /// `%2F` or `%5C`: a separator for some servers, a plain byte for others.
    PATH_ENCODED_SLASH 400 "path-encoded-slash";
    /// A backslash: a separator for some servers.
    PATH_BACKSLASH 400 "path-backslash";
    /// NUL or another control character, plain or encoded.
    PATH_CONTROL 400 "path-control";
    /// `.` or `..` with parameters after `;`, which servlet engines cut off first.
    PATH_DOT_PARAMETERS 400 "path-dot-parameters";
    /// `..` above the root.
    PATH_ABOVE_ROOT 400 "path-above-root";
    /// A path that routes of folders and of origins would match differently.
    PATH_TWO_ROUTES 400 "path-two-routes";

    // Responses.

    /// Not `version SP status SP reason` (RFC 9112 4).
    STATUS_LINE 400 "status-line";
    /// A status outside of 100 to 599 (RFC 9110 15).
    STATUS_CODE 400 "status-code";
}

#[cfg(test)]
mod tests {
    use super::Reject;

    #[test]
    fn reasons_are_distinct_and_find_their_place() {
        for (place, reject) in Reject::ALL.iter().enumerate() {
            assert_eq!(reject.index(), place, "{reject} is listed twice");
            assert_eq!(reject.by_upstream().index(), place);
            assert_eq!(reject.by_upstream().status, 502);
        }
        assert_eq!(Reject { status: 400, reason: "?" }.index(), Reject::ALL.len());
    }
}
