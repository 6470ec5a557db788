//! The load generator: writes the files of a workload, requests them from a site, and checks every body.
//!
//! ```text
//!   data.rs      files of a workload into a folder, if there is room
//!   run.rs       a closed loop of clients, or arrivals that are planned ahead (arrivals.rs), at times of a log, too
//!     |
//!   client.rs    one client: connections, redirects; form.rs: what it asks; body_check.rs: what came, byte by byte
//!     |
//!   tally.rs     counts, histograms, seconds: added up over clients and processes
//!     |
//!   report.rs, plot.rs     JSON and a figure
//! ```
//!
//! Invariants: the latency of an open loop is measured from the planned time, however late the request began;
//! a request counts if it was planned to begin within the measured window, and each one that counts has a
//! latency or is a failure; the same seed requests the same objects, over however many processes the load is
//! spread. The schedule follows the monotonic clock.

#![forbid(unsafe_code)]

mod arrivals;
mod body_check;
mod client;
mod data;
mod failure;
mod form;
mod limits;
mod plan;
mod plot;
mod report;
mod run;
mod tally;

pub use data::{DataError, WrittenData, write_data};
pub use limits::{CLIENTS_MAX, DURATION_MS_MAX, PROCESSES_MAX, RATE_MAX, REQUEST_MS_MAX};
pub use plan::{LoadPace, LoadPlan, LoadSubject, ProcessShare};
pub use plot::{LoadPlotError, plot_load};
pub use report::BenchReport;
pub use run::{LoadError, LoadProgress, check_target, run_load};
pub use skep_workload::{ClientRamp, LogTrace, SCALE_MAX, Workload, WorkloadError, WorkloadKind};
pub use tally::{LoadTally, SecondTally};
