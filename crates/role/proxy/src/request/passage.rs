//! Passes a response to the client: the head, rebuilt, and the body, framed again. The same for all protocols
//! of members.

use skep_http::limits::NODE_RESPONSE_HEAD;
use skep_http::{FieldSlots, Method, ResponseFraming, ResponseHead, parse_response};

use crate::members::cause::Cause;
use crate::request::asked::Asked;
use crate::request::coding::{BodyCoder, CoderFailed};
use crate::request::in_flight::InFlight;
use crate::request::read_ahead::is_event_stream;
use crate::request::recipient::{Recipient, Tapped};
use crate::request::times::Silence;

/// The part of a response that was passed to the client.
#[derive(Default)]
pub(super) struct Passage {
    /// How the body is delimited for the client, once the head was passed on.
    framing: Option<ResponseFraming>,
    /// The encoder of the body for the client, and its last output.
    coder: Option<Box<dyn BodyCoder>>,
    encoded: Vec<u8>,
    /// The encoder holds bytes that were not output yet.
    is_coder_behind: bool,
    /// It may be silent for as long as a tunnel: events are sent when there are any.
    is_event_stream: bool,
}

impl Passage {
    /// Whether the body is sent to the client in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.framing == Some(ResponseFraming::Chunked)
    }

    /// Whether the head was passed on and is all that is sent: no byte of a body follows.
    pub(super) fn is_only_head(&self) -> bool {
        self.framing == Some(ResponseFraming::None)
    }

    /// Time without a byte of the body after which the member counts as failed, in milliseconds.
    pub(super) fn silence_ms_max(&self, silence: &Silence) -> u64 {
        match self.is_event_stream {
            true => silence.between_events_ms,
            false => silence.inside_body_ms,
        }
    }

    /// Passes the head of a final response on, with the member's locations rewritten to those that clients
    /// use.
    pub(super) fn begin(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        match asked.rules.back.and_then(|back| back.apply(head, asked.host)) {
            Some(bytes) => {
                let mut slots = FieldSlots::new();
                let head = parse_response(&mut slots, &bytes, asked.method, &NODE_RESPONSE_HEAD)?;
                self.begin_with(&head, asked, reply, in_flight);
            }
            None => self.begin_with(head, asked, reply, in_flight),
        }
        Ok(())
    }

    fn begin_with(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) {
        let lines = match reply.tapped(head) {
            Tapped::Pass(lines) | Tapped::Copy(lines) => lines,
            Tapped::Take | Tapped::Stop => Vec::new(),
        };
        let is_event_stream = is_event_stream(head);
        self.is_event_stream = is_event_stream && !reply.is_taken();
        let buffering = in_flight.target().settings().buffering.as_ref();
        reply.client_body().allow(head, buffering, asked.rules, is_event_stream);
        in_flight.head_arrived(head.status, asked.has_body);
        in_flight.note_head(head);
        if let ResponseFraming::Length(bytes) = head.framing {
            in_flight.owe(bytes);
            // The body of another response is not the object, or not all of it.
            if head.status == 200 && asked.method == Method::Get {
                in_flight.object_is(bytes);
            }
        }
        if reply.is_taken() {
            if asked.begins_session {
                reply.begin_session(in_flight.target().session_lines(asked.is_secure));
            }
            self.framing = Some(head.framing);
        } else {
            self.pass_head(head, asked, &lines, reply, in_flight);
        }
    }

    /// Passes bytes of the body on.
    pub(super) fn body(
        &mut self,
        data: &[u8],
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        if data.is_empty() {
            return Ok(());
        }
        in_flight.receive(data.len() as u64);
        reply.tap_body(data);
        if reply.is_taken() { Ok(()) } else { self.pass(data, reply) }
    }

    /// Called when the member sends nothing for now: passes on bytes that the encoder holds. Returns whether
    /// there were any.
    pub(super) fn pause(&mut self, reply: &mut Recipient<'_, '_>) -> Result<bool, Cause> {
        match std::mem::take(&mut self.is_coder_behind) {
            true => self.encode(&[], true, reply).map(|()| true),
            false => Ok(false),
        }
    }

    /// Passes the end on; `trailers` are complete field lines.
    pub(super) fn finish(
        &mut self,
        trailers: &[u8],
        reply: &mut Recipient<'_, '_>,
    ) -> Result<(), Cause> {
        reply.end_tap();
        if reply.is_taken() {
            return Ok(());
        }
        if let Some(coder) = self.coder.take() {
            let mut encoded = Vec::new();
            coder.finish(&mut encoded).map_err(|CoderFailed| Cause::CutShort)?;
            pass_bytes(&encoded, reply);
        }
        reply.finish_body(trailers);
        Ok(())
    }

    /// Passes the head of a final response to the client.
    fn pass_head(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        lines: &[u8],
        reply: &mut Recipient<'_, '_>,
        in_flight: &InFlight,
    ) {
        let target = in_flight.target();
        let session_lines =
            if asked.begins_session { target.session_lines(asked.is_secure) } else { b"" };
        let lines = [target.name_line(), session_lines, lines];
        let coding = asked.rules.coding.filter(|_| reply.is_codable());
        let coded = coding.and_then(|coding| coding.of(head));
        let framing = reply.pass_head(head, asked, lines, coded.as_ref());
        reply.client_body().is_chunked = framing == ResponseFraming::Chunked;
        self.framing = Some(framing);
        self.coder = coded.and_then(|coded| coded.body);
    }

    fn pass(&mut self, data: &[u8], reply: &mut Recipient<'_, '_>) -> Result<(), Cause> {
        if self.coder.is_none() {
            reply.pass_body(data);
            return Ok(());
        }
        reply.count_coded(data.len());
        self.is_coder_behind = true;
        self.encode(data, false, reply)
    }

    fn encode(
        &mut self,
        data: &[u8],
        flushes: bool,
        reply: &mut Recipient<'_, '_>,
    ) -> Result<(), Cause> {
        let Some(coder) = &mut self.coder else { return Ok(()) };
        self.encoded.clear();
        let pushed = coder.push(data, flushes, &mut self.encoded);
        pushed.map_err(|CoderFailed| Cause::CutShort)?;
        pass_bytes(&self.encoded, reply);
        Ok(())
    }
}

/// Passes encoded bytes on, if there are any: an empty chunk would end the body.
fn pass_bytes(data: &[u8], reply: &mut Recipient<'_, '_>) {
    if !data.is_empty() {
        reply.pass_body(data);
    }
}
