//! The donor's part: the state of a connection, or why it cannot be moved.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use skep_wire::handoff::tcp::{TcpOptions, TcpState, WindowScales};

use crate::limits::{MSS_BYTES_MIN, RECEIVED_BYTES_MAX};
use crate::socket::{Queue, number, queue_sequence, select_queue, window};
use crate::sys::{read_option, send_queue_bytes};

/// `TCP_AO_INFO` (linux/tcp.h), since Linux 6.7.
const TCP_AO_INFO: libc::c_int = 40;

/// `IPPROTO_MPTCP` (linux/in.h).
const IPPROTO_MPTCP: u32 = 262;

/// `TCP_ESTABLISHED`, and the states after the client's FIN: `TCP_CLOSE_WAIT`, `TCP_LAST_ACK` and
/// `TCP_CLOSING` (linux/tcp.h).
const ESTABLISHED: u8 = 1;
const AFTER_FIN: [u8; 3] = [8, 9, 11];

/// Bounds of what is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Maximum number of bytes of the receive queue.
    pub received_bytes_max: usize,
}

/// Why a connection is not moved.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Repair mode is off, so the kernel may send at any time.
    #[error("its socket is not in repair mode")]
    NotInRepair,
    /// The socket is not a TCP socket.
    #[error("its socket is not one of TCP")]
    NotTcp,
    /// The connection has several paths, of which only one would be moved (RFC 8684).
    #[error("it is a connection of Multipath TCP")]
    Multipath,
    /// The connection is still connecting, is closed, or was closed by this side.
    #[error("it is not established (state {state})")]
    NotEstablished {
        /// The state, by the numbers of linux/tcp.h.
        state: u8,
    },
    /// The client has closed its side.
    #[error("the client has closed its side")]
    FinSeen,
    /// Some bytes were sent and not acknowledged, or not sent at all.
    #[error("{bytes} bytes of its send queue are not acknowledged")]
    SendQueue {
        /// The sum of both.
        bytes: u32,
    },
    /// The receive queue is longer than permitted.
    #[error("its receive queue has {bytes} bytes, of which at most {bytes_max} travel")]
    ReceiveQueue {
        /// Bytes in the queue.
        bytes: usize,
        /// Maximum number of bytes that are moved.
        bytes_max: usize,
    },
    /// Urgent data (RFC 9293, 3.8.5) is expected or was read.
    #[error("it has urgent data")]
    UrgentData,
    /// The connection uses keys of TCP-AO (RFC 5925).
    #[error("its segments are authenticated (TCP-AO)")]
    Authenticated,
    /// The kernel runs an upper-layer protocol on it, such as kTLS.
    #[error("the kernel runs a protocol above it ({name})")]
    UpperLayer {
        /// Its name in `TCP_ULP`.
        name: String,
    },
    /// The client's segment size is smaller than the receiver's kernel can be set to.
    #[error(
        "the client takes segments of {mss_bytes} bytes, and the kernel sets no smaller ones than {MSS_BYTES_MIN}"
    )]
    SmallSegments {
        /// The client's segment size.
        mss_bytes: u32,
    },
    /// Packets arrived meanwhile: the flow was not blocked.
    #[error("packets came during the snapshot: the flow is not blocked")]
    Moved,
    /// The kernel refused to report some state.
    #[error("cannot read {what}: {error}")]
    System {
        /// What could not be read.
        what: &'static str,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
}

/// Reads the state of the connection of `socket`, which is in repair mode and whose packets are blocked. The
/// socket is not changed: after an error, or a failure of the handoff, the connection continues once repair
/// mode is off.
///
/// # Errors
/// Why the connection cannot be moved. TCP MD5 (RFC 2385) is not detected: the kernel does not report it
/// without privilege. Its keys are set on a listener by the process that owns it.
pub fn snapshot(socket: &impl AsFd, limits: SnapshotLimits) -> Result<TcpState, SnapshotError> {
    let fd = socket.as_fd();
    check_kind(fd)?;
    let info = Info::of(fd)?;
    check_state(fd, info)?;
    check_urgent(fd)?;
    let mss_bytes = number(fd, libc::TCP_MAXSEG).reading("the segment size")?;
    let mss_clamp = u16::try_from(mss_bytes).ok().filter(|&bytes| bytes >= MSS_BYTES_MIN);
    let mss_clamp = mss_clamp.ok_or(SnapshotError::SmallSegments { mss_bytes })?;

    let send_next = queue_sequence(fd).reading("the send queue")?;
    select_queue(fd, Queue::Receive).reading("the receive queue")?;
    let receive_next = queue_sequence(fd).reading("the receive queue")?;
    let received = peek(fd, limits.received_bytes_max.min(RECEIVED_BYTES_MAX))?;
    let state = TcpState {
        send_next,
        receive_next,
        mss_clamp,
        options: options(fd, info)?,
        window: window(fd).reading("the windows")?,
        congestion_window: info.congestion_window(),
        rtt_us: info.rtt_us(),
        received,
    };
    check_unmoved(fd, &state)?;
    Ok(state)
}

fn check_kind(fd: BorrowedFd<'_>) -> Result<(), SnapshotError> {
    let protocol = sockopt::socket_protocol(fd).map_err(io::Error::from).reading("the protocol")?;
    match protocol.map_or(0, |protocol| protocol.as_raw().get()) {
        6 => {}
        IPPROTO_MPTCP => return Err(SnapshotError::Multipath),
        _ => return Err(SnapshotError::NotTcp),
    }
    // The kernel allows selecting a queue in repair mode only.
    if let Err(error) = select_queue(fd, Queue::Send) {
        let is_off = error.kind() == io::ErrorKind::PermissionDenied;
        return if is_off {
            Err(SnapshotError::NotInRepair)
        } else {
            Err(error).reading("the mode")
        };
    }
    let mut name = [0; 16];
    let bytes = read_option(fd, libc::TCP_ULP, &mut name).reading("the protocol above")?;
    if bytes > 0 {
        let name = String::from_utf8_lossy(&name[..bytes]).trim_end_matches('\0').to_owned();
        return Err(SnapshotError::UpperLayer { name });
    }
    // Fails if there are no such keys, and on kernels without this option.
    let is_authenticated = read_option(fd, TCP_AO_INFO, &mut [0; 64]).is_ok();
    if is_authenticated { Err(SnapshotError::Authenticated) } else { Ok(()) }
}

fn check_state(fd: BorrowedFd<'_>, info: Info) -> Result<(), SnapshotError> {
    match info.state() {
        ESTABLISHED => {}
        state if AFTER_FIN.contains(&state) => return Err(SnapshotError::FinSeen),
        state => return Err(SnapshotError::NotEstablished { state }),
    }
    match send_queue_bytes(fd).reading("the send queue")? {
        0 => Ok(()),
        bytes => Err(SnapshotError::SendQueue { bytes }),
    }
}

/// If there is no urgent data, or if it stays in the queue, the kernel returns EINVAL (`tcp_recv_urg`); in
/// the latter case [`peek`] detects it. A process that reads urgent data with MSG_OOB must not hand off: the
/// kernel then reports neither it nor the bytes after it.
fn check_urgent(fd: BorrowedFd<'_>) -> Result<(), SnapshotError> {
    let flags = RecvFlags::OOB | RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(fd, &mut [0; 1], flags) {
        Err(Errno::INVAL) => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(SnapshotError::UrgentData),
        Err(error) => Err(error.into()).reading("urgent data"),
    }
}

/// Reads all bytes of the receive queue, which is selected, without removing them. Room for one more byte
/// reveals whether there are more than the kernel has just reported.
fn peek(fd: BorrowedFd<'_>, bytes_max: usize) -> Result<Vec<u8>, SnapshotError> {
    let bytes = receive_queue_bytes(fd)?;
    if bytes > bytes_max {
        return Err(SnapshotError::ReceiveQueue { bytes, bytes_max });
    }
    let mut received = vec![0; bytes + 1];
    let peeked = match recv(fd, &mut received[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, peeked)) => peeked,
        Err(Errno::AGAIN) => 0,
        Err(error) => return Err(error.into()).reading("the receive queue"),
    };
    if peeked < bytes {
        // The kernel stops at urgent data in between.
        return Err(SnapshotError::UrgentData);
    }
    if peeked > bytes {
        return Err(SnapshotError::Moved);
    }
    received.truncate(bytes);
    Ok(received)
}

fn options(fd: BorrowedFd<'_>, info: Info) -> Result<TcpOptions, SnapshotError> {
    let timestamp = || number(fd, libc::TCP_TIMESTAMP).reading("the timestamp");
    Ok(TcpOptions {
        sack: info.has(Info::SACK),
        window_scales: info.has(Info::WINDOW_SCALES).then(|| info.window_scales()),
        timestamp: info.has(Info::TIMESTAMPS).then(timestamp).transpose()?,
    })
}

/// Compares the state with the present one: a byte received after the snapshot would be acknowledged, and
/// lost. A FIN counts as a byte. A reset would not be noticed; the client repeats it in reply to the
/// receiver's first packet.
fn check_unmoved(fd: BorrowedFd<'_>, state: &TcpState) -> Result<(), SnapshotError> {
    let receive_next = queue_sequence(fd).reading("the receive queue")?;
    let is_unmoved =
        receive_next == state.receive_next && receive_queue_bytes(fd)? == state.received.len();
    if is_unmoved { Ok(()) } else { Err(SnapshotError::Moved) }
}

fn receive_queue_bytes(fd: BorrowedFd<'_>) -> Result<usize, SnapshotError> {
    let bytes =
        rustix::io::ioctl_fionread(fd).map_err(io::Error::from).reading("the receive queue")?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// The beginning of `struct tcp_info` (linux/tcp.h), to which the kernel only ever appends.
#[derive(Clone, Copy)]
struct Info([u8; 84]);

impl Info {
    const TIMESTAMPS: u8 = 1;
    const SACK: u8 = 2;
    const WINDOW_SCALES: u8 = 4;

    fn of(fd: BorrowedFd<'_>) -> Result<Self, SnapshotError> {
        let mut info = [0; 84];
        read_option(fd, libc::TCP_INFO, &mut info).reading("the state")?;
        Ok(Self(info))
    }

    fn state(self) -> u8 {
        self.0[0]
    }

    fn has(self, option: u8) -> bool {
        self.0[5] & option != 0
    }

    /// Two bit-fields in one byte, whose order in the kernel depends on the machine's byte order.
    fn window_scales(self) -> WindowScales {
        let (low, high) = (self.0[6] & 15, self.0[6] >> 4);
        let (send, receive) =
            if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        WindowScales { send, receive }
    }

    fn rtt_us(self) -> u32 {
        self.word(68)
    }

    fn congestion_window(self) -> u32 {
        self.word(80)
    }

    fn word(self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|byte| self.0[at + byte]))
    }
}

/// Adds what could not be read to the kernel's error.
trait Reading<T> {
    fn reading(self, what: &'static str) -> Result<T, SnapshotError>;
}

impl<T> Reading<T> for io::Result<T> {
    fn reading(self, what: &'static str) -> Result<T, SnapshotError> {
        self.map_err(|error| SnapshotError::System { what, error })
    }
}
