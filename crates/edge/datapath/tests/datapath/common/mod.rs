//! A dispatcher's device in namespaces of its own: `skep0`, whose other end `peer0` is the segment. Nothing
//! has a name outside of them, so the kernel removes devices, pins, links and maps when the thread ends, even
//! if it is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests")]

use std::fs;
use std::io::{Write, stderr};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;
use skep_datapath::{DispatchProgram, PinPath, Sizes, attach_pass};
use skep_wire::guard::ProgramSettings;
use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Measure, NO_NODE, Protocol, ROW_NODES, ROWS,
    Row, WeightedLoad,
};

/// Hardware addresses of the device and of the segment's end.
pub(crate) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];

pub(crate) const VIP: [u8; 4] = [10, 9, 0, 100];
pub(crate) const CLIENT: [u8; 4] = [10, 9, 0, 2];

pub(crate) const SIZES: Sizes = Sizes { flows_max: 4096, sources_max: 256, services_max: 2 };

/// TCP flags.
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// A timeout that only a failing test reaches.
const LONG: Duration = Duration::from_secs(20);

/// Waits until `holds` is true.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `work` on a thread with a network, devices and a bpffs of its own, or reports why it cannot.
pub(crate) fn in_bed(work: impl FnOnce(&Bed) + Send + 'static) {
    let result = thread::spawn(|| {
        if !leave_namespaces() {
            let _ = writeln!(stderr(), "SKIPPED: needs root, to make namespaces");
            return;
        }
        use skep_datapath::DatapathError::{NoBpf, NoPermission};
        if let Err(error @ (NoBpf { .. } | NoPermission { .. })) = skep_datapath::prepare() {
            let _ = writeln!(stderr(), "SKIPPED: {error}");
            return;
        }
        if Command::new("ip").arg("-V").output().is_err() {
            let _ = writeln!(stderr(), "SKIPPED: needs `ip` of iproute2");
            return;
        }
        work(&Bed::new());
    })
    .join();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[expect(unsafe_code, reason = "leaves namespaces, on a thread that ends soon after")]
fn leave_namespaces() -> bool {
    let kinds = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: no descriptors and no memory are unshared.
    if unsafe { rustix::thread::unshare_unsafe(kinds) }.is_err() {
        return false;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
    while unmount("/sys/fs/bpf", UnmountFlags::DETACH).is_ok() {}
    true
}

pub(crate) struct Bed {
    pub(crate) place: PinPath,
}

impl Bed {
    fn new() -> Self {
        // With IPv6 the kernel would send packets of its own.
        let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let bed = Self { place: PinPath { pins: PathBuf::from("/sys/fs/bpf/skep/test/dispatch") } };
        bed.make_devices();
        bed
    }

    pub(crate) fn make_devices(&self) {
        let (own, peer) = (text(OWN_MAC), text(PEER_MAC));
        ip(&format!("link add skep0 address {own} type veth peer name peer0 address {peer}"));
        ip("link set peer0 up");
        ip("link set skep0 up");
        ip("link set lo up");
    }

    pub(crate) fn open(&self) -> DispatchProgram {
        DispatchProgram::open(&self.place, SIZES).unwrap()
    }

    /// Opens the program and has it steer all packets of the service to node 0.
    pub(crate) fn open_configured(&self) -> DispatchProgram {
        let mut dispatch = self.open();
        configure(&mut dispatch);
        dispatch
    }

    /// Adds the virtual address to this machine, as on a dispatcher: packets that reach the kernel are
    /// answered with an RST.
    pub(crate) fn own_vip(&self) {
        ip("address add 10.9.0.100/24 dev skep0");
        ip(&format!("neighbour add 10.9.0.2 lladdr {} dev skep0", text(PEER_MAC)));
    }

    /// Whether the device has an XDP program, and how many programs are at its tc ingress.
    pub(crate) fn programs(&self) -> (bool, usize) {
        let shown = ip("-details link show dev skep0");
        let ingress = aya::programs::TcAttachType::Ingress;
        let (_, tc) = aya::programs::SchedClassifier::query_tcx("skep0", ingress).unwrap();
        (shown.contains("xdp"), tc.len())
    }
}

pub(crate) fn configure(dispatch: &mut DispatchProgram) {
    dispatch.set_settings(&SETTINGS).unwrap();
    dispatch.set_own(device_index("skep0"), OWN_MAC).unwrap();
    dispatch.set_nodes(&[node(0), node(1)]).unwrap();
    let loads = [0, 1].map(|node| WeightedLoad { node, weight: 1, load: 0 });
    dispatch.set_loads(&[0], &loads).unwrap();
    dispatch.set_rows(&service(0), &rows(&[0])).unwrap();
    dispatch.set_services(&[service(0)]).unwrap();
}

pub(crate) const SETTINGS: ProgramSettings = ProgramSettings {
    hash_seed: 0x5ee1,
    new_flows_max: 0,
    new_flows_per_source_max: 0,
    stream: false,
    own_node: NO_NODE,
};

/// The service with this id; its port is 80 plus the id.
pub(crate) fn service(id: u16) -> DatapathService {
    DatapathService {
        id,
        address: SocketAddr::from((VIP, 80 + id)),
        protocol: Protocol::Tcp,
        choices: 1,
        measure: Measure::First,
        by_address: false,
    }
}

pub(crate) fn node(index: u16) -> DatapathNode {
    DatapathNode {
        index,
        mac: node_mac(index),
        device_index: device_index("skep0"),
        mtu: 0,
        state: ForwardingState::Up,
        is_local: false,
    }
}

pub(crate) fn node_mac(index: u16) -> [u8; 6] {
    [2, 0, 0, 0, 10, index as u8]
}

/// A table with identical rows.
pub(crate) fn rows(nodes: &[u16]) -> Vec<Row> {
    let mut row = [NO_NODE; ROW_NODES];
    row[..nodes.len()].copy_from_slice(nodes);
    vec![Row(row); ROWS]
}

pub(crate) fn device_index(name: &str) -> u32 {
    ip(&format!("-oneline link show dev {name}")).split(':').next().unwrap().parse().unwrap()
}

/// A TCP segment without data from the client to the virtual address.
pub(crate) fn frame(client_port: u16, port: u16, flags: u8) -> Vec<u8> {
    let mut tcp = [0; 20];
    tcp[..2].copy_from_slice(&client_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&port.to_be_bytes());
    tcp[12..14].copy_from_slice(&[5 << 4, flags]);
    tcp[14..16].copy_from_slice(&1024_u16.to_be_bytes());
    let pseudo = [&CLIENT[..], &VIP, &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo));
    let mut ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[12..16].copy_from_slice(&CLIENT);
    ip[16..].copy_from_slice(&VIP);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&OWN_MAC[..], &PEER_MAC, &[8, 0], &ip, &tcp].concat()
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The segment: `peer0`, with an XDP program, so that it accepts frames that XDP sends.
pub(crate) struct Segment {
    socket: OwnedFd,
    _pass: skep_datapath::Pass,
}

impl Segment {
    pub(crate) fn new() -> Self {
        let pass = attach_pass("peer0").unwrap();
        Self { socket: packet_socket(device_index("peer0")), _pass: pass }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.socket, frame, SendFlags::empty()).unwrap();
    }

    /// Receives the next frame from the device; `None` after `wait`.
    pub(crate) fn receive(&self, wait: Duration) -> Option<Vec<u8>> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(wait)).unwrap();
        let mut frame = vec![0; 2048];
        loop {
            let (_, bytes) =
                rustix::net::recv(&self.socket, &mut frame[..], RecvFlags::empty()).ok()?;
            // The socket also sees outgoing frames.
            if frame[6..12] == OWN_MAC {
                frame.truncate(bytes);
                return Some(frame);
            }
        }
    }

    /// Sends a frame, and returns the node to which it comes back steered.
    pub(crate) fn exchange(&self, frame: &[u8]) -> u16 {
        self.send(frame);
        let back = self.receive(LONG).expect("the frame comes back");
        assert_eq!(&back[12..], &frame[12..], "all but the hardware addresses");
        let node = u16::from(back[5]);
        assert_eq!(back[..6], node_mac(node), "to a node");
        node
    }
}

#[expect(unsafe_code, reason = "no safe library knows packet(7)'s addresses")]
fn packet_socket(device_index: u32) -> OwnedFd {
    let kind = (AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC);
    let all = rustix::net::Protocol::from_raw(u32::from(3_u16.to_be()).try_into().unwrap());
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, Some(all)).unwrap();
    // SAFETY: a structure of integers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = 3_u16.to_be();
    address.sll_ifindex = device_index as i32;
    let bytes = size_of_val(&address) as u32;
    // SAFETY: `address` has that many bytes and outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    socket
}

pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
