//! Access logs as workloads: which requests were made, when, and the sizes of their responses.
//!
//! ```text
//!   parse.rs     a line (line.rs): combined.rs or json.rs, time.rs
//!     |
//!   target.rs    its target, in a form that can be requested again
//!     |
//!   reader.rs    lines into a trace, within bounds; summary.rs: what was skipped
//!     |
//!   trace.rs     objects with their sizes, and requests with their times
//! ```

mod combined;
mod json;
mod line;
mod parse;
mod reader;
mod summary;
mod target;
mod time;
mod trace;

pub use line::{LogLineError, LoggedLine};
pub use reader::{TraceError, TraceReader};
pub use summary::{LogLimit, LogSummary};
pub use trace::{LogTrace, LoggedObject, LoggedRequest};
