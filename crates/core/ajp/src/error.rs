//! Errors in requests, and in what a server sent.

use skep_http::Reject;

use crate::limits::NAME_BYTES_MAX;

/// Why a request cannot be sent by AJP. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AjpRequestError {
    /// A request is one packet, and cannot be continued in another.
    #[error(
        "the request's head takes {bytes} bytes in AJP and a packet holds {bytes_max}: raise the \
         packet size here and `packetSize` at the server"
    )]
    TooLarge {
        /// The required size.
        bytes: usize,
        /// The capacity of a packet, including its header.
        bytes_max: usize,
    },
    /// The name is so long that its length would be read as the code of another name.
    #[error("a field's name has {bytes} bytes, and AJP has names of {NAME_BYTES_MAX} at most")]
    NameLong { bytes: usize },
}

impl AjpRequestError {
    /// The status of the response to the client (RFC 6585 5).
    pub fn status(&self) -> u16 {
        match self {
            AjpRequestError::TooLarge { .. } | AjpRequestError::NameLong { .. } => 431,
        }
    }
}

/// Why the received bytes are not a valid reply. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AjpError {
    /// No packet begins like this: it may not be an AJP port.
    #[error("expected a packet to begin with 41 42, found {0:02x} {1:02x}: is it an AJP port?")]
    Magic(u8, u8),
    /// The length is above that of any packet.
    #[error(
        "expected a packet of at most {bytes_max} bytes, found one of {bytes}: set the packet size \
         here to the server's `packetSize`"
    )]
    PacketLong {
        /// Including its header.
        bytes: usize,
        bytes_max: usize,
    },
    /// The length of a packet does not match its type.
    #[error("expected {expected} bytes in {packet}, found {found}")]
    PacketLength { packet: &'static str, expected: usize, found: usize },
    /// A packet without a type, or with an unknown one.
    #[error("expected the type of a reply's packet (3 to 6), found {0}")]
    Type(u8),
    /// A packet where another one was expected.
    #[error("expected {expected}, found {found}")]
    Unexpected { expected: &'static str, found: &'static str },
    /// The chunk does not fill its packet, or exceeds it.
    #[error("expected a chunk that fills its packet of {packet_bytes} bytes, found {chunk_bytes}")]
    ChunkLength {
        /// Payload of the packet.
        packet_bytes: usize,
        /// The length stated in the chunk.
        chunk_bytes: usize,
    },
    /// SEND_HEADERS ends within an element: Tomcat truncates a head that is too long for it.
    #[error(
        "expected {0} in SEND_HEADERS, found its end: the server's head may be larger than a \
         packet: raise the packet size here and `packetSize` at the server"
    )]
    HeadCut(&'static str),
    /// SEND_HEADERS continues after its last field.
    #[error("expected the end of SEND_HEADERS behind its last field, found {0} bytes more")]
    HeadTail(usize),
    /// A string without its terminating NUL.
    #[error("expected a string in SEND_HEADERS to end with 00, found {0:02x}")]
    StringEnd(u8),
    /// An unknown code of a name.
    #[error("expected the code of a field's name, a001 to a00b, found a0{0:02x}")]
    NameCode(u8),
    /// The head is not one that an HTTP server could send.
    #[error("expected a valid head, found one refused as {}", .0.reason)]
    Head(Reject),
    /// More bytes than Content-Length states.
    #[error("expected the body's end after its Content-Length, found more")]
    BodyLong,
    /// Fewer bytes than Content-Length states.
    #[error("expected {missing_bytes} more bytes of the body, found the end of the reply")]
    BodyShort { missing_bytes: u64 },
    /// GET_BODY_CHUNK while an earlier one, or the first packet, has not been answered yet.
    #[error("expected the server to wait for the data that it asked for, found GET_BODY_CHUNK")]
    AskedTwice,
    /// GET_BODY_CHUNK after the end of the body.
    #[error("expected no question for data behind the body's end, found GET_BODY_CHUNK")]
    AskedBehindEnd,
    /// GET_BODY_CHUNK for 0 bytes.
    #[error("expected GET_BODY_CHUNK to ask for data, found one for 0 bytes")]
    AskedForNothing,
    /// Bytes that belong to no reply, such as a second one (CVE-2022-1319).
    #[error("expected nothing behind the end of a reply, found more")]
    BehindEnd,
    /// The connection was closed within a reply.
    #[error("expected END_RESPONSE, found the end of the connection")]
    Closed,
    /// The answer is not CPONG.
    #[error("expected CPONG, 41 42 00 01 09, found {found:02x} at byte {at}")]
    Pong {
        /// Counted from 0.
        at: usize,
        found: u8,
    },
}
