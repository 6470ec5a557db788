//! Counts of the lines of a log: read, skipped, malformed.

use super::line::LogLineError;
use crate::limits::{LOG_OBJECTS_MAX, LOG_PATHS_BYTES_MAX, LOG_REQUESTS_MAX};

/// What was read of a log, and what of it was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Lines that are not empty.
    pub lines: u64,
    /// Lines that are of no format that is known.
    pub malformed: u64,
    /// The first of them, with their numbers, from 1.
    pub malformed_first: Vec<(u64, LogLineError)>,
    /// Requests of other methods than GET and HEAD.
    pub other_methods: u64,
    /// Requests that name no path.
    pub without_path: u64,
    /// Lines with an earlier time than one before them.
    pub back_in_time: u64,
    /// How much earlier, at most, in milliseconds.
    pub back_ms_max: u64,
    pub clients: u64,
    /// Why the rest of the log was not read.
    pub cut_by: Option<LogLimit>,
}

/// A bound of what is read of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLimit {
    #[error("the log has more than {LOG_REQUESTS_MAX} requests")]
    Requests,
    #[error("the log has more than {LOG_OBJECTS_MAX} different paths")]
    Objects,
    #[error("the paths of the log have more than {LOG_PATHS_BYTES_MAX} bytes")]
    Paths,
}
