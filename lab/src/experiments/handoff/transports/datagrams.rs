//! Exchanges with the real LCCP socket, over IP and UDP.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, socket_with};
use skep_peer::{
    LCCP_PROTOCOL, LccpBatch, LccpReceived, LccpSettings, LccpSocket, LccpTransport, SendError,
};
use skep_units::Now;
use skep_wire::handoff::lccp::Lccp;
use skep_wire::seal::{Key, PeerId};

use super::exchange::{DonorEnd, answer};
use super::ready::{NEVER, Ready};
use super::{CLUSTER, DONOR, KEY, RECEIVER, ReceiverEnd};
use crate::experiments::Failure;

/// Time after which an unanswered hello is repeated, in milliseconds: the minimum interval of answers.
const HELLO_MS: u64 = 25;

/// Hellos after which the other end is considered dead.
const HELLOS_MAX: usize = 200;

const SOCKET: u64 = 0;
const OVER: u64 = 1;

/// The socket of one end.
pub(super) struct Datagrams {
    socket: LccpSocket,
    to: PeerId,
    received: Vec<LccpReceived>,
}

/// The donor's end.
pub(super) struct DatagramDonor {
    ready: Ready,
    datagrams: Datagrams,
}

/// Opens the socket of one end, in the calling thread's network namespace.
pub(super) fn open(is_raw: bool, name: &str, address: Ipv4Addr) -> Result<LccpSocket, Failure> {
    let address = SocketAddr::from((address, 0));
    let transport = if is_raw {
        let flags = SocketFlags::CLOEXEC;
        let protocol = std::num::NonZeroU32::new(u32::from(LCCP_PROTOCOL)).map(Protocol::from_raw);
        let raw = socket_with(AddressFamily::INET, SocketType::RAW, flags, protocol)?;
        bind(&raw, &address)?;
        LccpTransport::Raw(raw)
    } else {
        LccpTransport::Udp(address)
    };
    let (key, cluster) = (Key::from_text(KEY)?, CLUSTER.to_owned());
    let settings = LccpSettings { key, cluster, name: name.to_owned(), clock };
    Ok(LccpSocket::open(transport, &settings)?)
}

/// Both ends, from two sockets.
pub(super) fn ends(
    mut donor: LccpSocket,
    mut receiver: LccpSocket,
) -> Result<(DatagramDonor, Datagrams), Failure> {
    donor.set_peer(RECEIVER, receiver.address());
    receiver.set_peer(DONOR, donor.address());
    let ready = Ready::new()?;
    ready.add_reader(&donor, SOCKET)?;
    let datagrams = |socket, name| Datagrams { socket, to: PeerId::of(name), received: Vec::new() };
    let donor = DatagramDonor { ready, datagrams: datagrams(donor, RECEIVER) };
    Ok((donor, datagrams(receiver, DONOR)))
}

pub(super) fn clock() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    Now(START.get_or_init(Instant::now).elapsed().as_millis() as u64)
}

impl Datagrams {
    /// Sends a message; if the system refuses it, it counts as lost.
    fn send(&mut self, message: &Lccp) -> Result<(), Failure> {
        match self.socket.send(self.to, &message.encode()) {
            Ok(()) | Err(SendError::System { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives all messages that have arrived.
    fn receive(&mut self, heard: &mut Vec<Lccp>) -> Result<(), Failure> {
        while self.socket.receive(&mut self.received)? == LccpBatch::Full {}
        for received in self.received.drain(..) {
            heard.push(Lccp::decode(&received.body)?);
        }
        Ok(())
    }
}

impl DonorEnd for DatagramDonor {
    fn is_lossy(&self) -> bool {
        true
    }

    fn greet(&mut self) -> Result<(), Failure> {
        let Datagrams { socket, to, .. } = &mut self.datagrams;
        for _ in 0..HELLOS_MAX {
            socket.greet(*to)?;
            self.ready.wait(Duration::from_millis(HELLO_MS))?;
            let mut received = Vec::new();
            while socket.receive(&mut received)? == LccpBatch::Full {}
            if socket.counts().live() > 0 {
                return Ok(());
            }
        }
        Err("the receiver does not answer".into())
    }

    fn begin(&mut self, _: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn send(&mut self, _: usize, message: &Lccp) -> Result<(), Failure> {
        self.datagrams.send(message)
    }

    fn end(&mut self, _: usize) {}

    fn wait(&mut self, timeout: Duration, heard: &mut Vec<Lccp>) -> Result<(), Failure> {
        self.ready.wait(timeout)?;
        self.datagrams.receive(heard)
    }
}

impl ReceiverEnd for Datagrams {
    fn serve(mut self: Box<Self>, over: UnixStream) -> Result<(), Failure> {
        let mut ready = Ready::new()?;
        ready.add_reader(&self.socket, SOCKET)?;
        ready.add_reader(&over, OVER)?;
        let mut heard = Vec::new();
        loop {
            if ready.wait(NEVER)?.iter().any(|event| event.id == OVER) {
                return Ok(());
            }
            self.receive(&mut heard)?;
            let answers = heard.drain(..).filter_map(|message| answer(&message));
            let answers: Vec<Lccp> = answers.collect();
            answers.iter().try_for_each(|message| self.send(message))?;
        }
    }
}
