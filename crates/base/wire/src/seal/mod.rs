//! Sealed datagrams: who said it, that it is new, and that nobody changed it.
//!
//! ```text
//!  0 version   1 cluster   9 sender   17 receiver   25 incarnation
//! 33 sequence  41 echo     49 body ...              tag (16, at the end)
//! ```
//!
//! Numbers are little-endian. The tag is HMAC-SHA256 (RFC 2104) over a domain
//! word and all that stands before it, cut to 128 bits (RFC 2104, 5). Nothing is
//! secret here: a datagram is authentic, not hidden.
//!
//! **Freshness.** A machine's *incarnation* is the wall-clock time of its start
//! in milliseconds. Each datagram carries its sender's, and echoes the
//! receiver's as far as the sender knows it. It is **live**, and its body
//! counts, only if it echoes the receiver's present incarnation: what was
//! recorded before the receiver started never counts, and what was recorded
//! since then falls to the replay window. A datagram with another echo is a
//! **hello**: its body is not looked at; it gets an answer that carries the
//! right incarnation, at most one every [`HELLO_ANSWER_INTERVAL_MS`].
//!
//! **Clocks that went back.** A machine that was started with an older clock
//! than before says stale things. It is answered as after a hello, learns from
//! the echo that it was further once, and goes beyond that.
//!
//! [`HELLO_ANSWER_INTERVAL_MS`]: crate::limits::HELLO_ANSWER_INTERVAL_MS

mod datagram;
mod endpoint;
mod error;
mod key;
mod window;

pub use datagram::{BODY_BYTES_MAX, PeerId};
pub use endpoint::{BodyTooLong, Endpoint, HelloReply, OpenedDatagram, Stamp};
pub use error::OpenError;
pub use key::{Key, KeyError};

#[cfg(test)]
mod tests;
