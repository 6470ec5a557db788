//! The options of a socket in repair mode, as values; and the two calls around repair mode.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use skep_wire::handoff::tcp::TcpWindow;

use crate::sys::{read_option, set_option};

/// Which queue `TCP_QUEUE_SEQ` and `send` mean (linux/tcp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Receive = 1,
    Send = 2,
}

/// An option of the handshake, as `TCP_REPAIR_OPTIONS` takes it: its kind (IANA), and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairOption {
    pub(crate) kind: u32,
    pub(crate) value: u32,
}

/// A socket was not closed: that would not have been silent.
#[derive(Debug, thiserror::Error)]
#[error("the socket is not in repair mode: its close would end the connection for the client")]
pub struct NotSilent {
    /// The socket, still open.
    pub socket: OwnedFd,
}

/// Closes a socket in repair mode: the client gets neither FIN nor RST, whatever is unread or unsent,
/// and nothing of the connection stays (`__tcp_close`, `tcp_disconnect` in net/ipv4).
///
/// The kernel does so when the last descriptor of the socket is closed: every holder of a copy must have
/// closed it before, and a runtime must have let go of it. A child process has copies until it executes a
/// program, so that a machine which hands off to itself may find the connection still taken for a moment.
///
/// # Errors
/// With the socket, if it is not in repair mode.
pub fn close_silently(socket: OwnedFd) -> Result<(), NotSilent> {
    if is_in_repair(socket.as_fd()).unwrap_or(false) { Ok(()) } else { Err(NotSilent { socket }) }
}

/// For a connection that has left repair mode, at the receiver or after a thaw: the kernel has taken
/// SO_REUSEADDR from it (`TCP_REPAIR` sets SK_NO_REUSE), and no listener could be bound to its address as
/// long as it lives.
///
/// # Errors
/// The kernel's: `socket` is none.
pub fn allow_rebind(socket: &impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseaddr(socket, true)?)
}

pub(crate) fn is_in_repair(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(number(fd, libc::TCP_REPAIR)? != 0)
}

pub(crate) fn select_queue(fd: BorrowedFd<'_>, queue: Queue) -> io::Result<()> {
    set_option(fd, libc::TCP_REPAIR_QUEUE, &(queue as u32).to_ne_bytes())
}

/// Of the selected queue: for [`Queue::Receive`] the next byte expected, for [`Queue::Send`] the next one
/// to be written.
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

/// An option of IPPROTO_TCP that is one number.
pub(crate) fn number(fd: BorrowedFd<'_>, option: libc::c_int) -> io::Result<u32> {
    let mut bytes = [0; 4];
    read_option(fd, option, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

pub(crate) fn set_number(fd: BorrowedFd<'_>, option: libc::c_int, value: u32) -> io::Result<()> {
    set_option(fd, option, &value.to_ne_bytes())
}
