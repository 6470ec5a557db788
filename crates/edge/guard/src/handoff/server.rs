//! Netguard's end of the socket for handoffs.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use skep_wire::handoff::guard::{BATCH_MAX, GREETING, HandoffOrder, HandoffResult};

use super::message::{ReceivedMessage, put, take};
use crate::limits::{HANDOFF_CLIENTS_MAX, REFUSAL_BYTES_MAX};
use crate::message::decoded;
use crate::server::{OTHER_BUILD, listen_at};

/// A client of this netguard; numbers are never reused.
pub type ClientNumber = u64;

/// Executes the orders of handoffs.
pub trait ServeHandoffs {
    /// Executes one order, with its descriptor. Returns a descriptor as well if the result has one.
    fn perform(
        &mut self,
        client: ClientNumber,
        order: HandoffOrder,
        descriptor: Option<OwnedFd>,
    ) -> (HandoffResult, Option<OwnedFd>);

    /// A client has disconnected.
    fn gone(&mut self, client: ClientNumber);

    /// A descriptor: when it becomes readable, [`Self::tick`] is called at once.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called after the time that the last call returned. Returns when to call this again; `None` ends
    /// serving.
    fn tick(&mut self) -> Option<Duration>;
}

/// A socket at a path, which is removed on drop, and its clients.
#[derive(Debug)]
pub struct HandoffListener {
    socket: OwnedFd,
    path: PathBuf,
    /// Inode of the socket: another netguard of this name may have replaced it.
    inode: u64,
    /// Users that are served.
    users: Vec<u32>,
}

/// The events that ended a wait.
struct Ready {
    /// A client waits to be accepted.
    is_called: bool,
    is_woken: bool,
    /// Clients whose messages can be read.
    clients: Vec<ClientNumber>,
}

struct Client {
    socket: OwnedFd,
    has_greeted: bool,
}

impl HandoffListener {
    /// As [`crate::Listener::bind`], but a live socket is replaced: the process that owns the socket of
    /// direct dispatch is the netguard of this name.
    pub fn bind(path: &Path, users: Vec<u32>, group: Option<u32>) -> io::Result<Self> {
        let socket = listen_at(path, group)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let inode = std::fs::metadata(path)?.ino();
        Ok(Self { socket, path: path.to_owned(), inode, users })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `server` execute the orders of all clients until it ends.
    pub fn serve(self, server: &mut impl ServeHandoffs) -> io::Result<()> {
        let mut clients: BTreeMap<ClientNumber, Client> = BTreeMap::new();
        let (mut next, mut buffer) = (0, Vec::new());
        let Some(wait) = server.tick() else { return Ok(()) };
        let mut tick_at = Instant::now() + wait;
        loop {
            let Ready { is_called, is_woken, clients: ready } =
                self.wait(&clients, server.wakes(), tick_at)?;
            for number in ready {
                let Some(client) = clients.get_mut(&number) else { continue };
                if let Err(error) = client.serve(number, &mut buffer, server) {
                    part_from(number, &error);
                    clients.remove(&number);
                    server.gone(number);
                }
            }
            if is_called && let Some(socket) = self.accept(clients.len())? {
                clients.insert(next, Client { socket, has_greeted: false });
                next += 1;
            }
            if is_woken || Instant::now() >= tick_at {
                let Some(wait) = server.tick() else { return Ok(()) };
                tick_at = Instant::now() + wait;
            }
        }
    }

    /// Waits for a client or an order, or until `end`.
    fn wait(
        &self,
        clients: &BTreeMap<ClientNumber, Client>,
        wakes: Option<BorrowedFd<'_>>,
        end: Instant,
    ) -> io::Result<Ready> {
        let sockets = clients.values().map(|client| client.socket.as_fd());
        let waited = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN);
        let all = [self.socket.as_fd()].into_iter().chain(sockets).chain(wakes);
        let mut waits: Vec<_> = all.map(waited).collect();
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut waits, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = waits.iter().map(|wait| !wait.revents().is_empty());
        let is_called = ready.next().unwrap_or(false);
        let mut heard = Vec::new();
        for (number, is_ready) in clients.keys().zip(&mut ready) {
            heard.extend(is_ready.then_some(*number));
        }
        let is_woken = ready.next().unwrap_or(false);
        Ok(Ready { is_called, is_woken, clients: heard })
    }

    /// Accepts a client; disconnects those that are not permitted to give orders, and those beyond the limit.
    fn accept(&self, clients: usize) -> io::Result<Option<OwnedFd>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = || rustix::net::accept_with(&self.socket, flags);
        let socket = match rustix::io::retry_on_intr(accept) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let peer = sockopt::socket_peercred(&socket)?;
        let (user, process) = (peer.uid.as_raw(), peer.pid.as_raw_pid());
        if !self.users.contains(&user) {
            tracing::warn!(user, process, allowed = ?self.users, "netguard refused a client of another user");
            return Ok(None);
        }
        if clients >= HANDOFF_CLIENTS_MAX {
            tracing::warn!(process, "netguard refused a handoff client: {clients} are connected");
            return Ok(None);
        }
        Ok(Some(socket))
    }
}

impl Drop for HandoffListener {
    fn drop(&mut self) {
        if std::fs::metadata(&self.path).is_ok_and(|it| it.ino() == self.inode) {
            // It is no error if the file is gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Client {
    /// Executes one batch. After an error the client is disconnected.
    fn serve(
        &mut self,
        number: ClientNumber,
        buffer: &mut Vec<u8>,
        server: &mut impl ServeHandoffs,
    ) -> io::Result<()> {
        let message = match take(self.socket.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            message => message?,
        };
        if !self.has_greeted {
            self.has_greeted = message.bytes == GREETING;
            let result = match self.has_greeted {
                true => HandoffResult::Done,
                false => HandoffResult::Refused(OTHER_BUILD.to_owned()),
            };
            return self.answer(&[result], &[]);
        }
        let Some(orders) = orders_of(&message) else {
            self.answer(&[HandoffResult::Refused(OTHER_BUILD.to_owned())], &[])?;
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut descriptors = message.descriptors.into_iter();
        let perform = |order: HandoffOrder| {
            let own = order.has_descriptor().then(|| descriptors.next()).flatten();
            server.perform(number, order, own)
        };
        let (results, sockets): (Vec<_>, Vec<_>) = orders.into_iter().map(perform).unzip();
        let sockets: Vec<OwnedFd> = sockets.into_iter().flatten().collect();
        self.answer(&results, &sockets.iter().map(AsFd::as_fd).collect::<Vec<_>>())
    }

    fn answer(&self, results: &[HandoffResult], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let results: Vec<_> = results.iter().map(shortened).collect();
        let bytes = postcard::to_allocvec(&results).map_err(|_| io::ErrorKind::InvalidData)?;
        // Does not wait: a client that does not read its results would delay all others.
        put(self.socket.as_fd(), &bytes, sockets)
    }
}

/// The orders of a message, each with its descriptor; `None` if the message is invalid.
fn orders_of(message: &ReceivedMessage<'_>) -> Option<Vec<HandoffOrder>> {
    let orders: Vec<HandoffOrder> = decoded(message.bytes)?;
    let descriptors = orders.iter().filter(|order| order.has_descriptor()).count();
    let is_whole =
        (1..=BATCH_MAX).contains(&orders.len()) && descriptors == message.descriptors.len();
    is_whole.then_some(orders)
}

/// Truncates refusals, so that a whole batch of them fits into a message.
fn shortened(result: &HandoffResult) -> HandoffResult {
    match result {
        HandoffResult::Refused(why) if why.len() > REFUSAL_BYTES_MAX => {
            HandoffResult::Refused(why[..why.floor_char_boundary(REFUSAL_BYTES_MAX)].to_owned())
        }
        other => other.clone(),
    }
}

fn part_from(client: ClientNumber, error: &io::Error) {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {}
        io::ErrorKind::WouldBlock => {
            tracing::warn!(
                client,
                "disconnected a client that does not read the results of its orders"
            );
        }
        io::ErrorKind::InvalidData => {
            tracing::warn!(client, "disconnected a client that sent an invalid batch of orders");
        }
        _ => tracing::warn!(client, %error, "disconnected a client after an error"),
    }
}
