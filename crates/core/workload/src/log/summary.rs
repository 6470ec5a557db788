//! Counts of the lines of a log: read, skipped, malformed.

use super::line::LogLineError;
use crate::limits::{LOG_OBJECTS_MAX, LOG_PATHS_BYTES_MAX, LOG_REQUESTS_MAX};

/// Counts of the lines that were read, and of those that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Non-empty lines.
    pub lines: u64,
    /// Lines in no known format.
    pub malformed: u64,
    /// The first malformed lines, with their numbers, counted from 1.
    pub malformed_first: Vec<(u64, LogLineError)>,
    /// Requests with other methods than GET and HEAD.
    pub other_methods: u64,
    /// Requests without a path.
    pub without_path: u64,
    /// Lines with an earlier time than a line before them.
    pub back_in_time: u64,
    /// Largest such difference, in milliseconds.
    pub back_ms_max: u64,
    pub clients: u64,
    /// Why the rest of the log was not read.
    pub cut_by: Option<LogLimit>,
}

/// A bound on the amount of a log that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLimit {
    #[error("the log has more than {LOG_REQUESTS_MAX} requests")]
    Requests,
    #[error("the log has more than {LOG_OBJECTS_MAX} different paths")]
    Objects,
    #[error("the paths of the log have more than {LOG_PATHS_BYTES_MAX} bytes")]
    Paths,
}
