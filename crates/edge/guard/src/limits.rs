//! Bounds of the socket, with units and reasons.

/// Timeout for an answer, in milliseconds. Rows of all nodes take well below a second to compute; a netguard
/// that does not answer for longer does not recover.
pub(crate) const ANSWER_MS: u64 = 10_000;

/// Timeout for the answer to the order that loads the programs, in milliseconds: verification takes seconds,
/// most of which is waiting for a processor on a busy machine.
pub(crate) const LOADED_MS: u64 = 60_000;

/// Peers that wait while one is served; the kernel refuses further ones. There is one serving
/// process, and its successor during a restart.
pub(crate) const WAITING_MAX: i32 = 4;

/// How long a repair is shown, in milliseconds: two of Prometheus' scrape intervals of 15 s, and the time of
/// one full comparison.
pub(crate) const REPAIRED_MS: u64 = 30_000;

/// Maximum number of repairs shown: as many as one inspection of a machine finds, a map for each service.
pub(crate) const REPAIRED_MAX: usize = 128;

/// Maximum number of clients of the socket for handoffs: a connection for each worker thread of a process, on
/// existing machines, and of its successor during a restart.
pub(crate) const HANDOFF_CLIENTS_MAX: usize = 256;

/// Maximum number of batches whose results a client awaits: their results fit into the socket's buffer
/// (`net.core.wmem_default`, 208 KiB), so that netguard never finds it full.
pub(crate) const BATCHES_MAX: usize = 4;

/// Maximum length of a refusal's text, in bytes: 16 KiB for a batch.
pub(crate) const REFUSAL_BYTES_MAX: usize = 256;
