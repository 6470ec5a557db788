//! Bounds of a run, each with its unit and reason.

/// Redirects that are followed for one sample: the bounds of curl and browsers are 20 to 50, but a
/// cluster redirects once, and the phases of the paper include only a few.
pub(crate) const REDIRECTS_MAX: u32 = 10;

/// URLs of a run: they are measured one after the other, and a turn with more would take too long.
pub(crate) const URLS_MAX: usize = 10_000;

/// Bytes of a URL: the length of a request line that servers accept.
pub(crate) const URL_BYTES_MAX: usize = 8 * 1024;

/// Bytes of a file of URLs: more than [`URLS_MAX`] URLs of usual length.
pub const LIST_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a response's head: far more than a client needs, and little enough to buffer.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Fields of a response's head: the capacity of the parser.
pub(crate) const HEAD_FIELDS_MAX: usize = 100;

/// Informational responses (1xx) before the response: servers send one or two, and a flood of them
/// would never end.
pub(crate) const INFORMATIONAL_MAX: usize = 32;

/// Shortest interval between two turns, in milliseconds: with a shorter one a probe would be a load
/// test.
pub const INTERVAL_MS_MIN: u64 = 100;

/// Longest interval between two turns, in milliseconds: a day.
pub const INTERVAL_MS_MAX: u64 = 86_400_000;

/// Longest time for one sample, in milliseconds: ten minutes, for the largest objects on slow links.
pub const TIMEOUT_MS_MAX: u64 = 600_000;

/// Longest step of a report, in milliseconds: a week.
pub const STEP_MS_MAX: u64 = 7 * 86_400_000;

/// Characters of a label: what fits beside a figure.
pub const LABEL_CHARS_MAX: usize = 40;

/// Characters of a node's name in a response; the server may send anything.
pub(crate) const NODE_CHARS_MAX: usize = 64;

/// Characters of the text of a failure; part of it comes from the server.
pub(crate) const FAILURE_CHARS_MAX: usize = 160;

/// Time to wait for a lock of another process on the file, at the beginning and at the end of a run,
/// in milliseconds: transactions take milliseconds.
pub(crate) const DATABASE_WAIT_MS: u64 = 5_000;

/// The same between measurements, in milliseconds: the samples are kept, and turns must not be late.
pub(crate) const DATABASE_WAIT_BRIEF_MS: u64 = 250;

/// Samples that are kept while the file is locked: some tens of megabytes.
pub(crate) const PENDING_SAMPLES_MAX: usize = 100_000;

/// Samples of a turn after which they are stored before its end: at most this number is lost if the
/// process is killed.
pub(crate) const STORE_SAMPLES_MAX: usize = 1_000;

/// Time that samples of a turn wait for its end before they are stored, in milliseconds.
pub(crate) const STORE_INTERVAL_MS: u64 = 10_000;
