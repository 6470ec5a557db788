//! The address of a server: an IP address and port, or a Unix socket.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::SOCKET_PATH_BYTES_MAX;

/// Prefix of a Unix socket's text form.
const UNIX: &str = "unix:";

/// The address of a server. As text, `IP:PORT` or `unix:/PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ServerAddress {
    /// `IP:PORT`.
    Tcp(SocketAddr),
    /// `unix:/PATH`.
    Unix(SocketPath),
}

/// Absolute path of a Unix socket: 1 to [`SOCKET_PATH_BYTES_MAX`] bytes. Stored inline, so that it
/// can be copied like an IP address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketPath {
    /// The path, padded with zeros.
    bytes: [u8; SOCKET_PATH_BYTES_MAX],
    len: u8,
}

/// Why a text is not a [`ServerAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerAddressError {
    /// Neither an IP address with a port, nor a socket.
    #[error("an IP address and a port, or `unix:` and the path of a socket")]
    Form,
    /// The path is relative to a working directory.
    #[error("the path begins with /")]
    Relative,
    /// The kernel does not accept such a path.
    #[error("the path has at most {SOCKET_PATH_BYTES_MAX} bytes, and no NUL")]
    Path,
}

impl ServerAddress {
    /// The IP address and port; `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Whether a connection to it is possible: neither an unspecified IP address nor port 0.
    pub fn is_specified(&self) -> bool {
        self.tcp().is_none_or(|it| !it.ip().is_unspecified() && it.port() != 0)
    }

    /// Whether only processes of this machine can listen on it.
    pub fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().to_canonical().is_loopback())
    }
}

impl SocketPath {
    /// # Errors
    /// [`ServerAddressError::Relative`], [`ServerAddressError::Path`].
    pub fn new(path: &Path) -> Result<Self, ServerAddressError> {
        let path = path.as_os_str().as_bytes();
        let mut bytes = [0; SOCKET_PATH_BYTES_MAX];
        let room = bytes.get_mut(..path.len()).ok_or(ServerAddressError::Path)?;
        if path.contains(&0) {
            return Err(ServerAddressError::Path);
        }
        if !path.starts_with(b"/") {
            return Err(ServerAddressError::Relative);
        }
        room.copy_from_slice(path);
        Ok(Self { bytes, len: path.len() as u8 })
    }

    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes[..usize::from(self.len)]))
    }
}

impl fmt::Debug for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_path().fmt(f)
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<Self, ServerAddressError> {
        match text.strip_prefix(UNIX) {
            Some(path) => SocketPath::new(Path::new(path)).map(Self::Unix),
            None => text.parse().map(Self::Tcp).map_err(|_| ServerAddressError::Form),
        }
    }
}

impl TryFrom<String> for ServerAddress {
    type Error = ServerAddressError;

    fn try_from(text: String) -> Result<Self, ServerAddressError> {
        text.parse()
    }
}

impl From<ServerAddress> for String {
    fn from(address: ServerAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.as_path().display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_an_address_or_a_socket_and_back() {
        for text in ["127.0.0.1:80", "[::1]:9000", "unix:/run/php/php8.2-fpm.sock", "unix:/a b"] {
            let address = text.parse::<ServerAddress>();
            assert_eq!(address.map(|it| it.to_string()), Ok(text.to_owned()));
        }
        let long = format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        for (text, error) in [
            ("localhost:80", ServerAddressError::Form),
            ("/run/php.sock", ServerAddressError::Form),
            ("unix:run/php.sock", ServerAddressError::Relative),
            ("unix:", ServerAddressError::Relative),
            ("unix:/a\0b", ServerAddressError::Path),
            (&long, ServerAddressError::Path),
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(error), "{text}");
        }
        assert!(long[..long.len() - 1].parse::<ServerAddress>().is_ok());
    }

    #[test]
    fn what_others_can_reach_is_not_local() {
        let of =
            |text: &str| text.parse::<ServerAddress>().map(|it| (it.is_local(), it.is_specified()));
        assert_eq!(of("unix:/a"), Ok((true, true)));
        assert_eq!(of("127.0.0.1:1"), Ok((true, true)));
        assert_eq!(of("[::ffff:127.0.0.1]:1"), Ok((true, true)));
        assert_eq!(of("10.0.0.1:1"), Ok((false, true)));
        assert_eq!(of("0.0.0.0:1"), Ok((false, false)));
        assert_eq!(of("10.0.0.1:0"), Ok((false, false)));
    }
}
