//! Sealed datagrams: authenticated sender, integrity and replay protection.
//!
//! ```text
//!  0 version   1 cluster   9 sender   17 receiver   25 incarnation
//! 33 sequence  41 echo     49 body ...              tag (16, at the end)
//! ```
//!
//! Numbers are little-endian. The tag is HMAC-SHA256 (RFC 2104) over a domain separator and all
//! preceding bytes, truncated to 128 bits (RFC 2104, 5). Datagrams are authenticated, not
//! encrypted. Heartbeats and LCCP are [`Channel`]s with different separators, so that neither
//! accepts recorded datagrams of the other.
//!
//! **Freshness.** A machine's *incarnation* is the wall-clock time of its start in milliseconds.
//! Each datagram carries its sender's incarnation, and echoes the receiver's, if the sender knows
//! it. It is **live**, and its body is accepted, only if it echoes the receiver's present
//! incarnation: a datagram recorded before the receiver started is never accepted, and one recorded
//! since then is rejected by the replay window. A datagram with another echo is a **hello**: its
//! body is ignored; it is answered with the correct incarnation, at most once every
//! [`HELLO_ANSWER_INTERVAL_MS`].
//!
//! **Clocks set back.** A machine whose clock is behind that of its previous start sends stale
//! datagrams. They are answered like a hello; the machine learns from the echo that its incarnation
//! was higher before, and chooses a greater one.
//!
//! [`HELLO_ANSWER_INTERVAL_MS`]: crate::limits::HELLO_ANSWER_INTERVAL_MS

mod datagram;
mod endpoint;
mod error;
mod key;
mod window;

pub use datagram::{BODY_BYTES_MAX, Channel, PeerId};
pub use endpoint::{BodyTooLong, Endpoint, HelloReply, OpenedDatagram, Stamp};
pub use error::OpenError;
pub use key::{Key, KeyError};

#[cfg(test)]
mod tests;
