//! The probe: measures the response times of URLs at an interval, stores them, and reports on them.
//!
//! ```text
//!   run.rs        turns (schedule.rs) --> measure.rs: one URL, its redirects, its phases (stamped.rs)
//!     |                                      |
//!   database.rs <------ sample.rs <----------+        one transaction for each turn
//!     |
//!   report.rs, export.rs                              figures and a page; rows
//! ```
//!
//! Invariants: durations are of the monotonic clock, stamps of the wall clock, and no schedule goes by
//! the latter. The phases of a whole response are together its total. A target that is down is a sample
//! and never an end. Nothing is measured while a turn is stored.

#![forbid(unsafe_code)]

mod database;
mod export;
mod failure;
mod limits;
mod measure;
mod plan;
mod report;
mod run;
mod sample;
mod schedule;
mod stamped;
mod statistics;
mod summary;
mod trust;
mod url;

pub use database::ProbeDatabaseError;
pub use export::{ExportError, ExportFormat, export_samples};
pub use limits::{
    INTERVAL_MS_MAX, INTERVAL_MS_MIN, LABEL_CHARS_MAX, LIST_BYTES_MAX, TIMEOUT_MS_MAX,
};
pub use plan::ProbePlan;
pub use report::{ProbeReport, ReportError, write_report};
pub use run::{ProbeError, run_probe};
pub use sample::{ProbePhase, ProbeSample};
pub use statistics::SampleTimes;
pub use summary::{ProbeSummary, UrlSummary};
pub use trust::CaError;
pub use url::{ProbeUrl, ProbeUrlError};
