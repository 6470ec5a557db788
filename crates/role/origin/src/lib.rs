//! The client of a site's origins: HTTP/1.1 servers that provide a site's bytes in place of a
//! directory.
//!
//! ```text
//!  Origins::open(Ask) -> pick an origin -> addresses -> kept or new connection
//!                            ^                              |
//!                            '-- it failed before its head -+
//!                                                           v
//!              OriginReply { head: Head, body: Body } <- head parsed, range checked
//!                              |           |
//!       skep-httpcache (pure) <'           '-> next(): bytes of exactly that range
//! ```
//!
//! One [`Origins`] belongs to one worker, as its connections do. This role has the form of a
//! library, on which `role/node` is built.
//!
//! Invariants:
//! - A body ends in `Ok(0)` only if it had exactly the bytes that its head announced, by range,
//!   length and chunks; anything else is an error.
//! - No request is repeated after its reply was returned: a reader that needs the rest of a broken
//!   body requests it, pinned to the version that it has.
//! - Only parsed end-to-end fields are returned, no hop-by-hop fields.
//! - A connection is kept only if its reply was read to the end and no bytes followed it.

#![forbid(unsafe_code)]

mod avoid;
mod body;
mod counters;
mod error;
mod head;
mod limits;
mod names;
mod origins;
mod request;
mod url;

pub use body::Body;
pub use counters::{OriginCounters, OriginTotals};
pub use error::{Fault, FaultKind, OriginError};
pub use head::{Head, Revalidated};
pub use limits::{AVOID_MS, OriginLimits};
pub use names::Lookup;
pub use origins::{OriginReply, Origins};
pub use request::{Ask, Condition};
pub use url::{OriginUrl, OriginUrlError};

#[cfg(test)]
mod tests;
