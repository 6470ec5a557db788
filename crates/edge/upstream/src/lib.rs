//! Connections to nodes: connecting, pooling and reuse.
//!
//! A [`ConnectionPool`] belongs to one worker, as its connections do, so that taking and returning a
//! connection costs two cells and a push; the price is a few more open connections than with a pool shared by
//! all cores. The most recently used connection is reused first: surplus connections of a busy hour expire
//! after it, and a recently used connection is the least likely to be dead.
//!
//! Invariants:
//! - A [`PooledConn`] that is dropped closes its connection. Only [`PooledConn::give_back`], which asserts
//!   that the reply was read to its end, returns it to the pool. So no reply is ever read for the wrong
//!   request.
//! - `in use + idle <= connections_max` for each address.
//! - Reusing connections allocates nothing.

#![forbid(unsafe_code)]

mod error;
mod pool;

pub use error::UpstreamError;
pub use pool::{ConnectionPool, PoolLimits, PooledConn};
