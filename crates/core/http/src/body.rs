//! Reads bodies: by length, chunked, until close (RFC 9112 6 and 7.1).
//!
//! Invariants:
//! - The result depends only on the bytes, not on how they arrived: the chunked decoder is a
//!   byte-by-byte state machine that keeps no copy of them.
//! - The payload never exceeds the cap; a declared length above it is refused before any byte is
//!   read.
//! - Trailers are checked and bounded, and dropped unless the caller asks for them; none is ever
//!   merged into a head (RFC 9110 6.5.1).
//! - After an error the decoder stays in the error state.

use std::ops::Range;

use crate::chunked::{Chunked, Step};
use crate::{BodyFraming, BodyLimits, Reject, ResponseFraming};

/// The result of a call of [`BodyDecoder::decode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that were consumed.
    pub consumed: usize,
    /// Payload, inside `input[..consumed]`; may be empty.
    pub data: Range<usize>,
    /// The body is complete; the rest belongs to the next message.
    pub done: bool,
}

/// Decodes one body from pieces of any size; allocates nothing.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: DecoderState,
    /// Trailers of a complete chunked body.
    trailers: Vec<u8>,
}

#[derive(Clone, Debug)]
enum DecoderState {
    Done,
    /// Bytes still to come; never 0.
    Length(u64),
    Chunked(Chunked),
    /// Bytes left until the cap.
    UntilClose(u64),
    Failed(Reject),
}

impl BodyDecoder {
    /// Starts a body. Takes a [`BodyFraming`] or a [`ResponseFraming`].
    ///
    /// # Errors
    /// [`Reject::BODY_TOO_LARGE`] when a declared length is over the cap.
    pub fn new(framing: impl Into<ResponseFraming>, limits: &BodyLimits) -> Result<Self, Reject> {
        let state = match framing.into() {
            ResponseFraming::None | ResponseFraming::Length(0) => DecoderState::Done,
            ResponseFraming::Length(bytes) if bytes > limits.body_bytes_max => {
                return Err(Reject::BODY_TOO_LARGE);
            }
            ResponseFraming::Length(bytes) => DecoderState::Length(bytes),
            ResponseFraming::Chunked => DecoderState::Chunked(Chunked::new(limits)),
            ResponseFraming::UntilClose => DecoderState::UntilClose(limits.body_bytes_max),
        };
        Ok(BodyDecoder { state, trailers: Vec::new() })
    }

    /// Decodes received bytes. Call again with those that it did not consume, until it consumes
    /// none or is `done`: each call yields at most one piece of payload.
    ///
    /// # Errors
    /// The reason why the body is refused; close the connection.
    #[inline]
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Reject> {
        match &mut self.state {
            DecoderState::Done => Ok(Decoded { consumed: 0, data: 0..0, done: true }),
            DecoderState::Length(left) => {
                let take = to_usize(*left).min(input.len());
                *left -= take as u64;
                let done = *left == 0;
                if done {
                    self.state = DecoderState::Done;
                }
                Ok(Decoded { consumed: take, data: 0..take, done })
            }
            DecoderState::UntilClose(room) if input.len() as u64 > *room => {
                self.fail(Reject::BODY_TOO_LARGE)
            }
            DecoderState::UntilClose(room) => {
                *room -= input.len() as u64;
                Ok(Decoded { consumed: input.len(), data: 0..input.len(), done: false })
            }
            DecoderState::Chunked(chunked) => match decode_chunked(chunked, input) {
                Ok(decoded) => {
                    if decoded.done {
                        self.trailers = chunked.take_trailers();
                        self.state = DecoderState::Done;
                    }
                    Ok(decoded)
                }
                Err(reject) => self.fail(reject),
            },
            DecoderState::Failed(reject) => Err(*reject),
        }
    }

    /// Keeps trailers for [`BodyDecoder::take_trailers`].
    pub fn keep_trailers(&mut self) {
        if let DecoderState::Chunked(chunked) = &mut self.state {
            chunked.keep_trailers();
        }
    }

    /// The trailers of a complete body, as whole lines; empty unless [`BodyDecoder::keep_trailers`]
    /// was called and there are some.
    pub fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trailers)
    }

    /// Whether the body is complete; true from the start if there is none.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, DecoderState::Done)
    }

    /// Payload still to come, in bytes, if the framing states it.
    pub fn left_bytes(&self) -> Option<u64> {
        match self.state {
            DecoderState::Done => Some(0),
            DecoderState::Length(left) => Some(left),
            _ => None,
        }
    }

    /// The peer has closed its side.
    ///
    /// # Errors
    /// [`Reject::BODY_TRUNCATED`] unless the body may end here.
    pub fn finish(&mut self) -> Result<(), Reject> {
        match self.state {
            DecoderState::Done | DecoderState::UntilClose(_) => {
                self.state = DecoderState::Done;
                Ok(())
            }
            DecoderState::Failed(reject) => Err(reject),
            DecoderState::Length(_) | DecoderState::Chunked(_) => {
                self.state = DecoderState::Failed(Reject::BODY_TRUNCATED);
                Err(Reject::BODY_TRUNCATED)
            }
        }
    }

    #[cold]
    fn fail(&mut self, reject: Reject) -> Result<Decoded, Reject> {
        self.state = DecoderState::Failed(reject);
        Err(reject)
    }
}

impl From<BodyFraming> for ResponseFraming {
    fn from(framing: BodyFraming) -> ResponseFraming {
        match framing {
            BodyFraming::None => ResponseFraming::None,
            BodyFraming::Length(bytes) => ResponseFraming::Length(bytes),
            BodyFraming::Chunked => ResponseFraming::Chunked,
        }
    }
}

/// One piece of payload, with the framing before and after it.
fn decode_chunked(chunked: &mut Chunked, input: &[u8]) -> Result<Decoded, Reject> {
    let mut data = 0..0;
    let mut at = 0;
    while at < input.len() {
        if let Some(left) = chunked.payload_left() {
            if !data.is_empty() {
                break;
            }
            let take = to_usize(left).min(input.len() - at);
            data = at..at + take;
            at += take;
            chunked.took(take as u64);
            continue;
        }
        let step = chunked.step(input[at])?;
        at += 1;
        if step == Step::BodyEnd {
            return Ok(Decoded { consumed: at, data, done: true });
        }
    }
    Ok(Decoded { consumed: at, data, done: false })
}

/// Saturating: callers take the minimum with a slice's length.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BodyLimits = BodyLimits {
        body_bytes_max: 4,
        chunk_line_bytes_max: 32,
        chunk_ext_bytes_max: 32,
        trailer_bytes_max: 32,
        trailer_fields_max: 2,
    };

    fn decoder(framing: ResponseFraming) -> BodyDecoder {
        match BodyDecoder::new(framing, &LIMITS) {
            Ok(decoder) => decoder,
            Err(reject) => panic!("{reject}"),
        }
    }

    #[test]
    fn caps_are_reached_and_not_passed() {
        let new = |framing| BodyDecoder::new(framing, &LIMITS).map(|_| ());
        assert_eq!(new(ResponseFraming::Length(4)), Ok(()));
        assert_eq!(new(ResponseFraming::Length(5)), Err(Reject::BODY_TOO_LARGE));
        let mut body = decoder(ResponseFraming::UntilClose);
        assert_eq!(body.decode(b"1234"), Ok(Decoded { consumed: 4, data: 0..4, done: false }));
        assert_eq!(body.decode(b"5"), Err(Reject::BODY_TOO_LARGE));
        assert_eq!(body.decode(b""), Err(Reject::BODY_TOO_LARGE), "an error stays");
        assert_eq!(body.finish(), Err(Reject::BODY_TOO_LARGE));
    }

    #[test]
    fn bodies_end_where_their_framing_says() {
        let mut none = decoder(ResponseFraming::None);
        assert!(none.is_done() && none.left_bytes() == Some(0));
        assert_eq!(none.decode(b"GET"), Ok(Decoded { consumed: 0, data: 0..0, done: true }));
        let mut length = decoder(ResponseFraming::Length(3));
        assert_eq!(length.decode(b"ab"), Ok(Decoded { consumed: 2, data: 0..2, done: false }));
        assert_eq!(length.left_bytes(), Some(1));
        assert_eq!(length.decode(b"cGET"), Ok(Decoded { consumed: 1, data: 0..1, done: true }));
        assert_eq!(length.finish(), Ok(()));
    }

    #[test]
    fn only_an_open_ended_body_may_end_with_the_connection() {
        let mut open = decoder(ResponseFraming::UntilClose);
        assert!(!open.is_done() && open.left_bytes().is_none());
        assert!(open.finish().is_ok() && open.is_done());
        for framing in [ResponseFraming::Length(1), ResponseFraming::Chunked] {
            let mut body = decoder(framing);
            assert_eq!(body.finish(), Err(Reject::BODY_TRUNCATED));
            assert_eq!(body.decode(b"x"), Err(Reject::BODY_TRUNCATED));
        }
    }

    #[test]
    fn one_call_yields_one_piece_and_the_framing_around_it() {
        let mut body = decoder(ResponseFraming::Chunked);
        let input = b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\nGET";
        assert_eq!(body.decode(input), Ok(Decoded { consumed: 9, data: 3..4, done: false }));
        let rest = &input[9..];
        assert_eq!(body.decode(rest), Ok(Decoded { consumed: 9, data: 0..2, done: true }));
    }

    #[test]
    fn trailers_are_kept_if_they_are_asked_for() {
        let input = b"1\r\na\r\n0\r\nX-A: 1\r\nB:\r\n\r\nGET";
        for keeps in [false, true] {
            let mut body = decoder(ResponseFraming::Chunked);
            if keeps {
                body.keep_trailers();
            }
            for byte in input.chunks(1) {
                assert!(body.is_done() || body.decode(byte).is_ok());
            }
            assert!(body.is_done());
            let expected: &[u8] = if keeps { b"X-A: 1\r\nB:\r\n" } else { b"" };
            assert_eq!((body.take_trailers(), body.take_trailers()), (expected.to_vec(), vec![]));
        }
    }
}
