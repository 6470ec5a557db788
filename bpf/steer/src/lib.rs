//! What the packet programs decide, as plain Rust.
//!
//! The programs themselves are C (`bpf/`), because they run in the kernel. This
//! is their model: the same tables, the same verdicts, the same bytes out, told
//! a second time in a language that checks indices. Tests run every packet
//! through both. Where the two differ, one of them is wrong.
//!
//! - [`steer`]: the dispatcher's program.
//! - [`hand_on`]: the node's program.
//!
//! **Invariants:** time comes in as `now_ns`; any bytes are a frame, and none
//! of them panic.

#![forbid(unsafe_code)]

mod answer;
mod hand_on;
mod icmp;
mod limits;
mod packet;
mod rate;
mod steer;
mod table;
mod tables;

pub use answer::internet_checksum;
pub use hand_on::{SocketQuery, hand_on};
pub use steer::steer;
pub use table::row_of;
pub use tables::{
    Counters, FlowEntry, FlowKey, LoadEntry, Mac, Move, MoveKey, NetworkAccess, Rate, Settings,
    Steerer, Tables,
};

use skep_wire::steer::Verdict;

/// What a program did to a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What became of it.
    pub verdict: Verdict,
    /// Where it went.
    pub action: PacketAction,
    /// The frame as it left.
    pub frame: Vec<u8>,
}

/// Where a frame goes after a program has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketAction {
    /// On to the kernel.
    Pass,
    /// Nowhere.
    Drop,
    /// Out of a device.
    Transmit {
        /// The device's number.
        device_index: u32,
    },
}

#[cfg(test)]
mod tests;
