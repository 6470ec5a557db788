//! Communication between the machines of a cluster: a UDP socket of sealed datagrams with a high-priority
//! thread, and the TCP [`stream`]s of the cluster cache.
//!
//! - [`Socket`]: sends and receives [`Message`](skep_wire::message::Message)s.
//! - [`LccpSocket`]: sends and receives the messages of handoffs, as IP packets of a separate protocol or by
//!   UDP.
//! - [`Waker`]: ends a wait of the socket from another thread.
//! - [`Counts`]: counters of datagrams sent, received and refused, with reasons.
//! - [`spawn_realtime_thread`]: a thread with the best priority available.
//! - [`Watchdog`]: finds threads that have panicked or stalled.
//!
//! Invariants: every message returned is authentic, new, and addressed to this incarnation of this process;
//! no input from the network causes a panic or unbounded growth.

mod counts;
mod lccp;
mod limits;
mod readiness;
mod sealed;
mod socket;
pub mod stream;
mod thread;
mod watchdog;

pub use counts::{Counts, PacketRefusal};
pub use lccp::{LCCP_PROTOCOL, LccpBatch, LccpReceived, LccpSettings, LccpSocket, LccpTransport};
pub use readiness::Readiness;
pub use sealed::SendError;
pub use socket::{BindError, EncodedMessage, Received, Socket, SocketSettings, Waker};
pub use thread::{Priority, RealtimePriority, RealtimeWork, spawn_realtime_thread};
pub use watchdog::{Pulse, ThreadFault, Watchdog};
