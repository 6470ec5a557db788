//! Bounds of workloads, each with its unit and reason.

/// Largest scale: ten thousand World Cups would not fit below [`FILES_MAX`].
pub const SCALE_MAX: f64 = 1_000.0;

/// Files of a workload: their shares take 24 bytes of memory each, and file systems suffer from more.
pub const FILES_MAX: usize = 10_000_000;

/// Files of one folder: what tools still list at once.
pub(crate) const FILES_PER_FOLDER: usize = 1_000;
