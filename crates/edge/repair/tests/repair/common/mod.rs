//! A client, a donor and a receiver in network namespaces of their own, on one bridge. Donor and receiver
//! have the same virtual address; the client's neighbour entry for it determines which of them receives the
//! client's packets.
//!
//! No namespace has a name: the kernel removes them with the last descriptor, even if the process is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests")]

use std::fs::{self, File};
use std::io::{Write, stderr};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use skep_repair::{
    RECEIVED_BYTES_MAX, RestoreError, SnapshotError, SnapshotLimits, close_silently, restore,
    snapshot,
};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::tcp::TcpState;
use socket2::{Domain, Protocol, Socket, Type};

/// Timeout of waits that must succeed: far longer than they take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const LIMITS: SnapshotLimits = SnapshotLimits { received_bytes_max: RECEIVED_BYTES_MAX };

/// The versions of IP, for which the bed has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4,
    V6,
}

pub(crate) const BOTH: [Ip; 2] = [Ip::V4, Ip::V6];

impl Ip {
    pub(crate) fn server(self) -> SocketAddr {
        let address: IpAddr = match self {
            Self::V4 => [10, 8, 0, 100].into(),
            Self::V6 => [0xfd08, 0, 0, 0, 0, 0, 0, 0x100].into(),
        };
        (address, 80).into()
    }
}

/// The destination of the client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Donor,
    Receiver,
    /// A machine that does not exist: the flow is blocked.
    Nowhere,
}

impl Place {
    fn mac(self) -> &'static str {
        match self {
            Self::Donor => "02:00:00:00:08:11",
            Self::Receiver => "02:00:00:00:08:12",
            Self::Nowhere => "02:00:00:00:08:ff",
        }
    }
}

/// A network namespace.
pub(crate) struct Namespace(File);

impl Namespace {
    /// Creates a namespace; `None` without root.
    fn new() -> Option<Self> {
        let made = || leave_network().then(|| File::open("/proc/thread-self/ns/net").unwrap());
        thread::spawn(made).join().unwrap().map(Self)
    }

    /// Runs `work` on a thread in the namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.run(|| ip(arguments))
    }

    /// Writes a setting below /proc/sys/net.
    pub(crate) fn set(&self, setting: &str, value: &str) {
        self.run(|| fs::write(format!("/proc/sys/net/{setting}"), value)).expect(setting);
    }
}

/// The three machines.
pub(crate) struct Bed {
    pub(crate) client: Namespace,
    pub(crate) donor: Namespace,
    pub(crate) receiver: Namespace,
}

impl Bed {
    /// Creates the machines; `None` if that is impossible, which is reported.
    pub(crate) fn new() -> Option<Self> {
        let skipped = |why| {
            let _ = writeln!(stderr(), "SKIPPED: {why}");
            None
        };
        if Command::new("ip").arg("-V").output().is_err() {
            return skipped("needs `ip` of iproute2");
        }
        let [Some(client), Some(donor), Some(receiver)] = [(); 3].map(|()| Namespace::new()) else {
            return skipped("needs root, to make namespaces");
        };
        let bed = Self { client, donor, receiver };
        bed.make_devices();
        bed.steer(Place::Donor);
        Some(bed)
    }

    fn make_devices(&self) {
        self.client.ip("link set lo up");
        self.client.ip("link add br0 address 02:00:00:00:08:02 type bridge");
        self.client.ip("address add 10.8.0.2/24 dev br0");
        self.client.ip("address add fd08::2/64 dev br0 nodad");
        self.client.ip("link set br0 up");
        let nodes = [(&self.donor, Place::Donor, 11), (&self.receiver, Place::Receiver, 12)];
        for (node, place, number) in nodes {
            self.add_node(node, place.mac(), number);
        }
    }

    fn add_node(&self, node: &Namespace, mac: &str, number: u8) {
        // `ip` runs as a child, which has none of our descriptors.
        let (own, descriptor) = (std::process::id(), node.0.as_raw_fd());
        let peer = format!("/proc/{own}/fd/{descriptor}");
        self.client.ip(&format!(
            "link add node{number} type veth peer name eth0 address {mac} netns {peer}"
        ));
        self.client.ip(&format!("link set node{number} master br0 up"));
        node.ip("link set lo up");
        node.ip("address add 10.8.0.100/32 dev lo");
        node.ip("address add fd08::100/128 dev lo nodad");
        node.ip(&format!("address add 10.8.0.{number}/24 dev eth0"));
        node.ip(&format!("address add fd08::{number}/64 dev eth0 nodad"));
        node.ip("link set eth0 up");
        // The kernel adds the IPv6 routes later, in a thread of its own.
        poll_until("the virtual address is usable", || {
            node.ip("route get fd08::100").starts_with("local")
        });
        for client in ["10.8.0.2", "fd08::2"] {
            let neighbour = format!("neighbour replace {client} lladdr 02:00:00:00:08:02");
            node.ip(&format!("{neighbour} dev eth0 nud permanent"));
        }
    }

    pub(crate) fn at(&self, place: Place) -> &Namespace {
        if place == Place::Donor { &self.donor } else { &self.receiver }
    }

    /// Sends the client's packets to `place` from now on.
    pub(crate) fn steer(&self, place: Place) {
        for address in BOTH.map(|ip| ip.server().ip()) {
            let neighbour = format!("neighbour replace {address} lladdr {}", place.mac());
            self.client.ip(&format!("{neighbour} dev br0 nud permanent"));
        }
    }

    /// Opens a connection from the client to the donor.
    pub(crate) fn connection(&self, ip: Ip) -> Connection {
        self.connection_with(ip, |_| ())
    }

    /// The same; `prepare` is called with the client's socket before it connects.
    pub(crate) fn connection_with(
        &self,
        ip: Ip,
        prepare: impl FnOnce(&Socket) + Send,
    ) -> Connection {
        self.steer(Place::Donor);
        let listener = self.donor.run(|| listen(ip));
        let client = self.client.run(|| {
            let socket = Socket::new(Domain::for_address(ip.server()), Type::STREAM, None).unwrap();
            prepare(&socket);
            socket.connect(&ip.server().into()).unwrap();
            patient(socket.into())
        });
        let (server, address) = listener.accept().unwrap();
        let id = SocketId { client: address, server: ip.server() };
        Connection { client, server: patient(server), id }
    }
}

/// Both ends of a connection.
pub(crate) struct Connection {
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
    pub(crate) id: SocketId,
}

impl Connection {
    /// Freezes the connection at the donor and takes a snapshot, with netguard's part done here.
    pub(crate) fn freeze(&self, bed: &Bed) -> Result<TcpState, SnapshotError> {
        bed.steer(Place::Nowhere);
        set_repair(&self.server, true);
        snapshot(&self.server, LIMITS)
    }

    /// Continues the connection at the donor.
    pub(crate) fn thaw(&self, bed: &Bed) {
        bed.steer(Place::Donor);
        set_repair(&self.server, false);
    }

    /// Moves the connection to the receiver.
    pub(crate) fn handed_off(self, bed: &Bed) -> Self {
        let state = self.freeze(bed).unwrap();
        self.restored(bed, Place::Receiver, &state)
    }

    /// The second half of a move, after [`Connection::freeze`].
    pub(crate) fn restored(self, bed: &Bed, place: Place, state: &TcpState) -> Self {
        let server = restored_socket(bed.at(place), &self.id, state).unwrap();
        bed.steer(place);
        close_silently(self.server.into()).unwrap();
        set_repair(&server, false);
        server.set_nonblocking(false).unwrap();
        Self { server: patient(server.into()), ..self }
    }
}

pub(crate) fn listen(ip: Ip) -> TcpListener {
    let socket = Socket::new(Domain::for_address(ip.server()), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&ip.server().into()).unwrap();
    socket.listen(64).unwrap();
    socket.into()
}

/// Creates a socket as netguard does, in the namespace of the calling thread.
pub(crate) fn create(id: SocketId) -> Socket {
    let domain = Domain::for_address(id.server);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP)).unwrap();
    set_repair(&socket, true);
    socket.bind(&id.server.into()).unwrap();
    socket
}

/// Restores the connection in a new socket. Repeated while an earlier, closed socket still exists: processes
/// that other tests fork have copies of its descriptor until they execute their program.
pub(crate) fn restored_socket(
    at: &Namespace,
    id: &SocketId,
    state: &TcpState,
) -> Result<Socket, RestoreError> {
    let mut restored = None;
    poll_until("no other socket of the connection is left", || {
        let socket = at.run(|| create(*id));
        restored = match restore(&socket, id, state) {
            Err(RestoreError::Taken) => None,
            result => Some(result.map(|()| socket)),
        };
        restored.is_some()
    });
    restored.unwrap()
}

/// Switches repair mode; off with a window probe, as netguard does.
pub(crate) fn set_repair(socket: &impl AsFd, is_on: bool) {
    set_tcp_option(socket, libc::TCP_REPAIR, is_on.into());
}

#[expect(unsafe_code, reason = "no safe library knows these options")]
pub(crate) fn set_tcp_option(socket: &impl AsFd, option: i32, value: i32) {
    let fd = socket.as_fd().as_raw_fd();
    let bytes = size_of_val(&value) as u32;
    // SAFETY: the kernel reads `bytes` bytes of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, option, (&raw const value).cast(), bytes)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// `struct tcp_info`, as 32-bit words.
#[expect(unsafe_code, reason = "no safe library has it")]
pub(crate) fn tcp_info(socket: &impl AsFd) -> [u32; 64] {
    let mut info = [0_u32; 64];
    let mut bytes = size_of_val(&info) as u32;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `bytes` bytes to `info`, which outlives the call.
    let result = unsafe {
        let value = (&raw mut info).cast();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut bytes)
    };
    assert_eq!(result, 0);
    info
}

/// Indexes of words of [`tcp_info`].
pub(crate) const RTO_US: usize = 2;
pub(crate) const SEND_MSS: usize = 4;
pub(crate) const UNACKED: usize = 6;
pub(crate) const CONGESTION_WINDOW: usize = 20;
pub(crate) const TOTAL_RETRANS: usize = 25;
pub(crate) const NOT_SENT_BYTES: usize = 36;
pub(crate) const SEND_WINDOW: usize = 57;

/// Number of bytes in the receive queue.
pub(crate) fn unread_bytes(socket: &impl AsFd) -> u64 {
    rustix::io::ioctl_fionread(socket).unwrap()
}

pub(crate) fn poll_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        thread::yield_now();
    }
}

pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether an `ip` command succeeds.
pub(crate) fn try_ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    output.status.success()
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[expect(unsafe_code, reason = "leaves the network, on a thread that ends soon after")]
fn leave_network() -> bool {
    // SAFETY: neither descriptors nor memory are unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.is_ok()
}
