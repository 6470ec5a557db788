//! How the machines of a cluster talk: a UDP socket of sealed datagrams with a
//! thread for it that does not starve, and the TCP [`stream`]s of the cluster
//! cache.
//!
//! - [`Socket`]: sends and receives [`Message`](skep_wire::message::Message)s.
//! - [`Waker`]: ends a wait of the socket from another thread.
//! - [`Counts`]: what came, what went, and what was refused and why.
//! - [`spawn_heartbeat_thread`]: a thread with the best priority that it can get.
//!
//! Invariants: what it hands out is authentic, new, and said to this start of
//! this process; nothing that comes from the network makes it panic or grow.

mod counts;
mod limits;
mod socket;
pub mod stream;
mod thread;

pub use counts::Counts;
pub use socket::{BindError, Received, SendError, Socket, SocketSettings, Waker};
pub use thread::{Priority, RealtimePriority, spawn_heartbeat_thread};
