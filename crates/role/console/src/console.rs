//! Starts and stops the console.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::control::Control;
use crate::guard::Door;
use crate::routes;
use crate::server::serve;
use crate::socket::{self, SocketError, SocketFile};
use crate::token::Token;
use skep_units::Subnet;

/// The addresses of a console.
#[derive(Clone, Debug, Default)]
pub struct ConsoleConfig {
    /// Unix socket of the API.
    pub socket: Option<PathBuf>,
    /// TCP address of the API; port 0 selects a free one.
    pub listen: Option<SocketAddr>,
    /// The token that clients over TCP must send; required if other machines can connect.
    pub token: Option<Token>,
    /// Networks from which clients over TCP are accepted, besides this machine; empty: all.
    pub networks: Vec<Subnet>,
    /// TCP address of `/metrics` and `/healthz`; port 0 selects a free one.
    pub metrics_listen: Option<SocketAddr>,
}

/// The console cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// Another process accepts connections on the socket.
    #[error(
        "cannot open control socket {}: another process answers there; is this one running \
         already?",
        path.display()
    )]
    SocketInUse { path: PathBuf },
    /// Another file has the socket's name.
    #[error("cannot open control socket {}: a file that is no socket is in its place", path.display())]
    NotASocket { path: PathBuf },
    /// The socket cannot be created.
    #[error(
        "cannot open control socket {}: {source}; state_dir or admin.socket says where it is",
        path.display()
    )]
    Socket {
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another program listens on the address.
    #[error(
        "cannot listen on {address} for {what}: another program already does. {setting} chooses \
         another address, or \"off\" (`ss -ltnp` shows who listens)"
    )]
    AddressInUse {
        address: SocketAddr,
        /// Its purpose.
        what: &'static str,
        setting: &'static str,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for {what}: {source}; {setting} chooses another address")]
    Address {
        address: SocketAddr,
        /// Its purpose.
        what: &'static str,
        setting: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Other machines could use the API without a token.
    #[error(
        "the admin API on {address} can be reached from other machines: that needs \
         admin.token_file"
    )]
    TokenNeeded { address: SocketAddr },
    /// The thread or runtime could not be created.
    #[error("cannot start the console: {0}")]
    Thread(#[from] io::Error),
}

/// The management API of a process, before it serves requests: its addresses are bound, which may
/// need privileges that the process drops afterwards.
#[derive(Debug)]
pub struct Console {
    api: Option<(TcpListener, Door)>,
    api_address: Option<SocketAddr>,
    metrics: Option<(TcpListener, SocketAddr)>,
    path: Option<PathBuf>,
    socket: Option<(UnixListener, SocketFile)>,
}

/// A running console; it stops when this is dropped.
#[derive(Debug)]
pub struct ConsoleHandle {
    api_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    socket: Option<SocketFile>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Console {
    /// Binds the addresses of `config`, all or none.
    ///
    /// # Errors
    /// [`ConsoleError`].
    pub fn bind(config: ConsoleConfig) -> Result<Self, ConsoleError> {
        let path = config.socket;
        let mut console = Self { api: None, api_address: None, metrics: None, path, socket: None };
        if let Some(address) = config.listen {
            if !address.ip().is_loopback() && config.token.is_none() {
                return Err(ConsoleError::TokenNeeded { address });
            }
            let (listener, bound) = bind(address, "the admin API", "admin.listen")?;
            let (token, networks) = (config.token, config.networks);
            console.api = Some((listener, Door::Tcp { ip: bound.ip(), token, networks }));
            console.api_address = Some(bound);
        }
        if let Some(address) = config.metrics_listen {
            console.metrics = Some(bind(address, "metrics", "metrics.listen")?);
        }
        Ok(console)
    }

    /// Opens the configured socket. It belongs to the user of this process, so call this once the
    /// process runs as its final user.
    ///
    /// # Errors
    /// [`ConsoleError`].
    pub fn open_socket(&mut self) -> Result<(), ConsoleError> {
        if let Some(path) = &self.path {
            self.socket = Some(socket::listen(path).map_err(|error| explain(path, error))?);
        }
        Ok(())
    }

    /// Serves all open listeners on a separate thread; does nothing without an address and a
    /// socket.
    ///
    /// # Errors
    /// [`ConsoleError::Thread`].
    pub fn serve(self, control: Arc<dyn Control>) -> Result<Option<ConsoleHandle>, ConsoleError> {
        let mut listening = Listening::default();
        let (api_address, mut metrics_address, mut socket) = (self.api_address, None, None);
        if let Some((listener, file)) = self.socket {
            socket = Some(file);
            listening.unix.push((listener, routes::api(Arc::clone(&control), Door::Socket)));
        }
        if let Some((listener, door)) = self.api {
            listening.tcp.push((listener, routes::api(Arc::clone(&control), door)));
        }
        if let Some((listener, bound)) = self.metrics {
            metrics_address = Some(bound);
            listening.tcp.push((listener, routes::metrics(control)));
        }
        if listening.unix.is_empty() && listening.tcp.is_empty() {
            return Ok(None);
        }
        let (stop, stopped) = oneshot::channel();
        let thread = listening.run(stopped)?;
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Some(ConsoleHandle { api_address, metrics_address, socket, stop, thread }))
    }
}

impl ConsoleHandle {
    /// The TCP address on which the API listens.
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.api_address
    }

    /// The address on which metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Stops the console; its socket is removed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ConsoleHandle {
    fn drop(&mut self) {
        // The name is removed first, so that no client finds a socket without a listener.
        self.socket = None;
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The open listeners, each with its routes.
#[derive(Default)]
struct Listening {
    unix: Vec<(UnixListener, Router)>,
    tcp: Vec<(TcpListener, Router)>,
}

impl Listening {
    /// Serves on a thread, until `stopped` receives a message or its sender is dropped.
    fn run(self, stopped: oneshot::Receiver<()>) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("skep-console".into()).spawn(move || {
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async {
                match self.serve() {
                    Ok(()) => drop(stopped.await),
                    Err(error) => tracing::error!(%error, "the console can't serve"),
                }
            });
        })
    }

    fn serve(self) -> io::Result<()> {
        for (listener, router) in self.unix {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            tokio::task::spawn_local(serve(listener, router));
        }
        for (listener, router) in self.tcp {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::task::spawn_local(serve(listener, router));
        }
        Ok(())
    }
}

fn bind(
    address: SocketAddr,
    what: &'static str,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), ConsoleError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    });
    listener.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ConsoleError::AddressInUse { address, what, setting },
        _ => ConsoleError::Address { address, what, setting, source },
    })
}

fn explain(path: &Path, error: SocketError) -> ConsoleError {
    let path = path.to_owned();
    match error {
        SocketError::InUse => ConsoleError::SocketInUse { path },
        SocketError::NotASocket => ConsoleError::NotASocket { path },
        SocketError::Io(source) => ConsoleError::Socket { path, source },
    }
}
