//! The named limits of this crate.

/// Bits of a hash that select a register.
pub const REGISTER_BITS: u32 = 11;

/// Registers of a sketch: a standard error of 2.3 %, with 16 KiB per window and 2 KiB per message.
pub const REGISTERS: usize = 1 << REGISTER_BITS;

/// Highest rank: all other bits of the hash are 0.
pub const RANK_MAX: u8 = (64 - REGISTER_BITS + 1) as u8;

/// Length of a slot, in milliseconds: its observations leave the window together.
pub const SLOT_MS: u64 = 5 * 60 * 1000;

/// Slots of a window, including the current one.
pub const SLOTS: u64 = 7;

/// How long an observation stays in a window, in milliseconds, and at most [`SLOT_MS`] longer.
pub const WINDOW_MS: u64 = (SLOTS - 1) * SLOT_MS;
