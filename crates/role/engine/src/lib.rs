//! The HTTP/1.1 connection loop: `core/http` over `edge/serve`.
//!
//! Cores and edges never import each other; this crate joins the codec to the socket. A role
//! implements [`Handler`]; replies from memory are written by [`Handler::quick`], inside the same
//! poll that read the request, without allocation and without a lock. All other requests go to
//! [`Handler::slow`], an ordinary async function.
//!
//! ```text
//!   recv -> HeadScanner -> parse_request -> quick --yes--> Output --writev-->
//!             |  (pipelined requests: again)   |
//!             '--- Reject: answer, close       '--no---> slow(Exchange)
//! ```
//!
//! Invariants: a request whose framing is in doubt is never answered by a handler; a connection is
//! reused only after the request's body was read to its end (CVE-2025-4366); nothing is read past
//! an error, or while a reply is unsent; a reply has one head, and is sent from its first byte.
//!
//! The state of a connection is one value (`state.rs`), the progress of a reply another
//! (`reply.rs`). Both are asserted at every transition: a handler that breaks the rules ends its
//! connection by a panic, before a client takes the wrong bytes for the reply to another request.
//! `skep_engine=trace` logs the transitions.

#![forbid(unsafe_code)]

mod closing;
mod connection;
mod context;
mod depart;
mod exchange;
mod handler;
mod limits;
mod owed;
mod reply;
mod settings;
mod slow;
mod state;
mod summary;
#[cfg(test)]
mod tests;
mod tunnel;

pub use connection::{Arrival, Engine};
pub use context::Context;
pub use exchange::{Exchange, ExchangeError, ReplySink, RequestBody};
pub use handler::{Answered, ConnectionSoFar, Departed, Departure, Destination, Handler, Quick};
pub use reply::Reply;
pub use settings::EngineSettings;
pub use summary::Summary;
pub use tunnel::{TunnelEnd, tunnel};
