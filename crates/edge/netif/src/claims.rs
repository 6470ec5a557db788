//! Ownership of addresses on the segment: announcements, probes, and a watch for claims of others.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use socket2::SockFilter;

use crate::device::Device;
use crate::error::{Error, NET_RAW};
use crate::frame::{self, Claim, TYPE_ARP, TYPE_IPV6};
use crate::limits::{FRAME_BYTES_MAX, FRAMES_PER_LOOK_MAX, PROBES};
use crate::mac::MacAddr;
use crate::packet::PacketSocket;

/// Announces on the segment, `count` times, that this machine has `vip` from now on, so that frames for it
/// arrive here. Should be repeated after a second, since frames get lost. Needs `CAP_NET_RAW`. Takes some 15
/// ms, in which the kernel closes the socket; [`ClaimWatch::announce`] keeps one open.
pub fn announce(device: &Device, vip: IpAddr, count: u32) -> Result<(), Error> {
    send_announcements(&PacketSocket::open(device, ether_type(vip), &[])?, vip, count)
}

/// Probes the segment for `address`: returns the first other machine that answers within `wait`, or `None`.
/// Needs `CAP_NET_RAW`. The probe contains none of our addresses, so it disturbs no cache (RFC 5227 section
/// 2.1.1).
pub fn probe(device: &Device, address: IpAddr, wait: Duration) -> Result<Option<MacAddr>, Error> {
    let claims = ask(device, &[address], wait, |claims| !claims.is_empty())?;
    Ok(claims.first().map(|claim| claim.mac))
}

/// Probes the segment for each of `addresses`: returns all distinct answers of other machines within `wait`.
/// Always waits for `wait`: a second answer shows that two machines have an address.
pub fn survey(device: &Device, addresses: &[IpAddr], wait: Duration) -> Result<Vec<Claim>, Error> {
    ask(device, addresses, wait, |_| false)
}

/// Watches one device for other machines that claim one of our virtual addresses: by ARP requests and
/// replies, neighbour advertisements and solicitations. Its descriptor can be polled for reading. Needs
/// `CAP_NET_RAW`.
#[derive(Debug)]
pub struct ClaimWatch {
    either: OwnedFd,
    arp: PacketSocket,
    ndp: PacketSocket,
    vips: Vec<IpAddr>,
}

impl ClaimWatch {
    /// Starts watching. Earlier claims are not reported.
    pub fn open(device: &Device, vips: Vec<IpAddr>) -> Result<Self, Error> {
        let arp = PacketSocket::open(device, TYPE_ARP, ARP_ONLY)?;
        let ndp = PacketSocket::open(device, TYPE_IPV6, NDP_ONLY)?;
        let either = either(&arp, &ndp).map_err(|errno| {
            let action = format!("listen to frames of {}", device.name);
            Error::refused(action, NET_RAW, errno)
        })?;
        Ok(Self { either, arp, ndp, vips })
    }

    /// Sets the addresses to watch.
    #[cfg(test)]
    pub(crate) fn set_vips(&mut self, vips: Vec<IpAddr>) {
        self.vips = vips;
    }

    /// Probes the segment for `address`. The answers are reported as claims if `address` is watched.
    pub fn ask(&self, address: IpAddr) -> Result<(), Error> {
        let socket = self.socket(address);
        socket.send(&frame::question(address, socket.mac()?))
    }

    /// As [`announce`], without opening and closing a socket.
    pub fn announce(&self, vip: IpAddr, count: u32) -> Result<(), Error> {
        send_announcements(self.socket(vip), vip, count)
    }

    /// Returns the distinct claims of other machines since the last call. Does not wait. After very many
    /// frames it returns early, and the descriptor stays readable.
    pub fn claims(&mut self) -> Result<Vec<Claim>, Error> {
        let mut claims = Vec::new();
        for socket in [&self.arp, &self.ndp] {
            self.take(socket, &mut claims)?;
        }
        Ok(claims)
    }

    fn socket(&self, address: IpAddr) -> &PacketSocket {
        if address.is_ipv4() { &self.arp } else { &self.ndp }
    }

    fn take(&self, socket: &PacketSocket, claims: &mut Vec<Claim>) -> Result<(), Error> {
        let own = socket.mac()?;
        let mut buffer = [0; FRAME_BYTES_MAX];
        for _ in 0..FRAMES_PER_LOOK_MAX {
            let Some(len) = socket.receive(&mut buffer)? else { break };
            let Some(claim) = frame::claim(&buffer[..len]) else { continue };
            let is_wanted = self.vips.contains(&claim.address) && claim.mac != own;
            if is_wanted && !claims.contains(&claim) {
                claims.push(claim);
            }
        }
        Ok(())
    }

    /// Whether a frame arrived before `until`.
    fn wait(&self, until: Instant) -> Result<bool, Error> {
        let left = until.saturating_duration_since(Instant::now());
        let mut entries = [PollFd::new(&self.either, PollFlags::IN)];
        match poll(&mut entries, Timespec::try_from(left).ok().as_ref()) {
            Ok(ready) => Ok(ready > 0),
            // A signal: reading again costs nothing.
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Error::refused("wait for frames", NET_RAW, errno)),
        }
    }
}

impl AsFd for ClaimWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

/// Classic BPF (`linux/filter.h`) that accepts frames for this machine. Frames of a VLAN without a device
/// here do not concern this segment; the kernel strips their tags and marks them as another host's.
const ARP_ONLY: &[SockFilter] = &[
    SockFilter::new(LOAD_BYTE, 0, 0, PACKET_TYPE),
    SockFilter::new(JUMP_EQUAL, 1, 0, libc::PACKET_OTHERHOST as u32),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
    SockFilter::new(RETURN, 0, 0, 0),
];

/// Of those, accepts neighbour solicitations and advertisements only, so that a socket for IPv6 costs little
/// while the segment is busy: the next header is at 20, the ICMPv6 type at 54.
const NDP_ONLY: &[SockFilter] = &[
    SockFilter::new(LOAD_BYTE, 0, 0, PACKET_TYPE),
    SockFilter::new(JUMP_EQUAL, 6, 0, libc::PACKET_OTHERHOST as u32),
    SockFilter::new(LOAD_BYTE, 0, 0, 20),
    SockFilter::new(JUMP_EQUAL, 0, 4, 58),
    SockFilter::new(LOAD_BYTE, 0, 0, 54),
    SockFilter::new(JUMP_EQUAL, 1, 0, 135),
    SockFilter::new(JUMP_EQUAL, 0, 1, 136),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
    SockFilter::new(RETURN, 0, 0, 0),
];
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// The offset that addresses the kernel's packet type instead of the frame's bytes.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;

/// A descriptor that is readable when either socket is.
fn either(arp: &PacketSocket, ndp: &PacketSocket) -> Result<OwnedFd, Errno> {
    let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in [arp, ndp] {
        epoll::add(&either, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(either)
}

fn send_announcements(socket: &PacketSocket, vip: IpAddr, count: u32) -> Result<(), Error> {
    let frames = frame::announcements(vip, socket.mac()?);
    for _ in 0..count {
        frames.iter().try_for_each(|frame| socket.send(frame))?;
    }
    Ok(())
}

fn ask(
    device: &Device,
    addresses: &[IpAddr],
    wait: Duration,
    is_enough: impl Fn(&[Claim]) -> bool,
) -> Result<Vec<Claim>, Error> {
    let mut watch = ClaimWatch::open(device, addresses.to_vec())?;
    let mut all = Vec::new();
    let began = Instant::now();
    for round in 1..=PROBES {
        addresses.iter().try_for_each(|address| watch.ask(*address))?;
        let until = began + wait * round / PROBES;
        while watch.wait(until)? {
            let claims = watch.claims()?;
            all.extend(claims.into_iter().filter(|claim| !all.contains(claim)).collect::<Vec<_>>());
            if is_enough(&all) {
                return Ok(all);
            }
            if Instant::now() >= until {
                break;
            }
        }
    }
    Ok(all)
}

fn ether_type(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { TYPE_ARP } else { TYPE_IPV6 }
}
