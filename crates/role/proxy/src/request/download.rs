//! From a member with HTTP: interim responses, the head, and the body, decoded.
//!
//! Bytes are read into the worker's buffer and copied once, into the client's output. The member is
//! read only when the client has taken all of that output, so for a slow client at most one read is
//! held.
//!
//! Invariant: only bytes that passed the parser and the body's decoder reach the client.

use skep_http::limits::{INTERIM_RESPONSES_MAX, NODE_RESPONSE_HEAD, RESPONSE_BODY};
use skep_http::{BodyDecoder, FieldSlots, HeadScanner, ResponseHead, parse_response};

use crate::members::cause::Cause;
use crate::request::asked::Asked;
use crate::request::in_flight::InFlight;
use crate::request::passage::Passage;
use crate::request::recipient::Recipient;
use crate::request::times::Silence;
use crate::request::unread_response::{AfterResponse, UnreadResponse};

/// A response being passed to the client.
pub(super) struct Download {
    stage: Stage,
    scanner: HeadScanner,
    /// The beginning of an incomplete head.
    carry: Vec<u8>,
    interim_responses: usize,
    /// The member keeps the connection open, and no byte followed the response.
    is_reusable: bool,
    passage: Passage,
}

enum Stage {
    Head,
    Body(BodyDecoder),
    Complete,
    /// The member switched protocols; these bytes followed its head.
    Switched(Vec<u8>),
}

impl Download {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Head,
            scanner: HeadScanner::response(),
            carry: Vec::new(),
            interim_responses: 0,
            is_reusable: false,
            passage: Passage::default(),
        }
    }

    /// Whether the response was read to its end.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete | Stage::Switched(_))
    }

    /// Whether its connection may be used for another request.
    pub(super) fn is_reusable(&self) -> bool {
        self.is_reusable && matches!(self.stage, Stage::Complete)
    }

    /// Time without a byte after which the member counts as failed, in milliseconds.
    pub(super) fn timeout_ms(&self, silence: &Silence) -> u64 {
        match self.stage {
            Stage::Head => silence.before_head_ms,
            _ => self.passage.silence_ms_max(silence),
        }
    }

    /// Adjusts a fault of the connection to the progress of the response.
    pub(super) fn cause(&self, cause: Cause) -> Cause {
        match self.stage {
            Stage::Head => cause,
            _ => cause.inside_reply(),
        }
    }

    /// How a connection that gets no further request now is treated.
    pub(super) fn into_after_response(self) -> AfterResponse {
        match self.stage {
            Stage::Switched(behind) => AfterResponse::Switched(behind),
            Stage::Body(decoder) => UnreadResponse::of_http(decoder, self.is_reusable)
                .map_or(AfterResponse::Close, AfterResponse::Unread),
            Stage::Head | Stage::Complete => AfterResponse::Close,
        }
    }

    /// Handles `bytes`, at least one, from the member.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        if let Stage::Body(_) = self.stage {
            return self.body(bytes, reply, in_flight);
        }
        if self.carry.is_empty() {
            let consumed = self.heads(bytes, asked, reply, in_flight)?;
            self.carry.extend_from_slice(&bytes[consumed..]);
        } else {
            let mut carry = std::mem::take(&mut self.carry);
            carry.extend_from_slice(bytes);
            let consumed = self.heads(&carry, asked, reply, in_flight)?;
            carry.drain(..consumed);
            self.carry = carry;
        }
        Ok(())
    }

    /// See [`Leg::pause`](super::attempt::Leg::pause).
    pub(super) fn pause(&mut self, reply: &mut Recipient<'_, '_>) -> Result<bool, Cause> {
        self.passage.pause(reply)
    }

    /// Handles the end of the member's side.
    pub(super) fn end(&mut self, reply: &mut Recipient<'_, '_>) -> Result<(), Cause> {
        self.is_reusable = false;
        match &mut self.stage {
            Stage::Head => Err(Cause::Broken),
            Stage::Body(decoder) => {
                decoder.finish().map_err(|_| Cause::CutShort)?;
                self.finish(&[], reply)
            }
            Stage::Complete | Stage::Switched(_) => Ok(()),
        }
    }

    /// Parses heads up to the final one, and the bytes after it. Returns the number of bytes
    /// consumed; the rest is the beginning of a head.
    fn heads(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<usize, Cause> {
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            let Some(len) = self.scanner.scan(rest, &NODE_RESPONSE_HEAD)? else {
                return Ok(consumed);
            };
            self.scanner = HeadScanner::response();
            let (head_bytes, behind) = rest.split_at(len);
            let mut slots = FieldSlots::new();
            let head = parse_response(&mut slots, head_bytes, asked.method, &NODE_RESPONSE_HEAD)?;
            match head.status {
                101 => {
                    self.switch(&head, asked, reply)?;
                    self.stage = Stage::Switched(behind.to_vec());
                    return Ok(bytes.len());
                }
                100..200 => {
                    self.interim_responses += 1;
                    if self.interim_responses > INTERIM_RESPONSES_MAX {
                        return Err(Cause::Malformed("interim-responses"));
                    }
                    // The engine sends 100 itself, and a client of HTTP/1.0 must not be sent any
                    // (RFC 9110 15.2).
                    if head.status != 100 {
                        reply.interim(&head, asked);
                    }
                    consumed += len;
                }
                _ => {
                    self.begin(&head, asked, reply, in_flight)?;
                    self.body(behind, reply, in_flight)?;
                    return Ok(bytes.len());
                }
            }
        }
    }

    /// Passes the head of a final response on.
    fn begin(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        let mut decoder = BodyDecoder::new(head.framing, &RESPONSE_BODY)?;
        self.passage.begin(head, asked, reply, in_flight)?;
        if asked.trailers && self.passage.is_chunked() {
            decoder.keep_trailers();
        }
        self.is_reusable = head.keep_alive;
        self.stage = Stage::Body(decoder);
        Ok(())
    }

    /// Passes the head of a 101 on, if the client offered that upgrade (RFC 9110 7.8: a server
    /// switches only to an offered protocol).
    fn switch(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
    ) -> Result<(), Cause> {
        let unasked = Cause::Malformed("unasked-switch");
        let (offered, chosen) = asked.upgrade.zip(head.upgrade).ok_or(unasked)?;
        let mut offers = offered.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        if !offers.any(|offer| offer.eq_ignore_ascii_case(chosen)) {
            return Err(unasked);
        }
        reply.switch(head, asked);
        Ok(())
    }

    fn body(
        &mut self,
        bytes: &[u8],
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        let Stage::Body(decoder) = &mut self.stage else { return Ok(()) };
        let mut at = 0;
        while at < bytes.len() && !decoder.is_done() {
            let decoded = decoder.decode(&bytes[at..])?;
            let data = &bytes[at..][decoded.data];
            at += decoded.consumed;
            self.passage.body(data, reply, in_flight)?;
        }
        if decoder.is_done() {
            // Bytes after a response belong to no request: the next client would receive them (RFC
            // 9112 9.2).
            self.is_reusable &= at == bytes.len();
            let trailers = decoder.take_trailers();
            self.finish(&trailers, reply)?;
        }
        Ok(())
    }

    fn finish(&mut self, trailers: &[u8], reply: &mut Recipient<'_, '_>) -> Result<(), Cause> {
        self.passage.finish(trailers, reply)?;
        self.stage = Stage::Complete;
        Ok(())
    }
}
