//! Why a request did not get a correct response.

use std::io::{self, ErrorKind};

use skep_probe::{clean, io_kind};

use crate::limits::REDIRECTS_MAX;

/// Why a request did not get a correct response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error("DNS: {0}")]
    Lookup(String),
    #[error("the connection was refused")]
    Refused,
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("no complete response within the timeout")]
    Timeout,
    #[error("the connection was reset")]
    Reset,
    #[error("the connection was closed without a response")]
    Closed,
    #[error("HTTP: {0}")]
    Http(String),
    #[error("the body was cut short after {0} bytes")]
    CutShort(u64),
    #[error("status {0}")]
    Status(u16),
    #[error("redirect: {0}")]
    BadRedirect(String),
    #[error("more than {REDIRECTS_MAX} redirects")]
    TooManyRedirects,
    #[error("byte {0} of the body is wrong")]
    WrongByte(u64),
    #[error("expected {expected} bytes, found {found}")]
    WrongLength { expected: u64, found: u64 },
    #[error("the body is another one than the first, by its hash")]
    OtherBody,
}

impl RequestFailure {
    /// The kind as one word, by which failures are counted.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Lookup(_) => "dns",
            Self::Refused => "refused",
            Self::Unreachable(_) => "no-route",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Http(_) => "http",
            Self::CutShort(_) => "cut-short",
            Self::Status(_) => "status",
            Self::BadRedirect(_) | Self::TooManyRedirects => "redirect",
            Self::WrongByte(_) | Self::WrongLength { .. } | Self::OtherBody => "wrong-body",
        }
    }

    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset => Self::Reset,
            ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Unreachable(clean(&error.to_string())),
        }
    }

    /// The failure of an exchange; `body_bytes`: bytes of the body received, once there is a head.
    pub(crate) fn of_exchange(error: &hyper::Error, body_bytes: Option<u64>) -> Self {
        let kind = io_kind(error);
        let is_end = error.is_incomplete_message()
            || error.is_closed()
            || error.is_canceled()
            || kind == Some(ErrorKind::UnexpectedEof);
        match (kind, body_bytes) {
            (Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), None) => Self::Reset,
            (Some(ErrorKind::ConnectionReset), Some(_)) => Self::Reset,
            (_, Some(bytes)) if is_end => Self::CutShort(bytes),
            (_, None) if is_end => Self::Closed,
            _ => Self::Http(clean(&error.to_string())),
        }
    }
}
