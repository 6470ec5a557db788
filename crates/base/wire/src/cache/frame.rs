//! Frames: the encoding of messages and chunks in a stream.
//!
//! ```text
//!  0 bytes of the payload (u32)   4 CRC-32C of the payload (u32)   8 payload ...
//! ```
//!
//! Numbers are little-endian; the checksum is that of RFC 3720, 12.1. It detects bit flips in
//! memory and devices, beyond TCP's own 16-bit checksum; it does not protect against
//! deliberate changes. A frame without payload is a keepalive: it shows only that
//! its sender is alive.

/// Bytes before the payload.
pub const FRAME_HEAD_BYTES: usize = 8;

/// An empty frame: a keepalive.
pub const PING: [u8; FRAME_HEAD_BYTES] = [0; FRAME_HEAD_BYTES];

/// Capacity above which the buffer of an idle stream is freed, in bytes.
const BUFFER_BYTES_KEPT_MAX: usize = 16 * 1024;

/// The header before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The payload's length.
    pub bytes: u32,
    /// The payload's [`checksum`].
    pub checksum: u32,
}

/// Why bytes are not a valid frame here. The stream is lost, since the
/// start of the next frame is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than allowed here.
    #[error("a frame of {bytes} bytes, where {bytes_max} is the most")]
    TooLong {
        bytes: u32,
        /// The maximum length.
        bytes_max: u32,
    },
    /// A chunk whose length differs from that of every chunk at this offset.
    #[error("a chunk of {bytes} bytes, where one of {expected} was due")]
    NotThatLong {
        bytes: u32,
        /// Length of the expected chunk.
        expected: u32,
    },
    /// The payload differs from the one sent.
    #[error("the checksum of a frame is wrong")]
    Checksum,
}

/// The checksum of a payload: CRC-32C.
pub fn checksum(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}

/// Appends a frame with `payload`.
///
/// # Panics
/// If the payload is longer than any message or chunk.
pub fn write_frame(stream: &mut Vec<u8>, payload: &[u8]) {
    stream.extend_from_slice(&FrameHead::of(payload).to_bytes());
    stream.extend_from_slice(payload);
}

impl FrameHead {
    /// Returns the header for `payload`.
    ///
    /// # Panics
    /// If the payload is longer than any message or chunk.
    pub fn of(payload: &[u8]) -> Self {
        assert!(payload.len() <= crate::limits::LINK_MESSAGE_BYTES_MAX, "messages are bounded");
        Self { bytes: payload.len() as u32, checksum: checksum(payload) }
    }

    /// Decodes `bytes`.
    pub fn read(bytes: [u8; FRAME_HEAD_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { bytes: u32::from_le_bytes([a, b, c, d]), checksum: u32::from_le_bytes([e, f, g, h]) }
    }

    /// Encodes it for the stream.
    pub fn to_bytes(self) -> [u8; FRAME_HEAD_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (self.bytes.to_le_bytes(), self.checksum.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// Verifies that `payload` is the one sent.
    ///
    /// # Errors
    /// [`FrameError::Checksum`] if not.
    pub fn verify(&self, payload: &[u8]) -> Result<(), FrameError> {
        let is_whole = payload.len() == self.bytes as usize;
        let is_right = is_whole && checksum(payload) == self.checksum;
        is_right.then_some(()).ok_or(FrameError::Checksum)
    }
}

/// Reads a stream in pieces of any length and returns its frames.
#[derive(Debug)]
pub struct FrameDecoder {
    bytes_max: u32,
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that were already returned.
    done: usize,
}

impl FrameDecoder {
    /// A decoder for frames with payloads of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        Self { bytes_max, buffer: Vec::new(), done: 0 }
    }

    /// Adds received bytes. Call [`FrameDecoder::next_payload`] afterwards until it returns none:
    /// then the buffer never holds more than one frame.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.done);
        self.done = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(BUFFER_BYTES_KEPT_MAX);
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the payload of the next frame, if it is complete.
    ///
    /// # Errors
    /// The bytes are not a frame; all further calls fail, too.
    pub fn next_payload(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let waiting = &self.buffer[self.done..];
        let Some((head, after)) = waiting.split_first_chunk() else { return Ok(None) };
        let head = FrameHead::read(*head);
        if head.bytes > self.bytes_max {
            return Err(FrameError::TooLong { bytes: head.bytes, bytes_max: self.bytes_max });
        }
        let Some(payload) = after.get(..head.bytes as usize) else { return Ok(None) };
        head.verify(payload)?;
        self.done += FRAME_HEAD_BYTES + payload.len();
        Ok(Some(payload))
    }

    /// Whether no incomplete frame remains.
    pub fn is_empty(&self) -> bool {
        self.done == self.buffer.len()
    }

    /// Returns the bytes received after the last returned frame.
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.drain(..self.done);
        self.buffer
    }
}
