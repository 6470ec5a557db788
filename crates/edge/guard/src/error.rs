//! Errors between a serving process and netguard.

use std::io;
use std::path::PathBuf;

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// No process listens at the path.
    #[error("no netguard answers at {path}: {error}; it must run as root on this machine")]
    Unreachable {
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// Netguard refused the order.
    #[error("netguard: {0}")]
    Refused(String),
    /// Netguard has closed the connection, or does not answer.
    #[error("connection to netguard lost: {0}")]
    Gone(io::Error),
    /// [`Order::Abort`](skep_wire::guard::Order::Abort) was the last order.
    #[error("this start was given up")]
    Aborted,
    /// The device was replaced.
    #[error("device {0} has another MAC address than at the start: this process must start anew")]
    OtherDevice(String),
    /// The answer is invalid; netguard has another version.
    #[error(
        "netguard and skep run are of different builds: install both from the same one, then restart netguard, then skep run"
    )]
    Foreign,
    /// The order is too long for one message.
    #[error("an order of {0} bytes is too long for netguard")]
    TooLong(usize),
}

impl GuardError {
    /// Whether only a restart of this process helps.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::OtherDevice(_))
    }
}
