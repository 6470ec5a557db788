//! The body of a client's request, collected before the request takes a place at a member, so that a slow
//! client holds none.
//!
//! ```text
//!   client --collect--> memory, then spool --.
//!   client --what there was no room for------'--> poll_read --> upload
//! ```
//! Rules:
//! - One of up to `UPLOAD_BYTES_WAITING` and known length is collected for all groups of servers.
//! - Others are where the group and the route buffer requests; but not what the client or the type of the
//!   body says is a dialogue, nor what offers an upgrade.
//! - The client is told to go on (`Expect: 100-continue`) as soon as its body is read.
//! - When there is no room for more, or a disk is slow, the request takes its place with what there is,
//!   and the rest is streamed.

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
    /// In a few bytes of its own.
    Small,
    Buffered(Box<BodyBuffer>),
}

impl Collection {
    /// The one for `request` in a group with `buffering`; one that `must` have its length is collected
    /// in any case.
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

/// Whether all of it fits what waits for a member anyway.
fn is_small(bytes: u64) -> bool {
    bytes <= UPLOAD_BYTES_WAITING
}

/// Whether the client may wait for an answer to the beginning of its body.
fn is_dialogue(request: &RequestHead<'_, '_>) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let fields = &request.fields;
    let content_type = fields.known(Known::ContentType).unwrap_or_default();
    let is_grpc = content_type.get(..GRPC.len()).is_some_and(|it| it.eq_ignore_ascii_case(GRPC));
    // draft-ietf-httpbis-incremental.
    let is_incremental = fields.get("incremental").is_some_and(|it| it.trim_ascii() == b"?1");
    is_grpc || is_incremental || request.upgrade.is_some()
}

/// What was collected of a body, and behind it the rest as it comes.
pub(super) struct CollectedBody {
    collection: Collection,
    /// Of a small one.
    bytes: Vec<u8>,
    /// Bytes in all that were collected.
    collected: u64,
}

impl CollectedBody {
    /// Nothing yet.
    pub(super) fn new(collection: Collection) -> Self {
        Self { collection, bytes: Vec::new(), collected: 0 }
    }

    /// Reads `body` as far as there is room, and at most `bytes_max` of it. `None`: all of it is there.
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
            // Freed with each read: none is held while the client is waited for.
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

    /// Bytes that were collected.
    pub(super) fn collected(&self) -> u64 {
        self.collected
    }

    /// Appends the next bytes to `sink`: at least one, unless it returns false, which is the end.
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

/// Why an exchange ends that needed bytes of the spool.
pub(super) const SPOOL_FAILED: &str = "the spool cannot be read";

/// The client need not send now: nobody reads.
pub(super) fn pause(body: Option<&mut RequestBody<'_>>) {
    if let Some(body) = body {
        body.pause();
    }
}

/// Reads once into `bytes`, as soon as `buffer` has room. The client need not send meanwhile.
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
