//! The contents of an access log line, independent of its format.

use std::borrow::Cow;

use crate::limits::{LOG_BODY_BYTES_MAX, LOG_LINE_BYTES_MAX};

/// A line of a log in the combined format of Apache and nginx, in the common one, which lacks the
/// last two fields, or in Skep's JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine<'a> {
    /// An address or a name.
    pub client: Cow<'a, str>,
    /// Milliseconds since 1970, UTC, as logged: most servers log when a response has ended.
    pub unix_ms: u64,
    /// Whether the time includes milliseconds; otherwise its resolution is a second.
    pub has_ms: bool,
    /// The duration of the request at that time, in milliseconds; 0 if it was not logged.
    pub took_ms: u64,
    pub method: Cow<'a, str>,
    /// As logged, with the server's escapes of non-printable characters.
    pub target: Cow<'a, str>,
    pub status: u16,
    /// Bytes of the body; 0 if the log has `-`.
    pub bytes: u64,
}

/// Why a line is in none of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLineError {
    #[error("expected at most {LOG_LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("expected text")]
    NotText,
    #[error("expected a client, two fields, and a time in brackets")]
    NoTime,
    #[error(
        "expected a time such as [10/Oct/2000:13:55:36 -0700], in JSON 2000-10-10T13:55:36.000Z"
    )]
    BadTime,
    #[error("expected a request in quotes, such as \"GET / HTTP/1.1\"")]
    NoRequest,
    #[error("expected a status of three digits behind the request")]
    BadStatus,
    #[error("expected a number of bytes up to {LOG_BODY_BYTES_MAX}, or -, behind the status")]
    BadBytes,
    #[error(
        "expected the fields of Skep's JSON log: time, client, method, target, status, bytes_sent"
    )]
    BadJson,
}

/// Whether a status is in the valid range.
pub(super) fn is_status(status: u16) -> bool {
    (100..600).contains(&status)
}
