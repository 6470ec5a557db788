//! AJP13 without I/O: requests to servlet engines such as Tomcat, and their replies.
//!
//! The input is bytes, the output events and bytes; sockets, clocks and buffers belong to the
//! caller.
//!
//! ```text
//!   GatewayRequest --start--> FORWARD_REQUEST --> server
//!        AjpExchange --body_head/body_end--> body data -->
//!        AjpExchange <--receive-- SEND_HEADERS, SEND_BODY_CHUNK, GET_BODY_CHUNK, END_RESPONSE
//! ```
//! Invariants:
//! - Body data can be sent only when the server reads it: once without being asked if the request
//!   has a Content-Length, then once for each GET_BODY_CHUNK. One packet more would be read as a
//!   request written by the client (CVE-2022-26377, CVE-2022-36760).
//! - A connection is reusable only after an END_RESPONSE that allows it, with every request for
//!   data answered once, and no unread bytes.
//! - Lengths are checked against the packet that contains them before anything is read.
//! - No bytes from the network cause a panic; after an error the connection is closed.
//!
//! The supported subset, the rules and their reasons: `docs/protocols/ajp.md`.

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
