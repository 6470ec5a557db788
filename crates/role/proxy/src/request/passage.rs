//! A response on its way to the client: the head, rebuilt; the body, framed anew. The same for all
//! protocols of members.

use skep_http::forward::write_last_chunk;
use skep_http::limits::NODE_RESPONSE_HEAD;
use skep_http::{FieldSlots, Known, ResponseFraming, ResponseHead, encode, parse_response};

use crate::members::cause::Cause;
use crate::request::asked::Asked;
use crate::request::in_flight::InFlight;
use crate::request::recipient::{Recipient, TapBody, Tapped};
use crate::request::times::Silence;

/// What of a response was passed to the client.
#[derive(Default)]
pub(super) struct Passage {
    /// Scratch for the line before a chunk.
    chunk_line: Vec<u8>,
    /// How the body is delimited for the client, since the head was passed on.
    framing: Option<ResponseFraming>,
    /// The head of a response that the tap has, and may give back.
    held: Option<Vec<u8>>,
    /// It may be silent for as long as a tunnel: events come when there are some.
    is_event_stream: bool,
}

impl Passage {
    /// Whether the client gets the body in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.framing == Some(ResponseFraming::Chunked)
    }

    /// Whether the head was passed on and is all that the client gets: no byte of a body follows.
    pub(super) fn is_only_head(&self) -> bool {
        self.framing == Some(ResponseFraming::None)
    }

    /// Time without a byte of the body that is a fault of the member, in milliseconds.
    pub(super) fn silence_ms_max(&self, silence: &Silence) -> u64 {
        match self.is_event_stream {
            true => silence.between_events_ms,
            false => silence.inside_body_ms,
        }
    }

    /// Passes the head of a final response on; `bytes` are the head as it came.
    pub(super) fn begin(
        &mut self,
        (head, bytes): (&ResponseHead<'_, '_>, &[u8]),
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) {
        let lines = match reply.tapped(head) {
            Tapped::Pass(lines) => lines,
            // What is of known length is not given back.
            Tapped::Take if is_of_unknown_length(head) => {
                self.held = Some(bytes.to_vec());
                Vec::new()
            }
            Tapped::Take | Tapped::Stop => Vec::new(),
        };
        let content_type = head.fields.known(Known::ContentType);
        self.is_event_stream = !reply.is_taken() && content_type.is_some_and(is_event_stream);
        if let ResponseFraming::Length(bytes) = head.framing {
            in_flight.owe(bytes);
        }
        self.framing = Some(match reply.is_taken() {
            true => {
                if asked.begins_session {
                    reply.begin_session(in_flight.target().session_lines());
                }
                head.framing
            }
            false => pass_head(head, asked, &lines, reply, in_flight),
        });
    }

    /// Passes bytes of the body on.
    pub(super) fn body(
        &mut self,
        data: &[u8],
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        if data.is_empty() {
            return Ok(());
        }
        in_flight.receive(data.len() as u64);
        if !reply.is_taken() {
            self.pass(data, reply);
            return Ok(());
        }
        if let TapBody::GiveBack { body, lines } = reply.take(data)
            && let Some(bytes) = self.held.take()
        {
            let mut slots = FieldSlots::new();
            let head = parse_response(&mut slots, &bytes, asked.method, &NODE_RESPONSE_HEAD)?;
            self.framing = Some(pass_head(&head, asked, &lines, reply, in_flight));
            self.pass(&body, reply);
        }
        Ok(())
    }

    fn pass(&mut self, data: &[u8], reply: &mut Recipient<'_, '_>) {
        let (is_chunked, line) = (self.is_chunked(), &mut self.chunk_line);
        reply.pass(|out| {
            if !is_chunked {
                return out.body_copy(data);
            }
            line.clear();
            encode::write_chunk_head(line, data.len());
            out.raw(line);
            out.body_copy(data);
            out.raw(encode::CHUNK_END);
        });
    }

    /// Passes the end on; `trailers` are whole lines.
    pub(super) fn finish(&mut self, trailers: &[u8], reply: &mut Recipient<'_, '_>) {
        if reply.is_taken() {
            return reply.taken();
        }
        if self.is_chunked() {
            self.chunk_line.clear();
            write_last_chunk(&mut self.chunk_line, trailers);
            reply.pass(|out| out.raw(&self.chunk_line));
        }
    }
}

/// Passes the head of a final response to the client; says how the body is framed there.
fn pass_head(
    head: &ResponseHead<'_, '_>,
    asked: &Asked<'_>,
    lines: &[u8],
    reply: &mut Recipient<'_, '_>,
    in_flight: &InFlight,
) -> ResponseFraming {
    let target = in_flight.target();
    let session_lines = if asked.begins_session { target.session_lines() } else { b"" };
    reply.pass_head(head, asked, [target.name_line(), session_lines, lines])
}

fn is_of_unknown_length(head: &ResponseHead<'_, '_>) -> bool {
    matches!(head.framing, ResponseFraming::Chunked | ResponseFraming::UntilClose)
}

/// Whether `content_type` is that of server-sent events.
fn is_event_stream(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
