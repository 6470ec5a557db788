//! What all datagram sockets have in common: the other machines and their addresses, seals, answers to
//! hellos, counters.
//!
//! Invariant: nothing is sent to an address that was not set for a machine by [`Sealed::set_peer`].

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use skep_units::Now;
use skep_wire::parts::MessageTooLong;
use skep_wire::seal::{
    BodyTooLong, Channel, Endpoint, Key, OpenError, OpenedDatagram, PeerId, Stamp,
};

use crate::counts::Counts;

/// A transport of datagrams.
pub(crate) trait Transport {
    /// Sends one datagram without waiting.
    fn transmit(&self, datagram: &[u8], address: SocketAddr) -> io::Result<()>;
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The address of the machine is unknown.
    #[error("no address is known for this machine")]
    Unknown,
    /// The message is too long.
    #[error(transparent)]
    TooLong(#[from] MessageTooLong),
    /// The message must fit into one datagram, and is too long for it.
    #[error(transparent)]
    BodyTooLong(#[from] BodyTooLong),
    /// The system refused the message, or a part of it.
    #[error("not sent to {address}: {error}")]
    System {
        /// The destination.
        address: SocketAddr,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

/// An authentic and new body from another machine.
pub(crate) struct OpenedBody<'a> {
    pub(crate) from: PeerId,
    pub(crate) stamp: Stamp,
    /// Empty if the datagram only shows that its sender is alive.
    pub(crate) body: &'a [u8],
}

/// One machine's end of all its conversations over one transport.
pub(crate) struct Sealed<T> {
    pub(crate) transport: T,
    pub(crate) counts: Arc<Counts>,
    endpoint: Endpoint,
    peers: BTreeMap<PeerId, SocketAddr>,
}

impl<T: Transport> Sealed<T> {
    /// The incarnation is the current wall-clock time.
    pub(crate) fn new(
        transport: T,
        channel: Channel,
        key: &Key,
        (cluster, name): (&str, &str),
    ) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let incarnation = u64::try_from(started.as_millis()).unwrap_or(u64::MAX);
        Self {
            transport,
            counts: Arc::default(),
            endpoint: Endpoint::of(channel, key, cluster, name, incarnation),
            peers: BTreeMap::new(),
        }
    }

    pub(crate) fn own(&self) -> PeerId {
        self.endpoint.own()
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.endpoint.incarnation()
    }

    pub(crate) fn set_peer(&mut self, name: &str, address: SocketAddr) {
        self.peers.insert(PeerId::of(name), address);
    }

    pub(crate) fn forget_peer(&mut self, name: &str) {
        self.peers.remove(&PeerId::of(name));
    }

    /// The addresses of all machines; machines may share one.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.peers.values().map(|address| address.ip().to_canonical())
    }

    pub(crate) fn address_of(&self, peer: PeerId) -> Result<SocketAddr, SendError> {
        self.peers.get(&peer).copied().ok_or(SendError::Unknown)
    }

    /// Sends one datagram.
    pub(crate) fn send(&mut self, to: PeerId, body: &[u8]) -> Result<(), SendError> {
        let address = self.address_of(to)?;
        let datagram = self.endpoint.seal(to, body)?;
        self.transmit(address, &datagram)
    }

    /// Verifies a datagram, and answers it if it is a hello. `None` if there is no valid body; the failure is counted.
    pub(crate) fn open<'a>(&mut self, now: Now, datagram: &'a [u8]) -> Option<OpenedBody<'a>> {
        let opened = match self.endpoint.open(now, datagram) {
            Ok(OpenedDatagram::Live { from, stamp, body }) => {
                self.counts.count_live();
                Some(OpenedBody { from, stamp, body })
            }
            Ok(OpenedDatagram::Hello { .. }) => {
                self.counts.count_hello();
                None
            }
            Err(reason) => {
                self.counts.count_refused(reason);
                None
            }
        };
        self.answer();
        opened
    }

    /// Counts an authentic body that is not a message.
    pub(crate) fn refuse_body(&self) {
        self.counts.count_refused(OpenError::MalformedBody);
    }

    fn answer(&mut self) {
        if let Some(answer) = self.endpoint.take_answer()
            && let Some(&address) = self.peers.get(&answer.to)
        {
            // An unanswered hello is repeated by its sender.
            let _ = self.transmit(address, &answer.datagram);
        }
    }

    fn transmit(&self, address: SocketAddr, datagram: &[u8]) -> Result<(), SendError> {
        let sent = self.transport.transmit(datagram, address);
        self.counts.count_sent(sent.is_ok());
        sent.map_err(|error| SendError::System { address, error })
    }
}

/// Whether an error concerns the network or an earlier datagram, not the socket.
pub(crate) fn is_of_no_matter(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}
