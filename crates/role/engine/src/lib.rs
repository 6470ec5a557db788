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
//! its end (CVE-2025-4366); nothing is read past an error, or while a reply is
//! unsent; a reply has one head, and goes out from its first byte.
//!
//! What a connection is doing is one value (`state.rs`), how far a reply is another
//! (`reply.rs`). Both are asserted where they are entered: a handler that breaks the
//! rules ends its connection by a panic, before a client takes the wrong bytes for the
//! reply to something else. `skep_engine=trace` logs them.

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
mod slow;
mod state;
mod summary;
#[cfg(test)]
mod tests;
mod tunnel;

pub use connection::Engine;
pub use context::Context;
pub use exchange::{Exchange, ExchangeError, ReplySink, RequestBody};
pub use handler::{Handler, Quick};
pub use reply::Reply;
pub use settings::EngineSettings;
pub use summary::Summary;
pub use tunnel::tunnel;
