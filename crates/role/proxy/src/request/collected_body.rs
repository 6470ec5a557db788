//! The body of a client's request, collected before the request takes a slot at a member, so that a slow
//! client occupies none.
//!
//! ```text
//!   client --collect--> memory, then spool --.
//!   client --what there was no room for------'--> poll_read --> upload
//! ```
//! Rules:
//! - A body of up to `UPLOAD_BYTES_WAITING` and known length is collected for all groups.
//! - Other bodies are collected if the group and the route buffer requests, except those whose fields or
//!   type indicate a dialogue, and requests that offer an upgrade.
//! - The client is sent 100 (`Expect: 100-continue`) as soon as its body is read.
//! - If there is no more room, or a disk is slow, the request takes its slot with the part collected so
//!   far, and the rest is streamed.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use skep_engine::{ExchangeError, RequestBody};
use skep_http::{BodyFraming, Known, RequestHead};
use skep_spool::limits::READ_BYTES;
use skep_spool::{BodyBuffer, Shortage};
use tokio::time::{Sleep, sleep};

use crate::limits::{SPOOL_WAIT, UPLOAD_BYTES_WAITING};
use crate::members::settings::Buffering;
use crate::request::asked::ReplyRules;

/// Where a request's body is collected.
pub(super) enum Collection {
    /// Nowhere: it is streamed from its first byte.
    Streamed,
    /// In a small buffer of its own.
    Small,
    Buffered(Box<BodyBuffer>),
}

impl Collection {
    /// The collection of `request` in a group with `buffering`; a body that `must` have a length is
    /// collected in any case.
    pub(super) fn of(
        request: &RequestHead<'_, '_>,
        buffering: Option<&Buffering>,
        rules: &ReplyRules<'_>,
        must: bool,
    ) -> Self {
        let Some(Buffering { buffers, memory_bytes_max, requests, .. }) = buffering else {
            return Self::Streamed;
        };
        let is_buffered = must || (*requests && !rules.streams_request && !is_dialogue(request));
        match request.framing {
            BodyFraming::None => Self::Streamed,
            BodyFraming::Length(bytes) if is_small(bytes) && !request.expect_continue => {
                Self::Small
            }
            _ if is_buffered => Self::Buffered(Box::new(buffers.whole_body(*memory_bytes_max))),
            _ => Self::Streamed,
        }
    }

    /// Whether a client may be kept waiting for it.
    pub(super) fn is_buffered(&self) -> bool {
        matches!(self, Self::Buffered(_))
    }
}

/// Whether all of it fits into the buffer of the upload.
fn is_small(bytes: u64) -> bool {
    bytes <= UPLOAD_BYTES_WAITING
}

/// Whether the client may expect a response to the beginning of its body.
fn is_dialogue(request: &RequestHead<'_, '_>) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let fields = &request.fields;
    let content_type = fields.known(Known::ContentType).unwrap_or_default();
    let is_grpc = content_type.get(..GRPC.len()).is_some_and(|it| it.eq_ignore_ascii_case(GRPC));
    // draft-ietf-httpbis-incremental.
    let is_incremental = fields.get("incremental").is_some_and(|it| it.trim_ascii() == b"?1");
    is_grpc || is_incremental || request.upgrade.is_some()
}

/// The collected part of a body, followed by the rest as it is received.
pub(super) struct CollectedBody {
    collection: Collection,
    /// The bytes of a small body.
    bytes: Vec<u8>,
    /// Total number of collected bytes.
    collected: u64,
}

impl CollectedBody {
    /// An empty part.
    pub(super) fn new(collection: Collection) -> Self {
        Self { collection, bytes: Vec::new(), collected: 0 }
    }

    /// Reads `body` while there is room, and at most `bytes_max` of it. `None`: all of it was collected.
    ///
    /// # Errors
    /// The client failed, or is too slow.
    pub(super) async fn collect(
        &mut self,
        body: &mut RequestBody<'_>,
        bytes_max: u64,
    ) -> Result<Option<Shortage>, ExchangeError> {
        let Self { collection, bytes, collected } = self;
        let buffer = match collection {
            Collection::Streamed => return Ok(None),
            Collection::Small => {
                while body.read(bytes).await? {}
                return Ok(None);
            }
            Collection::Buffered(buffer) => buffer,
        };
        let mut short = None;
        while !body.is_done() && short.is_none() {
            // Freed after each read: no buffer is held while waiting for the client.
            let mut read = Vec::new();
            match read_into(buffer, body, &mut read).await? {
                Ok(()) => *collected += read.len() as u64,
                Err(shortage) => short = Some(shortage),
            }
            buffer.push(&read);
            if *collected > bytes_max {
                short = Some(Shortage::Body);
            }
        }
        body.pause();
        short.inspect(|shortage| buffer.give_up(*shortage));
        Ok(short)
    }

    /// Number of collected bytes.
    pub(super) fn collected(&self) -> u64 {
        self.collected
    }

    /// Appends the next bytes to `sink`: at least one, or returns false at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut TaskContext<'_>,
        body: &mut RequestBody<'_>,
        sink: &mut Vec<u8>,
    ) -> Poll<Result<bool, ExchangeError>> {
        if !self.bytes.is_empty() {
            sink.append(&mut self.bytes);
            return Poll::Ready(Ok(true));
        }
        if let Collection::Buffered(buffer) = &mut self.collection {
            match ready!(buffer.poll_take(cx, sink, READ_BYTES as usize)) {
                Ok(0) => self.collection = Collection::Streamed,
                Ok(_) => return Poll::Ready(Ok(true)),
                Err(_) => return Poll::Ready(Err(ExchangeError::ReplyCutShort(SPOOL_FAILED))),
            }
        }
        body.poll_read(cx, sink)
    }

    /// Whether all of `body` was taken.
    pub(super) fn is_taken(&self, body: &RequestBody<'_>) -> bool {
        let is_empty = match &self.collection {
            Collection::Buffered(buffer) => buffer.is_empty(),
            Collection::Streamed | Collection::Small => true,
        };
        is_empty && self.bytes.is_empty() && body.is_done()
    }
}

/// The reason why an exchange ends that needed bytes of the spool.
pub(super) const SPOOL_FAILED: &str = "the spool cannot be read";

/// Stops the measurement of the client's rate, since its body is not being read.
pub(super) fn pause(body: Option<&mut RequestBody<'_>>) {
    if let Some(body) = body {
        body.pause();
    }
}

/// Reads once into `bytes`, when `buffer` has room. The client's rate is not measured meanwhile.
async fn read_into(
    buffer: &mut BodyBuffer,
    body: &mut RequestBody<'_>,
    bytes: &mut Vec<u8>,
) -> Result<Result<(), Shortage>, ExchangeError> {
    let mut patience: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| match buffer.poll_room(cx) {
        Poll::Ready(Ok(())) => {
            patience = None;
            body.poll_read(cx, bytes).map_ok(|_| Ok(()))
        }
        Poll::Ready(Err(shortage)) => Poll::Ready(Ok(Err(shortage))),
        Poll::Pending => {
            pause(Some(body));
            let patience = patience.get_or_insert_with(|| Box::pin(sleep(SPOOL_WAIT)));
            patience.as_mut().poll(cx).map(|()| Ok(Err(Shortage::Slow)))
        }
    })
    .await
}
