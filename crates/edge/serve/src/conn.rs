//! One TCP connection, or one to a server over a Unix socket: reads, writes, and the deadline that bounds
//! both.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use skep_units::ServerAddress;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::admission::Permit;
use crate::deadline::{TimeoutCause, Timer};
use crate::limits::{
    BACKLOG_RETRY_MS, COPIED_BYTES_MAX, LINGER_BYTES_MAX, LINGER_MS_MAX, SEND_TURN_BYTES_MAX,
    UNSENT_BYTES_MAX,
};
use crate::output::{Output, Piece};
use crate::pace::{Pace, PaceVerdict, Progress, Taken};
use crate::stream::Stream;
use crate::tcp;
use crate::worker::Worker;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnError {
    /// The kernel reported an error, or the peer has reset the connection.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The deadline passed.
    #[error("timed out: {0:?}")]
    Expired(TimeoutCause),
}

/// A connection owned by one worker.
///
/// All methods take `&self`: reading and writing may interleave in one task
/// (tunnels do). The raw socket stays reachable through [`AsFd`] between
/// requests; a handoff takes it there.
pub struct Conn {
    stream: Stream,
    peer: SocketAddr,
    /// Cached, since it does not change. Boxed, since few connections need it and a connection should be
    /// small.
    local: OnceCell<Box<SocketAddr>>,
    timer: Rc<Timer>,
    timer_key: usize,
    progress: RefCell<Progress>,
    /// Whether a close is a reset.
    resets: Cell<bool>,
    /// Unread bytes may be in the socket although the runtime reports none: [`Conn::poll_closed`] has cleared
    /// its readiness.
    hides_bytes: Cell<bool>,
    /// The socket is writable, which the runtime does not know yet.
    is_fresh: Cell<bool>,
    worker: Rc<Worker>,
    permit: Option<Permit>,
}

impl Conn {
    /// Wraps an accepted stream.
    pub(crate) fn accepted(
        worker: &Rc<Worker>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: Permit,
    ) -> Self {
        Self::new(worker, Stream::Tcp(stream), peer, Some(permit))
    }

    /// Takes over a connected socket that another part of the system has created.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn taken_over(
        worker: &Rc<Worker>,
        socket: OwnedFd,
        peer: SocketAddr,
        permit: Permit,
    ) -> io::Result<Self> {
        let stream = std::net::TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        // Options that accepted sockets inherit from their listener.
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        Ok(Self::accepted(worker, TcpStream::from_std(stream)?, peer, permit))
    }

    /// Connects to `address`, within `timeout_ms`.
    pub async fn connect(
        worker: &Rc<Worker>,
        address: impl Into<ServerAddress>,
        timeout_ms: u64,
    ) -> Result<Self, ConnError> {
        let limit = Duration::from_millis(timeout_ms);
        let address = address.into();
        let connected = tokio::time::timeout(limit, async {
            match &address {
                ServerAddress::Tcp(address) => connect_tcp(*address).await,
                ServerAddress::Unix(path) => connect_unix(path.as_path()).await,
            }
        });
        let connected =
            connected.await.map_err(|_| ConnError::Expired(TimeoutCause::Connect))??;
        if let Stream::Tcp(stream) = &connected.stream {
            stream.set_nodelay(true)?;
            SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        }
        let peer = match address {
            ServerAddress::Tcp(address) => address,
            ServerAddress::Unix(_) => NO_ADDRESS,
        };
        let conn = Self::new(worker, connected.stream, peer, None);
        conn.is_fresh.set(connected.is_at_once);
        Ok(conn)
    }

    fn new(worker: &Rc<Worker>, stream: Stream, peer: SocketAddr, permit: Option<Permit>) -> Self {
        let (timer_key, timer) = worker.deadlines().add();
        let (worker, progress) = (Rc::clone(worker), RefCell::default());
        let (resets, hides_bytes, is_fresh) = Default::default();
        Self {
            stream,
            peer,
            timer,
            timer_key,
            progress,
            resets,
            hides_bytes,
            is_fresh,
            worker,
            local: OnceCell::new(),
            permit,
        }
    }

    /// The peer's address; for a Unix socket, the unspecified address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the peer is a machine of the cluster, by its address.
    pub fn is_of_member(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_of_member)
    }

    /// The local address; the unspecified one for a Unix socket, or if the connection is gone.
    pub fn local(&self) -> SocketAddr {
        let ask = || match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().unwrap_or(NO_ADDRESS),
            Stream::Unix(..) => NO_ADDRESS,
        };
        **self.local.get_or_init(|| Box::new(ask()))
    }

    /// The worker that owns this connection.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// The connection's deadline.
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Sets the deadline `after_ms` from now.
    pub fn expire_after(&self, after_ms: u64, cause: TimeoutCause) {
        self.timer.set(self.worker.now_ms().saturating_add(after_ms), cause);
    }

    /// Reads once into `buffer`; returns 0 at the end of the stream.
    pub fn poll_recv(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, ConnError>> {
        loop {
            self.check_deadline(cx)?;
            let mut receive =
                || Ok(rustix::net::recv(&self.stream, &mut *buffer, RecvFlags::empty())?.1);
            let was_hiding = self.hides_bytes.take();
            let received = if was_hiding {
                receive()
            } else {
                // Called on every path that waits; see `Timer::register`.
                ready!(self.stream.poll_read_ready(&mut reborrow(cx)))?;
                self.stream.try_io(Interest::READABLE, receive)
            };
            match received {
                Ok(n) => {
                    if n > 0 && n < buffer.len() {
                        self.mark_not_ready(Interest::READABLE);
                    } else {
                        // There may be more bytes even if the runtime reports none.
                        self.hides_bytes.set(was_hiding);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Writes `output` until it is empty. After [`SEND_TURN_BYTES_MAX`] it yields to other tasks.
    pub fn poll_send(&self, cx: &Context<'_>, output: &mut Output) -> Poll<Result<(), ConnError>> {
        let mut turn_bytes = SEND_TURN_BYTES_MAX;
        while !output.is_empty() {
            if turn_bytes == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.check_deadline(cx)?;
            let is_fresh = self.is_fresh.take();
            let before = output.len();
            let written = output.write_once(turn_bytes, |piece| self.write(piece, is_fresh));
            turn_bytes -= (before - output.len()) as usize;
            match written {
                Ok(true) => {}
                // A partial write means that the socket is full: another attempt would only cost a system
                // call.
                Ok(false) => self.mark_not_ready(Interest::WRITABLE),
                // Registered only now: most sockets accept everything at once, and then nothing waits.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(&mut reborrow(cx)))?;
                }
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once into `buffer`; returns 0 at the end of the stream.
    pub async fn recv(&self, buffer: &mut [u8]) -> Result<usize, ConnError> {
        std::future::poll_fn(|cx| self.poll_recv(cx, buffer)).await
    }

    /// As [`Conn::poll_send`], to a peer that must keep `pace`: until everything is acknowledged, or the peer
    /// was too slow, the deadline is that of the pace.
    pub fn poll_send_paced(
        &self,
        cx: &Context<'_>,
        output: &mut Output,
        pace: &Pace,
    ) -> Poll<Result<(), ConnError>> {
        let sent = self.poll_send(cx, output);
        let now_ms = self.worker.now_ms();
        let mut progress = self.progress.borrow_mut();
        if sent.is_pending() {
            if let Some(look_ms) = progress.wait(now_ms, pace) {
                self.timer.set(look_ms, TimeoutCause::WriteStall);
            } else if self.timer.cause() != TimeoutCause::WriteStall {
                // The deadline was used for something else meanwhile.
                self.timer.set(now_ms, TimeoutCause::WriteStall);
            }
        } else if progress.rest(now_ms) && self.timer.cause() == TimeoutCause::WriteStall {
            self.timer.clear();
        }
        sent
    }

    /// Writes all of `output` to a peer that may stall for `stall_ms`.
    pub async fn send(&self, output: &mut Output, stall_ms: u64) -> Result<(), ConnError> {
        self.send_telling(output, &Pace::stall(stall_ms), |_| ()).await
    }

    /// Writes all of `output` at `pace`, and reports the remaining bytes after each step.
    pub async fn send_telling(
        &self,
        output: &mut Output,
        pace: &Pace,
        mut tell: impl FnMut(u64),
    ) -> Result<(), ConnError> {
        std::future::poll_fn(|cx| {
            let progress = self.poll_send_paced(cx, output, pace);
            tell(output.len());
            progress
        })
        .await
    }

    /// Sends a few bytes if the kernel accepts them at once: for interim responses, which are not worth
    /// waiting for.
    pub fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL)?)
    }

    /// Ready when the peer has closed its side or reset the connection, even if unread bytes precede that:
    /// for a task that waits for something else on the peer's behalf.
    pub fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        loop {
            if ready!(self.stream.poll_read_ready(&mut reborrow(cx))).is_err() {
                return Poll::Ready(());
            }
            // Unread bytes would keep the socket ready, and no event would wake this task.
            self.mark_not_ready(Interest::READABLE);
            self.hides_bytes.set(true);
            // Checked only now: anything that happens from here on is a new event.
            if has_ended(self) {
                return Poll::Ready(());
            }
        }
    }

    /// Whether the peer has closed, or sent unexpected bytes; for idle connections in a pool.
    pub fn is_stale(&self) -> bool {
        let mut byte = [0u8; 1];
        let peeked = self.stream.try_io(Interest::READABLE, || {
            Ok(rustix::net::recv(&self.stream, &mut byte[..], RecvFlags::PEEK)?.1)
        });
        !matches!(peeked, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// As [`Conn::is_stale`], with a system call even if the runtime reports no event: for requests that
    /// cannot be repeated.
    pub fn probe_stale(&self) -> bool {
        let mut byte = [0u8; 1];
        let peeked = rustix::net::recv(self, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Err(rustix::io::Errno::WOULDBLOCK))
    }

    /// Makes a close send a reset, whether it is caused by a role, a deadline, or the end of the process. For
    /// replies whose end is marked only by the end of the stream: an orderly close would make a part look
    /// complete (RFC 9112 section 8).
    pub fn reset_on_close(&self, is_reset: bool) {
        self.resets.set(is_reset);
        // An error means that there is no connection left to reset.
        let linger = is_reset.then_some(Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(self, linger);
    }

    /// Shuts down the sending direction, so that the peer sees the end of the stream.
    pub fn finish_sending(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write)?)
    }

    /// Closes after an error reply: shuts down the sending direction, then discards for a while what the peer
    /// is still sending. A close with unread bytes would reset the connection and destroy the reply (RFC 9112
    /// section 9.6).
    pub async fn linger(self) {
        if self.resets.get() || self.finish_sending().is_err() {
            return;
        }
        self.expire_after(LINGER_MS_MAX, TimeoutCause::Lifetime);
        let mut thrown_away = 0;
        while thrown_away < LINGER_BYTES_MAX {
            let read = std::future::poll_fn(|cx| {
                self.worker.with_input(|input| self.poll_recv(cx, input))
            });
            match read.await {
                Ok(n) if n > 0 => thrown_away += n,
                _ => return,
            }
        }
    }

    /// Makes one system call: `send` for a single slice, the cheapest one; `sendfile` for bytes that need not
    /// be copied. On a fresh connection the runtime is not consulted.
    fn write(&self, piece: Piece<'_>, is_fresh: bool) -> io::Result<usize> {
        let socket = &self.stream;
        let write = || match piece {
            Piece::Memory { slices: [one], more } => {
                // MORE: the head is held back, so that the body fills its packet.
                let more = if more { SendFlags::MORE } else { SendFlags::empty() };
                Ok(rustix::net::send(socket, one, SendFlags::NOSIGNAL | more)?)
            }
            Piece::Memory { slices, .. } => Ok(rustix::io::writev(socket, slices)?),
            Piece::File { file, offset, bytes } => send_file(socket, file, offset, bytes),
        };
        let written =
            if is_fresh { write() } else { self.stream.try_io(Interest::WRITABLE, write) };
        if let (Stream::Unix(_, taken), Ok(bytes)) = (socket, &written) {
            taken.set(taken.get() + *bytes as u64);
        }
        written
    }

    fn check_deadline(&self, cx: &Context<'_>) -> Result<(), ConnError> {
        self.timer.register(cx);
        match self.timer.expired() {
            None => Ok(()),
            Some(TimeoutCause::WriteStall) => self.judge_pace(),
            Some(cause) => Err(ConnError::Expired(cause)),
        }
    }

    /// Checks whether the peer keeps its pace.
    fn judge_pace(&self) -> Result<(), ConnError> {
        let taken = match &self.stream {
            Stream::Tcp(stream) => tcp::taken(stream)?,
            // A full socket accepts bytes only after the peer has read some.
            Stream::Unix(_, taken) => Taken { acked_bytes: taken.get(), segment_bytes: 1 },
        };
        match self.progress.borrow_mut().look(self.worker.now_ms(), &taken) {
            PaceVerdict::Wait(look_ms) => {
                self.timer.set(look_ms, TimeoutCause::WriteStall);
                Ok(())
            }
            PaceVerdict::Cut(cause) => Err(ConnError::Expired(cause)),
        }
    }

    /// Tells the runtime that the socket is not ready for `interest`, without a system call to prove it:
    /// after a short read or write on an edge-triggered socket the next edge is certain to be reported (the
    /// runtime's own `AsyncRead` does the same).
    fn mark_not_ready(&self, interest: Interest) {
        let _ = self
            .stream
            .try_io(interest, || Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock)));
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.worker.deadlines().remove(self.timer_key);
    }
}

/// The address of a peer without one.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Whether the peer has closed its side or reset the connection; its bytes may still be unread.
fn has_ended(socket: &impl AsFd) -> bool {
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    look(socket, PollFlags::RDHUP).intersects(ends)
}

/// Returns the pending ones of `events`, and of those that poll(2) always reports.
fn look(socket: &impl AsFd, events: PollFlags) -> PollFlags {
    let mut polled = [PollFd::new(socket, events)];
    // It does not wait; an error indicates nothing about the peer.
    let _ = rustix::event::poll(&mut polled, Some(&Timespec::default()));
    polled[0].revents()
}

/// A stream to a server.
struct Connected {
    stream: Stream,
    /// Whether it connected without waiting, so that the runtime does not know yet that it is writable.
    is_at_once: bool,
}

/// Connects over TCP. To this machine the handshake is complete when the system call returns, and checking
/// that saves a turn of the runtime.
async fn connect_tcp(address: SocketAddr) -> io::Result<Connected> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    let is_at_once = address.ip().is_loopback() && is_connected(&stream);
    if !is_at_once {
        stream.writable().await?;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
    }
    Ok(Connected { stream: Stream::Tcp(stream), is_at_once })
}

/// Connects to a Unix socket. While its backlog is full the kernel refuses at once, and reports no event when
/// there is room (unix(7): EAGAIN): the server is busy, not gone.
async fn connect_unix(path: &Path) -> io::Result<Connected> {
    let address = SockAddr::unix(path)?;
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        match socket.connect(&address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(BACKLOG_RETRY_MS)).await;
            }
            Err(error) => return Err(error),
            Ok(()) => {
                let stream = Stream::Unix(UnixStream::from_std(socket.into())?, Cell::new(0));
                return Ok(Connected { stream, is_at_once: true });
            }
        }
    }
}

/// Whether a connecting socket is writable by now, without an error.
fn is_connected(socket: &impl AsFd) -> bool {
    look(socket, PollFlags::OUT) == PollFlags::OUT
}

/// The runtime's readiness calls require a mutable context but do not change it.
fn reborrow<'a>(cx: &Context<'a>) -> Context<'a> {
    Context::from_waker(cx.waker())
}

/// Sends bytes of a memory file, without copying unless they are few.
fn send_file(
    socket: impl AsFd,
    file: BorrowedFd<'_>,
    mut offset: u64,
    bytes: usize,
) -> io::Result<usize> {
    if bytes >= COPIED_BYTES_MAX {
        return Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), bytes)?);
    }
    let mut copy = [0; COPIED_BYTES_MAX];
    let read = rustix::io::pread(file, &mut copy[..bytes], offset)?;
    Ok(rustix::net::send(socket, &copy[..read], SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::sync::mpsc;

    use crate::admission::{Admission, AdmissionLimits};
    use crate::listen;
    use crate::worker::Workers;

    fn unsent_bytes_max(socket: impl AsFd) -> u32 {
        SockRef::from(&socket.as_fd()).tcp_notsent_lowat().unwrap()
    }

    /// Pages in a socket's queue are those of the file: bytes written to the file later would be sent.
    #[test]
    fn few_bytes_of_a_file_are_copied_and_hold_no_page_of_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'a'; COPIED_BYTES_MAX]).unwrap();
        let few = COPIED_BYTES_MAX - 1;
        assert_eq!(send_file(&socket, file.as_fd(), 1, few).unwrap(), few);
        file.write_all_at(&[b'b'; COPIED_BYTES_MAX], 0).unwrap();
        let mut received = vec![0; few];
        client.read_exact(&mut received).unwrap();
        assert!(received.iter().all(|byte| *byte == b'a'));
        assert_eq!(send_file(&socket, file.as_fd(), 1, few + 1).unwrap(), few, "to its end");
    }

    /// Bounds the kernel memory of a slow reader, whether its connection was accepted or taken over.
    #[test]
    fn unsent_bytes_are_bounded_on_every_connection() {
        let group = listen::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let (address, listener) = (group.address(), group.into_sockets().remove(0));
        let workers = Workers::start(1).unwrap();
        let (tell, told) = mpsc::sync_channel(1);
        let admission = Admission::new(AdmissionLimits {
            connections_max: 8,
            per_address_max: 8,
            ipv6_prefix_bits: 64,
        });
        let job = move |worker: &Rc<Worker>| {
            let worker = Rc::clone(worker);
            tokio::task::spawn_local(async move {
                let connected = Conn::connect(&worker, address, 10_000).await.unwrap();
                listener.set_nonblocking(true).unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (accepted, _) = listener.accept().await.unwrap();
                // A connection that none of our listeners has prepared.
                let strange = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let _client = std::net::TcpStream::connect(strange.local_addr().unwrap()).unwrap();
                let (socket, peer) = strange.accept().unwrap();
                let permit = admission.admit(peer.ip()).unwrap();
                let taken = Conn::taken_over(&worker, socket.into(), peer, permit).unwrap();
                let all = [&connected as &dyn AsFd, &accepted, &taken];
                tell.send(all.map(|socket| unsent_bytes_max(socket.as_fd()))).unwrap();
            });
        };
        assert!(workers.handles()[0].run(job));
        assert_eq!(told.recv().unwrap(), [UNSENT_BYTES_MAX; 3]);
        workers.stop();
    }
}
