//! Access logs as workloads: what was asked for, when, and with how many bytes it was answered.
//!
//! ```text
//!   parse.rs     a line (line.rs): combined.rs or json.rs, time.rs
//!     |
//!   target.rs    what it asks for, as it can be asked for again
//!     |
//!   reader.rs    lines into a trace, within bounds; summary.rs: what was left out
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
