//! The UDP socket: sends and receives authenticated messages.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use skep_units::Now;
use skep_wire::limits::DATAGRAM_BYTES_MAX;
use skep_wire::message::Message;
use skep_wire::parts::{MessageTooLong, Reassembler, split};
use skep_wire::seal::{Channel, Key, PeerId, Stamp};
use socket2::{Domain, Protocol, Type};

use crate::counts::Counts;
use crate::limits::{
    DATAGRAMS_PER_WAIT_MAX, QUEUE_PRIORITY, QUEUED_MS_MIN, RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES,
    TRAFFIC_CLASS,
};
use crate::sealed::{OpenedBody, Sealed, SendError, Transport, is_of_no_matter};

/// The receive time of the last datagram, with nanoseconds (socket(7), `linux/sockios.h`).
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;

/// The identity of the socket's machine, and its address.
#[derive(Clone, Debug)]
pub struct SocketSettings {
    /// The listening address; port 0 selects a free one.
    pub address: SocketAddr,
    pub key: Key,
    pub cluster: String,
    /// This machine's name in the cluster's config.
    pub name: String,
    /// The clock of this process.
    pub clock: fn() -> Now,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub from: PeerId,
    /// The sender's stamp; for a long message, that of its last part.
    pub stamp: Stamp,
    /// When it was received by this machine, by the socket's clock. It may have waited in the socket's queue:
    /// its sender may be dead by now.
    pub at: Now,
    pub message: Message,
}

/// The socket. One thread owns it; others may hold its [`Waker`] and [`Counts`].
pub struct Socket {
    sealed: Sealed<UdpSocket>,
    wake: Arc<OwnedFd>,
    reassembler: Reassembler,
    clock: fn() -> Now,
    /// When the queue was last empty: no datagram in it is older.
    empty_at: Now,
    buffer: Box<[u8; DATAGRAM_BYTES_MAX + 1]>,
}

/// A message encoded for any machine, without the seal.
#[derive(Clone, Debug)]
pub struct EncodedMessage(Vec<Vec<u8>>);

/// Ends a wait of its socket, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

/// The socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for other machines of the cluster on {address} (UDP): {error}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The system's error.
    #[source]
    pub error: io::Error,
}

impl Socket {
    /// Opens the socket. The incarnation is the current wall-clock time.
    pub fn bind(settings: &SocketSettings) -> Result<Self, BindError> {
        let address = settings.address;
        let opened = open(address).and_then(|udp| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok((udp, Arc::new(wake)))
        });
        let (udp, wake) = opened.map_err(|error| BindError { address, error })?;
        let SocketSettings { key, cluster, name, .. } = settings;
        Ok(Self {
            sealed: Sealed::new(udp, Channel::Heartbeats, key, (cluster, name)),
            wake,
            reassembler: Reassembler::default(),
            clock: settings.clock,
            empty_at: (settings.clock)(),
            buffer: Box::new([0; DATAGRAM_BYTES_MAX + 1]),
        })
    }

    /// The listening address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.sealed.transport.local_addr()
    }

    /// The id of this machine.
    pub fn own(&self) -> PeerId {
        self.sealed.own()
    }

    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.sealed.counts)
    }

    /// The waker of this socket.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Sets the address of a machine. Datagrams are never sent to any other address, even if the machine's
    /// own seem to come from there.
    pub fn set_peer(&mut self, name: &str, address: SocketAddr) {
        self.sealed.set_peer(name, address);
    }

    /// Removes a machine.
    pub fn forget_peer(&mut self, name: &str) {
        self.sealed.forget_peer(name);
    }

    /// Sends a message, in as many datagrams as needed. Delivery is not guaranteed.
    pub fn send(&mut self, to: PeerId, message: &Message) -> Result<(), SendError> {
        self.send_bodies(to, &split(&message.encode())?)
    }

    /// Sends a message that was already encoded. Failures are counted.
    pub fn send_encoded(&mut self, to: PeerId, message: &EncodedMessage) {
        // The next heartbeat tries again, and failures are counted.
        let _ = self.send_bodies(to, &message.0);
    }

    /// Sends the same message to several machines, encoding it once. Failures are counted.
    pub fn send_all(&mut self, to: impl IntoIterator<Item = PeerId>, message: &Message) {
        // A message that is too long for any receiver is sent to nobody.
        let Ok(message) = EncodedMessage::new(message) else { return };
        to.into_iter().for_each(|to| self.send_encoded(to, &message));
    }

    /// Waits for a message; `None` after the timeout, after a wake-up, or after many datagrams
    /// without a message.
    pub fn receive(&mut self, timeout: Duration) -> io::Result<Option<Received>> {
        let deadline = (self.clock)().plus_ms(timeout.as_millis().try_into().unwrap_or(u64::MAX));
        for _ in 0..DATAGRAMS_PER_WAIT_MAX {
            let bytes = match self.sealed.transport.recv(&mut self.buffer[..]) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.empty_at = (self.clock)();
                    let left_ms = deadline.since_ms(self.empty_at);
                    if left_ms == 0 || self.wait(left_ms)? {
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) if is_of_no_matter(&error) => continue,
                Err(error) => return Err(error),
            };
            if let Some(received) = self.judge(bytes) {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn send_bodies(&mut self, to: PeerId, bodies: &[Vec<u8>]) -> Result<(), SendError> {
        // Checked even if there are no bodies.
        self.sealed.address_of(to)?;
        bodies.iter().try_for_each(|body| self.sealed.send(to, body))
    }

    /// When the last-read datagram was received. In a process that runs without pauses it was just now;
    /// otherwise the kernel is asked, whose wall clock may be adjusted.
    fn arrived_at(&self, now: Now) -> Now {
        let since_ms = now.since_ms(self.empty_at);
        let waited_ms = if since_ms < QUEUED_MS_MIN {
            0
        } else {
            queued_ms(&self.sealed.transport).unwrap_or(0)
        };
        Now(now.0.saturating_sub(waited_ms.min(since_ms)))
    }

    /// Opens and checks the datagram in the buffer.
    fn judge(&mut self, bytes: usize) -> Option<Received> {
        let now = (self.clock)();
        let at = self.arrived_at(now);
        let OpenedBody { from, stamp, body } = self.sealed.open(now, &self.buffer[..bytes])?;
        let message = read(&mut self.reassembler, from, body);
        if message.is_err() {
            self.sealed.refuse_body();
        }
        message.ok().flatten().map(|message| Received { from, stamp, at, message })
    }

    /// Waits until the socket is readable; true after a wake-up.
    fn wait(&self, timeout_ms: u64) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(&self.sealed.transport, PollFlags::IN),
            PollFd::new(&*self.wake, PollFlags::IN),
        ];
        let timeout = Timespec::try_from(Duration::from_millis(timeout_ms)).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let is_woken = !fds[1].revents().is_empty();
        if is_woken {
            // Resets the counter; it does not matter if another reader was faster.
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
        Ok(is_woken)
    }
}

impl Transport for UdpSocket {
    fn transmit(&self, datagram: &[u8], address: SocketAddr) -> io::Result<()> {
        self.send_to(datagram, address).map(drop)
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("udp", &self.sealed.transport).finish_non_exhaustive()
    }
}

impl EncodedMessage {
    pub fn new(message: &Message) -> Result<Self, MessageTooLong> {
        split(&message.encode()).map(Self)
    }

    /// The number of datagrams that carry it.
    pub fn datagrams(&self) -> usize {
        self.0.len()
    }
}

impl Waker {
    /// Ends the current wait, or else the next one.
    pub fn wake(&self) {
        // Fails only if the counter is full, in which case the wake-up is already pending.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// An authentic body that is neither a message nor a part of one.
struct MalformedBody;

/// The message that a body completes, if any. An empty body only shows that its sender is alive.
fn read(
    reassembler: &mut Reassembler,
    from: PeerId,
    body: &[u8],
) -> Result<Option<Message>, MalformedBody> {
    if body.is_empty() {
        return Ok(None);
    }
    let whole = reassembler.take(from, body).map_err(|_| MalformedBody)?;
    let message = whole.map(|bytes| Message::decode(&bytes)).transpose();
    message.map_err(|_| MalformedBody)
}

/// How long ago the last-read datagram was received, in milliseconds.
fn queued_ms(socket: &impl AsFd) -> Option<u64> {
    let came = UNIX_EPOCH.checked_add(last_came(socket)?)?;
    let waited = SystemTime::now().duration_since(came).unwrap_or_default();
    u64::try_from(waited.as_millis()).ok()
}

/// When the last-read datagram was received, since the Unix epoch; `None` if there was none.
#[expect(unsafe_code, reason = "no safe call for it in rustix")]
fn last_came(socket: &impl AsFd) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGSTAMPNS, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| result == 0)?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    prepare(&socket, address)?;
    // From the first call on the kernel records receive times; there is no datagram yet.
    let _ = last_came(&socket);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets the options that all datagram sockets have; none of them blocks.
pub(crate) fn prepare(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // The following five are optimisations, and may be refused.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
    let _ = match address {
        SocketAddr::V4(_) => socket.set_tos_v4(TRAFFIC_CLASS),
        SocketAddr::V6(_) => socket.set_tclass_v6(TRAFFIC_CLASS),
    };
    // After the traffic class, which also sets a priority.
    let _ = socket.set_priority(QUEUE_PRIORITY);
    Ok(())
}
