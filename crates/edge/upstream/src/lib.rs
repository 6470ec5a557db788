//! Connections to nodes: dialling, keeping and reusing them.
//!
//! A [`Pool`] belongs to one worker, as its connections do, so that taking and
//! giving back a connection is two cells and a push; what that costs is a few
//! more open connections than a pool that all cores share. The connection used
//! last is reused first: those of a busy hour idle out at its end, and a
//! connection that was warm a moment ago is the least likely to be dead.
//!
//! Invariants:
//! - A [`PooledConn`] that is dropped closes its connection. Only
//!   [`PooledConn::give_back`], which says that the reply was read to its end,
//!   returns it to the pool. So no reply is ever read by the wrong request.
//! - `in use + idle <= connections_max` for each address.
//! - Nothing allocates while connections are reused.

#![forbid(unsafe_code)]

mod error;
mod pool;

pub use error::UpstreamError;
pub use pool::{Pool, PoolLimits, PooledConn};
