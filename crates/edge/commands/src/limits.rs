//! Every bound of this crate, with unit and reason.

/// What is kept of the output of a program, in bytes: a status, or why it failed.
pub const OUTPUT_BYTES_MAX: usize = 4096;

/// Interval of checks whether a program has ended, in milliseconds: short compared with its run time.
pub(crate) const LOOK_MS: u64 = 10;

/// The same for what cannot be killed, and may run on for ever.
pub(crate) const UNKILLABLE_LOOK_MS: u64 = 1_000;

/// Time that a killed program may take to end, in milliseconds: what the kernel does not end by then has to be waited for without a
/// bound.
pub(crate) const KILLED_MS_MAX: u64 = 2_000;

/// Time that what a killed program leaves may take to end, in milliseconds: process 1 waits for it at once, or in containers
/// whenever it comes to that, which nobody has to wait for.
pub(crate) const ORPHANS_MS_MAX: u64 = 200;

/// What a pipe holds, in bytes (pipe(7)): as much is read at a time.
pub(crate) const PIPE_BYTES: usize = 64 * 1024;
