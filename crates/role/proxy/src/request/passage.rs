//! A response on its way to the client: the head, rebuilt; the body, framed anew. The same for all
//! protocols of members.

use skep_engine::ReplySink;
use skep_http::forward::{ForwardReply, write_last_chunk, write_response};
use skep_http::{Known, Method, ResponseFraming, ResponseHead, encode};

use crate::members::settings::GroupSettings;
use crate::request::in_flight::InFlight;

/// The request that the response answers.
pub(super) struct Asked<'b> {
    pub(super) method: Method<'b>,
    /// The protocols that the client may be switched to.
    pub(super) upgrade: Option<&'b [u8]>,
    /// Whether the client takes trailers.
    pub(super) trailers: bool,
    /// What becomes of the fields of its response.
    pub(super) rules: &'b ReplyRules<'b>,
    /// Whether the response gives the client a session with the member.
    pub(super) begins_session: bool,
}

/// What holds for responses beside what the group says.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyRules<'a> {
    /// In place of those of the group.
    pub times: OwnTimes,
    /// Fields that are left out; names in any case.
    pub without: &'a [String],
    /// Further fields, each `Name: value\r\n`.
    pub extra: &'a [u8],
}

/// Times in place of those of the group, in milliseconds; `None`: the group's.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnTimes {
    pub response_timeout_ms: Option<u64>,
    pub stall_timeout_ms: Option<u64>,
}

/// How long a member may be silent, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// From the end of the request to the head of its response.
    pub(super) before_head_ms: u64,
    /// Inside a body, of the request or the response.
    pub(super) inside_body_ms: u64,
    /// Between two events, or in a tunnel.
    pub(super) between_events_ms: u64,
}

impl Silence {
    pub(super) fn new(settings: &GroupSettings, own: OwnTimes) -> Self {
        Self {
            before_head_ms: own.response_timeout_ms.unwrap_or(settings.response_timeout_ms),
            inside_body_ms: own.stall_timeout_ms.unwrap_or(settings.stall_timeout_ms),
            between_events_ms: settings.tunnel_idle_ms,
        }
    }
}

/// What of a response was passed to the client.
#[derive(Default)]
pub(super) struct Passage {
    /// Scratch for the line before a chunk.
    chunk_line: Vec<u8>,
    /// How the body is delimited for the client, since the head was passed on.
    framing: Option<ResponseFraming>,
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

    /// Passes the head of a final response on.
    pub(super) fn begin(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        reply: &mut ReplySink<'_>,
        in_flight: &mut InFlight<'_>,
    ) {
        let target = in_flight.target();
        let session_lines = if asked.begins_session { target.session_lines() } else { b"" };
        let framing = write_head(head, asked, reply, [target.name_line(), session_lines]);
        self.is_event_stream = head.fields.known(Known::ContentType).is_some_and(is_event_stream);
        if framing == ResponseFraming::UntilClose {
            reply.end_by_close();
        }
        if let ResponseFraming::Length(bytes) = head.framing {
            in_flight.owe(bytes);
        }
        self.framing = Some(framing);
    }

    /// Passes bytes of the body on.
    pub(super) fn body(
        &mut self,
        data: &[u8],
        reply: &mut ReplySink<'_>,
        in_flight: &mut InFlight<'_>,
    ) {
        if data.is_empty() {
            return;
        }
        in_flight.receive(data.len() as u64);
        let mut out = reply.write();
        if self.is_chunked() {
            self.chunk_line.clear();
            encode::write_chunk_head(&mut self.chunk_line, data.len());
            out.raw(&self.chunk_line);
            out.body_copy(data);
            out.raw(encode::CHUNK_END);
        } else {
            out.body_copy(data);
        }
    }

    /// Passes the end on; `trailers` are whole lines.
    pub(super) fn finish(&mut self, trailers: &[u8], reply: &mut ReplySink<'_>) {
        if self.is_chunked() {
            self.chunk_line.clear();
            write_last_chunk(&mut self.chunk_line, trailers);
            reply.write().raw(&self.chunk_line);
        }
    }
}

/// Appends the rebuilt head and returns how the body is framed for the client.
pub(super) fn write_head(
    head: &ResponseHead<'_, '_>,
    asked: &Asked<'_>,
    reply: &mut ReplySink<'_>,
    [name_line, session_lines]: [&[u8]; 2],
) -> ResponseFraming {
    const NAME_FIELD: &str = "x-skep-node";
    // The member may have said it itself.
    let is_named = !name_line.is_empty() && head.fields.get(NAME_FIELD).is_some();
    let name_line = if is_named { b"" } else { name_line };
    let version = reply.version();
    let date = reply.write().context().date();
    let (trailers, ReplyRules { without, extra, .. }) = (asked.trailers, *asked.rules);
    let mut framing = ResponseFraming::None;
    reply.write().foreign_head(head.status, |out, keep_alive| {
        let extra = [name_line, session_lines, extra];
        let extra = &extra;
        let how = ForwardReply { version, keep_alive, date: &date, trailers, without, extra };
        framing = write_response(out, head, &how);
    });
    framing
}

/// Whether `content_type` is that of server-sent events.
fn is_event_stream(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
