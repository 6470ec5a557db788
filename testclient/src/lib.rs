//! The HTTP/1.1 client of all that looks at servers from outside: tests, the loads of the lab,
//! the checks of the benchmarks.
//!
//! - [`request_bytes`]: requests, as the caller words them.
//! - [`parse_head`] and [`BodyReader`]: responses out of bytes that somebody has received. They do
//!   no I/O, so blocking and asynchronous clients share them.
//! - [`RawClient`]: a blocking connection that also sends bytes that are no request.
//!
//! Invariants: it judges Skep's replies, so it shares no code with what writes them. It is
//! without leniency: a response that could be read in two ways is an error. Nothing that is
//! shipped depends on it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test client fails by panicking")]

mod body;
mod client;
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
