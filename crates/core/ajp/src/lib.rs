//! AJP13 without I/O: requests to servlet engines such as Tomcat, and their replies.
//!
//! The input is bytes, the output events and bytes; the caller owns sockets, clocks and buffers.
//!
//! ```text
//!   GatewayRequest --start--> FORWARD_REQUEST --> server
//!        AjpExchange --body_head/body_end--> body data -->
//!        AjpExchange <--receive-- SEND_HEADERS, SEND_BODY_CHUNK, GET_BODY_CHUNK, END_RESPONSE
//! ```
//! Invariants:
//! - Body data can be sent only where the server reads it: once unasked if the request has a
//!   Content-Length, then once for each GET_BODY_CHUNK. A packet more would be read as a request
//!   that the client wrote (CVE-2022-26377, CVE-2022-36760).
//! - A connection is reusable only after END_RESPONSE that says so, with every question for data
//!   answered once, and nothing left to read.
//! - Lengths are compared with the packet that they are in before anything is read.
//! - No bytes from the network cause a panic; after an error the connection closes.
//!
//! Which subset, which rules and why: `docs/protocols/ajp.md`.

#![forbid(unsafe_code)]

mod codes;
mod error;
mod exchange;
pub mod limits;
mod ping;
mod reply;
mod request;
mod upload;

pub use error::{AjpError, AjpRequestError};
pub use exchange::{AjpEvent, AjpExchange, AjpReceived};
pub use ping::{CPING, Pong};
pub use request::{AjpSettings, JkActivation, TlsAttributes};
