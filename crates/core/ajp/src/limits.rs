//! Every limit of the codec, named, with its unit and its reason.

/// A packet with its four bytes of header, unless set otherwise: Tomcat's `packetSize`, which is
/// also its least. Nothing negotiates it, so both sides must be set to the same.
pub const PACKET_BYTES_DEFAULT: usize = 8192;

/// The largest packet: Tomcat's maximum.
pub const PACKET_BYTES_MAX: usize = 65536;

/// Magic and length in front of a payload.
pub const PACKET_HEAD_BYTES: usize = 4;

/// Header and length in front of body data, which has no type.
pub const BODY_HEAD_BYTES: usize = PACKET_HEAD_BYTES + 2;

/// Longest name of a field: longer ones would be read as codes.
pub const NAME_BYTES_MAX: usize = 0x9fff;
