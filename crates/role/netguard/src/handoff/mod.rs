//! The privileged half of handoffs, on a thread of its own: an order of direct dispatch may take 100 ms, a
//! move must not wait for it.
//!
//! [`orders`] says what each order does, [`held`] what netguard remembers of connections until their handoff
//! is over. The thread has a handle of its own to the map of the packet program, which it gets from the thread
//! that loads the program; nothing is locked.
//!
//! The thread ends when it is told to, by the end of [`HandoffThread`]. If it ends otherwise, the process
//! does.

mod held;
mod orders;

use std::io::{self, PipeWriter};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skep_datapath::Moves;
use skep_guard::HandoffListener;

use crate::Fail;
use crate::error::NetguardError;
use crate::limits::{DESCRIPTORS_RESERVED, HELD_MAX, PROGRAMS_MAX};
pub(crate) use orders::Handoffs;

/// What the config allows of handoffs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandoffPlan {
    /// Where the services listen whose connections this node may hand off.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Where other nodes reach the node of this machine.
    pub(crate) of_node: Option<IpAddr>,
    /// Where nodes reach its dispatcher.
    pub(crate) of_dispatcher: Option<IpAddr>,
    /// Of the socket for orders.
    pub(crate) socket: PathBuf,
}

/// For messages.
const WHAT: &str = "the thread of handoffs";

/// The thread, from that which loads the packet program.
pub(crate) struct HandoffThread {
    /// `None` at the end.
    programs: Option<SyncSender<Option<Moves>>>,
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl HandoffThread {
    /// Takes orders at `listener` from now on. `fail` ends the process: connections would stay frozen, and
    /// nobody would thaw them.
    pub(crate) fn start(
        plan: HandoffPlan,
        listener: HandoffListener,
        fail: Fail,
    ) -> Result<Self, NetguardError> {
        let (programs, incoming) = sync_channel(PROGRAMS_MAX);
        let (ended, end) = io::pipe().map_err(NetguardError::Thread)?;
        let mut handoffs = Handoffs::new(plan, incoming, ended, held_max())?;
        let serve = move || match catch_unwind(AssertUnwindSafe(|| listener.serve(&mut handoffs))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => fail(&format!("{WHAT} has failed: {error}")),
            Err(_) => fail(&format!("{WHAT} has panicked")),
        };
        let spawned = thread::Builder::new().name("skep-handoff".into()).spawn(serve);
        let thread = Some(spawned.map_err(NetguardError::Thread)?);
        Ok(Self { programs: Some(programs), end: Some(end), thread })
    }

    /// The packet program's map from now on; `None`: the program is gone.
    pub(crate) fn set_moves(&self, moves: Option<Moves>) -> Result<(), NetguardError> {
        let failed = |kind: io::ErrorKind| NetguardError::Thread(kind.into());
        let programs = self.programs.as_ref().ok_or_else(|| failed(io::ErrorKind::BrokenPipe))?;
        programs.try_send(moves).map_err(|error| match error {
            TrySendError::Full(_) => failed(io::ErrorKind::WouldBlock),
            TrySendError::Disconnected(_) => failed(io::ErrorKind::BrokenPipe),
        })
    }
}

impl Drop for HandoffThread {
    /// Waits until the thread has given up all connections: a process that ends before closes them without
    /// a word to their clients.
    fn drop(&mut self) {
        (self.programs, self.end) = (None, None);
        if let Some(thread) = self.thread.take() {
            // It catches its own panics.
            let _ = thread.join();
        }
    }
}

/// How many connections may be on their way at once: of each that is frozen netguard has a descriptor.
fn held_max() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A unit of systemd may forbid it, and sets the limit itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = files_max.saturating_sub(DESCRIPTORS_RESERVED);
    usize::try_from(room).unwrap_or(HELD_MAX).min(HELD_MAX)
}

#[cfg(test)]
mod tests;
