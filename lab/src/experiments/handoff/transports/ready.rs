//! Waits for descriptors with edge-triggered epoll.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Longer than any experiment.
pub(super) const NEVER: Duration = Duration::from_secs(86_400);

/// Maximum number of events that one wait returns.
const EVENTS_MAX: usize = 128;

/// The descriptors of one thread.
pub(super) struct Ready {
    epoll: OwnedFd,
    found: Vec<ReadyEvent>,
}

/// A descriptor that has become ready.
#[derive(Clone, Copy)]
pub(super) struct ReadyEvent {
    /// The id with which it was added.
    pub(super) id: u64,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
}

impl Ready {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, found: Vec::new() })
    }

    /// Waits for data to read, until the descriptor is closed.
    pub(super) fn add_reader(&self, descriptor: &impl AsFd, id: u64) -> io::Result<()> {
        self.add(descriptor, id, epoll::EventFlags::IN)
    }

    /// Waits for data to read and for room to write.
    pub(super) fn add_stream(&self, descriptor: &impl AsFd, id: u64) -> io::Result<()> {
        self.add(descriptor, id, epoll::EventFlags::IN | epoll::EventFlags::OUT)
    }

    /// Returns the descriptors that have become ready; none after the timeout.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<&[ReadyEvent]> {
        // The kernel waits whole milliseconds; rounded up.
        let ms = timeout.as_micros().div_ceil(1_000) as u64;
        let timeout = Timespec::try_from(Duration::from_millis(ms)).map_err(io::Error::other)?;
        self.found.clear();
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &mut [],
            Err(error) => return Err(error.into()),
        };
        let ended = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        self.found.extend(events.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            ReadyEvent {
                id: data.u64(),
                is_readable: flags.intersects(ended),
                is_writable: flags.contains(epoll::EventFlags::OUT),
            }
        }));
        Ok(&self.found)
    }

    fn add(&self, descriptor: &impl AsFd, id: u64, flags: epoll::EventFlags) -> io::Result<()> {
        let (data, flags) = (epoll::EventData::new_u64(id), flags | epoll::EventFlags::ET);
        Ok(epoll::add(&self.epoll, descriptor, data, flags)?)
    }
}
