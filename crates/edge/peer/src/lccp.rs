//! The socket of LCCP: the messages by which machines hand off connections.
//!
//! A message is the body of one sealed datagram. Datagrams are IP packets of a separate protocol (as in the
//! paper, LCCP is directly on top of IP), through a raw socket that netguard opens; or UDP. Lost messages are
//! retransmitted by the caller.
//!
//! The socket never waits; [`Readiness`](crate::Readiness) does, in a runtime.
//!
//! Invariants: as those of [`Socket`](crate::Socket); packets from addresses that are not in the config are
//! dropped unread; a datagram for one of the two sockets is never accepted by the other, as their channels
//! differ.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{RecvFlags, recvfrom};
use skep_units::Now;
use skep_wire::limits::DATAGRAM_BYTES_MAX;
use skep_wire::seal::{Channel, Key, PeerId, Stamp};
use socket2::{Domain, Protocol, Type};

use crate::counts::{Counts, PacketRefusal};
use crate::limits::LCCP_BATCH_DATAGRAMS_MAX;
use crate::sealed::{OpenedBody, Sealed, SendError, Transport, is_of_no_matter};
use crate::socket::{BindError, prepare};

/// Number of the IP protocol: one for experiments (RFC 3692; IANA), as LCCP has no number of its own.
pub const LCCP_PROTOCOL: u8 = 253;

/// Maximum length of an IPv4 header, in bytes (RFC 791, 3.1).
const IPV4_HEADER_BYTES_MAX: usize = 60;

/// The transport of LCCP.
#[derive(Debug)]
pub enum LccpTransport {
    /// A raw socket of [`LCCP_PROTOCOL`], bound to this machine's address.
    Raw(OwnedFd),
    /// The address to listen on; port 0 selects a free one.
    Udp(SocketAddr),
}

/// The identity of the socket's machine.
#[derive(Clone, Debug)]
pub struct LccpSettings {
    pub key: Key,
    pub cluster: String,
    /// This machine's name in the cluster's config.
    pub name: String,
    /// The clock of this process.
    pub clock: fn() -> Now,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LccpReceived {
    /// The sender.
    pub from: PeerId,
    /// When it was sent.
    pub stamp: Stamp,
    /// Never empty.
    pub body: Vec<u8>,
}

/// How a call of [`LccpSocket::receive`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LccpBatch {
    /// Nothing is left: the caller waits until the socket is readable.
    Drained,
    /// There may be more: the caller lets other tasks run, then calls again.
    Full,
}

pub struct LccpSocket {
    sealed: Sealed<Carrier>,
    /// Addresses of all machines.
    sources: BTreeSet<IpAddr>,
    clock: fn() -> Now,
    buffer: Box<[u8; BUFFER_BYTES]>,
}

/// One byte longer than the longest packet, to detect datagrams that are too long.
const BUFFER_BYTES: usize = IPV4_HEADER_BYTES_MAX + DATAGRAM_BYTES_MAX + 1;

impl LccpSocket {
    /// Takes over the raw socket, or opens a UDP socket.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(transport: LccpTransport, settings: &LccpSettings) -> Result<Self, BindError> {
        let carrier = match transport {
            LccpTransport::Raw(raw) => Carrier::raw(raw.into()),
            LccpTransport::Udp(address) => Carrier::udp(address),
        }?;
        let ends = (&*settings.cluster, &*settings.name);
        Ok(Self {
            sealed: Sealed::new(carrier, Channel::Handoff, &settings.key, ends),
            sources: BTreeSet::new(),
            clock: settings.clock,
            buffer: Box::new([0; BUFFER_BYTES]),
        })
    }

    /// The listening address; a raw socket has no port.
    pub fn address(&self) -> SocketAddr {
        self.sealed.transport.address
    }

    /// The id of this machine.
    pub fn own(&self) -> PeerId {
        self.sealed.own()
    }

    /// The incarnation in the seals of this process: greater with every start.
    pub fn incarnation(&self) -> u64 {
        self.sealed.incarnation()
    }

    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.sealed.counts)
    }

    /// Sets the address of a machine; a raw socket ignores the port.
    pub fn set_peer(&mut self, name: &str, address: SocketAddr) {
        self.sealed.set_peer(name, address);
        self.sources = self.sealed.addresses().collect();
    }

    /// Sends a hello, so that later messages to that machine are live: the first datagram after a restart of
    /// either is answered, but not delivered.
    ///
    /// # Errors
    /// Why nothing was sent.
    pub fn greet(&mut self, to: PeerId) -> Result<(), SendError> {
        self.sealed.send(to, &[])
    }

    /// Sends a message, of at most [`BODY_BYTES_MAX`](skep_wire::seal::BODY_BYTES_MAX) bytes. Delivery is
    /// not guaranteed.
    ///
    /// Why the message was not sent.
    /// Why it was not sent.
    pub fn send(&mut self, to: PeerId, body: &[u8]) -> Result<(), SendError> {
        self.sealed.send(to, body)
    }

    /// Receives messages of a bounded number of datagrams into `received`, without waiting.
    ///
    /// # Errors
    /// The system's error: the socket is unusable.
    pub fn receive(&mut self, received: &mut Vec<LccpReceived>) -> io::Result<LccpBatch> {
        for _ in 0..LCCP_BATCH_DATAGRAMS_MAX {
            match self.sealed.transport.receive(&mut self.buffer[..]) {
                Ok((bytes, source)) => received.extend(self.judge(bytes, source)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(LccpBatch::Drained);
                }
                Err(error) if is_of_no_matter(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(LccpBatch::Full)
    }

    /// Checks the packet in the buffer, and opens its datagram.
    fn judge(&mut self, bytes: usize, source: IpAddr) -> Option<LccpReceived> {
        let dropped = |counts: &Counts, reason| {
            counts.count_dropped(reason);
            None
        };
        let packet = &self.buffer[..bytes];
        let datagram = match self.sealed.transport.kind {
            CarrierKind::RawV4 => match datagram_in_ipv4(packet) {
                Some(datagram) => datagram,
                None => return dropped(&self.sealed.counts, PacketRefusal::Header),
            },
            CarrierKind::RawV6 | CarrierKind::Udp => packet,
        };
        if !self.sources.contains(&source.to_canonical()) {
            return dropped(&self.sealed.counts, PacketRefusal::Source);
        }
        let OpenedBody { from, stamp, body } = self.sealed.open((self.clock)(), datagram)?;
        (!body.is_empty()).then(|| LccpReceived { from, stamp, body: body.to_vec() })
    }
}

/// For waiting until the socket is readable.
impl AsFd for LccpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sealed.transport.socket.as_fd()
    }
}

impl fmt::Debug for LccpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LccpSocket").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// A socket of one of the kinds below.
struct Carrier {
    socket: socket2::Socket,
    address: SocketAddr,
    kind: CarrierKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CarrierKind {
    /// Returns packets with their IP headers (raw(7)).
    RawV4,
    /// Returns packets without headers (ipv6(7)).
    RawV6,
    Udp,
}

impl Carrier {
    fn raw(socket: socket2::Socket) -> Result<Self, BindError> {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let fault = |address| move |error| BindError { address, error };
        let mut address = local_address(&socket).map_err(fault(unknown))?;
        // The kernel reports the protocol as the port.
        address.set_port(0);
        prepare(&socket, address).map_err(fault(address))?;
        let kind = if address.is_ipv4() { CarrierKind::RawV4 } else { CarrierKind::RawV6 };
        Ok(Self { socket, address, kind })
    }

    fn udp(address: SocketAddr) -> Result<Self, BindError> {
        let open = || {
            let domain = Domain::for_address(address);
            let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            prepare(&socket, address)?;
            socket.bind(&address.into())?;
            let address = local_address(&socket)?;
            Ok(Self { socket, address, kind: CarrierKind::Udp })
        };
        open().map_err(|error| BindError { address, error })
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, IpAddr)> {
        let (bytes, _, source) = recvfrom(&self.socket, buffer, RecvFlags::DONTWAIT)?;
        let source = source.and_then(|source| SocketAddr::try_from(source).ok());
        // A packet without a source is not from any machine.
        Ok((bytes, source.map_or(Ipv4Addr::UNSPECIFIED.into(), |source| source.ip())))
    }
}

impl Transport for Carrier {
    fn transmit(&self, datagram: &[u8], mut address: SocketAddr) -> io::Result<()> {
        if self.kind != CarrierKind::Udp {
            // The kernel expects the protocol or zero in place of the port.
            address.set_port(0);
        }
        self.socket.send_to(datagram, &address.into()).map(drop)
    }
}

fn local_address(socket: &socket2::Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?.as_socket();
    address.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "not a socket of IP"))
}

/// The payload of an IPv4 packet of our protocol that is exactly as long as its header states. If the packet
/// is longer than the buffer, what is there suffices to detect that the datagram is too long.
fn datagram_in_ipv4(packet: &[u8]) -> Option<&[u8]> {
    let (fixed, _) = packet.split_first_chunk::<20>()?;
    let header_bytes = usize::from(fixed[0] & 15) * 4;
    let packet_bytes = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let is_ours = fixed[0] >> 4 == 4
        && header_bytes >= fixed.len()
        && packet_bytes.min(BUFFER_BYTES) == packet.len()
        && fixed[9] == LCCP_PROTOCOL;
    if is_ours { packet.get(header_bytes..) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of `bytes` bytes whose header states another length.
    fn packet(first: u8, says_bytes: u16, protocol: u8, bytes: usize) -> Vec<u8> {
        let mut packet = vec![7; bytes];
        let [high, low] = says_bytes.to_be_bytes();
        let header = [first, 0, high, low, 0, 0, 0, 0, 64, protocol];
        let header = &header[..header.len().min(bytes)];
        packet[..header.len()].copy_from_slice(header);
        packet
    }

    #[test]
    fn only_whole_packets_of_the_protocol_are_read() {
        let whole = LCCP_PROTOCOL;
        for (first, says_bytes, protocol, bytes, datagram_bytes) in [
            (0x45, 120, whole, 120, Some(100)),
            (0x45, 20, whole, 20, Some(0)),
            (0x46, 120, whole, 120, Some(96)),
            (0x4f, 60, whole, 60, Some(0)),
            (0x45, 9_020, whole, BUFFER_BYTES, Some(BUFFER_BYTES - 20)),
            (0x45, 120, whole, 119, None),
            (0x45, 120, whole, 121, None),
            (0x45, 9_020, whole, BUFFER_BYTES - 1, None),
            (0x45, 120, 17, 120, None),
            (0x65, 120, whole, 120, None),
            (0x44, 120, whole, 120, None),
            (0x40, 120, whole, 120, None),
            (0x4f, 40, whole, 40, None),
            (0x45, 19, whole, 19, None),
            (0x45, 0, whole, 0, None),
        ] {
            let packet = packet(first, says_bytes, protocol, bytes);
            let found = datagram_in_ipv4(&packet).map(<[u8]>::len);
            assert_eq!(found, datagram_bytes, "{first:#x} {says_bytes} {protocol} {bytes}");
        }
    }
}
