//! Every limit of the codec, named, with its unit and its reason.

/// Default length of a packet including its four-byte header: Tomcat's `packetSize`, which is also
/// its minimum. It is not negotiated, so both sides must be configured alike.
pub const PACKET_BYTES_DEFAULT: usize = 8192;

/// The largest packet: Tomcat's maximum.
pub const PACKET_BYTES_MAX: usize = 65536;

/// Magic and length before a payload.
pub const PACKET_HEAD_BYTES: usize = 4;

/// Header and length before body data, which has no type.
pub const BODY_HEAD_BYTES: usize = PACKET_HEAD_BYTES + 2;

/// Longest field name: longer ones would be read as codes.
pub const NAME_BYTES_MAX: usize = 0x9fff;
