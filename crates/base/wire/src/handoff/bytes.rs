//! Fields of fixed length, little-endian, read from untrusted bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::SocketId;

/// Family of a [`SocketId`] in a message.
const NO_SOCKET: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// The bytes still to be read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a connection or its absence; `None` if it is neither.
    pub(super) fn socket(&mut self) -> Option<Option<SocketId>> {
        let (client, server) = match self.u8()? {
            NO_SOCKET => return Some(None),
            IPV4 => (self.end::<4, Ipv4Addr>()?, self.end::<4, Ipv4Addr>()?),
            IPV6 => (self.end::<16, Ipv6Addr>()?, self.end::<16, Ipv6Addr>()?),
            _ => return None,
        };
        let socket = SocketId { client, server };
        // A non-canonical address would be a second name of the same connection.
        (SocketId::new(client, server) == Some(socket)).then_some(Some(socket))
    }

    fn end<const N: usize, A: From<[u8; N]> + Into<IpAddr>>(&mut self) -> Option<SocketAddr> {
        let address = A::from(self.array::<N>()?);
        Some(SocketAddr::new(address.into(), self.u16()?))
    }
}

/// Writes a connection in the form read by [`Reader::socket`].
///
/// # Panics
/// If the two ends are of different families: no socket has such ends.
pub(super) fn write_socket(socket: Option<&SocketId>, bytes: &mut Vec<u8>) {
    let Some(SocketId { client, server }) = socket else { return bytes.push(NO_SOCKET) };
    assert_eq!(client.is_ipv4(), server.is_ipv4(), "a connection of two families");
    bytes.push(if client.is_ipv4() { IPV4 } else { IPV6 });
    for end in [client, server] {
        match end.ip() {
            IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
        }
        bytes.extend_from_slice(&end.port().to_le_bytes());
    }
}
