//! The packet programs of direct dispatch: loads them, puts them on a device,
//! fills their maps and reads their counters.
//!
//! [`DispatchProgram`] is the dispatcher's program, [`NodeProgram`] the node's. Both are
//! handles: programs and maps are pinned in bpffs, so packets go on being
//! steered when the process dies, and a later [`DispatchProgram::open`] finds the flow
//! table as it was. Only [`DispatchProgram::detach`] ends that. The programs are C, in
//! `bpf/`; their objects are part of this crate.
//!
//! Calls block for microseconds, [`DispatchProgram::set_rows`] for milliseconds. They
//! act in the network namespace of the thread that makes them.
//!
//! **Invariants:** packets never meet half a change of a table. An XDP program
//! of somebody else is never replaced. Numbers from outside are checked, since
//! they come from a process with fewer rights.

mod abi;
mod device;
mod dispatch;
mod error;
pub mod limits;
mod links;
mod modes;
mod node_program;
mod object;
mod pass;
mod pins;
mod removal;
mod sys;
mod tables;

pub use dispatch::{Build, DispatchProgram, Run, Sizes};
pub use error::DatapathError;
pub use modes::{Attached, How};
pub use node_program::NodeProgram;
pub use pass::{Pass, attach_pass, prepare};
pub use pins::PinPath;
