//! The receiver's part: a new socket becomes the end of an existing connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, connect, send};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::tcp::{TcpOptions, TcpState, WindowScales};

use crate::limits::{MSS_BYTES_MAX, MSS_BYTES_MIN, RECEIVED_BYTES_MAX, WINDOW_SCALE_MAX};
use crate::socket::{
    Queue, RepairOption, select_queue, set_number, set_options, set_queue_sequence, set_window,
};

/// Kinds of handshake options (IANA, TCP parameters).
const MSS: u32 = 2;
const WINDOW_SCALE: u32 = 3;
const SACK_PERMITTED: u32 = 4;
const TIMESTAMPS: u32 = 8;

/// Why a connection cannot be restored on this machine.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A number of the state is out of bounds.
    #[error("the state of the connection is wrong: {what}")]
    Invalid { what: &'static str },
    /// This machine has a socket of that connection, possibly in TIME_WAIT. In a handoff to itself it is the
    /// donor's, which must be closed first; the caller then retries with a new socket.
    #[error("this machine has a socket of the same connection")]
    Taken,
    /// The kernel refused a call.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was refused.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
}

/// Makes `socket`, which is bound to the server's address and in repair mode, the end of the connection `id`
/// with the donor's state. The connection continues once repair mode is off.
///
/// `state.received` may begin with bytes that the donor's process has read already: this process reads them
/// again.
///
/// # Errors
/// The socket is then unusable, and must be closed in repair mode.
pub fn restore(socket: &impl AsFd, id: &SocketId, state: &TcpState) -> Result<(), RestoreError> {
    let fd = socket.as_fd();
    let options = repair_options(state)?;
    let received_bytes = u32::try_from(state.received.len()).unwrap_or(u32::MAX);
    // Sequence numbers are set on a closed socket.
    set_sequence(fd, Queue::Send, state.send_next)?;
    set_sequence(fd, Queue::Receive, state.receive_next.wrapping_sub(received_bytes))?;
    // The effective segment size is computed when the socket connects; the option below is set later.
    let mss_bytes = state.mss_clamp.min(MSS_BYTES_MAX);
    set_number(fd, libc::TCP_MAXSEG, mss_bytes.into()).doing("set the segment size")?;
    match connect(fd, &id.client) {
        Ok(()) => {}
        Err(Errno::ADDRNOTAVAIL) => return Err(RestoreError::Taken),
        Err(error) => return Err(error.into()).doing("connect in repair mode"),
    }
    // Options before queues: the kernel accepts no options once anything was written (Linux commit
    // 0c175da7b037).
    set_options(fd, &options).doing("set the negotiated options")?;
    if let Some(timestamp) = state.options.timestamp {
        let timestamp = not_behind(timestamp);
        set_number(fd, libc::TCP_TIMESTAMP, timestamp).doing("set the timestamp")?;
    }
    fill_receive_queue(fd, &state.received)?;
    // After the queue, since the kernel compares them.
    set_window(fd, &state.window).doing("set the windows")
}

fn set_sequence(fd: BorrowedFd<'_>, queue: Queue, sequence: u32) -> Result<(), RestoreError> {
    select_queue(fd, queue)
        .and_then(|()| set_queue_sequence(fd, sequence))
        .doing("set sequence numbers")
}

fn repair_options(state: &TcpState) -> Result<Vec<RepairOption>, RestoreError> {
    let invalid = |what| Err(RestoreError::Invalid { what });
    if state.mss_clamp < MSS_BYTES_MIN {
        return invalid("its segment size is below the kernel's");
    }
    if state.received.len() > RECEIVED_BYTES_MAX {
        return invalid("its receive queue is longer than any that travels");
    }
    let TcpOptions { sack, window_scales, timestamp } = state.options;
    // Without this option the kernel would keep the scale that it offered itself in `connect`, and divide all
    // windows by it; scales of 0 have the same effect as none.
    let WindowScales { send, receive } =
        window_scales.unwrap_or(WindowScales { send: 0, receive: 0 });
    if send.max(receive) > WINDOW_SCALE_MAX {
        return invalid("a window is scaled by more than 14 bits");
    }
    let scales = u32::from(send) | u32::from(receive) << 16;
    let option = |kind, value| RepairOption { kind, value };
    let mut options = vec![option(MSS, state.mss_clamp.into()), option(WINDOW_SCALE, scales)];
    options.extend(sack.then_some(option(SACK_PERMITTED, 0)));
    options.extend(timestamp.is_some().then_some(option(TIMESTAMPS, 0)));
    Ok(options)
}

/// A timestamp that is not behind the donor's. The lowest bit of the value indicates the unit (microseconds
/// if set), so that a clock of milliseconds is reported up to 1 ms too early: a client that compares strictly
/// would discard segments of that millisecond as old (RFC 7323, 5.3).
fn not_behind(timestamp: u32) -> u32 {
    if timestamp & 1 == 0 { timestamp.wrapping_add(2) } else { timestamp }
}

/// Bytes written to the receive queue in repair mode count as received.
fn fill_receive_queue(fd: BorrowedFd<'_>, mut received: &[u8]) -> Result<(), RestoreError> {
    // The receive queue is still selected, since its sequence number was set.
    while !received.is_empty() {
        let sent = send(fd, received, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let bytes = sent.map_err(io::Error::from).doing("fill the receive queue")?;
        received = received.get(bytes..).unwrap_or_default();
    }
    Ok(())
}

/// Adds what was refused to the kernel's error.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, RestoreError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, RestoreError> {
        self.map_err(|error| RestoreError::System { doing, error })
    }
}
