//! FastCGI without I/O: requests to applications such as php-fpm, and their replies.
//!
//! The input is bytes, the output events and bytes; sockets, clocks and buffers belong to the
//! caller.
//!
//! ```text
//!   GatewayRequest --start--> BEGIN_REQUEST, PARAMS --> application
//!      FcgiExchange --body_head/body_end--> STDIN -->
//!      FcgiExchange <--receive-- STDOUT (head, body), STDERR, END_REQUEST
//! ```
//! Invariants:
//! - No field of a client becomes a parameter that could be confused with another field or one of
//!   the gateway itself: `Proxy`, names with `_` or `.`, `Redirect-*` are dropped (CVE-2016-5385,
//!   CVE-2024-8927).
//! - No script runs for a path with control characters or dot segments (CVE-2019-11043).
//! - A reply is complete only at END_REQUEST.
//! - No bytes from the network cause a panic; after an error the connection is closed.
//!
//! The supported subset, the rules and their reasons: `docs/protocols/fastcgi.md`.

#![forbid(unsafe_code)]

mod error;
mod exchange;
mod head;
pub mod limits;
mod params;
mod record;
mod script;
mod stderr;
mod values;

pub use error::{FcgiError, FcgiRefusal, FcgiRequestError};
pub use exchange::{FcgiEvent, FcgiExchange, FcgiReceived};
pub use params::FcgiSettings;
pub use script::{Script, ScriptRule};
pub use values::{GET_VALUES, ValuesReply};
