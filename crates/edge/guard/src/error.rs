//! What can go wrong between a serving process and its guard.

use std::io;
use std::path::PathBuf;

/// Why an order has no answer.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Nobody listens there.
    #[error("no netguard answers at {path}: {error}; it must run as root on this machine")]
    Unreachable {
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The guard has said no.
    #[error("netguard: {0}")]
    Refused(String),
    /// The guard has gone, or is silent.
    #[error("connection to netguard lost: {0}")]
    Gone(io::Error),
    /// [`Order::Abort`](skep_wire::guard::Order::Abort) was the last order.
    #[error("this start was given up")]
    Aborted,
    /// The answer is not one; the guard is of another version.
    #[error("netguard speaks another version of the protocol: restart it")]
    Foreign,
    /// More is being asked of the guard than it has done.
    #[error("netguard is busy: try again")]
    Busy,
    /// The order is too long for one message.
    #[error("an order of {0} bytes is too long for netguard")]
    TooLong(usize),
}
