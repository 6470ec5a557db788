//! Why a sample has no complete response.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::http_client::{clean, io_kind};
use crate::limits::{HEAD_BYTES_MAX, HEAD_FIELDS_MAX, INFORMATIONAL_MAX, REDIRECTS_MAX};
use crate::tls;

/// Why a sample has no complete response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("DNS: {0}")]
    Lookup(String),
    #[error("the connection was refused")]
    Refused,
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("no {0} within the timeout")]
    Timeout(&'static str),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("HTTP: {0}")]
    Http(String),
    #[error("HTTP: more than {INFORMATIONAL_MAX} informational responses (1xx) and no other")]
    TooManyInformational,
    #[error("redirect: {0}")]
    BadRedirect(String),
    #[error("more than {REDIRECTS_MAX} redirects")]
    TooManyRedirects,
    #[error("the connection was closed without a response")]
    Closed,
    #[error("the connection was reset")]
    Reset,
    #[error("the body was cut short after {0} bytes")]
    CutShort(u64),
    #[error("the server answered with status {0}")]
    Status(u16),
}

impl Failure {
    /// The kind as one word, for columns and counts.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Lookup(_) => "dns",
            Self::Refused => "refused",
            Self::Unreachable(_) => "no-route",
            Self::Timeout(_) => "timeout",
            Self::Tls(_) => "tls",
            Self::Http(_) | Self::TooManyInformational => "http",
            Self::BadRedirect(_) => "redirect",
            Self::TooManyRedirects => "redirects",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::CutShort(_) => "cut-short",
            Self::Status(_) => "status",
        }
    }

    /// The failure of a connection attempt.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::TimedOut => Self::Timeout("connection"),
            ErrorKind::ConnectionReset => Self::Reset,
            _ => Self::Unreachable(clean(&error.to_string())),
        }
    }

    /// The failure of a handshake: the end of the connection, or a fault of the certificate.
    pub(crate) fn of_tls(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::UnexpectedEof => {
                Self::Tls("the connection was closed in the handshake".to_owned())
            }
            _ => Self::Tls(of_certificate(error)),
        }
    }

    /// The failure of an exchange; `body_bytes`: bytes of the body received, once there is a head.
    pub(crate) fn of_exchange(error: &hyper::Error, body_bytes: Option<u64>) -> Self {
        let is_end =
            || error.is_incomplete_message() || io_kind(error) == Some(ErrorKind::UnexpectedEof);
        match (io_kind(error), body_bytes) {
            (Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), _) => Self::Reset,
            (_, Some(got)) if is_end() => Self::CutShort(got),
            (_, None) if is_end() => Self::Closed,
            _ if error.is_parse_too_large() => Self::Http(format!(
                "the head has more than {HEAD_BYTES_MAX} bytes or {HEAD_FIELDS_MAX} fields"
            )),
            _ => Self::Http(clean(&with_sources(error))),
        }
    }
}

/// The reason why a handshake failed.
fn of_certificate(error: &io::Error) -> String {
    let below = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match below.is_some_and(tls::is_ca_as_server) {
        true => "the server's certificate is that of a CA, and none of --ca".to_owned(),
        false => clean(&error.to_string()),
    }
}

/// An error and its causes.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text = format!("{text}: {error}");
        below = error.source();
    }
    text
}
