//! Bounds of the socket, with units and reasons.

/// Timeout for an answer, in milliseconds. Rows of all nodes take well below a second to compute; a
/// netguard that is silent for longer does not recover.
pub(crate) const ANSWER_MS: u64 = 10_000;

/// The same for the order to load the programs: verification takes seconds, most of which is
/// waiting for a processor on a busy machine.
pub(crate) const LOADED_MS: u64 = 60_000;

/// Peers that wait while one is served; the kernel refuses further ones. There is one serving
/// process, and its successor during a restart.
pub(crate) const WAITING_MAX: i32 = 4;

/// How long a repair is shown, in milliseconds: two of Prometheus' rounds of 15 s, and as long as it
/// takes to compare everything once.
pub(crate) const REPAIRED_MS: u64 = 30_000;

/// Repairs that are shown, at most: as many as one look at a machine finds, a map for each service.
pub(crate) const REPAIRED_MAX: usize = 128;
