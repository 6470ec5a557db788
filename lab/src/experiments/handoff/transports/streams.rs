//! Exchanges over TCP: on one persistent connection, or on one connection per exchange.
//!
//! A frame is the length of a sealed datagram in two bytes, little-endian, and the datagram. The messages of
//! one turn are sent with one write per connection.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, connect, socket_with, sockopt,
};
use skep_wire::handoff::lccp::Lccp;
use skep_wire::seal::{Channel, Endpoint, Key, OpenedDatagram, PeerId};

use super::datagrams::clock;
use super::exchange::{DonorEnd, answer};
use super::ready::{NEVER, Ready, ReadyEvent};
use super::{CLUSTER, DONOR, KEY, RECEIVER, ReceiverEnd, Transport};
use crate::experiments::Failure;

/// Bytes per read: the messages of more exchanges than are in flight.
const READ_BYTES: usize = 64 * 1024;

/// Timeout for the answers to hellos, in milliseconds: long enough for a lost SYN and some lost segments.
const GREET_MS: u64 = 20_000;

const LISTENER: u64 = u64::MAX;
const OVER: u64 = u64::MAX - 1;

/// The donor's end.
pub(super) struct StreamDonor {
    to: SocketAddr,
    transport: Transport,
    /// One for each concurrent connection: each has its own sequence, so that messages of a late connection
    /// are not taken for replays.
    seals: Vec<Endpoint>,
    streams: Vec<Option<Framed>>,
    ready: Ready,
    /// Connections with data to send.
    unsent: Vec<usize>,
    buffer: Box<[u8]>,
}

/// The receiver's end.
pub(super) struct StreamReceiver {
    listener: TcpListener,
    transport: Transport,
    seal: Endpoint,
    streams: BTreeMap<u64, Framed>,
    next_id: u64,
    ready: Ready,
    buffer: Box<[u8]>,
}

/// A connection that carries frames.
struct Framed {
    stream: TcpStream,
    /// The beginning of an incomplete frame.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether it is writable, as far as is known.
    is_writable: bool,
}

/// Whether more data may arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Open,
    Ended,
}

impl StreamDonor {
    /// Creates an end with slots for this many concurrent exchanges.
    pub(super) fn new(
        to: SocketAddr,
        transport: Transport,
        places: usize,
    ) -> Result<Self, Failure> {
        let connections = if transport.is_kept() { 1 } else { places };
        let seal = |at| seal(&format!("{DONOR}/{at}"));
        Ok(Self {
            to,
            transport,
            seals: (0..connections).map(seal).collect::<Result<_, _>>()?,
            streams: (0..connections).map(|_| None).collect(),
            ready: Ready::new()?,
            unsent: Vec::new(),
            buffer: vec![0; READ_BYTES].into(),
        })
    }

    /// The connection of a slot.
    fn index(&self, place: usize) -> usize {
        if self.transport.is_kept() { 0 } else { place }
    }

    /// Sends hellos with all seals on one connection, and receives the answers.
    fn greet_all(&mut self, stream: &mut Framed) -> Result<(), Failure> {
        for seal in &mut self.seals {
            stream.push(&seal.seal(PeerId::of(RECEIVER), &[])?);
        }
        stream.stream.write_all(&std::mem::take(&mut stream.output))?;
        let mut missing = self.seals.len();
        let end = Instant::now() + Duration::from_millis(GREET_MS);
        while missing > 0 {
            if Instant::now() > end {
                return Err("the receiver does not answer".into());
            }
            let seals = &mut self.seals;
            let state = stream.read(&mut self.buffer, |frame| {
                // Each answer is for one of the seals.
                let is_live = |seal: &mut Endpoint| {
                    matches!(seal.open(clock(), frame), Ok(OpenedDatagram::Live { .. }))
                };
                missing -= usize::from(seals.iter_mut().any(is_live));
                Ok(())
            })?;
            if state == Stream::Ended {
                return Err("the receiver has closed the connection".into());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for index in self.unsent.drain(..) {
            // The connection may have been closed since.
            self.streams[index].as_mut().map_or(Ok(()), Framed::flush)?;
        }
        Ok(())
    }

    /// Reads and writes where an event reports that it is possible.
    fn turn(&mut self, event: ReadyEvent, heard: &mut Vec<Lccp>) -> Result<(), Failure> {
        let index = event.id as usize;
        let Some(stream) = self.streams[index].as_mut() else { return Ok(()) };
        if event.is_writable {
            stream.is_writable = true;
            stream.flush()?;
        }
        if !event.is_readable {
            return Ok(());
        }
        let seal = &mut self.seals[index];
        let end = stream.read(&mut self.buffer, |frame| {
            if let OpenedDatagram::Live { body, .. } = seal.open(clock(), frame)? {
                heard.push(Lccp::decode(body)?);
            }
            Ok(())
        })?;
        match end {
            Stream::Open => Ok(()),
            Stream::Ended => Err("the receiver has closed a connection".into()),
        }
    }
}

impl DonorEnd for StreamDonor {
    fn is_lossy(&self) -> bool {
        false
    }

    fn greet(&mut self) -> Result<(), Failure> {
        let stream = TcpStream::connect(self.to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(GREET_MS)))?;
        let mut stream = Framed::new(stream);
        self.greet_all(&mut stream)?;
        if self.transport.is_kept() {
            stream.stream.set_nonblocking(true)?;
            self.ready.add_stream(&stream.stream, 0)?;
            self.streams[0] = Some(stream);
        }
        Ok(())
    }

    fn begin(&mut self, place: usize) -> Result<(), Failure> {
        if !self.transport.is_kept() {
            let stream = begin_connect(self.to)?;
            self.ready.add_stream(&stream, place as u64)?;
            self.streams[place] = Some(Framed::new(stream));
        }
        Ok(())
    }

    fn send(&mut self, place: usize, message: &Lccp) -> Result<(), Failure> {
        let index = self.index(place);
        let datagram = self.seals[index].seal(PeerId::of(RECEIVER), &message.encode())?;
        let stream = self.streams[index].as_mut().ok_or("no connection to send by")?;
        if stream.output.is_empty() {
            self.unsent.push(index);
        }
        stream.push(&datagram);
        if self.transport.is_batched() { Ok(()) } else { Ok(stream.flush()?) }
    }

    fn end(&mut self, place: usize) {
        if !self.transport.is_kept() {
            self.streams[place] = None;
        }
    }

    fn wait(&mut self, timeout: Duration, heard: &mut Vec<Lccp>) -> Result<(), Failure> {
        self.flush()?;
        let events = self.ready.wait(timeout)?.to_vec();
        events.into_iter().try_for_each(|event| self.turn(event, heard))
    }
}

impl StreamReceiver {
    /// Listens in the calling thread's network namespace.
    pub(super) fn listen(address: Ipv4Addr, transport: Transport) -> Result<Self, Failure> {
        let listener = TcpListener::bind((address, 0))?;
        listener.set_nonblocking(true)?;
        // Connections inherit it from their listener.
        sockopt::set_tcp_nodelay(&listener, true)?;
        Ok(Self {
            listener,
            transport,
            seal: seal(RECEIVER)?,
            streams: BTreeMap::new(),
            next_id: 0,
            ready: Ready::new()?,
            buffer: vec![0; READ_BYTES].into(),
        })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn accept(&mut self) -> Result<(), Failure> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match accept_with(&self.listener, flags) {
                Ok(stream) => {
                    let id = self.next_id;
                    self.next_id += 1;
                    self.ready.add_stream(&stream, id)?;
                    self.streams.insert(id, Framed::new(stream.into()));
                }
                Err(Errno::AGAIN) => return Ok(()),
                // The connection has ended already.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn turn(&mut self, event: ReadyEvent) -> Result<(), Failure> {
        let Some(stream) = self.streams.get_mut(&event.id) else { return Ok(()) };
        stream.is_writable |= event.is_writable;
        let (seal, mut answers) = (&mut self.seal, Vec::new());
        let end = if event.is_readable {
            stream.read(&mut self.buffer, |frame| {
                answers.extend(answer_frame(seal, frame)?);
                Ok(())
            })?
        } else {
            Stream::Open
        };
        for datagram in &answers {
            stream.push(datagram);
            if !self.transport.is_batched() {
                stream.flush()?;
            }
        }
        stream.flush()?;
        if end == Stream::Ended {
            self.streams.remove(&event.id);
        }
        Ok(())
    }
}

impl ReceiverEnd for StreamReceiver {
    fn serve(mut self: Box<Self>, over: UnixStream) -> Result<(), Failure> {
        self.ready.add_reader(&self.listener, LISTENER)?;
        self.ready.add_reader(&over, OVER)?;
        loop {
            for event in self.ready.wait(NEVER)?.to_vec() {
                match event.id {
                    OVER => return Ok(()),
                    LISTENER => self.accept()?,
                    _ => self.turn(event)?,
                }
            }
        }
    }
}

/// The sealed answer to a sealed message.
fn answer_frame(seal: &mut Endpoint, frame: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let said = match seal.open(clock(), frame)? {
        OpenedDatagram::Live { from, body, .. } => {
            answer(&Lccp::decode(body)?).map(|it| (from, it))
        }
        OpenedDatagram::Hello { .. } => return Ok(seal.take_answer().map(|it| it.datagram)),
    };
    Ok(said.map(|(to, message)| seal.seal(to, &message.encode())).transpose()?)
}

fn seal(name: &str) -> Result<Endpoint, Failure> {
    Ok(Endpoint::of(Channel::Handoff, &Key::from_text(KEY)?, CLUSTER, name, 1))
}

/// Starts a non-blocking connect.
fn begin_connect(to: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

impl Framed {
    fn new(stream: TcpStream) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), is_writable: false }
    }

    fn push(&mut self, datagram: &[u8]) {
        self.output.extend_from_slice(&(datagram.len() as u16).to_le_bytes());
        self.output.extend_from_slice(datagram);
    }

    /// Writes as much as the system accepts.
    fn flush(&mut self) -> io::Result<()> {
        while self.is_writable && !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads available data, frame by frame.
    fn read(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<Stream, Failure> {
        loop {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Ok(Stream::Ended),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Stream::Open),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(Stream::Ended);
                }
                Err(error) => return Err(error.into()),
            };
            self.input.extend_from_slice(&buffer[..bytes]);
            let mut rest = &self.input[..];
            while let Some((frame, after)) = split_frame(rest) {
                take(frame)?;
                rest = after;
            }
            let taken = self.input.len() - rest.len();
            self.input.drain(..taken);
            // Nothing is left in the kernel (epoll(7), question 9).
            if bytes < buffer.len() {
                return Ok(Stream::Open);
            }
        }
    }
}

/// Returns the first frame, and the bytes after it.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}
