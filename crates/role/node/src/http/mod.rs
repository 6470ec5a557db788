//! The node's side of the engine: turns requests into replies.
//!
//! ```text
//!  Handler::quick -- a hit of the worker's index --> reply
//!        | anything else
//!  Handler::slow --> backend: which resource is at the path? --> respond: 200, 206, 304, ...
//!        |                                                         |
//!        '--> pages: errors, listings, redirects                   v
//!                                                   stream: bytes out of segments
//! ```

pub(crate) mod cacheable;
pub(crate) mod client_pace;
pub(crate) mod compress;
pub(crate) mod compress_passed;
pub(crate) mod handler;
pub(crate) mod listing;
pub(crate) mod named_file;
pub(crate) mod pass;
mod pieces;
pub(crate) mod respond;
pub(crate) mod stream;
pub(crate) mod upstream;
