//! The part of a response that its client has not taken: read from the member as fast as it sends, so that
//! its place is free for another request before a slow client has all.
//!
//! ```text
//!   member -- client takes all --> output -> client
//!   member -- client is behind --> memory, then spool -> output -> client
//! ```
//! What a client takes at once never waits here. Nor do events, or responses whose application says
//! `X-Accel-Buffering: no` (nginx's field): for these the member waits for the client.

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

/// The field by which an application says whether its response is read ahead.
pub const BUFFERING_FIELD: &str = "x-accel-buffering";

/// The body of a response behind its head, on the way to the client.
#[derive(Default)]
pub(super) struct ClientBody {
    /// The client gets it in chunks.
    pub(super) is_chunked: bool,
    /// Where it may be read ahead to.
    source: Option<(Arc<BodyBuffers>, u64)>,
    /// Since the client was first behind.
    ahead: Option<Box<BodyBuffer>>,
    /// Bytes wait: others must not pass them.
    is_behind: bool,
    /// The member has sent all; these are the trailers.
    end: Option<Vec<u8>>,
    /// Bytes that were read ahead.
    bytes: u64,
    /// Scratch for the line before a chunk.
    chunk_line: Vec<u8>,
}

impl ClientBody {
    /// The response of `head` is read ahead, if everybody agrees; `is_events`: it never is.
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

    /// Whether there is room for one more read while the client is behind; what comes waits for it.
    pub(super) fn has_room(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let Some((buffers, memory_bytes_max)) = &self.source else { return false };
        let new = || Box::new(buffers.body(*memory_bytes_max));
        let ahead = self.ahead.get_or_insert_with(new);
        let has_room = matches!(ahead.poll_room(cx), Poll::Ready(Ok(())));
        self.is_behind |= has_room;
        has_room
    }

    /// Whether bytes wait.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// A number that grows with each byte that is read ahead.
    pub(super) fn progress(&self) -> u64 {
        self.bytes
    }

    /// Passes `data` on to the client, or keeps it behind what waits.
    pub(super) fn pass(&mut self, data: &[u8], reply: &mut Reply<'_>) {
        if let Some(ahead) = self.ahead.as_mut().filter(|_| self.is_behind) {
            ahead.push(data);
            self.bytes += data.len() as u64;
            return;
        }
        write_piece(data, self.is_chunked.then_some(&mut self.chunk_line), reply);
    }

    /// The member has sent all; `trailers` are whole lines.
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

    /// Moves the next bytes that wait to the client's output. Ready with whether there were any.
    ///
    /// # Errors
    /// The disk does not give them back.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut TaskContext<'_>,
        reply: &mut Reply<'_>,
    ) -> Poll<Result<bool, ExchangeError>> {
        let Some(ahead) = self.ahead.as_mut().filter(|_| self.is_behind) else {
            return Poll::Ready(Ok(false));
        };
        // Not kept: a client that stands still would have it for nothing.
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

    /// Leaves scarce memory while the client takes nothing.
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

/// Appends bytes of a body; as a chunk if there is a `line` to write its length to.
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
