//! The serving process's end of the socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use skep_wire::guard::{MESSAGE_BYTES_MAX, Order, OrderReply, Side};

use crate::error::GuardError;
use crate::limits::{ANSWER_MS, LOADED_MS};
use crate::message::{put, take};

/// A connection to netguard, for any thread; orders are executed one by one.
#[derive(Debug)]
pub struct Guard {
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The connection is aborted.
    is_aborted: bool,
}

impl Guard {
    /// Connects to netguard, which listens at `path`.
    pub fn connect(path: &Path) -> Result<Self, GuardError> {
        let socket =
            dial(path).map_err(|error| GuardError::Unreachable { path: path.to_owned(), error })?;
        Ok(Self { line: Mutex::new(Line { socket, buffer: Vec::new(), is_aborted: false }) })
    }

    /// Sends `order` and returns its answer. Blocks until then, at most ten seconds.
    pub fn ask(&self, order: &Order) -> Result<OrderReply, GuardError> {
        let message = postcard::to_allocvec(order).map_err(|_| GuardError::Foreign)?;
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(GuardError::TooLong(message.len()));
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let Line { socket, buffer, is_aborted } = &mut *line;
        if *is_aborted {
            return Err(GuardError::Aborted);
        }
        *is_aborted = *order == Order::Abort;
        let answer_ms = if matches!(order, Order::Open(_)) { LOADED_MS } else { ANSWER_MS };
        let gone = |error| GuardError::Gone(told_of_silence(error, answer_ms));
        set_patience(socket, answer_ms).map_err(gone)?;
        put(socket.as_fd(), &message).map_err(gone)?;
        let answer = take(socket.as_fd(), buffer).map_err(gone)?;
        match postcard::from_bytes(answer).map_err(|_| GuardError::Foreign)? {
            OrderReply::Refused(why) => Err(GuardError::Refused(why)),
            answer => Ok(answer),
        }
    }
}

/// Has netguard attach the packet program of a side once more. A device with another MAC address
/// than `own_mac` is another device, for which this process must start anew: other machines go by
/// the address that it has told them.
pub fn open_again(guard: &Guard, side: Side, own_mac: [u8; 6]) -> Result<(), GuardError> {
    match guard.ask(&Order::Open(side))? {
        OrderReply::Opened(opened) if opened.mac == own_mac => Ok(()),
        OrderReply::Opened(opened) => Err(GuardError::OtherDevice(opened.device)),
        _ => Err(GuardError::Foreign),
    }
}

fn dial(path: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn set_patience(socket: &OwnedFd, answer_ms: u64) -> io::Result<()> {
    let patience = Some(Duration::from_millis(answer_ms));
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, patience)?;
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, patience)?)
}

/// Replaces "try again", the kernel's error for a timeout.
fn told_of_silence(error: io::Error, answer_ms: u64) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", answer_ms / 1000))
}
