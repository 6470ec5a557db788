//! The probe: measures the response times of URLs at an interval, stores them, and reports on them.
//!
//! ```text
//!   run.rs        turns (schedule.rs) --> measure.rs: one URL, its redirects, its phases (timed_stream.rs)
//!     |                                      |
//!   store.rs, database.rs <--- sample.rs <---+        one transaction for each turn, at least
//!     |
//!   report.rs, export.rs                              figures and a page; rows
//! ```
//!
//! Invariants: durations are measured by the monotonic clock, time stamps by the wall clock, which no
//! schedule uses. The phases of a complete response add up to its total. A target that is down is a sample
//! and never ends a run. Nothing is measured while samples are stored. A lock of another process on the
//! file ends no run while there is room for the samples.

#![forbid(unsafe_code)]

mod database;
mod export;
mod failure;
mod http_client;
mod limits;
mod measure;
mod plan;
mod report;
mod run;
mod sample;
mod schedule;
mod statistics;
mod store;
mod summary;
mod timed_stream;
mod tls;
mod url;

pub use export::{ExportError, ExportFormat, export_recorded, export_samples};
pub use http_client::{clean, io_kind, redirect};
pub use limits::{
    INTERVAL_MS_MAX, INTERVAL_MS_MIN, LABEL_CHARS_MAX, LIST_BYTES_MAX, STEP_MS_MAX, TIMEOUT_MS_MAX,
};
pub use plan::ProbePlan;
pub use report::{ProbeReport, ReportError, write_report};
pub use run::{ProbeError, ProbeOutcome, run_probe};
pub use sample::{ProbeFailure, ProbePhase, ProbeSample};
pub use skep_database::DatabaseError;
pub use statistics::SampleTimes;
pub use summary::{FailureCount, ProbeSummary, UrlSummary};
pub use tls::CaError;
pub use url::{ProbeUrl, ProbeUrlError};
