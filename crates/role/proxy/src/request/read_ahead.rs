//! The part of a response that its client has not taken: read from the member as fast as it sends, so that
//! its slot is free for another request before a slow client has everything.
//!
//! ```text
//!   member -- client takes all --> output -> client
//!   member -- client is behind --> memory, then spool -> output -> client
//! ```
//! Bytes that a client takes at once never wait here. Neither do events, or responses with the
//! application's `X-Accel-Buffering: no` (nginx's field): for these the member waits for the client.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use skep_engine::{ExchangeError, Reply};
use skep_http::forward::write_last_chunk;
use skep_http::{Known, ResponseHead, encode};
use skep_spool::limits::READ_BYTES;
use skep_spool::{BodyBuffer, BodyBuffers};

use crate::members::settings::Buffering;
use crate::request::asked::ReplyRules;
use crate::request::collected_body::SPOOL_FAILED;

/// The field by which an application determines whether its response is read ahead.
pub const BUFFERING_FIELD: &str = "x-accel-buffering";

/// The body of a response after its head, on the way to the client.
#[derive(Default)]
pub(super) struct ClientBody {
    /// Whether the client is sent chunks.
    pub(super) is_chunked: bool,
    /// The buffers into which it may be read ahead.
    source: Option<(Arc<BodyBuffers>, u64)>,
    /// Created when the client is behind for the first time.
    ahead: Option<Box<BodyBuffer>>,
    /// Bytes are waiting: later ones must not overtake them.
    is_behind: bool,
    /// The trailers, once the member has sent everything.
    end: Option<Vec<u8>>,
    /// Number of bytes read ahead.
    bytes: u64,
    /// Scratch buffer for the line before a chunk.
    chunk_line: Vec<u8>,
}

impl ClientBody {
    /// Allows to read the response of `head` ahead, if the group, the route and the application do;
    /// `is_events`: never.
    pub(super) fn allow(
        &mut self,
        head: &ResponseHead<'_, '_>,
        buffering: Option<&Buffering>,
        rules: &ReplyRules<'_>,
        is_events: bool,
    ) {
        let Some(Buffering { buffers, memory_bytes_max, responses, .. }) = buffering else {
            return;
        };
        let said = head.fields.get(BUFFERING_FIELD).map(<[u8]>::trim_ascii);
        let is_wanted = match said {
            Some(no) if no.eq_ignore_ascii_case(b"no") => false,
            Some(yes) if yes.eq_ignore_ascii_case(b"yes") => true,
            _ => *responses,
        };
        if is_wanted && !rules.streams_response && !is_events {
            self.source = Some((Arc::clone(buffers), *memory_bytes_max));
        }
    }

    /// Whether there is room for one more read while the client is behind.
    pub(super) fn has_room(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let Some((buffers, memory_bytes_max)) = &self.source else { return false };
        let new = || Box::new(buffers.body(*memory_bytes_max));
        let ahead = self.ahead.get_or_insert_with(new);
        let has_room = matches!(ahead.poll_room(cx), Poll::Ready(Ok(())));
        self.is_behind |= has_room;
        has_room
    }

    /// Whether bytes are waiting.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// A number that grows with each byte that is read ahead.
    pub(super) fn progress(&self) -> u64 {
        self.bytes
    }

    /// Passes `data` on to the client, or appends it to the waiting bytes.
    pub(super) fn pass(&mut self, data: &[u8], reply: &mut Reply<'_>) {
        if let Some(ahead) = self.ahead.as_mut().filter(|_| self.is_behind) {
            ahead.push(data);
            self.bytes += data.len() as u64;
            return;
        }
        write_piece(data, self.is_chunked.then_some(&mut self.chunk_line), reply);
    }

    /// Records that the member has sent everything; `trailers` are complete field lines.
    pub(super) fn finish(&mut self, trailers: &[u8], reply: &mut Reply<'_>) {
        if !self.is_chunked {
            return;
        }
        if self.is_behind {
            self.end = Some(trailers.to_vec());
        } else {
            self.write_end(trailers, reply);
        }
    }

    /// Moves the next waiting bytes to the client's output. Returns whether there were any.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut TaskContext<'_>,
        reply: &mut Reply<'_>,
    ) -> Poll<Result<bool, ExchangeError>> {
        let Some(ahead) = self.ahead.as_mut().filter(|_| self.is_behind) else {
            return Poll::Ready(Ok(false));
        };
        // Not kept: it would be wasted on a client that takes nothing.
        let mut piece = Vec::new();
        match ahead.poll_take(cx, &mut piece, READ_BYTES as usize) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(Err(ExchangeError::ReplyCutShort(SPOOL_FAILED))),
            Poll::Ready(Ok(0)) => {
                self.is_behind = false;
                let end = self.end.take();
                let has_end = end.is_some();
                if let Some(trailers) = end {
                    self.write_end(&trailers, reply);
                }
                Poll::Ready(Ok(has_end))
            }
            Poll::Ready(Ok(_)) => {
                let line = self.is_chunked.then_some(&mut self.chunk_line);
                write_piece(&piece, line, reply);
                Poll::Ready(Ok(true))
            }
        }
    }

    /// Releases scarce memory while the client takes nothing.
    pub(super) fn settle(&mut self, cx: &mut TaskContext<'_>) {
        if let Some(ahead) = self.ahead.as_mut().filter(|_| self.is_behind) {
            ahead.settle(cx);
        }
    }

    fn write_end(&mut self, trailers: &[u8], reply: &mut Reply<'_>) {
        self.chunk_line.clear();
        write_last_chunk(&mut self.chunk_line, trailers);
        reply.raw(&self.chunk_line);
    }
}

/// Appends bytes of a body; as a chunk if there is a `line` buffer for its head.
fn write_piece(data: &[u8], line: Option<&mut Vec<u8>>, reply: &mut Reply<'_>) {
    let Some(line) = line else { return reply.body_copy(data) };
    line.clear();
    encode::write_chunk_head(line, data.len());
    reply.raw(line);
    reply.body_copy(data);
    reply.raw(encode::CHUNK_END);
}

/// Whether the response is one of server-sent events.
pub(super) fn is_event_stream(head: &ResponseHead<'_, '_>) -> bool {
    let content_type = head.fields.known(Known::ContentType).unwrap_or_default();
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
