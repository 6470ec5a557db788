//! The serving process's end of the socket for handoffs.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use skep_wire::handoff::guard::{
    BATCH_MAX, GREETING, HandoffOrder, HandoffResult, MESSAGE_BYTES_MAX,
};

use super::message::{put, take_cut};
use crate::client::{dial, told_of_silence};
use crate::error::GuardError;
use crate::limits::{ANSWER_MS, BATCHES_MAX};
use crate::message::decoded;

/// A connection to netguard for the orders of handoffs, for one thread.
///
/// Its descriptor ([`AsFd`]) does not block: [`Self::try_send`] and [`Self::try_receive`] are for a thread
/// that also waits for other things, [`Self::ask`] is for one that does not. After an error other than
/// [`GuardError::Refused`] the connection is unusable.
#[derive(Debug)]
pub struct HandoffGuard {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The number of orders of each batch whose results are outstanding.
    awaited: VecDeque<usize>,
    /// When the last answers were received, or the first of the outstanding orders was sent.
    heard_at: Instant,
}

/// The result of one order.
#[derive(Debug)]
pub struct HandoffAnswer {
    pub result: HandoffResult,
    /// The socket of [`HandoffResult::Created`]; `None` if this process may open no more descriptors.
    pub socket: Option<OwnedFd>,
}

impl HandoffGuard {
    /// Connects to netguard, which listens at `path`. Waits for its greeting, at most ten seconds.
    pub fn connect(path: &Path) -> Result<Self, GuardError> {
        let unreachable = |error| GuardError::Unreachable { path: path.to_owned(), error };
        let socket = dial(path).map_err(unreachable)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(|errno| GuardError::Gone(errno.into()))?;
        let mut guard = Self::of(socket);
        put(guard.as_fd(), GREETING, &[]).map_err(GuardError::Gone)?;
        guard.awaited.push_back(1);
        let mut answers = guard.wait_for_answers()?;
        match answers.pop().map(|answer| answer.result) {
            Some(HandoffResult::Done) => Ok(guard),
            Some(HandoffResult::Refused(why)) => Err(GuardError::Refused(why)),
            _ => Err(GuardError::Foreign),
        }
    }

    /// Sends a batch of 1 to [`BATCH_MAX`] orders, each with its descriptor if it has one. Returns `false`,
    /// with nothing sent, while netguard has not read earlier batches.
    pub fn try_send(
        &mut self,
        orders: &[(HandoffOrder, Option<BorrowedFd<'_>>)],
    ) -> Result<bool, GuardError> {
        assert!((1..=BATCH_MAX).contains(&orders.len()), "a batch is of 1 to {BATCH_MAX} orders");
        let has_own =
            |(order, own): &(HandoffOrder, Option<_>)| order.has_descriptor() == own.is_some();
        assert!(orders.iter().all(has_own), "orders have their descriptors, and no others");
        if self.awaited.len() >= BATCHES_MAX {
            return Ok(false);
        }
        let (orders, descriptors): (Vec<&HandoffOrder>, Vec<_>) =
            orders.iter().map(|(order, own)| (order, *own)).unzip();
        let descriptors: Vec<_> = descriptors.into_iter().flatten().collect();
        let bytes = postcard::to_allocvec(&orders).map_err(|_| GuardError::Foreign)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(GuardError::TooLong(bytes.len()));
        }
        match put(self.as_fd(), &bytes, &descriptors) {
            Err(error) if is_full(&error) => Ok(false),
            sent => {
                sent.map_err(GuardError::Gone)?;
                if self.awaited.is_empty() {
                    self.heard_at = Instant::now();
                }
                self.awaited.push_back(orders.len());
                Ok(true)
            }
        }
    }

    /// Whether netguard owes an answer and has not sent any for ten seconds.
    pub fn is_silent(&self) -> bool {
        let patience = Duration::from_millis(ANSWER_MS);
        !self.awaited.is_empty() && self.heard_at.elapsed() > patience
    }

    /// Returns the answers to the earliest outstanding batch, in its order; `None` if they have not arrived.
    /// A netguard that has not answered for ten seconds is treated as gone.
    pub fn try_receive(&mut self) -> Result<Option<Vec<HandoffAnswer>>, GuardError> {
        let is_silent = self.is_silent();
        let message = match take_cut(self.socket.as_fd(), &mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_silent => {
                return Ok(None);
            }
            message => {
                message.map_err(|error| GuardError::Gone(told_of_silence(error, ANSWER_MS)))?
            }
        };
        self.heard_at = Instant::now();
        let results: Vec<HandoffResult> = decoded(message.bytes).ok_or(GuardError::Foreign)?;
        let is_created = |result: &&HandoffResult| matches!(result, HandoffResult::Created);
        let created = results.iter().filter(is_created).count();
        let sockets = message.descriptors.len();
        let has_all = created == sockets || message.is_cut && sockets < created;
        if self.awaited.pop_front() != Some(results.len()) || !has_all {
            return Err(GuardError::Foreign);
        }
        let mut sockets = message.descriptors.into_iter();
        let answer = |result: HandoffResult| {
            let socket = is_created(&&result).then(|| sockets.next()).flatten();
            HandoffAnswer { result, socket }
        };
        Ok(Some(results.into_iter().map(answer).collect()))
    }

    /// Sends a batch and waits for its answers, at most ten seconds. Must not be called while other answers
    /// are outstanding.
    pub fn ask(
        &mut self,
        orders: &[(HandoffOrder, Option<BorrowedFd<'_>>)],
    ) -> Result<Vec<HandoffAnswer>, GuardError> {
        assert!(self.awaited.is_empty(), "answers to earlier orders have not come");
        match self.try_send(orders)? {
            true => self.wait_for_answers(),
            false => Err(GuardError::Gone(io::ErrorKind::WouldBlock.into())),
        }
    }

    fn of(socket: OwnedFd) -> Self {
        let (buffer, awaited, heard_at) = (Vec::new(), VecDeque::new(), Instant::now());
        Self { socket, buffer, awaited, heard_at }
    }

    fn wait_for_answers(&mut self) -> Result<Vec<HandoffAnswer>, GuardError> {
        let end = Instant::now() + Duration::from_millis(ANSWER_MS);
        loop {
            if let Some(answers) = self.try_receive()? {
                return Ok(answers);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let silence = io::ErrorKind::WouldBlock.into();
                return Err(GuardError::Gone(told_of_silence(silence, ANSWER_MS)));
            }
            let timeout = Timespec::try_from(left).map_err(|_| GuardError::Foreign)?;
            let mut waited = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut waited, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(GuardError::Gone(errno.into())),
            }
        }
    }
}

/// Whether the socket has no room, or too many descriptors of this user are in flight (unix(7)).
fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::TOOMANYREFS))
}

impl AsFd for HandoffGuard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_netguard_that_is_silent_for_long_counts_as_gone() {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
        let (own, netguard) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let mut guard = HandoffGuard::of(own);
        let before = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        guard.heard_at = before(2 * ANSWER_MS);
        assert!(guard.try_receive().unwrap().is_none(), "nothing is awaited");
        let order = [(HandoffOrder::ForgetOrphans, None)];
        assert!(guard.try_send(&order).unwrap());
        assert!(guard.try_receive().unwrap().is_none(), "it has time from now on");
        // Answers that have arrived meanwhile are accepted, however late.
        guard.heard_at = before(2 * ANSWER_MS);
        let answer = postcard::to_allocvec(&vec![HandoffResult::Done]).unwrap();
        put(netguard.as_fd(), &answer, &[]).unwrap();
        assert_eq!(guard.try_receive().unwrap().unwrap().len(), 1);
        assert!(guard.try_send(&order).unwrap());
        guard.heard_at = before(2 * ANSWER_MS);
        let gone = guard.try_receive().unwrap_err().to_string();
        assert!(gone.contains("no answer within 10 s"), "{gone}");
    }
}
