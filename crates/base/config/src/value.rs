//! How each Rust type is read from and written to the file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// A type that a setting can have.
pub(crate) trait Field: Sized {
    /// What a required setting holds before it is set.
    fn unset() -> Self;
}

impl Field for String {
    fn unset() -> Self {
        Self::new()
    }
}

impl Field for PathBuf {
    fn unset() -> Self {
        Self::new()
    }
}

impl Field for SocketAddr {
    fn unset() -> Self {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

impl<T> Field for Vec<T> {
    fn unset() -> Self {
        Self::new()
    }
}
