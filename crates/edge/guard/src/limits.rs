//! Bounds of the socket, with units and reasons.

/// Time for an answer, in milliseconds. Rows of 256 nodes take well below a
/// second to build; a guard that is silent for longer is not coming back.
pub(crate) const ANSWER_MS: u64 = 10_000;

/// The same for the order to load the programs: the kernel's verifier computes for seconds, and on
/// a busy machine waits for the processor most of the time.
pub(crate) const LOADED_MS: u64 = 60_000;

/// Peers that wait while one is served; whoever comes then is refused by the
/// kernel. There is one serving process, and its successor in a restart.
pub(crate) const WAITING_MAX: i32 = 4;
