//! The packet programs of direct dispatch: loads them, attaches them to a device, fills their maps
//! and reads their counters.
//!
//! [`DispatchProgram`] is the dispatcher's program, [`NodeProgram`] the node's. Both are handles:
//! programs and maps are pinned in bpffs, so packets are still steered after the process dies, and
//! a later [`DispatchProgram::open`] finds the flow table unchanged. Only
//! [`DispatchProgram::detach`] stops this. The programs are written in C, in `bpf/`; their objects
//! are part of this crate.
//!
//! [`Moves`] are the connections that a node hands off: which packets are dropped, and which go to another
//! node. [`SocketSwitch`] freezes and starts the sockets of these connections.
//!
//! Calls block for microseconds, [`DispatchProgram::set_rows`] for milliseconds. They act in the
//! network namespace of the calling thread.
//!
//! **Invariants:** packets never see a partial change of a table. A foreign XDP program is never
//! replaced. Numbers from outside are checked, since they come from a process with fewer
//! privileges.

mod abi;
mod device;
mod diag;
mod dispatch;
mod error;
pub mod limits;
mod links;
mod loads;
mod modes;
mod moves;
mod node_program;
mod object;
mod pass;
mod pins;
mod removal;
mod socket;
mod sys;
mod tables;

pub use dispatch::{Build, DispatchProgram, Run, Sizes};
pub use error::DatapathError;
pub use modes::{Attached, How};
pub use moves::{ExpiredMoves, MoveState, Moves};
pub use node_program::NodeProgram;
pub use pass::{Pass, attach_pass, prepare};
pub use pins::PinPath;
pub use socket::{
    SocketError, SocketSwitch, check_any_state, check_socket, control_socket, is_in_repair,
};
