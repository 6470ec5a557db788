//! Sockets that send and receive whole frames on one device (packet(7)).

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

use crate::device::Device;
use crate::error::{Error, NET_RAW};
use crate::mac::MacAddr;

/// Receives one type of frames on one device, without waiting.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: Socket,
    device: String,
}

impl PacketSocket {
    /// Opens a socket for frames of `ether_type` that `filter` accepts.
    pub(crate) fn open(
        device: &Device,
        ether_type: u16,
        filter: &[SockFilter],
    ) -> Result<Self, Error> {
        let open = || -> io::Result<_> {
            // Without a protocol it receives nothing until it is bound: no frame of another device, and none
            // that has not passed the filter.
            let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
            socket.set_nonblocking(true)?;
            if !filter.is_empty() {
                socket.attach_filter(filter)?;
            }
            socket.bind(&address(device.index, ether_type)?)?;
            Ok(socket)
        };
        let action = format!("open a packet socket on {}", device.name);
        let socket = open().map_err(|cause| Error::refused(action, NET_RAW, cause))?;
        let socket = Self { socket, device: device.name.clone() };
        socket.mac()?;
        Ok(socket)
    }

    /// The device's current hardware address, which changes for bonds.
    pub(crate) fn mac(&self) -> Result<MacAddr, Error> {
        let action = || format!("read the hardware address of {}", self.device);
        match self.socket.local_addr() {
            Ok(address) => mac(&address).ok_or_else(|| Error::NotEthernet { action: action() }),
            Err(cause) => Err(Error::refused(action(), NET_RAW, cause)),
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> Result<(), Error> {
        let action = || format!("send a frame by {}", self.device);
        let sent = (&self.socket).write(frame);
        sent.map(drop).map_err(|cause| Error::refused(action(), NET_RAW, cause))
    }

    /// Receives the next frame, truncated to the buffer's length; returns its length, or `None` if none is
    /// waiting.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        match (&self.socket).read(buffer) {
            Ok(len) => Ok(Some(len)),
            // Reported once when the device goes down; frames are received again when it is up.
            Err(cause) if cause.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(cause) => {
                let action = format!("receive frames of {}", self.device);
                Err(Error::refused(action, NET_RAW, cause))
            }
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address of all frames of `ether_type` on the device with this index.
#[expect(unsafe_code, reason = "socket2 has no type for these addresses; justified in place")]
fn address(index: u32, ether_type: u16) -> io::Result<SockAddr> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    // SAFETY: `storage` is zeroed and as large as any address; the first `len` bytes are used as a
    // `sockaddr_ll`, for which every bit pattern is valid.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, len| {
            let address = &mut *storage.cast::<libc::sockaddr_ll>();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = ether_type.to_be();
            address.sll_ifindex = index;
            *len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    Ok(address)
}

/// The hardware address in a bound socket's address, if the device is an Ethernet device.
#[expect(unsafe_code, reason = "socket2 has no type for these addresses; justified in place")]
fn mac(address: &SockAddr) -> Option<MacAddr> {
    if address.family() != libc::AF_PACKET as libc::sa_family_t {
        return None;
    }
    // SAFETY: a `SockAddr` owns storage as large and as aligned as any address,
    // zero where the kernel wrote nothing; any bytes are a valid `sockaddr_ll`.
    let address = unsafe { &*address.as_ptr().cast::<libc::sockaddr_ll>() };
    let is_ethernet = address.sll_hatype == libc::ARPHRD_ETHER && address.sll_halen == 6;
    is_ethernet.then(|| MacAddr::try_from(&address.sll_addr[..6]).ok()).flatten()
}
