//! The privileged half of handoffs, on a thread of its own: an order of direct dispatch may take 100 ms,
//! for which a move must not wait.
//!
//! [`orders`] defines what each order does, [`held`] what netguard stores about connections until their
//! handoff has ended. The thread has its own handle to the map of the packet program, which it receives from
//! the thread that loads the program; nothing is locked.
//!
//! The thread ends when [`HandoffThread`] is dropped. If it ends for another reason, the process ends,
//! too.

mod held;
mod orders;

use std::io::{self, PipeWriter};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skep_datapath::Moves;
use skep_guard::HandoffListener;
use skep_peer::{Priority, RealtimeWork, spawn_realtime_thread};

use crate::Fail;
use crate::error::NetguardError;
use crate::limits::{DESCRIPTORS_RESERVED, HELD_MAX, PROGRAMS_MAX};
pub(crate) use orders::Handoffs;

/// What the config allows for handoffs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandoffPlan {
    /// The listen addresses of the services whose connections this node may hand off.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The address at which other nodes reach the node of this machine.
    pub(crate) of_node: Option<IpAddr>,
    /// The address at which nodes reach the dispatcher of this machine.
    pub(crate) of_dispatcher: Option<IpAddr>,
    /// Path of the socket for orders.
    pub(crate) socket: PathBuf,
}

/// The thread's name in messages.
const WHAT: &str = "the thread of handoffs";

/// The thread for handoffs, as seen by the thread that loads the packet program.
pub(crate) struct HandoffThread {
    /// `None` during the drop.
    programs: Option<SyncSender<Option<Moves>>>,
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl HandoffThread {
    /// Starts to accept orders at `listener`. `fail` ends the process: otherwise connections would stay
    /// frozen, with nothing to thaw them.
    pub(crate) fn start(
        plan: HandoffPlan,
        listener: HandoffListener,
        fail: Fail,
    ) -> Result<Self, NetguardError> {
        let (programs, incoming) = sync_channel(PROGRAMS_MAX);
        let (ended, end) = io::pipe().map_err(NetguardError::Thread)?;
        let mut handoffs = Handoffs::new(plan, incoming, ended, held_max())?;
        let serve = move |priority: Priority| {
            tracing::info!("moves of connections have {priority}");
            match catch_unwind(AssertUnwindSafe(|| listener.serve(&mut handoffs))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => fail(&format!("{WHAT} has failed: {error}")),
                Err(_) => fail(&format!("{WHAT} has panicked")),
            }
        };

        let spawned = spawn_realtime_thread("skep-handoff", RealtimeWork::Moves, serve);
        let thread = Some(spawned.map_err(NetguardError::Thread)?);
        Ok(Self { programs: Some(programs), end: Some(end), thread })
    }

    /// Sets the packet program's map to use from now on; `None`: the program is gone.
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
    /// Waits until the thread has ended the handoffs of all connections: a process that exits earlier
    /// closes them without informing their clients.
    fn drop(&mut self) {
        (self.programs, self.end) = (None, None);
        if let Some(thread) = self.thread.take() {
            // It catches its own panics.
            let _ = thread.join();
        }
    }
}

/// Returns how many connections may be in handoffs at once: netguard has one descriptor of each frozen
/// one.
fn held_max() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A systemd unit may forbid this, and sets the limit itself.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = files_max.saturating_sub(DESCRIPTORS_RESERVED);
    usize::try_from(room).unwrap_or(HELD_MAX).min(HELD_MAX)
}

#[cfg(test)]
mod tests;
