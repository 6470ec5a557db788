//! Fixed numbers of the experiment, with units and reasons.

/// Largest file that is served, in bytes: four segments. One of 2 GB would take a link of the bed for minutes.
pub(super) const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Of a link's rate, what is left for bodies: frames of 1,514 bytes carry 1,448 of a stream.
pub(super) const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

/// A long frame, in bytes.
pub(super) const FRAME_BYTES: u64 = 1514;

/// What a link's queue holds, in milliseconds, as the testbed has it.
pub(super) const QUEUE_MS: u64 = 50;

/// Time for a response, in milliseconds: a response that takes longer counts as failed.
pub(super) const RESPONSE_MS: u64 = 60_000;

/// Hit ratios of bed and simulator agree within so many points.
pub(super) const HIT_POINTS_MAX: f64 = 3.0;

/// Least share of the cores' time that must be idle while it is measured, in percent: below it the cores may be the
/// bound: the run is repeated once, and its row is marked if that does not help.
pub(super) const FREE_PERCENT_MIN: f64 = 15.0;

/// What a node keeps of an object beside its segments, in bytes: its head, and its places in the tables. As
/// measured.
pub(super) const HEAD_BYTES: u64 = 2_150;
