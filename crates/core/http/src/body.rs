//! Reads bodies: length, chunked, until close.
use crate::{BodyLimits, Reject, ResponseFraming};
use std::ops::Range;

/// What one call of [`BodyDecoder::decode`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Payload, inside `input[..consumed]`; may be empty.
    pub data: Range<usize>,
    /// The body is complete; what follows belongs to the next message.
    pub done: bool,
}

/// Decodes one body from pieces of any size; allocates nothing.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    left: u64,
}

impl BodyDecoder {
    /// Starts a body. 413 at once when a declared length is over the cap.
    /// Takes a [`crate::BodyFraming`] or a [`ResponseFraming`].
    pub fn new(framing: impl Into<ResponseFraming>, limits: &BodyLimits) -> Result<Self, Reject> {
        let _ = (framing.into(), limits);
        unimplemented!("new")
    }

    /// Takes what arrived. Call again with the rest until it consumes nothing
    /// or says `done`.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Reject> {
        let _ = (self.left, input);
        unimplemented!("decode")
    }

    /// Whether the body is complete (at once when there is none).
    pub fn is_done(&self) -> bool {
        unimplemented!("is_done")
    }

    /// The peer closed its side: fine until-close, else a truncated body.
    pub fn finish(&mut self) -> Result<(), Reject> {
        unimplemented!("finish")
    }
}

impl From<crate::BodyFraming> for ResponseFraming {
    fn from(framing: crate::BodyFraming) -> ResponseFraming {
        match framing {
            crate::BodyFraming::None => ResponseFraming::None,
            crate::BodyFraming::Length(bytes) => ResponseFraming::Length(bytes),
            crate::BodyFraming::Chunked => ResponseFraming::Chunked,
        }
    }
}
