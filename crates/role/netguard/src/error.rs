//! Why netguard refuses an order or fails to execute it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Errors, worded for operators.
#[derive(Debug, thiserror::Error)]
pub enum NetguardError {
    /// The config has no process with this name.
    #[error("the config names no dispatcher and no node {0:?}")]
    NoSuchName(String),
    /// An order for a side that is not open.
    #[error("the {0} side is not open: open it first")]
    NotOpen(&'static str),
    /// An order with an address that the config assigns to no service.
    #[error(
        "{0} is the address of no service in direct dispatch: restart netguard after a change of \
         the config"
    )]
    ForeignAddress(SocketAddr),
    /// Addresses that are on another machine must not be announced from this one.
    #[error("no virtual address is on this machine: nothing to announce")]
    NotHeld,
    /// An order with a number beyond the bounds of the tables.
    #[error("{what} {number} is beyond the tables' {limit}")]
    OutOfBounds {
        what: &'static str,
        number: usize,
        /// The first number out of bounds.
        limit: usize,
    },
    /// Programs and maps.
    #[error(transparent)]
    Datapath(#[from] skep_datapath::DatapathError),
    /// Devices and addresses.
    #[error(transparent)]
    Netif(#[from] skep_netif::Error),
    /// The socket for orders.
    #[error("cannot take orders at {path}: {error}")]
    Socket { path: PathBuf, error: io::Error },
    /// The record of what was changed on this machine.
    #[error("cannot keep the record {path} of what was changed on this machine: {error}")]
    Record { path: PathBuf, error: io::Error },
    /// Other users could change the files on which netguard relies.
    #[error(transparent)]
    Trust(#[from] skep_guard::trust::TrustError),
    /// The serving user.
    #[error(transparent)]
    User(#[from] skep_guard::UserError),
    /// Preparing the sockets of handoffs failed.
    #[error(transparent)]
    HandoffSocket(#[from] skep_datapath::SocketError),
    /// The thread for handoffs failed.
    #[error("the thread of handoffs does not run: {0}")]
    Thread(io::Error),
    /// Privileges could not be given up.
    #[error("cannot give up privileges: {0}")]
    Privileges(io::Error),
    /// An order for the other side, or one that netguard itself executes.
    #[error(
        "this order is not for this side: skep run and netguard are of different versions or have \
         different configs, restart both"
    )]
    WrongSide,
}
