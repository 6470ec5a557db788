//! Workloads: the files of a site, their popularity, and their contents. One definition for the
//! simulator, the lab and the load generator.
//!
//! ```text
//!   kind.rs: WorkloadKind --+-- webbench.rs, surge.rs, elastic_ramp.rs, sizes.rs      bytes of files
//!                           +-- popularity.rs                                         the next file
//!                           +-- pattern.rs                                            contents of files
//!   log/: LogTrace          the actual requests to a site, from its access log
//! ```
//!
//! Invariants: a kind, a scale and a seed give the same files, contents and requests on every
//! machine; the scale changes the number of files, never their sizes. No line of a log makes its
//! reader panic.

#![forbid(unsafe_code)]

mod elastic_ramp;
mod kind;
mod limits;
mod log;
mod pattern;
mod popularity;
mod sizes;
mod surge;
mod webbench;

pub use elastic_ramp::ClientRamp;
pub use kind::{ClientHabits, Workload, WorkloadError, WorkloadKind};
pub use limits::{FILES_MAX, LOG_LINE_BYTES_MAX, SCALE_MAX};
pub use log::{
    LogLimit, LogLineError, LogSummary, LogTrace, LoggedLine, LoggedObject, LoggedRequest,
    TraceError, TraceReader,
};
pub use pattern::Pattern;
pub use popularity::Popularity;
pub use sizes::SizeStatistics;
pub use surge::{surge_shares, surge_sizes};
pub use webbench::{WEBBENCH_CLASSES, WEBBENCH_PARTS};
