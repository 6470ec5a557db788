//! Errors of connections to nodes.

use std::io;

use skep_serve::ConnError;

/// Why there is no connection to a node.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Connection refused.
    #[error("connection refused")]
    Refused,
    /// No route to the host or network.
    #[error("unreachable")]
    Unreachable,
    /// This process may not connect to that Unix socket.
    #[error("permission denied: this process's user or groups may not connect to the socket")]
    Denied,
    /// There is no such Unix socket.
    #[error("no such socket")]
    NoSocket,
    /// The connect timed out.
    #[error("no connection in time")]
    ConnectTimeout,
    /// The maximum number of connections to the address is in use. The node is not at fault.
    #[error("all connections to the node are in use")]
    PoolFull,
    /// This machine has no port, descriptor or memory left for a connection.
    /// The node is not at fault.
    #[error("no connection can be made here: {0}")]
    Exhausted(io::Error),
    /// Any other error of the kernel.
    #[error("connection failed: {0}")]
    Io(io::Error),
}

impl UpstreamError {
    /// Whether the node is at fault, rather than this machine.
    pub fn blames_node(&self) -> bool {
        !matches!(self, Self::PoolFull | Self::Exhausted(_))
    }
}

impl From<ConnError> for UpstreamError {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Expired(_) => Self::ConnectTimeout,
            ConnError::Io(error) => error.into(),
        }
    }
}

impl From<io::Error> for UpstreamError {
    fn from(error: io::Error) -> Self {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            // The kernel's own connect timeout ended before ours.
            io::ErrorKind::TimedOut => Self::ConnectTimeout,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::NotFound => Self::NoSocket,
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory => Self::Exhausted(error),
            _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => Self::Exhausted(error),
            _ => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_our_own_want_does_not_blame_the_node() {
        let of = |code| UpstreamError::from(io::Error::from_raw_os_error(code));
        let (econnrefused, ehostunreach, emfile, eaddrnotavail, econnreset) =
            (111, 113, 24, 99, 104);
        let (enoent, eacces) = (2, 13);
        assert!(matches!(of(eacces), UpstreamError::Denied));
        assert!(matches!(of(enoent), UpstreamError::NoSocket));
        assert!(matches!(of(econnrefused), UpstreamError::Refused));
        assert!(matches!(of(ehostunreach), UpstreamError::Unreachable));
        assert!(matches!(of(econnreset), UpstreamError::Io(_)));
        for (code, blames) in
            [(econnrefused, true), (econnreset, true), (emfile, false), (eaddrnotavail, false)]
        {
            assert_eq!(of(code).blames_node(), blames, "{code}");
        }
        assert!(!UpstreamError::PoolFull.blames_node());
    }
}
