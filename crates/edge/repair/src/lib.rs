//! The system calls of a handoff that need no privilege: an established TCP connection leaves one
//! kernel and enters another.
//!
//! - [`snapshot`]: the state of a connection, from its socket in repair mode (donor).
//! - [`restore`]: the same connection in a new socket that is bound and in repair mode (receiver).
//! - [`close_silently`]: the end of a socket that the client does not see.
//! - [`allow_rebind`]: what a socket must be given back after repair mode.
//!
//! Repair mode (`TCP_REPAIR`) needs CAP_NET_ADMIN: netguard switches it, and blocks the flow before.
//! In repair mode the kernel still takes packets; the caller of [`snapshot`] has made sure that none come.
//!
//! **What is lost.** Congestion window, slow-start threshold, round-trip time, retransmission timeout,
//! segments that came out of order, ECN. The new socket begins as one that has just connected:
//!
//! - Congestion window: 10 segments, or the `initcwnd` of the route to the client (ip-route(8)). No option of
//!   a socket sets it, in repair mode or not; a BPF program of the kind `sockops` could (`TCP_BPF_IW`), with
//!   privileges. Each doubling of the window that is missing costs one round trip; for the first request of a
//!   connection none is missing, as the donor has sent nothing.
//! - Slow-start threshold, round-trip time: what the kernel remembers of the client's address
//!   (`tcp_metrics`), else none.
//! - Retransmission timeout: 3 s until the first sample (`tcp_init_metrics`), that is the first
//!   acknowledgement of new data; the tail loss probe comes after 1 s. Felt only if the end of the first flight
//!   is lost.
//!   (`TCP_RTO_MAX_MS` of Linux 6.15 could bound it to 1 s, but then for all later losses as well.)
//! - ECN: the connection goes on without. What the receiver sends is not marked as capable of it (RFC 3168
//!   permits that); marks on what the client sends are not echoed, so that its uploads slow down by loss only.
//!
//! Invariants: what does not travel is refused by [`snapshot`], with its cause; numbers of another machine
//! never cause a panic.

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
