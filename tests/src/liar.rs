//! A web server that writes arbitrary bytes at any pace, for origins and nodes that misbehave.
//! ([`crate::origin::Origin`] is for servers that conform to HTTP.)

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::acceptor::Acceptor;
use crate::origin::{Asked, read};

/// A step of an answer to a request. After the last step, the server waits for the next request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Writes this.
    Send(Vec<u8>),
    /// Writes this byte by byte, with a pause after each.
    Drip {
        /// The bytes to write.
        bytes: Vec<u8>,
        /// The pause in milliseconds.
        every_ms: u64,
    },
    /// Writes this repeatedly until the peer closes.
    Flood {
        /// The bytes to write.
        piece: Vec<u8>,
        /// Bytes after which it closes: a victim that accepts this much has no limit.
        bytes_max: usize,
    },
    /// Waits until the other side closes.
    Hang,
    /// Closes in order.
    Close,
    /// Resets the connection.
    Reset,
}

impl Act {
    /// Writes these bytes.
    pub fn send(bytes: impl AsRef<[u8]>) -> Self {
        Self::Send(bytes.as_ref().to_vec())
    }
}

/// The listen backlog: as large as the kernel allows by default.
const BACKLOG: i32 = 4096;

type Script = dyn Fn(&Asked) -> Vec<Act> + Send + Sync;

struct Shared {
    script: Mutex<Arc<Script>>,
    is_over: AtomicBool,
    /// Open connections by number, so that they can be closed from outside.
    open: Mutex<Vec<(u64, TcpStream)>>,
    next: AtomicU64,
}

/// A running server. Closes its port and all connections when dropped.
pub struct Liar {
    shared: Arc<Shared>,
    acceptor: Acceptor,
}

impl Liar {
    /// Starts a server that acts by `script`.
    pub fn start(script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        // The standard library's backlog of 128 overflows when hundreds connect at once: a SYN without room
        // is retried after one second, which exceeds some timeouts here.
        SockRef::from(&listener).listen(BACKLOG).expect("a larger backlog");
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(script)),
            is_over: AtomicBool::new(false),
            open: Mutex::default(),
            next: AtomicU64::new(0),
        });
        let serving = Arc::clone(&shared);
        let acceptor = Acceptor::start(listener, move |stream| serving.attend(stream));
        Self { shared, acceptor }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }

    /// Returns the config line of a site that uses it as origin.
    pub fn line(&self) -> String {
        format!("origins = [\"http://{}\"]\n", self.address())
    }

    /// Replaces the script.
    pub fn follow(&self, script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) {
        *lock(&self.shared.script) = Arc::new(script);
    }

    /// Closes all connections; clients that pool them notice.
    pub fn hang_up(&self) {
        for (_, stream) in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        lock(&self.shared.open).len()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.hang_up();
    }
}

impl Shared {
    fn attend(&self, stream: TcpStream) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(handle) = stream.try_clone() {
            lock(&self.open).push((number, handle));
        }
        // How the connection ends does not matter here.
        let _ = self.serve(&stream);
        lock(&self.open).retain(|(open, _)| *open != number);
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        while let Some(asked) = read(&mut reader)? {
            let script = Arc::clone(&lock(&self.script));
            for act in script(&asked) {
                if !self.act(stream, &mut reader, &act)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Performs one step; returns whether the connection continues.
    fn act(
        &self,
        mut stream: &TcpStream,
        reader: &mut BufReader<&TcpStream>,
        act: &Act,
    ) -> io::Result<bool> {
        match act {
            Act::Send(bytes) => stream.write_all(bytes)?,
            Act::Drip { bytes, every_ms } => {
                for byte in bytes {
                    if self.is_over.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                    stream.write_all(&[*byte])?;
                    // The pause is part of the test case, not a wait for a condition.
                    thread::sleep(Duration::from_millis(*every_ms));
                }
            }
            Act::Flood { piece, bytes_max } => {
                let mut sent = 0;
                while sent < *bytes_max && !self.is_over.load(Ordering::Acquire) {
                    stream.write_all(piece)?;
                    sent += piece.len();
                }
                return Ok(false);
            }
            Act::Hang => {
                reader.read_to_end(&mut Vec::new())?;
                return Ok(false);
            }
            Act::Close => return Ok(false),
            Act::Reset => {
                SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
                // The other handle must be closed too: the last close sends the reset.
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
