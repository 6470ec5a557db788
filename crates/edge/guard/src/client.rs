//! The serving process's end of the socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use skep_wire::guard::{GREETING, MESSAGE_BYTES_MAX, Order, OrderReply, Side};

use crate::error::GuardError;
use crate::limits::{ANSWER_MS, LOADED_MS};
use crate::message::{decoded, put, take};

/// A connection to netguard, usable from any thread; orders are executed one by one.
#[derive(Debug)]
pub struct Guard {
    line: Mutex<Line>,
    /// As reported with netguard's last inspection of the machine.
    messages_dropped: AtomicU64,
}

#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    buffer: Vec<u8>,
    state: LineState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    Open,
    /// The last order was to abort.
    Aborted,
    /// An order was not answered: a late answer would be taken for that of the next order.
    Lost,
}

impl Guard {
    /// Connects to netguard, which listens at `path`. Waits until it has served earlier clients.
    pub fn connect(path: &Path) -> Result<Self, GuardError> {
        let socket =
            dial(path).map_err(|error| GuardError::Unreachable { path: path.to_owned(), error })?;
        Self::greet(socket)
    }

    fn greet(socket: OwnedFd) -> Result<Self, GuardError> {
        let mut line = Line { socket, buffer: Vec::new(), state: LineState::Open };
        match line.ask(GREETING, LOADED_MS)? {
            OrderReply::Done => Ok(Self::of(line)),
            _ => Err(GuardError::Foreign),
        }
    }

    fn of(line: Line) -> Self {
        Self { line: Mutex::new(line), messages_dropped: AtomicU64::new(0) }
    }

    /// The number of log messages that netguard has dropped because earlier ones were not read, as of its
    /// last inspection of the machine.
    pub fn messages_dropped(&self) -> u64 {
        self.messages_dropped.load(Ordering::Relaxed)
    }

    /// Sends `order` and returns its answer. Blocks for at most ten seconds. After an order without an
    /// answer, all others fail at once with [`GuardError::Gone`].
    pub fn ask(&self, order: &Order) -> Result<OrderReply, GuardError> {
        let message = postcard::to_allocvec(order).map_err(|_| GuardError::Foreign)?;
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(GuardError::TooLong(message.len()));
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        match line.state {
            LineState::Open => {}
            LineState::Aborted => return Err(GuardError::Aborted),
            LineState::Lost => return Err(GuardError::Gone(io::ErrorKind::NotConnected.into())),
        }
        let answer_ms = if matches!(order, Order::Open(_)) { LOADED_MS } else { ANSWER_MS };
        let answer = line.ask(&message, answer_ms);
        if let Ok(OrderReply::Machine(state)) = &answer {
            self.messages_dropped.store(state.messages_dropped, Ordering::Relaxed);
        }
        if *order == Order::Abort {
            line.state = LineState::Aborted;
        }
        answer
    }
}

impl Line {
    fn ask(&mut self, message: &[u8], answer_ms: u64) -> Result<OrderReply, GuardError> {
        let Self { socket, buffer, state } = self;
        let mut gone = |error| {
            *state = LineState::Lost;
            GuardError::Gone(told_of_silence(error, answer_ms))
        };
        set_patience(socket, answer_ms).map_err(&mut gone)?;
        put(socket.as_fd(), message).map_err(&mut gone)?;
        let answer = take(socket.as_fd(), buffer).map_err(&mut gone)?;
        match decoded(answer).ok_or(GuardError::Foreign)? {
            OrderReply::Refused(why) => Err(GuardError::Refused(why)),
            answer => Ok(answer),
        }
    }
}

/// Whether a netguard listens at `path`.
pub fn is_listening(path: &Path) -> bool {
    dial(path).is_ok()
}

/// Orders netguard to attach the packet program of `side` again. A device with a MAC address other than
/// `own_mac` is a different device, for which this process must be restarted: other machines use the address
/// that it has reported to them.
pub fn open_again(guard: &Guard, side: Side, own_mac: [u8; 6]) -> Result<(), GuardError> {
    match guard.ask(&Order::Open(side))? {
        OrderReply::Opened(opened) if opened.mac == own_mac => Ok(()),
        OrderReply::Opened(opened) => Err(GuardError::OtherDevice(opened.device)),
        _ => Err(GuardError::Foreign),
    }
}

pub(crate) fn dial(path: &Path) -> io::Result<OwnedFd> {
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

/// Replaces `WouldBlock`, the kernel's error for a timeout.
pub(crate) fn told_of_silence(error: io::Error, answer_ms: u64) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", answer_ms / 1000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::thread;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap()
    }

    fn line(socket: OwnedFd) -> Line {
        Line { socket, buffer: Vec::new(), state: LineState::Open }
    }

    fn answer(netguard: &OwnedFd, answer: &OrderReply) {
        put(netguard.as_fd(), &postcard::to_allocvec(answer).unwrap()).unwrap();
    }

    #[test]
    fn a_late_answer_is_not_that_of_the_next_order() {
        let (own, netguard) = pair();
        let mut line = line(own);
        let silent = line.ask(&[0], 1).unwrap_err();
        assert!(silent.to_string().contains("no answer within"), "{silent}");
        answer(&netguard, &OrderReply::Refused("of the first order".to_owned()));
        let guard = Guard::of(line);
        let next = guard.ask(&Order::Claim).unwrap_err();
        assert!(matches!(next, GuardError::Gone(_)), "{next}");
        assert!(next.is_fatal());
    }

    #[test]
    fn a_netguard_that_does_not_know_the_greeting_is_of_another_build() {
        let (own, netguard) = pair();
        let thread = thread::spawn(move || Guard::greet(own));
        let mut buffer = Vec::new();
        let greeting = take(netguard.as_fd(), &mut buffer).unwrap();
        // Builds without a greeting sent such a message.
        assert!(postcard::from_bytes::<Order>(greeting).is_err());
        answer(&netguard, &OrderReply::Refused("restart both".to_owned()));
        let refused = thread.join().unwrap().unwrap_err();
        assert!(matches!(refused, GuardError::Refused(why) if why == "restart both"));
    }

    #[test]
    fn an_answer_with_more_bytes_than_it_has_is_foreign() {
        let (own, netguard) = pair();
        let mut longer = postcard::to_allocvec(&OrderReply::Done).unwrap();
        longer.push(0);
        put(netguard.as_fd(), &longer).unwrap();
        assert!(matches!(line(own).ask(&[0], ANSWER_MS), Err(GuardError::Foreign)));
    }
}
