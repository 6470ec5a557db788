//! Recommends a policy for a site: simulates the requests of its access log under each policy, on a cluster
//! like its own.
//!
//! ```text
//!   question.rs    a trace, a cluster, policies of a mode; windows of the trace
//!     |
//!   simulate.rs    each window under each policy, by skep-site-sim
//!     |
//!   advice.rs      figures.rs, with intervals, ranked; verdict.rs: what to choose, and by how much
//!     |
//!   report.rs, plot.rs     JSON and a picture
//! ```
//!
//! Invariants: all policies get the same requests at the same times, so that ratios are paired; a question
//! and the number of repetitions give the same advice on every machine; a policy is recommended over that of
//! the service only if the difference exceeds its interval.

#![forbid(unsafe_code)]

mod advice;
mod figures;
mod limits;
mod plot;
mod question;
mod report;
mod simulate;
mod verdict;

pub use advice::{AdvisedSite, PolicyAdvice};
pub use figures::AdvisedPolicy;
pub use limits::{
    ADVISED_BYTES_MAX, ADVISED_NODES_MAX, ADVISED_RATE_MIN, REPETITIONS_MAX, REPETITIONS_MIN,
    SPEED_MAX, SPEED_MIN, WINDOW_REQUESTS_MAX, WINDOW_REQUESTS_MIN,
};
pub use plot::{AdvicePlotError, plot_advice};
pub use question::{AdviceQuestion, policies_of};
pub use simulate::{AdviceError, AdviceProgress, advise};
pub use skep_site_sim::{Estimate, FetchSource, RatioEstimate, SimulatedCluster, SimulatedNode};
pub use skep_workload::{LOG_LINE_BYTES_MAX, LogSummary, LogTrace, TraceError, TraceReader};
pub use verdict::PolicyVerdict;
