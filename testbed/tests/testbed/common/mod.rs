//! What tests of beds share, and the lab's take from here.

#![allow(dead_code, unreachable_pub, reason = "each executable uses a part of it")]

use std::fs;
use std::io::{ErrorKind, Read, Write, stderr};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use skep_testbed::{Bed, BedInfo, Machine};

/// Far above what anything takes: turns a hang into a message.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a datagram may take before it counts as lost: longer than the kernel
/// asks for a neighbour (three times, a second apart), whom it may have asked for
/// in vain just before.
const LOST: Duration = Duration::from_secs(5);

/// Whether the test can run; says so loudly when not.
pub fn root_or_skip() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(
            stderr(),
            "SKIPPED: {} needs root",
            thread::current().name().unwrap_or("a test")
        );
    }
    is_root
}

/// Waits for a condition.
#[track_caller]
pub fn poll_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A connection, once there is a way: a kernel that has just asked for a neighbour in
/// vain says so to those who connect meanwhile.
pub fn connect(to: SocketAddr) -> TcpStream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(to) {
            Err(error)
                if error.kind() == ErrorKind::HostUnreachable && Instant::now() < deadline => {}
            connected => return connected.unwrap(),
        }
    }
}

/// The next connection.
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    poll_until("somebody connects", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Whether a datagram from one machine comes to an address of another.
pub fn reaches(from: &Machine, to: &Machine, address: IpAddr) -> bool {
    let Ok(receiver) = to.run(|| UdpSocket::bind((address, 0)).unwrap()) else {
        // A dead machine: the port does not matter.
        return sends(from, (address, 9).into());
    };
    receiver.set_read_timeout(Some(LOST)).unwrap();
    sends(from, receiver.local_addr().unwrap());
    receiver.recv(&mut [0; 8]).is_ok()
}

/// Sends a datagram; false also for one that cannot have come.
fn sends(from: &Machine, to: SocketAddr) -> bool {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = from.run(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
    let _ = socket.send_to(b"hello", to);
    false
}

/// Sends back what comes, to the end.
pub fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        stream.write_all(&buffer[..count]).unwrap();
    }
}

/// All places where a bed might leave something.
pub struct Traces {
    info: BedInfo,
    namespaces: Vec<fs::File>,
}

impl Traces {
    pub fn of(bed: &Bed) -> Self {
        Self::from_info(bed.info())
    }

    pub fn from_info(info: BedInfo) -> Self {
        let pids = info.machines.iter().filter_map(|it| it.pid).chain([info.switch]);
        // Kept open, so that nobody else gets their numbers.
        let open = |pid| fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
        let namespaces = pids.map(open).collect();
        Self { info, namespaces }
    }

    fn device(&self) -> String {
        format!("skep-lab{}", self.info.slot)
    }

    pub fn host_device_is_there(&self) -> bool {
        Path::new("/sys/class/net").join(self.device()).exists()
    }

    pub fn file_is_gone(&self) -> bool {
        !Path::new(&format!("/run/skep-lab/{}.json", self.info.slot)).exists()
    }

    /// Looks for processes, devices, groups, mounts, names and files.
    #[track_caller]
    pub fn assert_none(&self) {
        use std::os::unix::fs::MetadataExt;
        assert!(self.file_is_gone());
        assert!(!self.host_device_is_there());
        // A leashed holder ends a moment after the janitor.
        poll_until("no process is in the bed", || {
            let of_bed: Vec<u64> =
                self.namespaces.iter().map(|it| it.metadata().unwrap().ino()).collect();
            let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            let mut inside = entries
                .filter_map(|entry| fs::metadata(entry.path().join("ns/net")).ok())
                .filter(|namespace| of_bed.contains(&namespace.ino()));
            inside.next().is_none()
        });
        let found = Command::new("find")
            .args(["/sys/fs/cgroup", "-type", "d", "-name", &self.device()])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "control groups");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.lines().any(|line| line.starts_with("lab ")), "{mounts}");
        let names = Command::new("ip").args(["netns", "list"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&names.stdout).contains("lab"));
    }
}
