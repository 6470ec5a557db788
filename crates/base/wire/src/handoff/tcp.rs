//! The kernel's state of an established TCP connection that another kernel needs to continue it:
//! the values of `TCP_REPAIR` and related options (Linux, `include/uapi/linux/tcp.h`).

use serde::{Deserialize, Serialize};

/// State of a connection whose send queue is empty: every byte sent is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpState {
    /// Sequence number of the next byte to send.
    pub send_next: u32,
    /// Sequence number of the next byte expected, after those in `received`.
    pub receive_next: u32,
    /// Largest segment that the client accepts, in bytes (`TCP_MAXSEG` in repair mode).
    pub mss_clamp: u16,
    pub options: TcpOptions,
    pub window: TcpWindow,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Bytes of the receive queue, not yet read by the donor's process.
    pub received: Vec<u8>,
}

/// Options negotiated in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOptions {
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Window scales, of the client's windows and of ours (RFC 7323 section 2); each at most 14.
    pub window_scales: Option<WindowScales>,
    /// The donor's timestamp clock at the time of the snapshot (RFC 7323 section 3), as read and
    /// set by `TCP_TIMESTAMP`.
    pub timestamp: Option<u32>,
}

/// Shifts of the windows in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowScales {
    /// For windows that the client announces.
    pub send: u8,
    /// For windows that the server announces.
    pub receive: u8,
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpWindow {
    /// Sequence number of the segment that last updated `send`.
    pub send_updated_at: u32,
    /// The client's window, in bytes.
    pub send: u32,
    /// The largest window that the client has announced, in bytes.
    pub send_max: u32,
    /// The server's window, in bytes.
    pub receive: u32,
    /// `receive_next` when `receive` was last announced.
    pub receive_updated_at: u32,
}
