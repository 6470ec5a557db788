//! Sockets: listeners, one runtime per core, connections, deadlines, admission.
//!
//! This crate handles TCP and time, but no HTTP. Each worker is one thread with one current-thread
//! runtime; its connections, timers and scratch buffers never leave it, so the path of a request
//! takes no lock. Workers share only the counters of admission and one drain flag.
//!
//! ```text
//!  Listener --accept--> Admission --Conn--> ConnectionHandler (a role's loop)
//!     |                                       |  recv: into the worker's buffer
//!  SO_REUSEPORT, one per worker               |  send: an Output, one writev
//!                                  Deadlines -+  wakes what is overdue
//! ```

mod accept;
mod admission;
mod clock;
mod conn;
mod deadline;
mod descriptors;
mod limits;
mod listen;
mod output;
mod pace;
mod stream;
mod tcp;
mod worker;

pub use accept::{AcceptEvent, ConnectionHandler, accept_loop};
pub use admission::{Admission, AdmissionLimits, ConnectionRefusal, Permit, client_of};
pub use clock::{boottime_ms, monotonic_ms, unix_ms};
pub use conn::{Conn, ConnError};
pub use deadline::{Deadlines, TimeoutCause, Timer};
pub use descriptors::{DescriptorReserve, raise_descriptor_limit};
pub use limits::{INPUT_BYTES, REPLY_PARTS_MAX};
pub use listen::{ListenError, ListenerGroup, bind};
pub use output::{FilePart, Output, SharedBytes, SharedSlice};
pub use pace::Pace;
pub use worker::{Worker, WorkerHandle, Workers, WorkersError, others_first};
