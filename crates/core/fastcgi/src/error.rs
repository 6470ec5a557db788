//! Errors in requests, and in what an application sent.

use skep_http::Reject;

use crate::limits::CONTENT_BYTES_MAX;

/// Why a request cannot be sent by FastCGI. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FcgiRequestError {
    /// The decoded path has control characters or dot segments, or cannot be decoded.
    #[error("expected a path without control characters and dot segments")]
    Path,
    /// The path contains no script.
    #[error("expected a path with a script of the pool's extension in it")]
    NoScript,
    /// The length of the body is unknown, but CGI states it first (RFC 3875 4.1.2).
    #[error("expected a body of known length: it must be received whole before")]
    LengthUnknown,
    /// A field, or a parameter of the config, does not fit into a record.
    #[error("a parameter takes {bytes} bytes, and a record holds {CONTENT_BYTES_MAX}")]
    ParamLong { bytes: usize },
}

impl FcgiRequestError {
    /// The status of the response to the client.
    pub fn status(&self) -> u16 {
        match self {
            FcgiRequestError::Path => 400,
            FcgiRequestError::NoScript => 404,
            FcgiRequestError::LengthUnknown => 411,
            FcgiRequestError::ParamLong { .. } => 431,
        }
    }
}

/// Why an application refused a request (FastCGI 1.0, 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcgiRefusal {
    /// It already has a request on this connection.
    CantMultiplex,
    /// It is overloaded: another server may be available.
    Overloaded,
    /// It does not support the responder role.
    UnknownRole,
    /// An unknown code.
    Other(u8),
}

/// Why the received bytes are not a valid reply. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FcgiError {
    /// No record begins like this: it may not be a FastCGI port.
    #[error("expected a record of version 1, found {0}: is it a FastCGI port?")]
    Version(u8),
    /// A record for a request that was not sent.
    #[error("expected records of request 1, found one of {0}")]
    RequestId(u16),
    /// A record type that does not occur in replies.
    #[error("expected STDOUT (6), STDERR (7) or END_REQUEST (3), found type {0}")]
    Type(u8),
    /// END_REQUEST with a wrong length.
    #[error("expected 8 bytes in END_REQUEST, found {0}")]
    EndLength(usize),
    /// STDOUT after the record that ends it.
    #[error("expected no STDOUT behind its end, found more")]
    StdoutEnded,
    /// The head is over its limit.
    #[error("expected a head of at most {bytes_max} bytes, found no end of it")]
    HeadLong { bytes_max: usize },
    /// The head has no field.
    #[error("expected a head with at least one field, found an empty line")]
    HeadEmpty,
    /// Status is not a single number of three digits.
    #[error("expected one `Status: NNN`, found another one")]
    Status,
    /// The head is not one that an HTTP server could send.
    #[error("expected a valid head, found one refused as {}", .0.reason)]
    Head(Reject),
    /// The reply ends before the end of its head.
    #[error("expected a head, found the end of the reply (status {app_status} of the application)")]
    NoHead { app_status: u32 },
    /// More bytes than Content-Length states.
    #[error("expected the body's end after its Content-Length, found more")]
    BodyLong,
    /// Fewer bytes than Content-Length states.
    #[error("expected {missing_bytes} more bytes of the body, found the end of the reply")]
    BodyShort { missing_bytes: u64 },
    /// The application refused the request.
    #[error("expected a reply, found the request refused: {0:?}")]
    Refused(FcgiRefusal),
    /// Bytes that belong to no reply.
    #[error("expected nothing behind END_REQUEST, found more")]
    BehindEnd,
    /// The connection was closed within a reply.
    #[error("expected END_REQUEST, found the end of the connection")]
    Closed,
}
