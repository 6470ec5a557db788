//! From the client to the member: the rebuilt head, then the client's body, beginning with the part
//! collected earlier.
//!
//! Invariants: at most `UPLOAD_BYTES_WAITING` and one read are queued for the member; while the member does
//! not take them, the client is not read, and its rate is not measured. A request of which no byte was
//! given to the kernel can be sent to another member.

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use skep_engine::{ExchangeError, RequestBody};
use skep_http::forward::{Forward, write_last_chunk, write_request};
use skep_http::{BodyFraming, RequestHead, encode};
use skep_serve::{Conn, Output, Pace, Worker};

use crate::limits::UPLOAD_BYTES_WAITING;
use crate::request::collected_body::{CollectedBody, pause};

/// A request being sent to a member; used for all attempts.
pub(super) struct Upload {
    worker: Rc<Worker>,
    output: Output,
    body: CollectedBody,
    /// Scratch buffer for chunks, whose length precedes them.
    chunk: Vec<u8>,
    is_chunked: bool,
    /// Whether the whole of the client's body was written to `output`.
    is_body_read: bool,
    /// Whether the kernel has taken any bytes.
    is_begun: bool,
    is_over: bool,
}

impl Upload {
    /// The request `head`, with the collected part of its body.
    pub(super) fn new(
        worker: &Rc<Worker>,
        head: &RequestHead<'_, '_>,
        forward: &Forward<'_>,
        body: CollectedBody,
    ) -> Self {
        Self {
            worker: Rc::clone(worker),
            output: with_head(worker, head, forward),
            body,
            chunk: Vec::new(),
            is_chunked: head.framing == BodyFraming::Chunked,
            is_body_read: head.framing == BodyFraming::None,
            is_begun: false,
            is_over: false,
        }
    }

    /// Whether any part of the request may have reached the member.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Whether everything was sent, or the rest cannot be sent any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the member has the whole request.
    pub(super) fn is_complete(&self) -> bool {
        self.is_over && self.is_body_read && self.output.is_empty()
    }

    /// Restores the request for another connection. Possible only if none of it was sent, or if it has no
    /// body.
    pub(super) fn restart(&mut self, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
        self.is_over = false;
        if !self.is_begun {
            return;
        }
        assert!(head.framing == BodyFraming::None, "a body that was begun is not there any more");
        self.give_output_back();
        self.output = with_head(&self.worker, head, forward);
        self.is_begun = false;
    }

    /// Moves as many bytes as possible. Ready when everything was sent, or when the member accepts no more:
    /// its response may still be read then.
    pub(super) fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        member: &Conn,
        mut body: Option<&mut RequestBody<'_>>,
        stall_ms: u64,
    ) -> Poll<Result<(), ExchangeError>> {
        while !self.is_over {
            let read = self.poll_body(cx, body.as_deref_mut())?;
            if self.output.is_empty() {
                if self.is_body_read {
                    break;
                }
                // The client's own deadline determines whether it is too slow.
                ready!(read);
                continue;
            }
            let before = self.output.len();
            let sent = member.poll_send_paced(cx, &mut self.output, &Pace::stall(stall_ms));
            self.is_begun |= self.output.len() < before;
            match sent {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => break,
                Poll::Pending => {
                    pause(body);
                    return Poll::Pending;
                }
            }
        }
        self.is_over = true;
        if self.output.is_empty() {
            // Other requests can use the buffer meanwhile.
            self.give_output_back();
        }
        // If the member accepts no more, the body is not read; the client is not to blame.
        pause(body);
        Poll::Ready(Ok(()))
    }

    /// Reads more of the client's body while few bytes are queued for the member. Ready when any were
    /// processed.
    fn poll_body(
        &mut self,
        cx: &mut TaskContext<'_>,
        body: Option<&mut RequestBody<'_>>,
    ) -> Poll<Result<(), ExchangeError>> {
        if self.is_body_read || self.output.len() >= UPLOAD_BYTES_WAITING {
            return Poll::Ready(Ok(()));
        }
        let Some(body) = body else { return Poll::Ready(Ok(())) };
        if self.is_chunked {
            let is_more = ready!(self.body.poll_read(cx, body, &mut self.chunk))?;
            self.is_body_read = !is_more || self.body.is_taken(body);
            let (chunk, is_last) = (&self.chunk, self.is_body_read);
            let trailers = if is_last { body.take_trailers() } else { Vec::new() };
            self.output.inline(|out| write_chunk(out, chunk, is_last.then_some(&*trailers)));
            self.chunk.clear();
        } else {
            let mut read = Poll::Pending;
            let collected = &mut self.body;
            self.output.inline(|out| read = collected.poll_read(cx, body, out));
            self.is_body_read = !ready!(read)? || self.body.is_taken(body);
        }
        Poll::Ready(Ok(()))
    }

    fn give_output_back(&mut self) {
        self.worker.put_output(std::mem::take(&mut self.output));
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.give_output_back();
    }
}

/// The beginning of a request: its head.
fn with_head(worker: &Worker, head: &RequestHead<'_, '_>, forward: &Forward<'_>) -> Output {
    let mut output = worker.take_output();
    output.inline(|out| write_request(out, head, forward));
    output
}

/// Appends a chunk, and after the last one the trailers.
fn write_chunk(out: &mut Vec<u8>, chunk: &[u8], trailers: Option<&[u8]>) {
    if !chunk.is_empty() {
        encode::write_chunk_head(out, chunk.len());
        out.extend_from_slice(chunk);
        out.extend_from_slice(encode::CHUNK_END);
    }
    if let Some(trailers) = trailers {
        write_last_chunk(out, trailers);
    }
}
