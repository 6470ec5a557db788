//! The HTTP/1.1 client of all programs that check servers from outside: tests, the loads of the
//! lab, the checks of the benchmarks.
//!
//! - [`request_bytes`]: requests, as worded by the caller.
//! - [`parse_head`] and [`BodyReader`]: responses from bytes that the caller has received. They do
//!   no I/O, so blocking and asynchronous clients share them.
//! - [`RawClient`]: a blocking connection that also sends bytes that are not a valid request.
//! - [`content`]: bodies that tell which bytes they are.
//!
//! Invariants: it checks Skep's replies, so it shares no code with the code that writes them. It is
//! strict: an ambiguous response is an error. No shipped program depends on it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test client fails by panicking")]

mod body;
mod client;
pub mod content;
mod head;
mod limits;
mod request;
mod response;

pub use body::BodyReader;
pub use client::{ClientError, RawClient};
pub use head::{Framing, Malformed, parse_head};
pub use limits::PATIENCE;
pub use request::{HOST, request_bytes, request_with_body};
pub use response::Response;
