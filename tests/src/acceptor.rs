//! The thread that accepts the connections of a test's server.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Accepts connections until dropped. From then on the port is closed and new connections are refused; while
/// the listener existed, the kernel would accept a connection and reset it.
pub(crate) struct Acceptor {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Passes each connection to `serve`, on a thread of its own.
    pub(crate) fn start(
        listener: TcpListener,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("it is bound");
        let (is_over, serve) = (Arc::<AtomicBool>::default(), Arc::new(serve));
        let over = Arc::clone(&is_over);
        let accept = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        };
        Self { address, is_over, thread: Some(thread::spawn(accept)) }
    }

    /// Returns the listening address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let is_awake = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_awake) {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}
