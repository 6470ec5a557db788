//! Logs one line for each attempt to change something: caller, change and result.

use std::fmt;
use std::net::SocketAddr;

use axum::http::{Method, StatusCode, Uri};

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// A process of this machine, through the unix socket.
    Local {
        /// The user of the process, if the kernel reports it.
        uid: Option<u32>,
    },
    /// A client over TCP.
    Tcp(SocketAddr),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid: Some(uid) } => write!(f, "user {uid} on the socket"),
            Self::Local { uid: None } => f.write_str("the socket"),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Logs the line, if `method` is not a safe one. The target is percent-encoded, so it cannot forge
/// a line.
pub(crate) fn note(peer: &Caller, method: &Method, uri: &Uri, status: StatusCode) {
    if method.is_safe() {
        return;
    }
    let result = status.as_u16();
    match status.is_success() {
        true => tracing::info!(%peer, %method, target = %uri, result, "admin"),
        false => tracing::warn!(%peer, %method, target = %uri, result, "admin: refused"),
    }
}
