//! The thread that reads packets and writes what goes on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::fate::{Fate, RelayFaults};
use super::tun::Tun;
use crate::limits::{PACKET_BYTES_MAX, RELAY_BATCH_PACKETS};

/// What a relay has done so far, in packets of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayCounts {
    /// All that came.
    pub relayed: u64,
    /// Of these: those that went nowhere.
    pub lost: u64,
    /// Those that went on twice.
    pub doubled: u64,
    /// Those that went on late.
    pub late: u64,
    /// Beside these: dropped by the kernel, since the relay did not read them fast enough.
    pub unread: u64,
}

/// The same in the making. Each is counted before it goes on.
#[derive(Default)]
pub(super) struct Counters {
    relayed: AtomicU64,
    lost: AtomicU64,
    doubled: AtomicU64,
    late: AtomicU64,
}

/// A relay's device, and the packets that are held back.
pub(super) struct Forwarder {
    tun: Tun,
    ended: PipeReader,
    faults: RelayFaults,
    counters: Arc<Counters>,
    held: BinaryHeap<Reverse<Held>>,
    number: u64,
}

/// A packet that is held back. Those of one time go on in the order in which they came.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    until: Instant,
    number: u64,
    packet: Vec<u8>,
}

impl Counters {
    pub(super) fn now(&self) -> RelayCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // First, so that the others are of all these packets at least.
        let relayed = self.relayed.load(Ordering::Acquire);
        RelayCounts {
            relayed,
            lost: of(&self.lost),
            doubled: of(&self.doubled),
            late: of(&self.late),
            unread: 0,
        }
    }

    fn count(&self, fate: Fate) {
        let counter = match fate {
            Fate::Passed => None,
            Fate::Lost => Some(&self.lost),
            Fate::Doubled { .. } => Some(&self.doubled),
            Fate::Late { .. } => Some(&self.late),
        };
        counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
        self.relayed.fetch_add(1, Ordering::Release);
    }
}

impl Forwarder {
    pub(super) fn new(
        tun: Tun,
        ended: PipeReader,
        faults: RelayFaults,
        counters: Arc<Counters>,
    ) -> Self {
        Self { tun, ended, faults, counters, held: BinaryHeap::new(), number: 0 }
    }

    /// Works until it is told to end, or the device is gone.
    pub(super) fn work(mut self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        while self.wait()? {
            let now = Instant::now();
            self.release(now)?;
            for _ in 0..RELAY_BATCH_PACKETS {
                let Some(count) = self.tun.read(&mut buffer)? else { break };
                let packet = &buffer[..count];
                if !is_of_the_router(packet) {
                    self.relay(packet, now)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for packets, or for the first that is held back; false at the end.
    fn wait(&self) -> io::Result<bool> {
        let until = self.held.peek().map(|Reverse(first)| first.until);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let (tun, ended) = (self.tun.as_fd(), self.ended.as_fd());
        let mut files = [
            PollFd::from_borrowed_fd(tun, PollFlags::IN),
            PollFd::from_borrowed_fd(ended, PollFlags::IN),
        ];
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(files[1].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets those go on whose time has come.
    fn release(&mut self, now: Instant) -> io::Result<()> {
        while self.held.peek().is_some_and(|Reverse(first)| first.until <= now) {
            let Some(Reverse(Held { packet, .. })) = self.held.pop() else { break };
            self.tun.write(&packet)?;
        }
        Ok(())
    }

    fn relay(&mut self, packet: &[u8], now: Instant) -> io::Result<()> {
        let fate = self.faults.fate(self.number);
        self.counters.count(fate);
        match fate {
            Fate::Passed => self.tun.write(packet)?,
            Fate::Lost => {}
            Fate::Doubled { after_us } => {
                self.tun.write(packet)?;
                match after_us {
                    0 => self.tun.write(packet)?,
                    _ => self.hold(packet, now, after_us),
                }
            }
            Fate::Late { after_us } => self.hold(packet, now, after_us),
        }
        self.number += 1;
        Ok(())
    }

    fn hold(&mut self, packet: &[u8], now: Instant, after_us: u32) {
        let until = now + Duration::from_micros(u64::from(after_us));
        self.held.push(Reverse(Held { until, number: self.number, packet: packet.to_vec() }));
    }
}

/// Whether the router says this itself, to neighbours that it looks for on the device: nobody forwards what is
/// for ff02::/16 (RFC 4291, 2.7).
fn is_of_the_router(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6) && packet.get(24..26) == Some(&[0xff, 0x02])
}
