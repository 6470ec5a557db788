//! What is wrong with a request, or with what an application said.

use skep_http::Reject;

use crate::limits::CONTENT_BYTES_MAX;

/// Why a request cannot go by FastCGI. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FcgiRequestError {
    /// The decoded path has control characters or dot segments, or cannot be decoded.
    #[error("expected a path without control characters and dot segments")]
    Path,
    /// No script has that path.
    #[error("expected a path with a script of the pool's extension in it")]
    NoScript,
    /// The body's length is unknown, and CGI tells it first (RFC 3875 4.1.2).
    #[error("expected a body of known length: it must be received whole before")]
    LengthUnknown,
    /// A field, or a parameter of the config, does not fit into a record.
    #[error("a parameter takes {bytes} bytes, and a record holds {CONTENT_BYTES_MAX}")]
    ParamLong { bytes: usize },
}

impl FcgiRequestError {
    /// The status to answer the client with.
    pub fn status(&self) -> u16 {
        match self {
            FcgiRequestError::Path => 400,
            FcgiRequestError::NoScript => 404,
            FcgiRequestError::LengthUnknown => 411,
            FcgiRequestError::ParamLong { .. } => 431,
        }
    }
}

/// Why an application did not take a request (FastCGI 1.0, 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcgiRefusal {
    /// It has a request on this connection.
    CantMultiplex,
    /// It has no room: another server may.
    Overloaded,
    /// It is no responder.
    UnknownRole,
    /// A number that does not exist.
    Other(u8),
}

/// Why what an application said is no reply. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FcgiError {
    /// No record begins like this: it may not be a FastCGI port.
    #[error("expected a record of version 1, found {0}: is it a FastCGI port?")]
    Version(u8),
    /// A record of a request that was not made.
    #[error("expected records of request 1, found one of {0}")]
    RequestId(u16),
    /// A record that no reply has.
    #[error("expected STDOUT (6), STDERR (7) or END_REQUEST (3), found type {0}")]
    Type(u8),
    /// END_REQUEST of another length than it has.
    #[error("expected 8 bytes in END_REQUEST, found {0}")]
    EndLength(usize),
    /// STDOUT behind the record that ends it.
    #[error("expected no STDOUT behind its end, found more")]
    StdoutEnded,
    /// The head is over its limit.
    #[error("expected a head of at most {bytes_max} bytes, found no end of it")]
    HeadLong { bytes_max: usize },
    /// The head has no field.
    #[error("expected a head with at least one field, found an empty line")]
    HeadEmpty,
    /// Status is not one number of three digits.
    #[error("expected one `Status: NNN`, found another one")]
    Status,
    /// The head is none that an HTTP server could send.
    #[error("expected a valid head, found one refused as {}", .0.reason)]
    Head(Reject),
    /// The reply ends before its head does.
    #[error("expected a head, found the end of the reply (status {app_status} of the application)")]
    NoHead { app_status: u32 },
    /// More than Content-Length said.
    #[error("expected the body's end after its Content-Length, found more")]
    BodyLong,
    /// Less than Content-Length said.
    #[error("expected {missing_bytes} more bytes of the body, found the end of the reply")]
    BodyShort { missing_bytes: u64 },
    /// The application did not take the request.
    #[error("expected a reply, found the request refused: {0:?}")]
    Refused(FcgiRefusal),
    /// Bytes that belong to no reply.
    #[error("expected nothing behind END_REQUEST, found more")]
    BehindEnd,
    /// The connection closed inside of a reply.
    #[error("expected END_REQUEST, found the end of the connection")]
    Closed,
}
