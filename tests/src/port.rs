//! Ports for processes that need a port number in advance.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below Linux's range for outgoing connections (32768 and up), so that no client of another test uses a port
/// that a server is about to bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A loopback port that is free and, among these tests, reserved for the lifetime of this value by a locked
/// file.
#[derive(Debug)]
pub struct FreePort {
    port: u16,
    _claim: File,
}

impl FreePort {
    /// Claims a free port.
    pub fn claim() -> Self {
        let folder = std::env::temp_dir().join("skep-test-ports");
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        // Processes start at different offsets, so that they rarely collide.
        let start = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
            let port = FIRST + offset;
            let claim = File::create(folder.join(port.to_string())).expect("a file for a port");
            let is_free = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
            if claim.try_lock().is_ok() && is_free() {
                return Self { port, _claim: claim };
            }
        }
        panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1);
    }

    /// Returns the address of the port on the loopback.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}
