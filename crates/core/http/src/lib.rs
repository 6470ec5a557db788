//! HTTP/1.1 without I/O: heads, framing, fields, paths, ranges, conditions.
//!
//! The input is bytes, the output verdicts and bytes; sockets, clocks and buffers belong to the
//! caller. Invariants of the whole crate:
//! - An ambiguous message is refused, never resolved: every parser returns a
//!   [`Reject`], after which the connection closes.
//! - Parsing an ordinary request allocates nothing and borrows from the
//!   caller's buffer.
//! - No input from the network causes a panic.
//!
//! ```text
//!   bytes -> HeadScanner -> parse_request -> RequestHead -> path::read
//!                                   |                    -> conditional, range, negotiate
//!                                   +-> BodyFraming -> BodyDecoder
//! ```

#![forbid(unsafe_code)]

pub mod body;
mod bytes;
mod chunked;
pub mod conditional;
pub mod cookie;
pub mod date;
pub mod encode;
pub mod fields;
pub mod forward;
pub mod forwarded;
mod framing;
pub mod gateway;
pub mod host;
pub mod limits;
pub mod mime;
pub mod multipart;
pub mod negotiate;
pub mod path;
pub mod range;
pub mod reject;
pub mod request;
pub mod response;
pub mod rewrite_back;
pub mod scan;
mod version;

pub use body::{BodyDecoder, Decoded};
pub use conditional::{Precondition, Validators};
pub use date::HttpDate;
pub use fields::{BorrowedFieldSlots, FieldSlots, Fields, HeapFieldSlots, Known};
pub use host::Host;
pub use limits::{BodyLimits, HeadLimits, Underscores};
pub use reject::Reject;
pub use request::{BodyFraming, Method, RequestHead, parse_request};
pub use response::{ResponseFraming, ResponseHead, parse_response};
pub use rewrite_back::{BackRewrite, PathPrefix};
pub use scan::HeadScanner;
pub use version::Version;
