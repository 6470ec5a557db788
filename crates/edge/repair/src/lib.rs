//! The system calls of a handoff that need no privilege: an established TCP connection leaves one
//! kernel and enters another.
//!
//! - [`snapshot`]: the state of a connection, from its socket in repair mode (donor).
//! - [`restore`]: restores the connection in a new socket that is bound and in repair mode (receiver).
//! - [`close_silently`]: closes a socket without the client noticing.
//! - [`allow_rebind`]: restores an option that repair mode has cleared.
//!
//! Repair mode (`TCP_REPAIR`) needs CAP_NET_ADMIN: netguard switches it, and blocks the flow before. In
//! repair mode the kernel still accepts packets; the caller of [`snapshot`] ensures that none arrive.
//!
//! **What is lost.** Congestion window, slow-start threshold, round-trip time, retransmission timeout,
//! segments received out of order, ECN. The new socket begins like a newly connected one:
//!
//! - Congestion window: 10 segments, or the `initcwnd` of the route to the client (ip-route(8)). No socket
//!   option sets it, in repair mode or not; a BPF program of type `sockops` could (`TCP_BPF_IW`), with
//!   privileges. Each missing doubling of the window costs one round trip; for the first request of a
//!   connection none is missing, as the donor has sent nothing.
//! - Slow-start threshold, round-trip time: the kernel's cached values for the client's address
//!   (`tcp_metrics`), if any.
//! - Retransmission timeout: 3 s until the first sample (`tcp_init_metrics`), that is the first
//!   acknowledgement of new data; the tail loss probe is sent after 1 s. It matters only if the end of the
//!   first flight is lost. (`TCP_RTO_MAX_MS` of Linux 6.15 could bound it to 1 s, but then for all later
//!   losses as well.)
//! - ECN: the connection continues without it. Packets of the receiver are not marked as ECN-capable (RFC
//!   3168 permits that); marks on packets of the client are not echoed, so that its uploads slow down only on
//!   loss.
//!
//! Invariants: [`snapshot`] refuses connections with state that cannot be moved, and states the cause;
//! numbers from another machine never cause a panic.

#[cfg(not(target_os = "linux"))]
compile_error!("TCP_REPAIR is Linux's");

mod limits;
mod restore;
mod snapshot;
mod socket;
mod sys;

pub use limits::{MSS_BYTES_MIN, RECEIVED_BYTES_MAX, WINDOW_SCALE_MAX};
pub use restore::{RestoreError, restore};
pub use snapshot::{SnapshotError, SnapshotLimits, snapshot};
pub use socket::{NotSilent, allow_rebind, close_silently};
