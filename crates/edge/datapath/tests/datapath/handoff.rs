//! A connection leaves a node's kernel and returns to it, as in a handoff: what netguard does with its
//! privileges, and what a process without any can do in between.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use skep_datapath::{SocketSwitch, check_socket, is_in_repair};
use skep_wire::handoff::SocketId;

use crate::common::in_bed;

const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;

/// The kernel's state of the connection.
struct State {
    sequences: [u32; 2],
    received: Vec<u8>,
    mss: u32,
    window: [u8; 20],
    options: Vec<[u32; 2]>,
    timestamp: u32,
}

#[expect(unsafe_code, reason = "no safe library knows these options")]
fn get<const N: usize>(socket: &OwnedFd, name: i32) -> [u8; N] {
    let (mut value, mut bytes) = ([0; N], N as u32);
    // SAFETY: `value` has `bytes` bytes.
    let done = unsafe {
        let value = value.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, name, value, &raw mut bytes)
    };
    assert_eq!(done, 0, "option {name}: {}", std::io::Error::last_os_error());
    value
}

#[expect(unsafe_code, reason = "no safe library knows these options")]
fn set(socket: &OwnedFd, name: i32, value: &[u8]) {
    let (pointer, bytes) = (value.as_ptr().cast(), value.len() as u32);
    // SAFETY: `value` has `bytes` bytes.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, name, pointer, bytes) };
    assert_eq!(done, 0, "option {name}: {}", std::io::Error::last_os_error());
}

fn number(socket: &OwnedFd, name: i32) -> u32 {
    u32::from_ne_bytes(get(socket, name))
}

fn snapshot(socket: &OwnedFd) -> State {
    let mut peeked = [0; 4096];
    let queue = |queue: i32| {
        set(socket, libc::TCP_REPAIR_QUEUE, &queue.to_ne_bytes());
        number(socket, libc::TCP_QUEUE_SEQ)
    };
    let send = queue(SEND_QUEUE);
    let receive = queue(RECEIVE_QUEUE);
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    let received = rustix::net::recv(socket, &mut peeked[..], flags).map_or(0, |(_, len)| len);
    let info: [u8; 8] = get(socket, libc::TCP_INFO);
    // SACK and timestamps are enabled on every machine; the two window scales share one byte.
    let scales = u32::from(info[6] & 15) | u32::from(info[6] >> 4) << 16;
    let mss = number(socket, libc::TCP_MAXSEG);
    State {
        sequences: [receive, send],
        received: peeked[..received].to_vec(),
        mss,
        window: get(socket, libc::TCP_REPAIR_WINDOW),
        options: vec![[4, 0], [3, scales], [8, 0], [2, mss]],
        timestamp: number(socket, libc::TCP_TIMESTAMP),
    }
}

fn restore(socket: &OwnedFd, client: SocketAddr, state: &State) {
    let begins = state.sequences[0].wrapping_sub(state.received.len() as u32);
    for (queue, sequence) in [(RECEIVE_QUEUE, begins), (SEND_QUEUE, state.sequences[1])] {
        set(socket, libc::TCP_REPAIR_QUEUE, &queue.to_ne_bytes());
        set(socket, libc::TCP_QUEUE_SEQ, &sequence.to_ne_bytes());
    }
    // Processes that other tests fork have copies of the closed socket until they execute their program.
    let began = Instant::now();
    while let Err(error) = rustix::net::connect(socket, &client) {
        let is_copied = error == rustix::io::Errno::ADDRNOTAVAIL;
        assert!(is_copied && began.elapsed() < Duration::from_secs(30), "{error}");
        thread::yield_now();
    }
    let options: Vec<u8> =
        state.options.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
    set(socket, libc::TCP_REPAIR_OPTIONS, &options);
    set(socket, libc::TCP_TIMESTAMP, &state.timestamp.to_ne_bytes());
    set(socket, libc::TCP_REPAIR_QUEUE, &RECEIVE_QUEUE.to_ne_bytes());
    let flags = rustix::net::SendFlags::empty();
    assert_eq!(rustix::net::send(socket, &state.received, flags), Ok(state.received.len()));
    set(socket, libc::TCP_REPAIR_WINDOW, &state.window);
    assert_eq!(number(socket, libc::TCP_MAXSEG), state.mss);
}

/// Runs `work` as in a serving process: with descriptors, and without capabilities.
fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let without = || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(without).join().unwrap())
}

#[test]
fn without_privileges_a_connection_is_read_and_written_and_goes_on() {
    in_bed(|_| {
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0");
        let switch = SocketSwitch::new().unwrap();
        for ip in ["127.0.0.1", "::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            let listener = TcpListener::bind((ip, 80)).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let donor: OwnedFd = listener.accept().unwrap().0.into();
            let (server, client_end) =
                (listener.local_addr().unwrap(), client.local_addr().unwrap());
            let id = SocketId { client: client_end, server };
            client.write_all(b"a request that was read by nobody").unwrap();

            check_socket(donor.as_fd(), id).unwrap();
            switch.deafen(donor.as_fd()).unwrap();
            switch.repair(donor.as_fd()).unwrap();
            client.write_all(b", and its end").unwrap();
            let state = unprivileged(|| snapshot(&donor));
            assert_eq!(state.received, b"a request that was read by nobody");
            drop(donor);
            let receiver = switch.create(id).unwrap();
            unprivileged(|| restore(&receiver, id.client, &state));
            assert!(is_in_repair(receiver.as_fd()).unwrap());
            check_socket(receiver.as_fd(), id).unwrap();
            switch.hear(receiver.as_fd()).unwrap();
            switch.start(receiver.as_fd()).unwrap();

            let mut server = TcpStream::from(receiver);
            server.set_nonblocking(false).unwrap();
            server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut received = [0; 46];
            server.read_exact(&mut received).unwrap();
            assert_eq!(&received, b"a request that was read by nobody, and its end");
            for (from, to) in [(&client, &server), (&server, &client)] {
                let sent: Vec<u8> = (0..1_000_000_u32).map(|it| (it % 251) as u8).collect();
                let mut received = vec![0; sent.len()];
                thread::scope(|scope| {
                    scope.spawn(|| (&mut &*from).write_all(&sent).unwrap());
                    (&mut &*to).read_exact(&mut received).unwrap();
                });
                assert!(received == sent, "bytes are not what was sent");
            }
        }
    });
}
