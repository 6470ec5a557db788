//! The options of a socket in repair mode, as values; and two functions for the time before and after repair
//! mode.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use skep_wire::handoff::tcp::TcpWindow;

use crate::sys::{read_option, set_option};

/// The queue to which `TCP_QUEUE_SEQ` and `send` apply (linux/tcp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Receive = 1,
    Send = 2,
}

/// An option of the handshake, in the form of `TCP_REPAIR_OPTIONS`: its kind (IANA), and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairOption {
    pub(crate) kind: u32,
    pub(crate) value: u32,
}

/// A socket was not closed, since its close would have been visible to the client.
#[derive(Debug, thiserror::Error)]
#[error("the socket is not in repair mode: its close would end the connection for the client")]
pub struct NotSilent {
    /// The socket, still open.
    pub socket: OwnedFd,
}

/// Closes a socket in repair mode: the client receives neither FIN nor RST, even if data is unread or unsent,
/// and no state of the connection remains (`__tcp_close`, `tcp_disconnect` in net/ipv4).
///
/// The kernel does so when the last descriptor of the socket is closed: all copies must have been closed
/// before, including that of a runtime. A child process has copies until it executes a program, so that a
/// machine which hands off to itself may find the address of the connection in use for a moment.
///
/// # Errors
/// Returns the socket, if it is not in repair mode.
pub fn close_silently(socket: OwnedFd) -> Result<(), NotSilent> {
    if is_in_repair(socket.as_fd()).unwrap_or(false) { Ok(()) } else { Err(NotSilent { socket }) }
}

/// Restores SO_REUSEADDR on a connection that has left repair mode, at the receiver or after a thaw:
/// `TCP_REPAIR` sets SK_NO_REUSE, with which no listener could be bound to the connection's address while it
/// is open.
///
/// # Errors
/// The kernel's error: `socket` is not a socket.
pub fn allow_rebind(socket: &impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseaddr(socket, true)?)
}

pub(crate) fn is_in_repair(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(number(fd, libc::TCP_REPAIR)? != 0)
}

pub(crate) fn select_queue(fd: BorrowedFd<'_>, queue: Queue) -> io::Result<()> {
    set_option(fd, libc::TCP_REPAIR_QUEUE, &(queue as u32).to_ne_bytes())
}

/// Returns the sequence number of the selected queue: for [`Queue::Receive`] of the next byte expected, for
/// [`Queue::Send`] of the next byte to be written.
pub(crate) fn queue_sequence(fd: BorrowedFd<'_>) -> io::Result<u32> {
    number(fd, libc::TCP_QUEUE_SEQ)
}

pub(crate) fn set_queue_sequence(fd: BorrowedFd<'_>, sequence: u32) -> io::Result<()> {
    set_option(fd, libc::TCP_QUEUE_SEQ, &sequence.to_ne_bytes())
}

pub(crate) fn window(fd: BorrowedFd<'_>) -> io::Result<TcpWindow> {
    let mut bytes = [0; 20];
    read_option(fd, libc::TCP_REPAIR_WINDOW, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<4>();
    let word = |at: usize| u32::from_ne_bytes(words[at]);
    Ok(TcpWindow {
        send_updated_at: word(0),
        send: word(1),
        send_max: word(2),
        receive: word(3),
        receive_updated_at: word(4),
    })
}

pub(crate) fn set_window(fd: BorrowedFd<'_>, window: &TcpWindow) -> io::Result<()> {
    let &TcpWindow { send_updated_at, send, send_max, receive, receive_updated_at } = window;
    let words = [send_updated_at, send, send_max, receive, receive_updated_at];
    set_option(fd, libc::TCP_REPAIR_WINDOW, words.map(u32::to_ne_bytes).as_flattened())
}

pub(crate) fn set_options(fd: BorrowedFd<'_>, options: &[RepairOption]) -> io::Result<()> {
    let words: Vec<_> =
        options.iter().flat_map(|it| [it.kind.to_ne_bytes(), it.value.to_ne_bytes()]).collect();
    set_option(fd, libc::TCP_REPAIR_OPTIONS, words.as_flattened())
}

/// Reads a numeric option of IPPROTO_TCP.
pub(crate) fn number(fd: BorrowedFd<'_>, option: libc::c_int) -> io::Result<u32> {
    let mut bytes = [0; 4];
    read_option(fd, option, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

pub(crate) fn set_number(fd: BorrowedFd<'_>, option: libc::c_int, value: u32) -> io::Result<()> {
    set_option(fd, option, &value.to_ne_bytes())
}
