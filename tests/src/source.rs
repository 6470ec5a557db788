//! Clients with unique addresses: all of 127.0.0.0/8 is local.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use skep_testclient::{ClientError, RawClient, request_bytes};
use socket2::{Domain, Socket, Type};

use crate::wait::PATIENCE;

/// Below the ports of [`crate::FreePort`] and below the kernel's ephemeral range: a port there that is bound
/// explicitly would be unavailable to everyone who lets the kernel choose.
const PORTS: std::ops::Range<u16> = 1_024..20_000;

/// A loopback address that no other client has; clones share it. It has ports for about 19,000 connections.
#[derive(Clone, Debug)]
pub struct SourceAddress {
    address: Ipv4Addr,
    next_port: Arc<AtomicU16>,
}

impl SourceAddress {
    /// Makes a new address: a random one of 16 million, so that connections of earlier runs that the kernel
    /// still keeps do not occupy its ports.
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let [a, b, c, ..] = RandomState::new().build_hasher().finish().to_be_bytes();
        // Not 127.0.x.x, which everything else uses.
        let address = Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254));
        Self { address, next_port: Arc::new(AtomicU16::new(PORTS.start)) }
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Sends a request for `target` of `host` to `server` from this address, without reading the reply.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn ask(&self, server: SocketAddr, host: &str, target: &str) -> RawClient {
        let mut client = self.connect(server);
        client.send(request_bytes("GET", target, &[("Host", host)]));
        client
    }

    /// Connects from this address.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn connect(&self, address: SocketAddr) -> RawClient {
        match self.try_connect(address) {
            Ok(client) => client,
            Err(error) => panic!("cannot connect from {} to {address}: {error}", self.address),
        }
    }

    /// Connects from this address, or returns the error.
    pub fn try_connect(&self, address: SocketAddr) -> Result<RawClient, ClientError> {
        let connect = || -> io::Result<_> {
            let socket = self.bound_socket()?;
            socket.connect_timeout(&address.into(), PATIENCE)?;
            Ok(socket.into())
        };
        RawClient::over(connect().map_err(|error| ClientError::Connect(error.kind()))?)
    }

    /// Makes a socket on the next free port. A server that listens on 0.0.0.0 occupies its port on every
    /// address.
    fn bound_socket(&self) -> io::Result<Socket> {
        loop {
            let port = self.next_port.fetch_add(1, Ordering::Relaxed);
            assert!(PORTS.contains(&port), "a source has no more ports");
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            match socket.bind(&SocketAddr::from((self.address, port)).into()) {
                Ok(()) => return Ok(socket),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }
}
