//! Every bound of this crate, with unit and reason.

/// What is kept of the output of a program, in bytes: a status, or why it failed.
pub const OUTPUT_BYTES_MAX: usize = 4096;

/// Time from one look whether a program has ended to the next, in milliseconds: nothing beside what it takes.
pub(crate) const LOOK_MS: u64 = 10;

/// Time that the output may take after the end, in milliseconds: what has left the process group may hold it open.
pub(crate) const OUTPUT_AFTER_END_MS: u64 = 500;
