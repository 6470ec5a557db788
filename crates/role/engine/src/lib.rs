//! The HTTP/1.1 connection loop: `core/http` over `edge/serve`.
//!
//! Cores and edges never import each other; this crate is where the codec
//! meets the socket. A role gives it a [`Handler`]; what the handler can answer
//! from memory it answers at once ([`Handler::quick`]), inside the same poll
//! that read the request, without allocation and without a lock. Everything
//! else is [`Handler::slow`], an ordinary async function.
//!
//! ```text
//!   recv -> HeadScanner -> parse_request -> quick --yes--> Output --writev-->
//!             |  (pipelined requests: again)   |
//!             '--- Reject: answer, close       '--no---> slow(Exchange)
//! ```
//!
//! Invariants: a request whose framing is in doubt is never answered by a
//! handler; a connection is reused only after the request's body was read to
//! its end (CVE-2025-4366); nothing is read past an error.

#![forbid(unsafe_code)]

mod closing;
mod connection;
mod context;
mod exchange;
mod handler;
mod limits;
mod owed;
mod reply;
mod settings;
mod tunnel;

pub use connection::Engine;
pub use context::Context;
pub use exchange::{Exchange, ExchangeError, ReplySink, RequestBody};
pub use handler::{Handler, Quick};
pub use reply::{Reply, Summary};
pub use settings::Settings;
pub use tunnel::tunnel;
