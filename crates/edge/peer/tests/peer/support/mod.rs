//! Common parts of the tests of streams: identities, and a plain socket that sends what a test specifies.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use skep_wire::cache::frame::write_frame;
use skep_wire::cache::{Handshake, HelloError, Identity, Purpose};
use skep_wire::message::Name;
use skep_wire::seal::Key;
use socket2::{Domain, Socket, Type};

/// Timeout of waits that must succeed: far longer than they take.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const KEY: &str = "a secret of thirty-two characters";
pub const OTHER_KEY: &str = "another secret of this many letters";

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn identity(own: &str) -> Identity {
    identity_of(KEY, "hive", own)
}

pub fn identity_of(key: &str, cluster: &str, own: &str) -> Identity {
    Identity::new(&Key::from_text(key).unwrap(), cluster, &name(own))
}

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    patient(TcpStream::connect(address).unwrap())
}

/// Connects from another address of the loopback.
pub fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    patient(socket.into())
}

/// Waits until a condition holds, by polling.
pub fn poll_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

pub fn accept(listener: &TcpListener) -> TcpStream {
    patient(listener.accept().unwrap().0)
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Performs a handshake, and reads a server's final verdict.
pub fn greet(stream: &mut TcpStream, mut handshake: Handshake) -> Result<Name, HelloError> {
    let mut buffer = [0; 256];
    loop {
        stream.write_all(&handshake.output()).unwrap();
        if let Some(other) = handshake.other() {
            return Ok(other.clone());
        }
        let wanted = &mut buffer[..handshake.wants()];
        stream.read_exact(wanted).unwrap();
        handshake.take(wanted)?;
    }
}

/// Connects, and performs the handshake as the machine `own`.
pub fn client(address: SocketAddr, purpose: Purpose, own: &str) -> TcpStream {
    let mut stream = connect(address);
    let handshake = Handshake::client(&identity(own), purpose, None, [7; 32]);
    greet(&mut stream, handshake).unwrap();
    stream
}

/// Accepts, and performs the handshake as the machine `own`.
pub fn server(listener: &TcpListener, purpose: Purpose, own: &str) -> TcpStream {
    let mut stream = accept(listener);
    greet(&mut stream, Handshake::server(&identity(own), purpose, [8; 32])).unwrap();
    stream.write_all(&Handshake::welcome()).unwrap();
    stream
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    write_frame(&mut frame, payload);
    frame
}

/// Reads one frame; returns its payload.
pub fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize];
    stream.read_exact(&mut payload).unwrap();
    payload
}

/// Returns the bytes received until the other side closes; a reset is accepted as well.
pub fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}
