//! Sends and receives messages on a socket.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::de::DeserializeOwned;
use skep_wire::guard::MESSAGE_BYTES_MAX;

/// Decodes a message; `None` if it is invalid or has trailing bytes: the other end is of another build.
pub(crate) fn decoded<T: DeserializeOwned>(message: &[u8]) -> Option<T> {
    let (decoded, rest) = postcard::take_from_bytes(message).ok()?;
    rest.is_empty().then_some(decoded)
}

/// Sends one complete message.
pub(crate) fn put(socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    // NOSIGNAL: a peer that has closed its end is an error, not the end of this process.
    rustix::io::retry_on_intr(|| send(socket, message, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one message into `buffer`. `UnexpectedEof` if the peer has closed its end, `InvalidData` if the
/// message exceeds the limit.
pub(crate) fn take<'b>(socket: BorrowedFd<'_>, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    // One byte more than allowed, to detect messages that are too long.
    buffer.resize(MESSAGE_BYTES_MAX + 1, 0);
    let (_, len) =
        rustix::io::retry_on_intr(|| recv(socket, buffer.as_mut_slice(), RecvFlags::TRUNC))?;
    match len {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        1..=MESSAGE_BYTES_MAX => Ok(&buffer[..len]),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
