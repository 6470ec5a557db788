//! Sends and receives messages with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use skep_wire::handoff::guard::{BATCH_MAX, MESSAGE_BYTES_MAX};

/// Size of the buffer for the descriptors of a message, in bytes.
const CONTROL_BYTES: usize = cmsg_space!(ScmRights(BATCH_MAX));

/// A received message.
pub(super) struct ReceivedMessage<'b> {
    pub(super) bytes: &'b [u8],
    /// Closed when dropped.
    pub(super) descriptors: Vec<OwnedFd>,
    /// The kernel has dropped descriptors after these.
    pub(super) is_cut: bool,
}

/// Sends one message, or nothing and returns `WouldBlock` if there is no room for it.
pub(super) fn put(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    assert!(descriptors.len() <= BATCH_MAX, "a descriptor for each order at most");
    let mut room = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room");
    }
    let parts = [IoSlice::new(bytes)];
    // NOSIGNAL: a peer that has closed its end is an error, not the end of this process.
    rustix::io::retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one message into `buffer`. `UnexpectedEof` if the peer has closed its end; `InvalidData` if the
/// message exceeds a limit, or the kernel has dropped some of its descriptors: more than a batch may have, or
/// more than this process may open.
pub(super) fn take<'b>(
    socket: BorrowedFd<'_>,
    buffer: &'b mut Vec<u8>,
) -> io::Result<ReceivedMessage<'b>> {
    let message = take_cut(socket, buffer)?;
    if message.is_cut { Err(io::ErrorKind::InvalidData.into()) } else { Ok(message) }
}

/// As [`take`], but accepts a message of whose descriptors only the first ones were received.
pub(super) fn take_cut<'b>(
    socket: BorrowedFd<'_>,
    buffer: &'b mut Vec<u8>,
) -> io::Result<ReceivedMessage<'b>> {
    buffer.resize(MESSAGE_BYTES_MAX, 0);
    let mut room = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let received = rustix::io::retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(buffer)];
        recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    // Our messages are never empty.
    match received.bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        len => Ok(ReceivedMessage { bytes: &buffer[..len], descriptors, is_cut }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap()
    }

    fn sent(bytes: &[u8], descriptors: usize) -> io::Result<(usize, usize)> {
        let (one, other) = pair();
        let file = File::open("/dev/null").unwrap();
        let descriptors = vec![file.as_fd(); descriptors];
        // As from a peer that respects no limit.
        let mut room = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&one, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
        drop(one);
        let mut buffer = Vec::new();
        take(other.as_fd(), &mut buffer).map(|it| (it.bytes.len(), it.descriptors.len()))
    }

    #[test]
    fn what_exceeds_a_limit_is_an_error_and_what_is_at_it_is_not() {
        let at_limit = vec![7; MESSAGE_BYTES_MAX];
        assert_eq!(sent(&at_limit, BATCH_MAX).unwrap(), (MESSAGE_BYTES_MAX, BATCH_MAX));
        assert_eq!(sent(b"x", 1).unwrap(), (1, 1));
        let longer = vec![7; MESSAGE_BYTES_MAX + 1];
        // The kernel rounds up the room for descriptors.
        for (bytes, descriptors) in [(&longer[..], 0), (b"x", BATCH_MAX + 4), (b"x", 253)] {
            let refused = sent(bytes, descriptors).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{descriptors}");
        }
        assert_eq!(sent(b"", 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn descriptors_of_a_refused_message_are_closed() {
        let (one, other) = pair();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut room = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let descriptors = [writer.as_fd(); 200];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&one, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        assert!(take(other.as_fd(), &mut Vec::new()).is_err());
        drop(writer);
        // End of file: nobody has a copy of the writer any more.
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }
}
