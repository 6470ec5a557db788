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

/// Clients of the socket for handoffs, at most: a connection for each worker thread of a process, on
/// machines that there are, and of its successor during a restart.
pub(crate) const HANDOFF_CLIENTS_MAX: usize = 256;

/// Batches of orders whose results a client waits for, at most: so many results fit into the socket's buffer
/// (`net.core.wmem_default`, 208 KiB), so that netguard never finds it full.
pub(crate) const BATCHES_MAX: usize = 4;

/// Bytes of the text of a refusal: of a batch 16 KiB.
pub(crate) const REFUSAL_BYTES_MAX: usize = 256;
