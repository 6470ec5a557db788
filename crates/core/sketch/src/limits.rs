//! The named limits of this crate.

/// Bits of a hash that choose a register.
pub const REGISTER_BITS: u32 = 11;

/// Registers of a sketch: a standard error of 2.3 %, for 16 KiB of a window and 2 KiB of a message.
pub const REGISTERS: usize = 1 << REGISTER_BITS;

/// Highest rank: all other bits of the hash are 0.
pub const RANK_MAX: u8 = (64 - REGISTER_BITS + 1) as u8;

/// Time of a slot, in milliseconds: what was seen in it leaves the window at once.
pub const SLOT_MS: u64 = 5 * 60 * 1000;

/// Slots of a window: the one in progress, and those before it.
pub const SLOTS: u64 = 7;

/// Time that something stays in a window, in milliseconds, and at most [`SLOT_MS`] longer.
pub const WINDOW_MS: u64 = (SLOTS - 1) * SLOT_MS;
